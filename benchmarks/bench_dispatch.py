"""Python time of matrix products: real `cupy.ndarray` objects over a fake allocator, a stub in place of the launch.

    pytest benchmarks/bench_dispatch.py --benchmark-columns=min,median,ops

Each round makes 50 calls with 50 keys. Arrays are sliced again for each call, outside the timed part; `out=` is given,
and building the key counts. The figures are for 50 calls; `per_call_us` in the extra information is for one call of the
fastest round, because other processes only add time. Queries of the device and the stream need a driver, and are not
part of it. host/bench_functions.py measures all public functions.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.plans.plan import NOWHERE
from gensor_kernels.dispatch.selection import library, predict
from gensor_kernels.families.space import Space
from gensor_kernels.operators.products import matmul as operator
from gensor_tuner.build import cover

cupy = pytest.importorskip("cupy")

from .host.without_gpu import ARCH, fake_allocator, starter_kernels, stub_runtime  # noqa: E402

KEYS = 50


def kernels(split_k=1):
    """Yield the default Programs of float16 and float32 products; with a split they allocate a workspace."""
    for dtype in ("float16", "float32"):
        yield from starter_kernels(operator.workload(512, 512, 512, dtype=dtype), split_k)


@pytest.fixture
def runtime():
    """Yield the Runtime that public calls use; CuPy's allocator hands out addresses that are never read."""
    with fake_allocator(), stub_runtime(kernels()) as made:
        yield made


def memory(dtype):
    """Return the arrays that operands of 50 calls are slices of."""
    return [cupy.empty((4096, 4096), dtype) for _ in range(3)]


def calls(dtype="float16", within=None):
    """Yield the operands of 50 calls with different shapes, every array a new slice of `within` or of new memory."""
    a, b, c = within or memory(dtype)
    for i in range(KEYS):
        m, n, k = 64 + 16 * i, 128 + 16 * i, 256 + 16 * (i % 7)
        yield a[16 * i : 16 * i + m, :k], b[:k, 16 : 16 + n], c[:m, :n]


def measure(benchmark, function, prepare):
    """Time `function` over all keys, warm; `prepare` yields the arguments of each call."""

    def run(prepared):
        for arguments in prepared:
            function(*arguments)

    for _ in range(2):
        run(list(prepare()))
    benchmark.pedantic(run, setup=lambda: ((list(prepare()),), {}), rounds=200, warmup_rounds=20)
    if benchmark.stats:
        benchmark.extra_info["per_call_us"] = round(benchmark.stats.stats.min / KEYS * 1e6, 3)
        print(f"\n{benchmark.name}: {benchmark.extra_info['per_call_us']} us per call")


@pytest.mark.parametrize("reused", [True, False], ids=["reused", "new"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_warm_call(benchmark, runtime, dtype, reused):
    """The target is 1.5 us. `reused`: the same buffers come back, like a program's `out` arrays and the blocks of
    CuPy's pool; otherwise every call has new addresses."""
    within = memory(dtype) if reused else None
    measure(benchmark, gensor_kernels.matmul, lambda: calls(dtype, within))
    assert len(runtime.plans) == KEYS
    assert all((plan.placed is not NOWHERE) == reused for plan in runtime.plans.values())


def test_warm_call_with_workspace(benchmark):
    """Split-K: two launches, and a workspace from the allocator, which is Python here."""
    with fake_allocator(), stub_runtime(kernels(split_k=2)):
        measure(benchmark, gensor_kernels.matmul, calls)


def measure_first_calls(benchmark, runtime):
    """Time planning, without loading: tiers, potential and packing."""
    arguments = list(calls())

    def run():
        runtime.plans.clear()
        for a, b, out in arguments:
            gensor_kernels.matmul(a, b, out)

    benchmark.pedantic(run, rounds=3)
    if benchmark.stats:
        benchmark.extra_info["per_call_us"] = round(benchmark.stats.stats.median / KEYS * 1e6, 1)
        print(f"\n{benchmark.name}: {benchmark.extra_info['per_call_us']} us per call")


def test_first_call_of_a_shape(benchmark, runtime):
    measure_first_calls(benchmark, runtime)


def store_class(count):
    """Return `count` kernels of a class (defaults with one coordinate changed) and the digests of their portfolio."""
    wanted = operator.workload(512, 512, 512, dtype="float16")
    near = {}
    for space in Space(wanted, ARCH).families:
        for program in space.family.starters(wanted, ARCH):
            changes = [(c.name, value) for c in space.coordinates for value in c.values if c.name != "level"]
            near |= dict.fromkeys(program.replace(**{name: value}) for name, value in changes)
    found = [library.generate(program, wanted, ARCH) for program in near if not program["epilogue_fixed"]]
    legal = np.isfinite(predict.predict(found, wanted, ARCH))
    found = [kernel for kernel, fine in zip(found, legal, strict=True) if fine]
    found = found[:: len(found) // count][:count]
    sizes = [(m, n, k) for m in (64, 512, 2048) for n in (64, 512, 2048) for k in (256, 4096)]
    seconds = [predict.predict(found, wanted.with_sizes(m=m, n=n, k=k), ARCH) for m, n, k in sizes]
    chosen = cover.portfolio(np.array(seconds), [kernel.digest for kernel in found])
    return found, [found[column].digest for column in chosen]


@pytest.mark.parametrize("covered", [True, False], ids=["portfolio", "without"])
def test_first_call_of_an_unseen_shape(benchmark, covered):
    """The first call of a shape among 200 stored kernels of its class, with and without a portfolio of at most 8."""
    found, portfolio = store_class(200)
    with fake_allocator(), stub_runtime(found, portfolio if covered else ()) as runtime:
        measure_first_calls(benchmark, runtime)
    benchmark.extra_info["loaded"] = len(runtime.loaded)
    assert not covered or runtime.loaded <= set(portfolio)


def test_bound_call(benchmark, runtime):
    """The target is 1 us. `plan = gensor_kernels.bind(gensor_kernels.matmul, a, b, out=c)`, then `plan()`."""
    with mock.patch.dict(os.environ, GENSOR_DETERMINISTIC="1"):  # no races: nothing can be timed here
        plans = [gensor_kernels.bind(gensor_kernels.matmul, a, b, out=out) for a, b, out in calls()]
    measure(benchmark, lambda plan: plan(), lambda: [(plan,) for plan in plans])
    assert all(plan._bound.launch != plan._again for plan in plans)


@pytest.mark.parametrize("threads", [1, 16])
def test_first_calls_in_threads(benchmark, runtime, threads):
    """16 new sizes, in one thread and in as many threads as sizes: those wait for the interpreter, and for no plan."""
    arguments = list(calls())[:16]

    def work(several):
        for a, b, out in several:
            gensor_kernels.matmul(a, b, out)

    def run():
        runtime.plans.clear()
        began = time.process_time()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, [arguments[start::threads] for start in range(threads)]))
        seconds.append(time.process_time() - began)

    seconds = []
    benchmark.pedantic(run, rounds=7)
    benchmark.extra_info["cpu_ms"] = round(sorted(seconds)[len(seconds) // 2] * 1e3, 1)
    print(f"\n{benchmark.name}: {benchmark.extra_info['cpu_ms']} ms of CPU for 16 sizes")
