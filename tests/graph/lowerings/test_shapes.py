"""Shapes that the optimiser leaves unknown, and what they make constant."""

import numpy as np
import pytest

from gensor_kernels.errors import ModelError
from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.lowerings.shapes import infer
from gensor_kernels.graph.readers.folding import fold

HALF = np.dtype(np.float16)
CONSTANTS = {
    "four": np.array([4, 1, 5]),
    "split": np.array([0, -1, 2]),
    "axis": np.array([1]),
    "zero": np.array(0),
    "flat": np.array([-1]),
}


@pytest.mark.parametrize(
    "op, inputs, attributes, shape",
    [
        ("Relu", "x", {}, (4, 6)),
        ("Add", "x r", {}, (3, 4, 6)),
        ("Add", "x unknown", {}, (4, 6)),
        ("Where", "k x r", {}, (3, 4, 6)),
        ("MatMul", "r w", {}, (3, 1, 2)),
        ("MatMul", "x v", {}, None),
        ("Expand", "t four", {}, (4, 3, 5)),
        ("Reshape", "x split", {}, (4, 3, 2)),
        ("Reshape", "x flat", {}, (24,)),
        ("Reshape", "x r", {}, None),
        ("Resize", "x", {}, None),
        ("Split", "x split", {}, None),
        ("Softmax", "x", {"axis": 2}, None),
        ("Transpose", "r", {"perm": (2, 0, 1)}, (6, 3, 1)),
        ("Transpose", "x", {}, (6, 4)),
        ("Transpose", "x", {"perm": (0, 0)}, None),
        ("Unsqueeze", "x axis", {}, (4, 1, 6)),
        ("Squeeze", "r axis", {}, (3, 6)),
        ("Gather", "x zero", {"axis": 1}, (4,)),
        ("Concat", "x x", {"axis": 0}, (8, 6)),
        ("Concat", "x v", {"axis": 1}, None),
        ("Conv", "image w4", {"kernel_shape": (3, 3), "pads": (1,)}, None),
        ("Conv", "image w4", {"kernel_shape": (2, 3)}, None),
        ("Conv", "image w4", {"auto_pad": "EVIL"}, None),
        ("Pad", "x split", {"mode": "EVIL"}, None),
    ],
)
def test_a_shape_follows_from_those_of_the_inputs_or_the_node_is_refused(op, inputs, attributes, shape):
    if shape is None:
        with pytest.raises(ModelError, match=rf"^node 'off' \({op}\).* or export the model again$"):
            infer_node(op, inputs, attributes)
    else:
        graph = infer_node(op, inputs, attributes)
        assert graph.shape("y") == shape and graph.spec("y").dtype == HALF


def infer_node(op, inputs, attributes):
    shapes = {"x": (4, 6), "r": (3, 1, 6), "w": (6, 2), "v": (5, 2), "t": (3, 1), "unknown": (None, 6)}
    shapes |= {"image": (1, 4, 5, 5), "w4": (2, 4, 3, 3)}
    graph = Graph([], {}, ["y"], dict(CONSTANTS), {name: Spec(HALF, each) for name, each in shapes.items()})
    graph.specs["k"] = Spec(np.dtype(bool), (4, 1))
    infer(graph, Node(op, tuple(inputs.split()), ("y", "z")[: 1 + (op == "Split")], attributes, "off"))
    return graph


def test_a_calculation_with_a_shape_is_a_constant():
    nodes = [
        Node("Exp", ("x",), ("e",)),
        Node("Shape", ("e",), ("s",)),
        Node("Gather", ("s", "zero"), ("n",), {"axis": 0}),
        Node("Unsqueeze", ("n", "zero"), ("m",)),
        Node("Concat", ("m", "flat"), ("k",), {"axis": 0}),
        Node("Reshape", ("e", "k"), ("y",)),
    ]
    graph = Graph(nodes, {"x": Spec(HALF, (4, 6, 2))}, ["y"], dict(CONSTANTS), {})
    fold(graph)
    assert [each.op for each in graph.nodes] == ["Exp", "Reshape"]
    assert graph.constants["k"].tolist() == [4, -1] and graph.shape("y") == (4, 12)


def test_sizes_that_a_call_chooses_stay():
    graph = Graph([Node("Shape", ("x",), ("y",))], {"x": Spec(HALF, ("n", 6))}, ["y"], {}, {})
    fold(graph)
    assert [each.op for each in graph.nodes] == ["Shape"]
