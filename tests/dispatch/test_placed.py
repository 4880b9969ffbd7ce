"""Launches at addresses seen before, the shortest path of a warm call, over the strict double of the driver."""

import ctypes
import re
import struct
import sys
import threading
from contextlib import ExitStack
from functools import cache

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.plan import NOWHERE
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.operators.rows import views
from gensor_kernels.operators.types.workload import Workload

cupy = pytest.importorskip("cupy")
from tests.doubles.kernels import kernels, put, workload  # noqa: E402
from tests.doubles.strict.machine import installed  # noqa: E402
from tests.doubles.strict.results import Status  # noqa: E402
from tests.doubles.strict.system import System  # noqa: E402
from tests.threads import in_threads  # noqa: E402


@cache
def stored():
    return kernels(workload()) | kernels(workload(dtype="float16"))


@pytest.fixture
def runtime(orin, monkeypatch):
    """The Runtime of public calls, as on a machine with one GPU."""
    made = Runtime(orin.device(), library.Library(library.Contents(stored())))
    monkeypatch.setattr(current, "only", made)
    return made


def matrices(count, shape=(64, 64), dtype=np.float32):
    return [cupy.empty(shape, dtype) for _ in range(count)]


def again(array):
    """Another array at the same address."""
    return array[...]


def launched(orin):
    """The addresses of a, b and out of the last launch."""
    return struct.unpack_from("<3Q", orin.calls[-1][-1])


def places(orin):
    """The host addresses that launches copied their Params from."""
    return [each.place for each in orin.context.launches]


def repeated(orin, *arrays, times=4):
    a, b, out = arrays
    for _ in range(times):
        assert gensor_kernels.matmul(again(a), again(b), out=out) is out
        assert launched(orin) == (a.data.ptr, b.data.ptr, out.data.ptr)


@pytest.mark.parametrize("shape", [(64, 64), (3, 64, 64), (2, 3, 64, 64)])
def test_buffers_that_come_back_are_launched_from_the_same_params(runtime, orin, shape, tmp_path):
    a, b, out = matrices(3, shape)
    repeated(orin, a, b, out)
    (plan,) = runtime.plans.values()
    assert plan.placed[:3] == (a.data.ptr, b.data.ptr, out.data.ptr)
    assert places(orin)[-1] == places(orin)[-2] == plan.placed[-1].buffer_info()[0]
    first = orin.calls[-1]
    repeated(orin, b, a, out)  # other addresses for the same Plan
    assert plan.placed[:3] == (b.data.ptr, a.data.ptr, out.data.ptr)
    repeated(orin, a, b, out)
    assert orin.calls[-1] == first and len(runtime.plans) == 1
    with gensor_kernels.record(tmp_path / "calls.csv"):
        repeated(orin, a, b, out, times=5)
    assert re.search(",5[,\n]", (tmp_path / "calls.csv").read_text())  # these launches are counted


def test_results_that_are_new_are_never_placed(runtime, orin):
    a, b = matrices(2)
    for _ in range(4):
        out = gensor_kernels.matmul(a, b)
        assert launched(orin) == (a.data.ptr, b.data.ptr, out.data.ptr)
    (plan,) = runtime.plans.values()
    assert plan.placed is NOWHERE and len(set(places(orin))) == 1


def test_other_arrays_at_the_same_addresses_are_other_calls(runtime, orin, monkeypatch):
    """Other dtypes, shapes, strides and alignments get their own Plans."""
    a, b, out = matrices(3)
    repeated(orin, a, b, out)

    def as_halves(array):
        return cupy.ndarray((64, 64), np.float16, array.data)

    halves = [as_halves(array) for array in (a, b, out)]
    repeated(orin, *halves)
    repeated(orin, a[:32], b, out[:32])
    repeated(orin, a[::2], b, out[:32])
    assert len(runtime.plans) == 4
    odd = cupy.ndarray((64, 64), np.float32, cupy.empty((65, 64), np.float32).data + 4)
    monkeypatch.setattr(runtime.device, "product", lambda *_: "cupy")
    assert gensor_kernels.matmul(odd, b, out=out) == gensor_kernels.matmul(a, b, out=odd) == "cupy"
    assert len(runtime.plans) == 6
    repeated(orin, a, b, out)


def test_a_kernel_that_is_swapped_is_not_launched_any_more(runtime, orin):
    a, b, out = matrices(3)
    repeated(orin, a, b, out)
    (plan,) = runtime.plans.values()
    runtime.renew(Workload.from_json(gensor_kernels.explain(gensor_kernels.matmul, a, b, out).workload))
    repeated(orin, a, b, out)
    (other,) = runtime.plans.values()
    assert other is not plan and places(orin)[-1] != plan.placed[-1].buffer_info()[0]


def test_a_placed_launch_the_driver_refuses_goes_to_cupy(runtime, orin, monkeypatch):
    a, b, out = matrices(3)
    repeated(orin, a, b, out)

    def refuse(self, *arguments, **keywords):
        raise Status(701)

    calls = []
    monkeypatch.setattr(System, "launch", refuse)
    monkeypatch.setattr(runtime.device, "product", lambda *arguments: calls.append(arguments) or out)
    for _ in range(3):
        assert gensor_kernels.matmul(a, b, out=out) is out
    assert len(calls) == 3


def test_launches_of_threads_have_their_own_addresses(runtime, orin, monkeypatch):
    """Threads share Plans, and switch in the middle of launches."""
    given, wrong = threading.local(), []
    pause = threading.Event()

    def launch(self, function, grid, block, shared_bytes, stream, pointers, **keywords):
        (place,) = pointers
        pause.wait(0)  # other threads run, as while the driver is called
        found = struct.unpack_from("<3Q", ctypes.string_at(place, 24))
        if found != given.addresses:
            wrong.append((found, given.addresses))

    monkeypatch.setattr(System, "launch", launch)
    sets = [matrices(3) for _ in range(4)]

    def work(seed):
        choose = np.random.default_rng(seed)
        for index in choose.integers(0, len(sets), 300):
            a, b, out = sets[index]
            given.addresses = a.data.ptr, b.data.ptr, out.data.ptr
            for _ in range(choose.integers(1, 4)):
                gensor_kernels.matmul(again(a), again(b), out=out)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        in_threads(work, range(8))
    finally:
        sys.setswitchinterval(before)
    (plan,) = runtime.plans.values()
    assert not wrong and plan.placed is not NOWHERE


# ---- which Runtime a call uses


@pytest.fixture
def machine(monkeypatch, no_databases):
    """`ask(count)` opens a machine of that many GPUs; it returns a list with an entry per query of the current one."""
    for name, value in (("lookup", current._cuda), ("only", None), ("_has_blocks", False), ("_runtimes", {})):
        monkeypatch.setattr(current, name, value)
    put(monkeypatch, None)
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")  # no races
    with ExitStack() as opened:

        def ask(count):
            asked, made = [], opened.enter_context(installed(["orin-nano-8gb"] * count))
            query = made.cupy.cuda.runtime.getDevice
            made.cupy.cuda.runtime.getDevice = lambda: asked.append(1) or query()
            return asked

        yield ask


def test_one_gpu_is_not_asked_for_again(machine):
    asked = machine(1)
    a, b, out = matrices(3)
    for _ in range(3):
        gensor_kernels.explain(gensor_kernels.matmul, a, b, out)
    assert current.only is not None
    before = len(asked)
    current.only.device.product = lambda *_: "cupy"
    for _ in range(3):
        assert gensor_kernels.matmul(a, b, out=out) == "cupy"
    assert len(asked) == before
    gensor_kernels.refresh()
    assert current.only is None
    first = current.current_runtime()
    assert len(asked) > before and current.only is first


def test_several_gpus_are_asked_for_at_every_call(machine):
    asked = machine(2)
    current.current_runtime()
    before = len(asked)
    current.current_runtime()
    assert current.only is None and len(asked) == before + 1


def test_emulated_blocks_are_looked_up_at_every_call(machine):
    machine(1)
    first = current.current_runtime()
    assert current.only is first
    with gensor_kernels.emulated("sm_87"):
        assert current.only is None and current.current_runtime() is not first
    gensor_kernels.refresh()
    assert current.current_runtime() is not first and current.only is None


@pytest.mark.parametrize("count", [1, 2])
def test_deterministic_blocks_have_their_own_runtime(count, machine, tmp_path):
    """Each GPU has one per list of kernels, and a new one after `refresh`."""
    machine(count)
    outside = current.current_runtime()
    with gensor_kernels.deterministic(tmp_path / "kernels.json"):
        first = current.current_runtime()
        assert first is not outside and current.current_runtime() is first and current.only is None
        assert first.device is outside.device and first.pins is not None and outside.pins is None
        with gensor_kernels.emulated("sm_87"):
            assert current.current_runtime().pins is first.pins
        gensor_kernels.refresh()
        assert current.current_runtime() is not first and current.current_runtime().pins is first.pins
    assert current.current_runtime().pins is None
    with gensor_kernels.deterministic():
        shared = current.current_runtime()
    with gensor_kernels.deterministic():
        assert current.current_runtime() is shared


SUMS = views.workload("reduce_sum", (64, 64), (1,), "float32"), views.workload("reduce_sum", (64, 64), (0,), "float32")


@pytest.fixture
def sums(orin, monkeypatch):
    """The Runtime of public calls, with kernels for sums that are one launch."""
    found = {}
    for wanted in SUMS:
        found |= {digest: each for digest, each in kernels(wanted).items() if len(each.launches(wanted)) == 1}
    made = Runtime(orin.device(), library.Library(library.Contents(found)))
    monkeypatch.setattr(current, "only", made)
    return made


def test_sums_are_launched_at_the_addresses_of_the_call(sums, orin):
    (x,), out = matrices(1), cupy.empty((64,), np.float32)
    for axis in (1, 0, 1, np.int64(-1), (0,), [1]):
        assert gensor_kernels.sum(again(x), axis, out=out) is out
        assert launched(orin) == (x.data.ptr, 0, out.data.ptr)
    found = gensor_kernels.sum(x, 1)
    assert launched(orin) == (x.data.ptr, 0, found.data.ptr) and found.shape == (64,)
    assert gensor_kernels.sum(x, 1, keepdims=True).shape == (64, 1)
    assert len(sums.plans) == 4 and all(plan.tier < 4 for plan in sums.plans.values())


def test_results_that_overlap_an_operand_are_not_placed(runtime, sums, orin, monkeypatch):
    monkeypatch.setattr(cupy.ndarray, "__setitem__", lambda *_: None, raising=False)
    a, b = matrices(2)
    for _ in range(3):
        assert gensor_kernels.sum(a, 1, out=a[0]).data.ptr == a.data.ptr
        assert launched(orin)[2] != a.data.ptr
    monkeypatch.setattr(current, "only", runtime)
    for _ in range(3):
        gensor_kernels.matmul(a, b, out=a)
        assert launched(orin)[:2] == (a.data.ptr, b.data.ptr) and launched(orin)[2] not in (a.data.ptr, b.data.ptr)
