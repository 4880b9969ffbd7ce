"""Kernels that no race has compared: at the second call of their kind with the library's result, or never again."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.plans.launch import LaunchPlan
from gensor_kernels.dispatch.plans.make import choose
from gensor_kernels.dispatch.plans.plan import LibraryPlan
from gensor_kernels.dispatch.plans.trial import HOT_RUN, Trial
from gensor_kernels.dispatch.selection.pins import Pins
from gensor_kernels.operators.attention.attention import workload as attention_workload
from gensor_kernels.operators.pointwise.views import workload as programs
from tests.doubles.device import FakeDevice, Race, emulate
from tests.doubles.kernels import aligned, asked, kernels, put, runtime_of, workload

pytestmark = pytest.mark.usefixtures("user_database")
RELU, TANH = (Operation("relu"),), (Operation("tanh"),)
NAMED = "are not those of numpy, which serves in its place"


class Counted(FakeDevice):
    """Counts the library's products."""

    products = 0

    def product(self, a, b, precision=None, out=None):
        self.products += 1
        return super().product(a, b, precision, out)


def made(agreeing=True, **keywords):
    found = runtime_of(Counted(clock=Race(), **keywords), kernels(workload(64, 64, 64)))
    found.device.agreeing = agreeing
    return found


@pytest.fixture
def quiet(monkeypatch):
    """Nothing races: kernels serve what the library needs several calls for."""
    monkeypatch.setenv("GENSOR_TUNE", "off")


def fused(runtime, runs, steps=RELU, out=None, a=None):
    """First elements of the results of a fused product: 55 where a kernel served, 0 where the library did."""
    a = aligned((64, 64)) if a is None else a
    return [float(runtime.call(a, a, out, steps, None, None)[0, 0]) for _ in range(runs)]


@pytest.mark.parametrize("given", [False, True])
def test_a_kernel_is_compared_once_before_it_serves_again(quiet, given):
    runtime, out = made(), aligned((64, 64)) if given else None
    assert fused(runtime, 1, out=out) == [55] and runtime.device.products == 0
    assert fused(runtime, 1, out=out) == [55] and runtime.device.products == 1
    (plan,) = runtime.plans.values()
    assert isinstance(plan, LaunchPlan)  # warm calls take the way that they would take without it
    launches = len(runtime.device.ran)
    assert fused(runtime, HOT_RUN, out=out) == [55] * HOT_RUN
    assert runtime.device.products == 1 and len(runtime.device.ran) == launches + HOT_RUN


def test_a_kernel_that_differs_is_refused_and_the_library_serves(quiet):
    runtime = made(agreeing=False)
    stored = set(runtime.library.contents.kernels)
    assert fused(runtime, 1) == [55]
    with pytest.warns(RuntimeWarning, match=NAMED) as said:
        assert fused(runtime, 1) == [0]
    (left,) = stored - set(runtime.library.contents.kernels)
    assert left[:12] in str(said[0].message) and len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fused(runtime, HOT_RUN) == [0] * HOT_RUN
    (plan,) = runtime.plans.values()
    assert isinstance(plan, LibraryPlan) and left[:12] in plan.reason
    a = aligned((64, 64))
    assert choose(*asked(runtime, a, a, steps=RELU), False)[0].reason == plan.reason  # what explain reports
    runtime.library.reload()
    assert left not in runtime.library.contents.kernels  # for the process, whatever the stores hold
    before = len(runtime.device.ran)
    fused(runtime, 1, TANH)
    assert len(runtime.device.ran) == before + 1 and runtime.device.ran[-1] not in runtime.device.ran[:before]


def test_values_decide(quiet):
    """The double's kernels write 55 everywhere, which is not what NumPy computes."""
    runtime, a = made(), np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    runtime.device.agrees = Device.agrees.__get__(runtime.device)
    wanted = np.maximum(a @ a, 0)
    assert runtime.call(a, a, None, RELU, None, None)[0, 0] == 55
    with pytest.warns(RuntimeWarning, match=NAMED):
        np.testing.assert_allclose(runtime.call(a, a, None, RELU, None, None), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_logarithms_of_attention_decide_too(wrong, races, monkeypatch):
    """The emulator runs the kernels. All results are correct, but not the logarithms of the first kernel."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted" if races else "off")
    q = np.random.default_rng(0).standard_normal((1, 2, 16, 32)).astype(np.float16)
    stored = kernels(attention_workload(16, 16, heads=2, kv_heads=2, head=32, lse=True))

    def spoil(arrays, workspace):
        arrays[-1][...] *= -1

    def execute(device, code, launches):
        return emulate(device, code, launches, spoil if wrong and set(device.loaded) <= {code.digest} else None)

    runtime = put(monkeypatch, runtime_of(FakeDevice(clock=Race(), execute=execute), stored))
    runtime.device.agrees = Device.agrees.__get__(runtime.device)
    with pytest.warns(RuntimeWarning, match=NAMED) if wrong and not races else nullcontext():
        found = [gk.attention(q, q, q, return_lse=True) for _ in range(6)]
    expected = np.log(np.exp(q.astype(float) @ q.astype(float).swapaxes(-1, -2) * 32**-0.5).sum(-1))
    for place, (out, lse) in enumerate(found):
        np.testing.assert_allclose(out, found[0][0], atol=2e-3)
        sign = -1 if wrong and place == 0 else 1
        np.testing.assert_allclose(lse, sign * expected, atol=1e-3)
    assert len(runtime.device.races) == races * (1 + wrong)  # the others race again
    assert len(runtime.library.contents.kernels) == len(stored) - wrong


@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_each_result_of_a_function_decides(wrong, races, monkeypatch):
    """The emulator runs the kernels. The first result is correct, but not the second one of the first kernel."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted" if races else "off")
    x = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32)
    stored = kernels(programs("in_f4__exp_f4_0__add_f4_0_1__mul_f4_0_2__out_1_3", [x.shape]))

    def spoil(arrays, workspace):
        arrays[0][1] *= -1

    def execute(device, code, launches):
        return emulate(device, code, launches, spoil if wrong and set(device.loaded) <= {code.digest} else None)

    runtime = put(monkeypatch, runtime_of(FakeDevice(clock=Race(), execute=execute), stored))
    runtime.device.agrees = Device.agrees.__get__(runtime.device)
    function = gk.fuse(lambda x: (np.exp(x), x * (x + np.exp(x))))
    with pytest.warns(RuntimeWarning, match=NAMED) if wrong and not races else nullcontext():
        found = [function(x) for _ in range(6)]
    for place, each in enumerate(found):
        for one, other, sign in zip(each, function.function(x), (1, -1 if wrong and place == 0 else 1), strict=True):
            np.testing.assert_allclose(one, sign * other, rtol=1e-5, atol=1e-5)
    assert len(runtime.library.contents.kernels) == len(stored) - wrong


def test_inside_graph_capture_nothing_is_compared(quiet):
    runtime = made(agreeing=False)
    fused(runtime, 1)
    runtime.device.is_capturing = True
    runtime.device.fails = {"product": pytest.fail.Exception("the library"), "synchronize": pytest.fail.Exception("!")}
    assert fused(runtime, 3) == [55] * 3
    runtime.device.is_capturing, runtime.device.fails = False, ()
    with pytest.warns(RuntimeWarning, match=NAMED):
        assert fused(runtime, 2) == [0, 0]


@pytest.mark.parametrize("name", ["GENSOR_COMPARE", "GENSOR_RACE"])
def test_settings_forbid_it(name, monkeypatch, quiet):
    monkeypatch.setenv(name, "0")
    runtime = made(agreeing=False)
    assert fused(runtime, 4) == [55] * 4 and not runtime.device.products
    assert not any(isinstance(plan, Trial) for plan in runtime.plans.values())


def test_deterministic_blocks_compare_but_not_those_with_pins(tmp_path, monkeypatch):
    """All calls of such a block are served by the kernel that the list names."""
    monkeypatch.setenv("GENSOR_DETERMINISTIC", "1")
    runtime = made(agreeing=False)
    writing = Pins(tmp_path / "pins.json")
    assert fused(runtime.with_pins(writing), 4) == [55] * 4
    writing.close()
    following = Pins(tmp_path / "pins.json")
    assert following.required and fused(runtime.with_pins(following), 4) == [55] * 4
    assert not runtime.device.products
    with pytest.warns(RuntimeWarning, match=NAMED):
        assert fused(runtime.with_pins(None), 3) == [55, 0, 0]


def test_winners_of_races_are_not_compared_again():
    runtime = made()
    assert fused(runtime, 3) == [55] * 3 and len(runtime.device.races) == 1
    rows = [row for rows in runtime.library.contents.timings.values() for row in rows]
    again = runtime_of(Counted(clock=Race()), kernels(workload(64, 64, 64)), timings={rows[0].key: rows})
    again.device.agreeing = False
    assert fused(again, 4) == [55] * 4 and not again.device.products
    elsewhere = runtime_of(Counted(clock=Race()), kernels(workload(64, 64, 64)), timings={rows[0].key: rows})
    elsewhere.library.conditions = '{"driver":2}'
    assert fused(elsewhere, 2) == [55] * 2 and elsewhere.device.products  # another driver compiles other code


@pytest.mark.parametrize("fails", [("product",), {"product": RuntimeError("the library's own trouble")}])
def test_what_cannot_be_compared_serves(fails, quiet):
    runtime = made(agreeing=False)
    fused(runtime, 1)
    runtime.device.fails = fails
    assert fused(runtime, 4) == [55] * 4


def test_a_library_that_overflows_refutes_no_kernel(quiet):
    runtime = made(agreeing=False)
    runtime.device.multiply = lambda a, b, out: np.full((64, 64), np.inf, np.float32)
    assert fused(runtime, 4) == [55] * 4


def test_integers_are_not_compared(quiet):
    runtime = runtime_of(Counted(clock=Race()), kernels(workload(64, 64, 64, dtype="int8", out="int32")))
    a = aligned((64, 64), np.int8)
    for _ in range(3):
        runtime.call(a, a, None, (), np.int32, None)
    assert not runtime.device.products and len(runtime.device.ran) in (0, 3)


def test_arrays_without_memory_are_not_compared(quiet, monkeypatch):
    runtime = made(agreeing=False)
    runtime.device.free_bytes = lambda: 64 * 64 * 4
    assert fused(runtime, 4) == [55] * 4 and not runtime.device.products
