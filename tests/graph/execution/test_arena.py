"""Places in an arena: none that are in use at a time overlap, few bytes are lost, and wrong places are caught."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gensor_kernels.graph.execution.arena import UNIT, Use, make_layout, offsets, round_up
from gensor_kernels.graph.lowerings import LOWERINGS

from ..models import model

RNG = np.random.default_rng(0)
W = [(RNG.standard_normal((64, 64)) / 8).astype(np.float32) for _ in range(2)]


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(1, 10)), min_size=1, max_size=12))
def test_requests_in_use_at_a_time_do_not_overlap(drawn):
    found = [Use((place, 0), nbytes, first, first + lasts) for place, (nbytes, first, lasts) in enumerate(drawn)]
    places = list(zip(found, offsets(found), strict=True))
    for place, (a, low) in enumerate(places):
        assert low % UNIT == 0
        for b, other in places[:place]:
            apart = a.last <= b.first or b.last <= a.first
            assert apart or low + a.nbytes <= other or other + b.nbytes <= low
    layout = make_layout(found, {use.key: None for use in found})
    assert layout.live <= layout.nbytes <= sum(round_up(use.nbytes) for use in found)
    times = range(max(use.last for use in found))
    assert layout.live == max(sum(use.nbytes for use in found if use.first <= t < use.last) for t in times)


CHAIN = (
    "a = MatMul(x, w0); b = Relu(a); c = Softmax(b); d = Sub(c, b); e = MatMul(d, w1); f = Add(e, b); "
    "g, h = Split<axis = 1, num_outputs = 2>(f); i = Mul(g, h); y = Transpose<perm = [1, 0]>(i)"
)


@pytest.fixture
def chain(emulator):
    return model(CHAIN, {"x": ("float32", ("n", 64))}, ["y"], {"w0": W[0], "w1": W[1]})


def inputs(seed, rows=16):
    return np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)


def assert_correct(found, x):
    b = np.maximum(x @ W[0], 0)
    shares = np.exp(b - b.max(axis=1, keepdims=True))
    f = (shares / shares.sum(axis=1, keepdims=True) - b) @ W[1] + b
    np.testing.assert_allclose(found, (f[:, :32] * f[:, 32:]).T, rtol=1e-4, atol=1e-4)


def bound_of(made):
    (plan,) = made._plans.values()
    return plan.bound.get(0)


def test_the_second_run_is_bound_and_computes_the_same(chain):
    results = []
    for seed in range(4):
        x = inputs(seed)
        before = x.copy()
        results.append((chain(x), before))
        np.testing.assert_array_equal(x, before)
        x[...] = np.nan
        assert (bound_of(chain) is not None) == (seed > 0)
    for y, x in results:  # no later run has written over a result, and none reads an input of the caller again
        assert_correct(y, x)
        y[...] = 0
    assert_correct(chain(before), before)
    memory = chain.memory(inputs(0))
    assert memory.live <= memory.arena <= 1.05 * memory.live < memory.separate
    assert memory.weights == W[0].nbytes + W[1].nbytes
    assert "launch by launch: the emulator has no graphs" in memory.runs and "of the largest live set" in str(memory)


def life(key, place):
    return -1 if place.dies is None else place.dies - key[0]


@pytest.mark.parametrize("planted", ["dies early", "overlaps"])
def test_a_wrong_liveness_is_caught(chain, planted):
    """One tensor, b, is read four nodes later: its place is given away early, which the Ledger does not see."""
    x = inputs(0)
    chain(x)
    (plan,) = chain._plans.values()
    key, place = max(plan.layout.places.items(), key=lambda each: life(*each))
    assert life(key, place) >= 2
    if planted == "dies early":
        wrong = place._replace(dies=key[0])
    else:
        later = next(each for number, each in plan.layout.places.items() if key[0] < number[0] <= key[0] + 1)
        wrong = place._replace(offset=later.offset)
    plan.layout = plan.layout._replace(places=plan.layout.places | {key: wrong})
    assert_correct(chain(x), x)
    if planted == "overlaps":  # the Ledger refuses the place, and the run is not bound
        assert bound_of(chain) is None
    else:  # the replay reads poisoned memory, which is NaN
        assert bound_of(chain) is not None and not np.isfinite(chain(x)).all()


def lowered_by(monkeypatch, lowering, count=1):
    """Return a model of one node, which `lowering` computes, and of operations of its `count` results."""
    monkeypatch.setitem(LOWERINGS, "Split", lambda run, node, x: tuple(lowering(run.runtime.device.empty, x)))
    names = "abcd"[:count]
    text = f"{', '.join(names)} = Split<num_outputs = {count}>(x)"
    after = "".join(f"; {each}y = MatMul({each}, w)" for each in names)
    return model(text + after, {"x": ("float32", (2, 64))}, [f"{each}y" for each in names], {"w": W[0]})


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("more", [0, 64, 128])
def test_results_of_a_run_that_is_planned_again_last_to_its_end(monkeypatch, more):
    """A model whose first run requests more, as where a kind of call becomes known, is bound one run later."""
    runs = []

    def lowering(empty, x):
        spare = empty((0 if runs else more,), x.dtype)  # 128 elements: of the size of the result, which is next
        found = empty(x.shape, x.dtype)
        found[...] = x
        runs.append(spare.size)
        return [found]

    made = lowered_by(monkeypatch, lowering)
    for seed in range(5):
        x = inputs(seed, 2)
        np.testing.assert_allclose(made(x), x @ W[0], rtol=1e-4, atol=1e-4)
        assert (bound_of(made) is not None) == (seed > (more > 0))


@pytest.mark.usefixtures("emulator")
def test_asking_what_serves_a_recurrent_layer_requests_nothing():
    weights = {name: RNG.standard_normal((1, 52, 13)).astype(np.float32) for name in "wr"}
    made = model("y, h = LSTM<hidden_size = 13>(x, w, r)", {"x": ("float32", (2, 1, 13))}, ["y", "h"], weights)
    x = inputs(0, 2)[:, None, :13].copy()
    made(x)
    recorded = made(x)
    assert bound_of(made) is not None
    for found, wanted in zip(made(x), recorded, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize("later", ["fewer", "more", "swapped"])
def test_requests_that_differ_from_those_of_the_bound_run_change_no_result(monkeypatch, later):
    """A result in the planned place of another one is copied before that is written."""
    runs = []

    def lowering(empty, x):
        runs.append(len(runs))
        normal = len(runs) <= 2
        spare = [empty(x.shape, x.dtype) for _ in range({"fewer": normal, "more": 1 + (not normal)}.get(later, 0))]
        found = [empty(x.shape, x.dtype) for _ in range(3)]
        if later == "swapped" and not normal:
            found.reverse()
        for place, each in enumerate(found):
            each[...] = x * (place + 1)
        spare.clear()
        return found

    made = lowered_by(monkeypatch, lowering, 3)
    for seed in range(4):
        x = inputs(seed, 2)
        for place, y in enumerate(made(x)):
            np.testing.assert_allclose(y, x * (place + 1) @ W[0], rtol=1e-4, atol=1e-4)
    assert bound_of(made) is not None and len(runs) == 4


@pytest.mark.usefixtures("emulator")
def test_results_that_are_inputs_or_constants_are_copies():
    text = "y = Identity(x); z = Identity(w); r = Reshape(x, to)"
    made = model(text, {"x": ("float32", (2, 64))}, ["y", "z", "r"], {"w": W[0], "to": np.array([128])})
    for seed in range(4):
        x = inputs(seed, 2)
        y, z, r = made(x)
        for found, wanted in ((y, x), (z, W[0]), (r, x.reshape(128))):
            np.testing.assert_array_equal(found, wanted)
        assert not any(np.shares_memory(each, other) for each in (y, r) for other in (x, W[0]))
        z[...] = 0
