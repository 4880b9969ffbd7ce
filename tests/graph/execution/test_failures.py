"""Whatever goes wrong in a node is a ModelError that names the node and its operator, on one printable line."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.failures import fail

from ..models import model, node

#: Constant operands that no version of NumPy takes, by operator.
WRONG = [
    ("Concat", ["c", "c"], {"c": np.float32(1)}, {"axis": 0}),
    ("Squeeze", ["c", "axes"], {"c": np.ones((2, 2), np.float32), "axes": np.array([0])}, {}),
    ("Gather", ["c", "i"], {"c": np.ones(2, np.float32), "i": np.array([7])}, {}),
    ("ScatterND", ["c", "i", "c"], {"c": np.ones(2, np.float32), "i": np.array([[9], [0]])}, {}),
    ("CumSum", ["c", "i"], {"c": np.ones(2, np.float32), "i": np.array(7)}, {}),
    ("Range", ["c", "c", "zero"], {"c": np.float32(1), "zero": np.float32(0)}, {}),
    ("Unsqueeze", ["c", "axes"], {"c": np.ones(2, np.float32), "axes": np.array([5])}, {}),
]


@pytest.mark.parametrize(("op", "inputs", "constants", "attributes"), WRONG, ids=[each[0] for each in WRONG])
def test_a_node_of_constants_that_cannot_be_computed(op, inputs, constants, attributes):
    nodes = [node(op, inputs, ["wrong"], name="a\x1b[2Jb\n", **attributes), node("Add", ["x", "wrong"], ["y"])]
    with gensor_kernels.emulated("sm_87"), pytest.raises((ModelError, UnsupportedError)) as caught:
        model(nodes, {"x": ("float32", (2, 2))}, ["y"], constants)(np.ones((2, 2), np.float32))
    text = str(caught.value)
    assert op in text and "[2Jb" in text and text.isprintable(), text


def test_errors_of_the_environment_stay_what_they_are():
    for error in (OSError("no space"), UnsupportedError("no kernel")):
        with pytest.raises(type(error), match=str(error)):
            fail("node 'a' (Conv)", error)
    with pytest.raises(ModelError, match=r"^node 'a' \(Conv\): KeyError: 'b'; export it again$"):
        fail("node 'a' (Conv)", KeyError("b"), "export it again")


def test_names_in_tables_stay_on_their_line():
    made = model([node("Relu", ["x"], ["y"], name="a\x1b[2Jb\nc")], {"x": ("float32", (2, 2))}, ["y"])
    with gensor_kernels.emulated("sm_87"):
        layers = made.explain(np.ones((2, 2), np.float32))
    assert str(layers).count("\n") == 2 and "\x1b" not in str(layers) + str(made) + str(layers[0]), layers
