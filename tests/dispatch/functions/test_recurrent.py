"""lstm and gru on the emulator, compared with their equations in float64, one step and one sequence at a time."""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.recurrent import layers
from tests.public_cases.recurrent import BOUNDS, GATES, agrees, layer

STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 5, 6


@pytest.fixture(autouse=True)
def emulator():
    with gk.emulated("sm_87"):
        yield


def drawn(kind, directions=1, dtype="float32", hidden=HIDDEN):
    """x, weights, biases and states of a layer."""
    rng, rows = np.random.default_rng(1), GATES[kind] * hidden
    shapes = ((STEPS, BATCH, INPUTS), (directions, rows, INPUTS), (directions, rows, hidden), *[(directions, rows)] * 2)
    shapes += ((directions, BATCH, hidden),) * (2 if kind == "lstm" else 1)
    return [(rng.standard_normal(shape) * 0.7 / max(hidden / 8, 1)).astype(dtype) for shape in shapes]


def assert_layer(kind, arrays, *, after=True, batch_first=False, names=None, **more):
    """A layer is as its equations say, within the rounding of its type."""
    names = names or ("sigmoid", "tanh", "tanh")[: GATES[kind] - 1]
    wanted = layer(kind, arrays, after=after, names=names, **more)
    x = arrays[0].swapaxes(0, 1) if batch_first else arrays[0]
    options = {"batch_first": batch_first, "activations": names, **more}
    if kind == "lstm":
        y, states = gk.lstm(x, *arrays[1:5], tuple(arrays[5:]), **options)
    else:
        y, states = gk.gru(x, *arrays[1:], linear_before_reset=after, **options)
    assert y.dtype == arrays[0].dtype
    agrees((y.swapaxes(0, 1) if batch_first else y, states), wanted)


@pytest.mark.parametrize("dtype", [*BOUNDS])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("kind", [*GATES])
def test_layers_are_those_of_pytorch(kind, directions, dtype):
    assert_layer(kind, drawn(kind, directions, np.dtype(getattr(ml_dtypes, dtype, dtype))))


@pytest.mark.parametrize(
    "more",
    [
        {"reverse": True},
        {"batch_first": True},
        {"lengths": [0, 4, 2]},
        {"lengths": np.array([3, 1, 0], np.uint8), "reverse": True, "batch_first": True},
        {"clip": 0.3},
        {"names": ("relu", "sigmoid", "relu")},
    ],
    ids=lambda more: ", ".join(more),
)
@pytest.mark.parametrize("kind", [*GATES])
def test_forms(kind, more):
    if "names" in more:
        more = {"names": more["names"][: GATES[kind] - 1]}
    assert_layer(kind, drawn(kind), **more)


def test_gates_see_the_cell_through_peepholes():
    peepholes = np.random.default_rng(2).standard_normal((2, 3 * HIDDEN)).astype("float32")
    assert_layer("lstm", drawn("lstm", 2), peepholes=peepholes)
    assert_layer("lstm", drawn("lstm", 2), peepholes=peepholes, clip=0.5)


def test_the_state_may_be_reset_before_its_product():
    assert_layer("gru", drawn("gru", 2), after=False, lengths=[4, 2, 3])


@pytest.mark.parametrize("kind", [*GATES])
def test_one_direction_and_one_sequence_need_no_axis(kind):
    arrays = drawn(kind)
    states = [each[:, :1] for each in arrays[5:]]
    function = getattr(gk, kind)
    wanted = function(arrays[0][:, :1], *arrays[1:5], tuple(states) if kind == "lstm" else states[0])
    own = [each[:, 0] for each in states]
    found = function(arrays[0][:, 0], *(each[0] for each in arrays[1:5]), tuple(own) if kind == "lstm" else own[0])
    for a, b in zip(flat(found), flat(wanted), strict=True):
        np.testing.assert_array_equal(a, b[:, 0])


def flat(results):
    y, states = results
    return [y, *(states if isinstance(states, tuple) else [states])]


@pytest.mark.parametrize("kind", [*GATES])
def test_states_continue_a_sequence(kind):
    arrays, function = drawn(kind), getattr(gk, kind)
    y, states = function(arrays[0], *arrays[1:5])
    first, between = function(arrays[0][:1], *arrays[1:5])
    rest, last = function(arrays[0][1:], *arrays[1:5], between)
    np.testing.assert_allclose(np.concatenate([first, rest]), y, 0, 1e-6)
    for a, b in zip(flat((y, last)), flat((y, states)), strict=True):
        np.testing.assert_allclose(a, b, 0, 1e-6)


@pytest.mark.parametrize("kind", [*GATES])
def test_nothing_is_a_sequence_too(kind):
    x, *arrays = drawn(kind)
    function = getattr(gk, kind)
    for empty in (x[:0], x[:, :0]):
        states = [each[:, : empty.shape[1]] for each in arrays[4:]]
        found = flat(function(empty, *arrays[:4], tuple(states) if kind == "lstm" else states[0]))
        assert found[0].shape == (*empty.shape[:2], HIDDEN)
        for a, b in zip(found[1:], states, strict=True):
            np.testing.assert_array_equal(a, b)


X, W, R, B, D, H, C = drawn("lstm")


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: gk.lstm(X, W[:, :-1], R), ValueError, r"the input weights of lstm: the shape is \(1, 23, 5\)"),
        (lambda: gk.lstm(X, W, R[:, :, :-1]), ValueError, "recurrent weights of lstm have the shape"),
        (lambda: gk.gru(X, W, R), ValueError, "3 [*] hidden"),
        (lambda: gk.lstm(X, W, R, B, D, (H, C[:, :2])), ValueError, "the initial state c"),
        (lambda: gk.lstm(X, W, R, B, D, (H,)), ValueError, "a pair of states"),
        (lambda: gk.lstm(X, W, R, lengths=[5, 1, 1]), ValueError, "from 0 to 4"),
        (lambda: gk.lstm(X, W, R, lengths=[1, 1]), ValueError, "lengths of lstm: the shape is"),
        (lambda: gk.lstm(X, W, R, activations=("tanh",)), ValueError, "activations are 3 of relu"),
        (lambda: gk.lstm(X, W, R, activations=("tanh", "tanh", "elu")), ValueError, "activations are 3 of relu"),
        (lambda: gk.lstm(X[0, 0], W, R), ValueError, "x has the axes"),
        (lambda: gk.lstm(X, np.concatenate([W, W]), np.concatenate([R, R]), reverse=True), ValueError, "one direction"),
        (lambda: gk.lstm(X, W, R, clip="much"), TypeError, "clip"),
        (lambda: gk.lstm(X.astype("int32"), W.astype("int32"), R.astype("int32")), TypeError, "floating-point arrays"),
        (lambda: gk.lstm(X.tolist(), W, R), TypeError, "array"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_a_layer_is_explained_by_its_calls():
    found = gk.explain(gk.lstm, X, W, R, B, D, (H, C))
    assert [each.family for each in found.steps][1:] == ["recurrent"]
    by_steps = gk.explain(gk.gru, X, W[:, :18], R[:, :18], linear_before_reset=False)
    assert len(by_steps.steps) == 1 + STEPS and all(each.family for each in by_steps.steps)


@pytest.mark.parametrize("kind", [*GATES])
def test_steps_are_calls_where_those_are_faster(kind, monkeypatch):
    arrays = drawn(kind, 2)
    called = []
    monkeypatch.setattr(layers, "_is_best", lambda *given: False)
    monkeypatch.setattr(layers, "_serve", lambda *given: called.append(given))
    assert_layer(kind, arrays, lengths=[4, 0, 2])
    assert_layer(kind, arrays, clip=0.4, batch_first=True)
    assert not called


def test_a_call_is_chosen_by_prediction(monkeypatch):
    """The least product is slower than a launch of all steps, and not where it takes no time."""
    for us, family in ((None, "recurrent"), (1e6, "recurrent"), (0.0, "matmul")):
        monkeypatch.setattr(layers, "_steps_us", lambda *given, us=us: us)
        monkeypatch.setattr(layers, "_known", type(layers._known)())
        last = gk.explain(gk.lstm, X, W, R, B, D, (H, C)).steps[-1]
        assert (last.family == "recurrent") == (family == "recurrent")


@pytest.mark.parametrize("directions, hidden, more", [(1, 320, {"reverse": True}), (2, 260, {"lengths": [4, 1, 2]})])
def test_large_layers_are_divided_among_blocks(directions, hidden, more):
    """No kernel with peepholes is stored, of which starters serve."""
    x, w, r, b, d, *states = arrays = drawn("lstm", directions, hidden=hidden)
    more["peepholes"] = np.random.default_rng(2).standard_normal((directions, 3 * hidden)).astype("float32")
    asked = gk.explain(gk.lstm, x, w, r, b, d, tuple(states), **more)
    assert [each.family for each in asked.steps][1:] == ["recurrent_slices"] and asked.steps[1].program["slices"] > 1
    assert_layer("lstm", arrays, **more)
