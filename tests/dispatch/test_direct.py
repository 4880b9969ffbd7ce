"""Direct ways of warm calls, over the strict double of the driver: they launch what calls that are made in full do."""

import ctypes
import gc
import re
import struct
import sys
import threading
import weakref
from contextlib import ExitStack
from functools import cache, partial

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans import make, trial
from gensor_kernels.dispatch.plans.plan import NOWHERE
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.operators.rows import views
from gensor_kernels.operators.types.workload import Workload

cupy = pytest.importorskip("cupy")
from tests.doubles.captured import CALLS, UNSERVED, Stock, half, single  # noqa: E402
from tests.doubles.kernels import forget_gpus, kernels, put, workload  # noqa: E402
from tests.doubles.strict.arrays import Array, host  # noqa: E402
from tests.doubles.strict.machine import installed, without_races  # noqa: E402
from tests.doubles.strict.results import Status  # noqa: E402
from tests.doubles.strict.system import System  # noqa: E402
from tests.threads import in_threads  # noqa: E402

RUNS = 4  # of which the second and the fourth may be learned from


@pytest.fixture
def opened(monkeypatch):
    """opened(stock) -> a Machine whose public functions have kernels of that stock; `only` is their Runtime."""
    with without_races(monkeypatch) as machine:

        def make(stock=""):
            device = machine.device()
            stocked = library.Library() if stock == "library" else Stock(device.arch, stock)
            machine.only = Runtime(device, stocked)
            monkeypatch.setattr(current, "only", machine.only)
            return machine

        yield make


def ways(machine):
    return [way for way in machine.only.ways.values() if type(way) is tuple]


def learn(machine, call, runs=RUNS):
    for _ in range(runs):
        result = call()
    machine.synchronize()
    return result


def arrays_in(value):
    """The arrays in the arguments of a call, in their order."""
    if isinstance(value, Array):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [array for each in inner for array in arrays_in(each)]


def launches(machine, call):
    """The launches of a call, and its result; in Params, addresses of memory that it was not given are all the same."""
    given = [(array.data.ptr, array.data.ptr + array.nbytes) for array in arrays_in(_cells(call))]
    before = len(machine.calls)
    result = call()
    machine.synchronize()

    def known(word):
        return word if word < 2**40 or any(low <= word < high for low, high in given) else "new"

    found = [(*each[:4], [*map(known, struct.unpack(f"<{SIZE // 8}Q", each[4]))]) for each in machine.calls[before:]]
    return found, result


def _cells(call):
    return [cell.cell_contents for cell in call.__closure__ or ()]


#: Calls without a way: matmul's short way serves them, or they take more than one call of kernels on what was given.
NO_WAY = {
    *("matmul", "float32", "out", "one row", "converted", "wider out", "overlap", "another library's", "grouped"),
    *("einsum of three", "einsum prologue", "matrix in front", "double in front", "define", "prepack"),
}


@pytest.mark.parametrize("stock", ["", "split_k", "library"])
def test_a_direct_way_launches_what_the_call_in_full_does(opened, stock):
    """On other arrays than it was learned from."""
    without, served = set(), CALLS.keys() - (UNSERVED if stock == "library" else set())
    for name in sorted(served):
        machine = opened(stock)
        first, second = CALLS[name](), CALLS[name]()
        learn(machine, first)
        if not ways(machine):
            without.add(name)
            continue
        found, result = launches(machine, second)
        machine.only.ways.clear()
        expected, other = launches(machine, second)
        assert found == expected and bool(found) <= (stock != "library"), name
        assert type(result) is type(other), name
        for ours, theirs in zip(arrays_in([result]), arrays_in([other]), strict=True):
            assert (ours.shape, ours.strides, ours.dtype) == (theirs.shape, theirs.strides, theirs.dtype), name
            if not found:  # NumPy computes over this double: the numbers are the call's
                np.testing.assert_array_equal(host(ours), host(theirs), err_msg=name)
    # The library computes a linear layer by matmul's short way.
    assert without == (NO_WAY | ({"linear"} if stock == "library" else set())) & served


def test_equal_arguments_of_other_types_are_other_calls(opened):
    machine = opened()
    x, image, w = single(64, 128), half(2, 32, 8, 8), half(32, 32, 3, 3)
    learn(machine, lambda: gk.sum(x, 1))
    learn(machine, lambda: gk.conv2d(image, w, stride=(1, 1), padding=(1, 1)))
    assert len(ways(machine)) == 2
    with pytest.raises(TypeError):
        gk.sum(x, 1.0)
    with pytest.raises(TypeError):
        gk.conv2d(image, w, stride=(1, 1.0), padding=(1, 1))
    with pytest.raises(TypeError, match="cupy"):
        gk.sum(np.ones((64, 128), np.float32), 1)
    assert gk.sum(x, 0).shape == (128,) and gk.sum(x, axis=1, keepdims=True).shape == (64, 1)


def test_scalars_are_those_of_the_call(opened):
    machine, x = opened(), single(64, 128)

    def words(scalar):
        """Params without the address of the result."""
        learn(machine, lambda: gk.elementwise(x, [("scale", scalar), "relu"]))
        return machine.calls[-1][-1][:16] + machine.calls[-1][-1][24:]

    expected = {}
    for scalar in (2.0, 3.0, 0.0, -0.0, -2.0):
        machine.only.refresh()
        expected[str(scalar)] = words(scalar)
    assert len(set(expected.values())) == 5
    machine.only.refresh()
    for scalar in (2.0, 3.0, 0.0, 2.0, -0.0, 0.0, -2.0, 3.0):
        assert words(scalar) == expected[str(scalar)]
    assert len(ways(machine)) == 3


def addresses(machine):
    return struct.unpack_from("<5Q", machine.calls[-1][-1])


def test_an_out_that_overlaps_an_operand_is_not_launched_on(opened):
    machine, wide, y = opened(), single(128, 128), single(64, 128)
    x, over = wide[:64], wide[32:96]
    learn(machine, lambda: gk.softmax(x, out=y))
    assert ways(machine) and addresses(machine)[2] == y.data.ptr
    for _ in range(3):
        assert gk.softmax(x, out=over) is over
        assert addresses(machine)[0] == x.data.ptr and addresses(machine)[2] != over.data.ptr
    weight = single(256, 128)
    inner = weight[:1].reshape(128)
    learn(machine, lambda: gk.rms_norm(x, 128, inner, out=y))
    for _ in range(3):  # the weight is within `out`
        assert gk.rms_norm(x, 128, inner, out=weight[:64]).data.ptr == weight.data.ptr
        assert addresses(machine)[2] != weight.data.ptr


def test_logarithms_of_attention_are_where_the_caller_wants_them(opened):
    """Next to a given or a new result; over no array that the kernel reads or that it writes the result to."""
    machine, (q, k, v, out) = opened(), (half(1, 2, 128, 64) for _ in range(4))
    whole = single(1, 2, 256)
    lse, over = whole[:, :1].reshape(1, 2, 128), [Array((1, 2, 128), np.float32, each.data) for each in (q, k, v, out)]

    def last():
        return struct.unpack_from(f"<{SIZE // 8}Q", machine.calls[-1][-1])

    for pair in ((out, lse), (None, lse), (out, None), None):
        call = partial(gk.attention, q, k, v, return_lse=True, out=pair)
        learn(machine, call)
        frames = []
        sys.setprofile(lambda frame, event, _, frames=frames: frames.append(frame.f_code.co_name))
        try:
            result, written = call()
        finally:
            sys.setprofile(None)
        machine.synchronize()
        assert "direct_way" in frames and "attention" not in frames
        assert {result.data.ptr, written.data.ptr} < set(last())
        given = (None, None) if pair is None else pair
        assert all(each is None or each is found for each, found in zip(given, (result, written), strict=True))
    for each in over:
        for _ in range(RUNS):
            assert gk.attention(q, k, v, return_lse=True, out=(out, each))[1] is each
            assert last().count(each.data.ptr) == 1


@pytest.mark.parametrize("same_first", [True, False])
def test_one_array_for_several_arguments(opened, same_first):
    machine = opened()
    q, k, v = (half(1, 2, 128, 64) for _ in range(3))
    for arrays in [(q, q, q), (q, k, v), (v, v, k), (k, q, v), (v, v, v)][:: 1 if same_first else -1]:
        for _ in range(RUNS):
            gk.attention(*arrays)
            first, second, _, _, third = addresses(machine)
            assert [first, second, third] == [each.data.ptr for each in arrays]


def test_the_switch_of_tf32_is_asked_at_every_call(opened, monkeypatch):
    machine, allowed = opened(), True
    monkeypatch.setattr(machine.only.device, "tf32", lambda: allowed)
    x, w, bias = single(128, 256), single(128, 256), single(128)
    learn(machine, lambda: gk.linear(x, w, bias))
    kernel = machine.calls[-1][0]
    assert ways(machine)
    allowed = False
    learn(machine, lambda: gk.linear(x, w, bias), 1)
    assert machine.calls[-1][0] != kernel


def test_a_launch_that_the_driver_refuses_goes_to_the_library(opened, monkeypatch):
    machine, x = opened(), single(64, 128)
    learn(machine, lambda: gk.sum(x, 1))
    assert ways(machine)

    def refuse(self, *arguments, **keywords):
        raise Status(701)

    monkeypatch.setattr(System, "launch", refuse)
    for _ in range(6):
        np.testing.assert_allclose(learn(machine, lambda: gk.sum(x, 1), 1).get(), host(x).sum(1))
    assert gk.counters()["kinds"].get(4)


def test_a_refresh_forgets_ways_and_a_recording_counts_their_calls(opened, tmp_path):
    machine, x = opened(), single(64, 128)
    learn(machine, lambda: gk.sum(x, 1))
    assert ways(machine)
    with gk.record(tmp_path / "calls.csv"):
        learn(machine, lambda: gk.sum(x, 1), 7)
    assert ",7" in (tmp_path / "calls.csv").read_text()
    assert ways(machine)
    machine.only.adapt("{}")
    assert not machine.only.ways


def test_a_function_of_several_results_has_a_way(opened, monkeypatch):
    """Which launches what the call in full does; results are parts of one array."""
    monkeypatch.setattr(Stock, "record", Stock._drawn)
    fused, machine, x, y, z = gk.fuse(lambda x, y: (x + y, x * y)), opened(), *(single(64, 128) for _ in "xyz")
    learn(machine, lambda: fused(x, y))
    assert ways(machine)
    found, (total, product) = launches(machine, lambda: fused(x, z))
    machine.only.ways.clear()
    assert found == launches(machine, lambda: fused(x, z))[0] and len(found) == 1
    assert product.data.ptr - total.data.ptr == total.nbytes and product.shape == total.shape == x.shape


def test_a_way_keeps_no_array_alive(opened):
    machine = opened()

    def learned():
        x, weight = single(64, 128), single(128)
        learn(machine, lambda: gk.rms_norm(x, 128, weight))
        return [weakref.ref(x), weakref.ref(weight)]

    alive = learned()
    assert ways(machine)
    gc.collect()
    assert [each() for each in alive] == [None, None]


def test_a_kind_of_call_on_trial_has_no_way_yet(opened, monkeypatch):
    machine, x = opened(), single(64, 128)
    monkeypatch.setattr(make.race, "may", lambda *_: True)
    monkeypatch.setattr(trial.Trial, "_race", lambda *_: False)
    monkeypatch.setattr(Runtime, "consider", lambda *_: None)
    learn(machine, lambda: gk.sum(x, 1), trial.HOT_RUN - 1)
    assert not ways(machine)
    learn(machine, lambda: gk.sum(x, 1), trial.HOT_RUN + 1)
    assert ways(machine)


# ---- launches at addresses seen before, the shortest path of a warm call


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
        assert gk.matmul(again(a), again(b), out=out) is out
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
    with gk.record(tmp_path / "calls.csv"):
        repeated(orin, a, b, out, times=5)
    assert re.search(",5[,\n]", (tmp_path / "calls.csv").read_text())  # these launches are counted


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
    assert gk.matmul(odd, b, out=out) == gk.matmul(a, b, out=odd) == "cupy"
    assert len(runtime.plans) == 6
    repeated(orin, a, b, out)


def test_a_kernel_that_is_swapped_is_not_launched_any_more(runtime, orin):
    a, b, out = matrices(3)
    repeated(orin, a, b, out)
    (plan,) = runtime.plans.values()
    runtime.renew(Workload.from_json(gk.explain(gk.matmul, a, b, out).workload))
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
        assert gk.matmul(a, b, out=out) is out
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
                gk.matmul(again(a), again(b), out=out)

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
    forget_gpus(monkeypatch)
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
        gk.explain(gk.matmul, a, b, out)
    assert current.only is not None
    before = len(asked)
    current.only.device.product = lambda *_: "cupy"
    for _ in range(3):
        assert gk.matmul(a, b, out=out) == "cupy"
    assert len(asked) == before
    gk.refresh()
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
    with gk.emulated("sm_87"):
        assert current.only is None and current.current_runtime() is not first
    gk.refresh()
    assert current.current_runtime() is not first and current.only is None


@pytest.mark.parametrize("count", [1, 2])
def test_deterministic_blocks_have_their_own_runtime(count, machine, tmp_path):
    """Each GPU has one per list of kernels, and a new one after `refresh`."""
    machine(count)
    outside = current.current_runtime()
    with gk.deterministic(tmp_path / "kernels.json"):
        first = current.current_runtime()
        assert first is not outside and current.current_runtime() is first and current.only is None
        assert first.device is outside.device and first.pins is not None and outside.pins is None
        with gk.emulated("sm_87"):
            assert current.current_runtime().pins is first.pins
        gk.refresh()
        assert current.current_runtime() is not first and current.current_runtime().pins is first.pins
    assert current.current_runtime().pins is None
    with gk.deterministic():
        shared = current.current_runtime()
    with gk.deterministic():
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
        assert gk.sum(again(x), axis, out=out) is out
        assert launched(orin) == (x.data.ptr, 0, out.data.ptr)
    found = gk.sum(x, 1)
    assert launched(orin) == (x.data.ptr, 0, found.data.ptr) and found.shape == (64,)
    assert gk.sum(x, 1, keepdims=True).shape == (64, 1)
    assert len(sums.plans) == 4 and all(plan.tier < 4 for plan in sums.plans.values())


def test_results_that_overlap_an_operand_are_not_placed(runtime, sums, orin, monkeypatch):
    monkeypatch.setattr(cupy.ndarray, "__setitem__", lambda *_: None, raising=False)
    a, b = matrices(2)
    for _ in range(3):
        assert gk.sum(a, 1, out=a[0]).data.ptr == a.data.ptr
        assert launched(orin)[2] != a.data.ptr
    monkeypatch.setattr(current, "only", runtime)
    for _ in range(3):
        gk.matmul(a, b, out=a)
        assert launched(orin)[:2] == (a.data.ptr, b.data.ptr) and launched(orin)[2] not in (a.data.ptr, b.data.ptr)
