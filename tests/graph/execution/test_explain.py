"""Why a node is what it is: `explain` of a run, and of a node's name."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.graph.execution.layers import reasons
from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.rewrites import rewrite

from ..models import model

RNG = np.random.default_rng(0)


#: A convolution with a factor and a term per channel, and two products of the means of its channels.
NETWORK = """
[conv] c = Conv<pads = [1, 1, 1, 1]>(x, w); [times] m = Mul(c, factor); [plus] n = Add(m, term); [relu] r = Relu(n);
[pool] p = GlobalAveragePool(r); [rows] f = Reshape(p, rows); [left] y = MatMul(f, u); [right] z = MatMul(f, v)
"""


def network():
    shapes = {"factor": (1, 16, 1, 1), "term": (1, 16, 1, 1), "u": (16, 8), "v": (16, 8), "w": (16, 8, 3, 3)}
    constants = {name: RNG.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    inputs = {"x": ("float32", (1, 8, 8, 8))}
    return model(NETWORK, inputs, ["y", "z"], constants | {"rows": np.array([1, 16])})


def test_a_layer_shows_its_kernel_its_rules_and_their_predictions():
    made = network()
    with gensor_kernels.emulated("sm_87"):
        layers = made.explain(RNG.standard_normal((1, 8, 8, 8), np.float32))
    conv, product = str(layers.named("conv")), str(layers.named("left"))
    assert conv.startswith("conv: Conv + Mul + Add + Relu -> float32 (1, 16, 8, 8), channels last, served by")
    assert "Kernel" in conv
    assert "  ChannelScales: " in conv and "  Epilogues: " in conv
    assert "  Siblings: right, left -> left (2 products read f): " in product and "µs after (predicted)" in product
    assert "Siblings" not in str(layers) and "Siblings" not in str(made)


def test_a_name_is_explained_without_a_run():
    made = network()
    for name in ("conv", "times", "plus", "relu"):
        found = made.explain(name)
        assert (found.name, found.operators) == ("conv", "Conv + Mul + Add + Relu")
        assert {each.rule for each in found.decisions} >= {"ChannelScales", "Epilogues"}


def test_names_of_removed_and_of_unknown_nodes():
    spec = Spec(np.dtype(np.float32), (4,))
    nodes = [Node("Dropout", ("x",), ("d",), {}, "drop"), Node("Relu", ("d",), ("y",), {}, "relu")]
    graph = rewrite(Graph(nodes, {"x": spec}, ["y"], {}, {"d": spec, "y": spec}), lambda graph, nodes: None)
    assert str(reasons(graph, "drop")) == "drop: removed\n  Aliases: drop removed"
    with pytest.raises(KeyError, match="no node is named 'absent'"):
        reasons(graph, "absent")


def test_a_name_is_explained_for_the_signature_that_was_planned_last():
    made = model("[relu] y = Relu(x)", {"x": ("float32", ("n", 4))}, ["y"])
    assert made.explain("relu").result.shape == ("n", 4)
    with gensor_kernels.emulated("sm_87"):
        made(np.ones((3, 4), np.float32))
    assert made.explain("relu").result.shape == (3, 4)
