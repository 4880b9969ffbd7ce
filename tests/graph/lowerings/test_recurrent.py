"""LSTM, GRU and RNN on the emulator, compared with onnxruntime in every form, and where that refuses, with it in parts.

onnxruntime computes float32 in layout 0, and knows no states of a sequence of length 0.
"""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import gensor_kernels
from gensor_kernels.dispatch.functions.recurrent import DEFAULTS
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.readers.onnx_file import Source
from gensor_kernels.operators.recurrent.recurrent import GATES
from tests import campaign_size

from ..models import by_onnxruntime, proto

#: Activations, of which all take the alpha and the beta that they know.
ACTIVATIONS = (
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid"),
    *("Elu", "Softsign", "Softplus"),
)
INPUTS = ("X", "W", "R", "B", "lengths", "h", "c", "P")
#: Gates without a bound let states grow with every step, and their rounding with them.
LARGEST = 100
ROUNDING = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-5}


@pytest.fixture(autouse=True)
def emulator():
    with gensor_kernels.emulated("sm_87"):
        yield


def drawn(rng, operator, way, steps=4, batch=3, size=5, hidden=6, leave_out=0.0):
    """Arrays of a layer by the names of INPUTS, of which some may be left out, and the attributes."""
    gates, directions = len(GATES[operator.lower()][0]), 2 if way == "bidirectional" else 1
    shapes = {
        "X": (steps, batch, size),
        "W": (directions, gates * hidden, size),
        "R": (directions, gates * hidden, hidden),
        "B": (directions, 2 * gates * hidden),
        "h": (directions, batch, hidden),
        "c": (directions, batch, hidden),
        "P": (directions, 3 * hidden),
    }
    arrays = {name: (rng.standard_normal(shape) * 0.6).astype(np.float32) for name, shape in shapes.items()}
    arrays["lengths"] = rng.integers(1, steps + 1, batch).astype(np.int32)
    left_out = {"c", "P"} if operator != "LSTM" else set()
    left_out |= {name for name in INPUTS[3:] if rng.random() < leave_out}
    found = {name: arrays[name] for name in INPUTS if name not in left_out}
    return found, {"hidden_size": hidden, "direction": way}


def built(operator, arrays, attributes, constants=()):
    """A model of one node, and its inputs: arrays other than constants."""
    results = ["Y", "Y_h", "Y_c"][: 3 if operator == "LSTM" else 2]
    names = [name if name in arrays else "" for name in (INPUTS if operator == "LSTM" else INPUTS[:6])]
    node = helper.make_node(operator, names, results, **attributes)
    given = {name: each for name, each in arrays.items() if name not in constants}
    kinds = {name: (str(each.dtype), each.shape) for name, each in given.items()}
    model = proto([node], kinds, results, {name: arrays[name] for name in arrays if name in constants})
    for each in model.graph.output:
        each.type.tensor_type.ClearField("shape")
    return model, given


def ours(operator, arrays, attributes, constants=()):
    model, given = built(operator, arrays, attributes, constants)
    return Model(Source(model), "layer")(*given.values())


def assert_close(found, wanted, dtype="float32"):
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == dtype and a.shape == b.shape
        most = ROUNDING[dtype] * max(1.0, np.abs(b).max(initial=0))
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), ROUNDING[dtype], most)


def form(rng, operator):
    """Attributes beyond the default ones."""
    found = {"clip": 0.4} if rng.random() < 0.4 else {}
    if operator == "GRU":
        found["linear_before_reset"] = int(rng.integers(2))
    if operator == "LSTM":
        found["input_forget"] = int(rng.integers(2))
    return found


@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_layers_are_those_of_onnxruntime(operator, way):
    rng = np.random.default_rng(campaign_size.SEED)
    for number in range(60 if campaign_size.FULL else 4):
        wanted = [np.full(1, np.inf, np.float32)]
        while not all((np.abs(each) <= LARGEST).all() for each in wanted):
            arrays, attributes, constants = layer(rng, operator, way, number)
            wanted = by_onnxruntime(*built(operator, arrays, attributes, constants))
        assert_close(ours(operator, arrays, attributes, constants), wanted)


def layer(rng, operator, way, number):
    """Arrays of a layer, its attributes, and the names of the arrays that are constants."""
    arrays, attributes = drawn(rng, operator, way, leave_out=0.4 * (number > 0))
    attributes |= form(rng, operator)
    if number % 2:
        count = len(DEFAULTS[operator.lower()]) * len(arrays["R"])
        attributes["activations"] = [str(each) for each in rng.choice(ACTIVATIONS, count)]
        attributes |= {f"activation_{each}": rng.uniform(0.3, 0.9, count).tolist() for each in ("alpha", "beta")}
    return arrays, attributes, [name for name in INPUTS[1:] if rng.random() < 0.5]


@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_batches_come_first_in_layout_1(operator):
    arrays, attributes = drawn(np.random.default_rng(3), operator, "bidirectional")
    y, *states = by_onnxruntime(*built(operator, arrays, attributes))
    turned = {name: each.swapaxes(0, 1) if name in ("X", "h", "c") else each for name, each in arrays.items()}
    found = ours(operator, turned, attributes | {"layout": 1})
    assert_close(found, [y.transpose(2, 0, 1, 3), *(each.swapaxes(0, 1) for each in states)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_other_types_are_as_close_as_they_can_be(operator, dtype):
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    arrays, attributes = drawn(np.random.default_rng(4), operator, "bidirectional")
    given = {name: each.astype(kind) if each.dtype == np.float32 else each for name, each in arrays.items()}
    rounded = {name: each.astype(arrays[name].dtype) for name, each in given.items()}
    assert_close(ours(operator, given, attributes), by_onnxruntime(*built(operator, rounded, attributes)), dtype)


@pytest.mark.parametrize("way", ["forward", "reverse"])
@pytest.mark.parametrize("operator", ["LSTM", "GRU", "RNN"])
def test_a_sequence_of_length_0_keeps_its_state(operator, way):
    """The other sequences are as if it were not there."""
    arrays, attributes = drawn(np.random.default_rng(5), operator, way)
    arrays["lengths"] = np.array([2, 0, 4], np.int32)
    y, *states = ours(operator, arrays, attributes)
    wanted, *lasts = by_onnxruntime(*built(operator, arrays, attributes))
    assert not y[:, :, 1].any() and not y[2:, :, 0].any()
    assert_close([y], [wanted])
    for name, state, last in zip("hc", states, lasts, strict=False):
        np.testing.assert_array_equal(state[:, 1], arrays[name][:, 1])
        assert_close([state[:, ::2]], [last[:, ::2]])


@pytest.mark.parametrize("steps, batch", [(0, 3), (3, 0), (1, 1)])
def test_sequences_and_batches_may_be_empty(steps, batch):
    arrays, attributes = drawn(np.random.default_rng(6), "LSTM", "bidirectional", steps or 1, batch)
    arrays["X"] = arrays["X"][:steps]
    del arrays["lengths"]
    y, h, c = ours("LSTM", arrays, attributes, ("W", "R", "B"))
    assert y.shape == (steps, 2, batch, 6) and h.shape == c.shape == (2, batch, 6)
    if not steps:
        np.testing.assert_array_equal(h, arrays["h"])
        np.testing.assert_array_equal(c, arrays["c"])


def test_a_bound_plan_reads_new_lengths_and_states():
    """Calls after the second are replayed: nothing of the first is kept in them."""
    rng = np.random.default_rng(7)
    arrays, attributes = drawn(rng, "LSTM", "bidirectional")
    model, given = built("LSTM", arrays, attributes, ("W", "R", "B", "P"))
    loaded = Model(Source(model), "layer")
    for _ in range(4):
        others = drawn(rng, "LSTM", "bidirectional")[0]
        given = {name: others[name] for name in given}
        assert_close(loaded(*given.values()), by_onnxruntime(model, given))
    assert "launch by launch" in loaded.memory(*given.values()).runs
    assert "recurrent" in loaded.explain(*given.values())[0].by


@pytest.mark.parametrize(
    "attributes, error, says",
    [
        ({"activations": ["Tanh", "Sigmoid"]}, UnsupportedError, "3 activations are expected, not 2"),
        ({"activations": ["Tanh", "Sigmoid", "Cube"]}, UnsupportedError, "activation cube is unknown"),
        ({"activations": ["Tanh", "Affine", "Tanh"]}, UnsupportedError, "no default"),
        ({"direction": "backward"}, ModelError, "'backward', which is none of forward, reverse, bidirectional"),
        ({"direction": "bidirectional"}, ModelError, "weights of 1 direction"),
    ],
)
def test_what_the_standard_does_not_say_is_refused(attributes, error, says):
    arrays, plain = drawn(np.random.default_rng(8), "LSTM", "forward")
    with pytest.raises(error, match=says):
        ours("LSTM", arrays, plain | attributes)
