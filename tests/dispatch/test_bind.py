"""`bind`: calls that are made again on the same arrays."""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.plans.plan import LibraryPlan
from gensor_kernels.dispatch.plans.trial import Trial
from tests.dispatch.calls import CALLS, drawn, takes_out
from tests.doubles.kernels import aligned, kernels, put, raced, runtime_of, workload


def is_launched(plan):
    """Return whether a bound call makes launches, and dispatches nothing."""
    return plan._bound is not None and plan._bound.launch != plan._again


#: Calls of several launches, or whose arrays are copied before a launch or made of arguments.
DISPATCHED = {
    *("linear, prologue of an array", "grouped_matmul", "grouped_matmul, sizes", "einsum of one"),
    *("einsum, prologue", "conv_transpose2d", "attention, sequences", "attention, pages", "std"),
    *(
        "conv1d",
        "conv3d",
        "conv2d, channels last",
        "conv2d, copied",
        "nansum",
        "nanmean",
        "nanmax",
        "nanmin",
        "sum of axes",
        "norm of order 3",
        "norm of a matrix",
        "norm of a matrix, 2",
        "logsumexp, weighted",
        "cumsum of strides",
        "cumprod",
    ),
}


@pytest.mark.parametrize("name", filter(takes_out, CALLS))
def test_a_plan_computes_the_call_again_on_what_the_arrays_hold(name):
    """Results are those of the call itself and of NumPy."""
    function, arguments, keywords = CALLS[name]
    with gk.emulated("sm_90" if name == "scaled_matmul" else "sm_87"):
        first = np.asarray(function(*arguments, **keywords))
        plan = gk.bind(function, *arguments, **keywords, out=(out := np.empty(first.shape, first.dtype)))
        np.testing.assert_array_equal(out, first)
        changed = arguments[function is gk.einsum]
        before = changed.copy()
        changed[...] = before[..., ::-1]
        second = function(*arguments, **keywords)
    with pytest.MonkeyPatch.context() as patch:
        put(patch, runtime_of())
        by_numpy = np.asarray(function(*arguments, **keywords))
    near = 4e-3 if "float16" in {str(each.dtype) for each in arguments if isinstance(each, np.ndarray)} else 1e-4
    np.testing.assert_allclose(second.astype(by_numpy.dtype), by_numpy, rtol=near, atol=near)
    out[...] = 77
    assert plan() is out  # also outside of the block
    changed[...] = before
    np.testing.assert_array_equal(out, second)
    assert is_launched(plan) == (name not in DISPATCHED)


@pytest.fixture
def stocked(monkeypatch):
    """A Runtime whose kernels serve every float32 product, and write 55 everywhere."""
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_RACE", "0")
    return put(monkeypatch, runtime_of(stored=kernels(workload(), cubin=b"")))


def bound(**keywords):
    return gk.bind(gk.matmul, aligned((64, 64)), aligned((64, 64)), out=aligned((64, 64)), **keywords)


def test_a_plan_looks_nothing_up(stocked, monkeypatch):
    plan = bound()
    assert repr(plan) == "<bound call of matmul>"
    assert is_launched(plan) and len(stocked.device.ran) == 1
    monkeypatch.setattr(stocked, "find", lambda key: 1 // 0)
    assert plan() is plan.out and len(stocked.device.ran) == 2
    monkeypatch.setattr(plan, "_make", lambda: 1 // 0)
    stocked.epoch += 1
    with pytest.raises(ZeroDivisionError):
        plan()


def test_the_librarys_calls_are_dispatched(monkeypatch):
    monkeypatch.setenv("GENSOR_RACE", "0")
    made = put(monkeypatch, runtime_of())
    a, b, out = drawn(4, 5), drawn(5, 6), np.empty((4, 6), np.float32)
    plan = gk.bind(gk.matmul, a, b, out)
    assert not is_launched(plan) and isinstance(*made.plans.values(), LibraryPlan)
    a += 1
    np.testing.assert_array_equal(plan(), a @ b)
    made.bound_by = None  # nothing is bound again
    a += 1
    np.testing.assert_array_equal(plan(), a @ b)


def test_the_first_calls_race(monkeypatch):
    made = put(monkeypatch, raced())
    plan = bound()
    assert not made.device.races and not is_launched(plan)
    plan()
    assert len(made.device.races) == 1
    plan()
    assert is_launched(plan) and len(made.device.races) == 1
    assert not any(isinstance(each, Trial) for each in made.plans.values())  # it counts as frequent


def test_a_race_that_the_library_wins(monkeypatch):
    made = put(monkeypatch, raced(ours=10.0, theirs=5.0))
    plan = bound()
    for _ in range(4):
        assert plan() is plan.out
    assert len(made.device.races) == 1 and not is_launched(plan)


def test_overlapping_arrays_are_dispatched(stocked):
    memory = aligned((2, 64, 64))
    plan = gk.bind(gk.matmul, memory[0], memory[1], out=memory[1])
    assert not is_launched(plan) and memory[1, 0, 0] == 55
    memory[1] = 0
    assert plan() is plan.out and memory[1, 0, 0] == 55


def test_after_refresh_a_plan_chooses_again(stocked, monkeypatch):
    plan = bound()
    ran = len(stocked.device.ran)
    monkeypatch.setenv("GENSOR_DISABLE", "1")
    plan()
    assert len(stocked.device.ran) == ran + 1
    stocked.refresh()
    plan()
    assert len(stocked.device.ran) == ran + 1 and not is_launched(plan)
    monkeypatch.delenv("GENSOR_DISABLE")
    stocked.refresh()
    plan()
    assert is_launched(plan)


def test_refresh_reaches_runtimes_that_are_forgotten():
    a, out = drawn(8, 8), np.empty((8, 8), np.float32)
    with gk.emulated("sm_87"):
        plan = gk.bind(gk.matmul, a, a, out=out)
    before = plan._bound
    gk.refresh()
    np.testing.assert_array_equal(plan(), a @ a)
    assert is_launched(plan) and plan._bound is not before


def test_the_switch_of_tf32_is_asked(monkeypatch):
    monkeypatch.setenv("GENSOR_TUNE", "predicted")
    monkeypatch.setenv("GENSOR_RACE", "0")
    made = put(monkeypatch, runtime_of(stored=kernels(workload(math="tf32"), cubin=b"")))
    made.device.allows_tf32 = True
    plan = bound()
    assert is_launched(plan) and plan()[0, 0] == 55
    made.device.allows_tf32 = False
    assert plan()[0, 0] == 0
    made.device.allows_tf32 = True
    assert plan()[0, 0] == 55


def test_recorded_plans_are_counted(stocked, tmp_path):
    plan = bound()
    with gk.record(tmp_path / "calls.csv"):
        for _ in range(3):
            plan()
        assert record.count_calls() and sum(record.active[0].counts.values()) == 3
    ran = len(stocked.device.ran)
    plan()
    assert len(stocked.device.ran) == ran + 1 and is_launched(plan)


def test_a_refused_launch_is_dispatched(stocked, monkeypatch):
    plan = bound()

    def refuse():
        raise MemoryError("none")

    plan._bound = plan._bound._replace(launch=refuse)
    plan.out[...] = 5
    assert plan()[0, 0] == 55


def test_a_plan_launches_within_a_capture_and_binds_outside_of_one(stocked):
    plan = bound()
    stocked.device.is_capturing = True
    plan()
    assert len(stocked.device.ran) == 2
    late = bound()
    assert not is_launched(late) and late.out[0, 0] == 55
    stocked.device.is_capturing = False
    assert late() is late.out and is_launched(late)


def test_tensors_are_dispatched():
    torch = pytest.importorskip("torch")
    a, out = torch.ones(4, 4), torch.empty(4, 4)
    with gk.emulated("sm_87"):
        plan = gk.bind(gk.matmul, a, a, out=out)
        a += 1
        assert plan() is out and out[0, 0] == 16 and not is_launched(plan)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (np.matmul, (), r"bind knows gensor_kernels.matmul and its like, not numpy.ufunc"),
        (gk.refresh, (), r"bind knows gensor_kernels.matmul"),
        (gk.vdot, (1, 2), r"vdot has no argument out, the array that every call of a plan writes"),
        (gk.matmul, (1, 2), r"bind\(matmul, \.\.\.\) needs out, the array"),
        (gk.matmul, (1,), r"matmul\(\) missing a required argument: 'b'"),
    ],
)
def test_what_cannot_be_bound(function, arguments, words):
    with pytest.raises(TypeError, match=words):
        gk.bind(function, *arguments)
