"""Kernels: on a GPU their times next to CuPy's calls, anywhere their exact counters on the emulator.

    pytest benchmarks/bench_kernels.py --benchmark-json=run.json             # all of it
    pytest benchmarks/bench_kernels.py -m gpu --benchmark-json=run.json      # the times alone

A time is that of `python -m benchmarks.device`: rotating operand sets, a full queue, and rounds in which our kernel and
CuPy's call take turns (`gensor_tuner.measure.timer`). CuPy's time is the control in `extra_info`, so that
`gensor-tune check` compares kernels between runs. Counters are compared with a committed baseline (kernel_counters.py).
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest

from gensor_kernels.errors import ToolMissingError, UnknownArchError
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.shapes.reader import read_shapes

from . import kernel_counters
from .gpu import shipped
from .gpu.harness.journal import Journal
from .gpu.harness.session import Session
from .gpu.timing import Bench
from .gpu.vendors.registry import CUPY

SECONDS = 3600.0  # for all of them
#: Facts that accompany a time, in addition to CuPy's time.
EXTRA = ("class", "group", "kernels", "predicted_us", "bound_us", "refused")


class DeviceTime:
    """A timer for pytest-benchmark that only benchmarks move on: the host's time says nothing of a kernel."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return seconds."""
        return self.now


DEVICE_TIME = DeviceTime()


class Kernels:
    """The shipped kernels on this machine's GPU."""

    def __init__(self, session: Session):
        with session.store() as store:
            shipped.given(session, store)
        self.bench = Bench(session)
        self.by_key = {each.workload.key(): each for each in reversed(shipped.stored_kernels(session))}

    def measure(self, benchmark: Any, workload: Workload) -> None:
        """Time the kernel of a workload and CuPy's call in turn, as one round of a benchmark with `DEVICE_TIME`."""
        stored = self.by_key.get(workload.key())
        if stored is None:
            pytest.skip("the database has no kernel for this row on this GPU")

        def run() -> dict[str, Any]:
            found = self.bench.measure(stored, (CUPY,), most=1)
            DEVICE_TIME.now += found["best_us"] * 1e-6
            return found

        found = benchmark.pedantic(run, rounds=1)
        benchmark.extra_info |= {name: found[name] for name in EXTRA} | {"vendor_us": found["vendors_us"]}
        assert "differ from ours" not in found["refused"].get(CUPY, "")


@cache
def rows() -> dict[str, Workload]:
    """Return the common shapes by name, a workload once."""
    found = {row.workload.key(): row for row in read_shapes(kernel_counters.COMMON) if row.workload is not None}
    return {row.name: row.workload for row in found.values() if row.workload is not None}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """Skip, with the reason, where there is no GPU that can be used."""
    out = tmp_path_factory.mktemp("kernels")
    session = Session(out, Journal(out / "results.jsonl"), time.monotonic() + SECONDS, vendors=(CUPY,))
    try:
        session.arch  # noqa: B018
    except (ToolMissingError, UnknownArchError) as error:
        pytest.skip(str(error))
    return Kernels(session)


@pytest.mark.gpu
@pytest.mark.benchmark(timer=DEVICE_TIME)
@pytest.mark.parametrize("name", rows())
def test_kernel(benchmark, kernels, name):
    kernels.measure(benchmark, rows()[name])


@cache
def count() -> dict[str, kernel_counters.Counted]:
    """Return the kernels that are counted."""
    return kernel_counters.shipped_kernels()


@pytest.mark.benchmark(timer=DEVICE_TIME)
@pytest.mark.parametrize("name", kernel_counters.baseline())
def test_counters(benchmark, name):
    """The time is the sum of the counters in nanoseconds, exact like the counters themselves."""

    def run():
        found = count()[name].counters()
        DEVICE_TIME.now += sum(found.values()) * 1e-9
        return found

    found = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info["counters"] = found
    told = "\n".join(kernel_counters.differences({name: kernel_counters.baseline()[name]}, {name: found}))
    assert not told, told
