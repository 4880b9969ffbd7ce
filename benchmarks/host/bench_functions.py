"""Python time of a warm call of each public function, over the stub of a device (without_gpu.py).

    pytest benchmarks/host/bench_functions.py -s --benchmark-columns=min,median

Each round makes a call of each of 16 shapes, with arrays that are sliced again outside the timed part, so addresses
differ from call to call where a program's do. `us` is the median of the rounds, for one call. `python_calls` counts the
calls of Python functions that a call makes, itself included, without those of the stub; it does not depend on the load
of the machine. Allocation is CuPy's own, over an allocator in Python: `test_allocation` has its time, for scale.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.observe.dry_run import Question
from gensor_kernels.dispatch.plans.stage import stage
from gensor_kernels.dispatch.selection.library import Kernel

cupy = pytest.importorskip("cupy")

from . import without_gpu  # noqa: E402
from .without_gpu import fake_allocator, starter_kernels, stub_runtime  # noqa: E402

KEYS = 16
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Case(NamedTuple):
    """A public function, and its arguments for the number of a shape."""

    function: Callable[..., Any]
    arguments: Callable[[int], Arguments]


_memory: dict[tuple[int, str], Any] = {}


def array(*shape: int, dtype: str = "float16", number: int = 0) -> Any:
    """Return a new array on memory number `number` that arrays of a dtype share, at an address aligned to 16 bytes."""
    whole = _memory.setdefault((number, dtype), cupy.empty((1 << 24,), dtype))
    start = 16 * next(_places)
    return whole[start : start + int(np.prod(shape))].reshape(shape)


_places = itertools.cycle(range(512))


def _product(i: int, *, out: bool = False, **more: Any) -> Arguments:
    m, n, k = 64 + 16 * i, 128 + 16 * i, 256
    a, b = array(m, k), array(k, n, number=1)
    return ((a, b, array(m, n, number=2)) if out else (a, b)), more


def _with_bias(i: int) -> Arguments:
    arguments, _ = _product(i)
    return arguments, {"bias": array(128 + 16 * i, number=3), "activation": "relu"}


def _linear(i: int) -> Arguments:
    m, n, k = 64 + 16 * i, 128 + 16 * i, 256
    return (array(m, k), array(n, k, number=1), array(n, number=3), "relu"), {}


def _rows(*more: Any) -> Callable[[int], Arguments]:
    return lambda i: ((array(64 + 16 * i, 512, dtype="float32"), *more), {})


def _norm(weights: int) -> Callable[[int], Arguments]:
    def arguments(i: int) -> Arguments:
        given = (array(512, dtype="float32", number=1 + number) for number in range(weights))
        return (array(64 + 16 * i, 512, dtype="float32"), 512, *given), {}

    return arguments


def _attention(i: int, **more: Any) -> Arguments:
    q, k, v = (array(1, 8, 64 + 16 * i, 64, number=number) for number in range(3))
    return (q, k, v), more


def _logarithms(i: int, *, out: bool = False) -> Arguments:
    """Return the arguments of attention with sinks and a second result."""
    (q, k, v), more = _attention(i, sinks=array(8, dtype="float32"), return_lse=True)
    pair = array(1, 8, 64 + 16 * i, 64, number=3), array(1, 8, 64 + 16 * i, dtype="float32", number=1)
    return (q, k, v), more | ({"out": pair} if out else {})


def _convolution(i: int, layout: str = "NCHW", taps: int = 3) -> Arguments:
    side, channels = 8 + 8 * i, 32
    if layout == "NCHW":
        x, w = array(2, channels, side, side), array(64, channels, taps, taps, number=1)
    else:
        x, w = array(2, side, side, channels), array(64, taps, taps, channels, number=1)
    more = {"bias": array(64, number=2), "activation": "relu", "padding": taps // 2, "layout": layout}
    return (x, w), more


def _groups(i: int) -> Arguments:
    x, w = array(64 + 16 * i, 256), array(4, 256, 128, number=1)
    return (x, w, array(4, dtype="int32")), {}


#: Calls that a kernel serves, by name.
CASES = {
    "matmul, out": Case(gk.matmul, lambda i: _product(i, out=True)),
    "matmul": Case(gk.matmul, _product),
    "matmul, bias, relu": Case(gk.matmul, _with_bias),
    "linear, bias, relu": Case(gk.linear, _linear),
    "einsum": Case(gk.einsum, lambda i: (("ij,jk->ik", *_product(i)[0]), {})),
    "einsum, four axes": Case(
        gk.einsum, lambda i: (("bihd,bdhj->bhij", array(2, 64 + 16 * i, 4, 32), array(2, 32, 4, 64, number=1)), {})
    ),
    "tensordot": Case(gk.tensordot, lambda i: ((*_product(i)[0], 1), {})),
    "sum": Case(gk.sum, _rows(1)),
    "mean, keepdims": Case(gk.mean, lambda i: (_rows()(i)[0], {"axis": -1, "keepdims": True})),
    "argmax": Case(gk.argmax, _rows(1)),
    "softmax": Case(gk.softmax, _rows()),
    "rms_norm": Case(gk.rms_norm, _norm(1)),
    "layer_norm": Case(gk.layer_norm, _norm(2)),
    "elementwise": Case(gk.elementwise, _rows(["relu"])),
    "attention": Case(gk.attention, _attention),
    "attention, causal": Case(gk.attention, lambda i: _attention(i, causal=True, window=(32, 0))),
    "attention, lse": Case(gk.attention, _logarithms),
    "attention, lse, out": Case(gk.attention, lambda i: _logarithms(i, out=True)),
    "conv2d, bias, relu": Case(gk.conv2d, _convolution),
    "conv2d, NHWC": Case(gk.conv2d, lambda i: _convolution(i, "NHWC")),
    "conv2d, 1 x 1": Case(gk.conv2d, lambda i: _convolution(i, taps=1)),
    "max_pool2d": Case(gk.max_pool2d, lambda i: ((array(2, 32, 8 + 8 * i, 8 + 8 * i), 2), {})),
    "grouped_matmul": Case(gk.grouped_matmul, _groups),
}
#: Calls that CuPy serves: functions of CuPy, which are replaced by one that does nothing, and their results' dtype.
LIBRARY = {
    "matmul, out": ("matmul", "float16"),
    "matmul": ("matmul", "float16"),
    "sum": ("sum", "float32"),
    "argmax": ("argmax", "int64"),
}


def kernels_of(case: Case) -> Iterator[Kernel]:
    """Yield the kernels of one launch, without workspace, that a call of each shape may be served by."""
    found: dict[str, Kernel] = {}
    with stub_runtime(()) as runtime, runtime.dry_run():
        args, more = case.arguments(KEYS // 2)
        try:
            case.function(*args, **more)
        except Question as question:
            wanted = stage(question.call, question.operands).problem.workload
    for kernel in starter_kernels(wanted):
        try:
            if len(kernel.launches(wanted)) == 1 and not kernel.workspace(wanted)[0]:
                found[kernel.digest] = kernel
        except Exception:  # a Program that these sizes do not fit
            continue
    yield from found.values()


@contextmanager
def served(case: Case, several: bool = False) -> Iterator[Any]:
    """Within it, kernels serve the calls of a case."""
    with mock.patch.dict(os.environ, GENSOR_DETERMINISTIC="1"), fake_allocator():  # kernels are not compared with CuPy
        _memory.clear()
        with stub_runtime(list(kernels_of(case)), several=several) as runtime:
            yield runtime
        _memory.clear()


@contextmanager
def by_library(name: str) -> Iterator[Any]:
    """Within it, a function that does nothing replaces CuPy's, and serves the calls of a case."""
    replaced, dtype = LIBRARY[name]

    def nothing(*args: Any, out: Any = None, **more: Any) -> Any:
        return result if out is None else out

    _memory.clear()
    with (
        mock.patch.dict(os.environ, GENSOR_DETERMINISTIC="1"),  # no races
        fake_allocator(),
        mock.patch.object(cupy, replaced, nothing),
    ):
        result = array(64, 128, dtype=dtype)
        with stub_runtime(()) as runtime:
            yield runtime
        _memory.clear()


def prepare(case: Case) -> list[Arguments]:
    """Return the arguments of a call of each shape."""
    return [case.arguments(i) for i in range(KEYS)]


def python_calls(case: Case) -> int:
    """Count the calls of Python functions in the warm calls of one shape; the least of some."""

    found = []
    for _ in range(5):
        counted: list[str] = []

        def count(frame: Any, event: str, argument: object, counted: list[str] = counted) -> None:
            if event == "call" and frame.f_code.co_filename != without_gpu.__file__:
                counted.append(frame.f_code.co_name)

        args, more = case.arguments(KEYS // 2)
        sys.setprofile(count)
        try:
            case.function(*args, **more)
        finally:
            sys.setprofile(None)
        found.append(len(counted))
    return min(found)


def warm(case: Case) -> None:
    """Make calls until each is served as it will be from now on."""
    for _ in range(8):
        for args, more in prepare(case):
            case.function(*args, **more)


def sample(case: Case, rounds: int = 20) -> float:
    """Return the median of the rounds in microseconds, for one call."""
    function, found = case.function, []
    for _ in range(rounds):
        arguments = prepare(case)
        begin = time.perf_counter()
        for args, more in arguments:
            function(*args, **more)
        found.append((time.perf_counter() - begin) / KEYS * 1e6)
    return statistics.median(found)


def measure(benchmark: Any, case: Case) -> None:
    """Time warm calls, and count the calls of Python functions."""
    function = case.function

    def run(arguments: list[Arguments]) -> None:
        for args, more in arguments:
            function(*args, **more)

    warm(case)
    benchmark.pedantic(run, setup=lambda: ((prepare(case),), {}), rounds=200, warmup_rounds=20)
    benchmark.extra_info["python_calls"] = python_calls(case)
    if benchmark.stats:
        benchmark.extra_info["us"] = round(benchmark.stats.stats.median / KEYS * 1e6, 3)
        print(f"\n{benchmark.name}: {benchmark.extra_info}")


@pytest.mark.parametrize("several", [False, True], ids=["one GPU", "several"])
@pytest.mark.parametrize("name", CASES)
def test_warm_function(benchmark, name, several):
    """A kernel serves."""
    with served(CASES[name], several) as runtime:
        measure(benchmark, CASES[name])
        assert {plan.tier for plan in runtime.plans.values()} == {3}


@pytest.mark.parametrize("name", LIBRARY)
def test_library(benchmark, name):
    """CuPy serves."""
    with by_library(name) as runtime:
        measure(benchmark, CASES[name])
        assert {plan.tier for plan in runtime.plans.values()} == {4}


def test_allocation(benchmark):
    """A new array of CuPy over the allocator of the stub."""
    with fake_allocator():
        benchmark.pedantic(lambda: cupy.ndarray((64, 128), np.float16), rounds=200, iterations=100)
