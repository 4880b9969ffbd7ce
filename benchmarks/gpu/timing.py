"""Every stored kernel on its records' sizes, CuPy's, cuBLASLt's and PyTorch's calls, and the potential's ranking.

Protocol: `gensor_tuner.measure.timer` (rotating operand sets, full queue, interleaved rounds, medians). A vendor's call
is the one that its users would write for the same workload, epilogue included; its result is compared with ours first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from gensor_database.record import Kernel, Timing
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core import source
from gensor_kernels.families.space import Space
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate, Pool
from gensor_tuner.measure.timer import CudaClock, HostClock, Timed, Timer, vendor_name
from gensor_tuner.output import class_text

from .correlation import kendall
from .facts import Clocks, environment
from .harness.session import Item, Session
from .kernels.fitting import fitting
from .shipped import Stored, for_rehearsal, load, rejected_kernels, stored_kernels
from .vendors.registry import CUPY, EAGER, Vendors

STEP = "timing"
MOST_KERNELS = 16  # kernels of a class timed on one workload: the best predicted, and the record's own
REGRET_AT = 8


class Bench:
    """The timer, the vendors and the machine's facts."""

    def __init__(self, session: Session):
        self.session = session
        self.timer = Timer(session.device, HostClock() if session.emulate else CudaClock(session.device))
        self.vendors = Vendors(session, self.timer.clock)
        self.clocks, self.machine = Clocks(), _machine(session)

    def measure(self, each: Stored, names: Sequence[str] = EAGER, most: int = MOST_KERNELS) -> dict[str, Any]:
        """Time the kernels of a class and the vendors' calls on one workload; every time becomes a row."""
        workload = fitting(self.session, each.workload, each.candidate)
        kernels, predicted = rivals(self.session, each, workload, most)
        return self.time_together(workload, kernels, predicted, names) | {"asked": each.workload.key()}

    def time_together(
        self, workload: Workload, kernels: Sequence[Stored], predicted: Sequence[float], names: Sequence[str] = EAGER
    ) -> dict[str, Any]:
        """Time kernels with their predicted microseconds, and the vendors' calls; vendors' results are compared
        with the first kernel's."""
        pairs = [(kernel.candidate, kernel.code) for kernel in kernels]
        calls, refused = self.vendors.agreeing(
            workload, self.timer.noise, lambda operands: operands.launcher(*pairs[0]), names
        )
        times, theirs = self.timer.beside(workload, pairs, calls)
        self._store(workload, kernels, times, theirs)
        measured = [time.median_us for time in times]
        best = int(np.argmin(measured))
        return {
            "class": class_text(workload),
            "group": f"{kernels[best].candidate.program.family} {workload.operator}",
            "key": workload.key(),
            "kernels": [kernel.digest for kernel in kernels],
            "predicted_us": list(predicted),
            "measured_us": measured,
            "record_us": measured[0],
            "best_us": measured[best],
            "vendors_us": {name: time.median_us for name, time in theirs.items()},
            "refused": refused,
            "bound_us": bound_us(workload, self.session.arch),
            "tau": kendall_tau(predicted, measured),
            f"regret_at_{REGRET_AT}": best_of(predicted, measured),
        }

    def _store(
        self, workload: Workload, kernels: Sequence[Stored], times: Sequence[Timed], theirs: dict[str, Timed]
    ) -> None:
        """Store rows of our kernels and of CuPy's call, between which dispatch chooses."""
        session = self.session
        place = (workload.key(), session.arch.name, session.part)
        machine = {**self.machine, "clocks": self.clocks.now()}
        conditions = session.device.conditions()  # which dispatch compares: see Library.timings
        rows = [
            Timing(*place, kernel.digest, None, time.median_us, _samples(time, machine), conditions)
            for kernel, time in zip(kernels, times, strict=True)
        ]
        if CUPY in theirs:
            vendor, name = theirs[CUPY], vendor_name(workload)
            rows.append(Timing(*place, None, name, vendor.median_us, _samples(vendor, machine), conditions))
        with session.store() as store:
            store.add(*rows)


def items(session: Session) -> Iterator[Item]:
    """Yield one item per workload in an order drawn by their digests: whatever a budget reaches is a sample of all."""
    bench, bad = Bench(session), rejected_kernels(session)
    by_key = {each.workload.key(): each for each in stored_kernels(session) if each.short not in bad}
    for each in for_rehearsal(session, [by_key[key] for key in sorted(by_key, key=source.digest)]):
        yield Item(item_name(each), partial(bench.measure, each))


def item_name(each: Stored) -> str:
    """Return the name of a timing: sizes, epilogue, class."""
    return each.name.partition(" ")[2] + f" {class_text(each.workload)}"


def _machine(session: Session) -> dict[str, Any]:
    """Return the machine's facts for timing rows: short, and the same for all rows of a run."""
    found = environment(session)
    kept = ("gpu", "power_mode", "cupy", "cuda_runtime", "cuda_driver", "cublas", "nvrtc", "part")
    return {name: found[name] for name in kept if name in found} | {"emulated": session.emulate}


def _samples(timed: Timed, machine: dict[str, Any]) -> str:
    """Return quartiles and rounds, and the state of the machine."""
    found = {name: value for name, value in asdict(timed).items() if name != "median_us"}
    return json.dumps({**found, "machine": machine}, sort_keys=True)


def rivals(session: Session, each: Stored, workload: Workload, most: int) -> tuple[list[Stored], list[float]]:
    """Return the record's kernel, then the stored kernels of its class that can serve it, best predicted first, with
    predicted microseconds."""
    found, bad = {each.digest: each}, rejected_kernels(session)
    with session.store() as store:
        for row in store.rows(Kernel, arch=session.arch.name, class_key=workload.class_key()):
            other = load(store, row, workload)
            if other is not None and other.short not in bad:
                found.setdefault(other.digest, other)
    seconds = predictions(session, workload, [kernel.candidate for kernel in found.values()])
    # A kernel that the potential calls illegal here (inf) may not be launched, except for the record's own.
    ranked = sorted(zip(seconds, found.values(), strict=True), key=lambda pair: (pair[1] is not each, pair[0]))
    kept = [pair for pair in ranked if pair[1] is each or math.isfinite(pair[0])][:most]
    return [kernel for _, kernel in kept], [value * 1e6 for value, _ in kept]


def predictions(session: Session, workload: Workload, candidates: Sequence[Candidate]) -> list[float]:
    """Return the predicted seconds of each candidate; inf where it cannot serve the workload."""
    try:
        space = Space(workload, session.arch)
    except UnsupportedError:
        return [math.inf] * len(candidates)
    pool = Pool([workload])
    pool.add(
        space, (each.program for each in candidates if each.program.family in {f.family.name for f in space.families})
    )
    known = dict(zip(pool.names, pool.seconds([space])[0].tolist(), strict=True))
    return [known.get(each.name, math.inf) for each in candidates]


def kendall_tau(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Return Kendall's tau-b of two rankings, or None below three candidates, or where one side is constant."""
    x, y = np.asarray(predicted), np.asarray(measured)
    finite = np.isfinite(x)
    tau = kendall(x[finite], y[finite]) if finite.sum() > 2 else math.nan
    return None if math.isnan(tau) else tau


def best_of(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Return the best time of the REGRET_AT best predicted over the best of all, or None where all are among them."""
    chosen = np.asarray(measured)[np.argsort(predicted, kind="stable")[:REGRET_AT]]
    return float(chosen.min() / min(measured)) if len(measured) > REGRET_AT else None
