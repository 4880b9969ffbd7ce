"""Direct ways of warm calls, over the strict double of the driver: they launch what calls that are made in full do."""

import gc
import struct
import weakref

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans import make, trial
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.families.core.params import SIZE

pytest.importorskip("cupy")
from tests.doubles.captured import CALLS, UNSERVED, Stock, half, single
from tests.doubles.strict.arrays import Array, host
from tests.doubles.strict.machine import without_races
from tests.doubles.strict.results import Status
from tests.doubles.strict.system import System

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
    *("matmul", "float32", "out", "one row", "converted", "wider out", "overlap"),
    *(
        "another library's",
        "grouped",
        "einsum of three",
        "einsum prologue",
        "matrix in front",
        "double in front",
        "define",
        "prepack",
    ),
}


@pytest.mark.parametrize("stock", ["", "split_k"])
def test_a_direct_way_launches_what_the_call_in_full_does(opened, stock):
    """On other arrays than it was learned from."""
    without = set()
    for name in CALLS:
        machine = opened(stock)
        first, second = CALLS[name](), CALLS[name]()
        learn(machine, first)
        if not ways(machine):
            without.add(name)
            continue
        found, result = launches(machine, second)
        machine.only.ways.clear()
        expected, other = launches(machine, second)
        assert found == expected, name
        assert (result.shape, result.strides, result.dtype) == (other.shape, other.strides, other.dtype), name
        if not found:  # NumPy computes over this double: the numbers are the call's
            np.testing.assert_array_equal(host(result), host(other), err_msg=name)
    assert without == NO_WAY, without ^ NO_WAY


def test_the_library_serves_directly(opened):
    """NumPy computes over this double: the numbers are the call's."""
    learned = 0
    for name in set(CALLS) - UNSERVED:
        machine = opened("library")
        first, second = CALLS[name](), CALLS[name]()
        learn(machine, first)
        if not ways(machine):
            continue
        learned += 1
        result = learn(machine, second, 1)
        machine.only.ways.clear()
        expected = learn(machine, second, 1)
        assert (result.shape, result.strides, result.dtype) == (expected.shape, expected.strides, expected.dtype), name
        np.testing.assert_array_equal(host(result), host(expected), err_msg=name)
    assert learned > 15


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
