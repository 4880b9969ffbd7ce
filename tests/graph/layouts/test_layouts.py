"""Layouts over whole graphs: results in every layout beside float64 or onnxruntime, and that predicted time falls."""

from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.execution.prepared import Prepared
from gensor_kernels.graph.execution.weights import Weights
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.layouts import laid_out as module
from gensor_kernels.graph.layouts.laid_out import choose_layouts
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import node, proto

onnxruntime = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)


def drawn(*shape):
    """Weights and images that keep activations near 1."""
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def body():
    """All kinds of nodes over images: residuals, poolings, concatenations, grouped, depthwise and transposed
    convolutions, a result in the middle, a constant image, and a flattened end."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Conv", ["p0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b0"], ["c2"]),
        node("Add", ["c2", "p0"], ["s2"]),
        node("Relu", ["s2"], ["middle"]),
        node("Conv", ["middle", "w3"], ["c3"], pads=[1, 1, 1, 1], group=16),
        node("Clip", ["c3", "zero", "six"], ["r3"]),
        node("Conv", ["r3", "w4"], ["c4"], pads=[1, 1, 1, 1], group=2),
        node("HardSwish", ["c4"], ["r4"]),
        node("Concat", ["r4", "middle"], ["joined"], axis=1),
        node("Split", ["joined"], ["half", "other"], axis=1, num_outputs=2),
        node("Conv", ["other", "w2"], ["o5"]),
        node("Sub", ["six", "half"], ["rest"]),
        node("Concat", ["o5", "rest"], ["again"], axis=1),
        node("ConvTranspose", ["again", "w5"], ["t5"], strides=[2, 2]),
        node("Add", ["t5", "image"], ["i5"]),
        node("AveragePool", ["i5"], ["a5"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceMean", ["a5", "axes"], ["means"], keepdims=1),
        node("Mul", ["a5", "means"], ["gated"]),
        node("GlobalAveragePool", ["gated"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "w6"], ["y"]),
    ]
    constants = {
        **{"w0": drawn(16, 3, 3, 3), "b0": drawn(16), "w1": drawn(16, 16, 3, 3), "w2": drawn(16, 16, 1, 1)},
        **{"w3": drawn(16, 1, 3, 3), "w4": drawn(16, 8, 3, 3), "w5": drawn(32, 8, 2, 2), "w6": drawn(8, 5)},
        **{"axes": np.array([2, 3]), "zero": np.float32(0), "six": np.float32(6), "image": drawn(1, 8, 16, 16)},
    }
    return proto(nodes, {"x": ("float32", (2, 3, 32, 32))}, ["y", "middle"], constants)


W = drawn(8, 4, 2, 2)


def theirs(made, x):
    return onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})


class Preferring:
    """Predicted times that prefer a layout node by node, and forbid direct reads or make them free."""

    def __init__(self, rule, direct):
        self.rule, self.direct = rule, direct

    def __call__(self, graph):
        self.graph, self.count = graph, 0
        return self

    def conversion(self, name):
        return 0.01

    def of(self, node, read_last):
        if read_last != (node.layout == "last"):
            return 0.0 if self.direct else np.inf
        wanted = self.rule(node, self.graph)
        return 1.0 if (node.layout == "last") == wanted else 2.0


def place(node, graph):
    return next(at for at, each in enumerate(graph.nodes) if each.outputs == node.outputs)


RULES = {
    "last": lambda node, graph: True,
    "first": lambda node, graph: False,
    "even": lambda node, graph: place(node, graph) % 2 == 0,
    "odd": lambda node, graph: place(node, graph) % 2 == 1,
    "products": lambda node, graph: node.op == "Conv",
    "poolings": lambda node, graph: "Pool" in node.op,
}


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_results_do_not_depend_on_layouts(rule, direct, monkeypatch):
    """Every node in either layout, next to nodes of the same and of the other one."""
    monkeypatch.setattr(module, "Times", Preferring(RULES[rule], direct))
    made, x = body(), RNG.standard_normal((2, 3, 32, 32)).astype(np.float32)
    model = Model(Source(made), "model")
    with gensor_kernels.emulated("sm_87"):
        found = model(x)
        (plan,) = model._plans.values()
    for ours, expected in zip(found, theirs(made, x), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)
    assert found[1].flags.c_contiguous  # results have channels first
    layouts = {(each.op, each.layout) for each in plan.graph.nodes}
    assert (("Conv", "last") in layouts) == (rule in ("last", "even", "odd", "products"))
    if not direct:
        assert (("Layout", "last") in layouts) == (rule != "first")


@pytest.mark.parametrize("part", ["sm_80", "sm_87", "sm_90"])
@pytest.mark.parametrize("dtype", ["float16", None])
def test_the_predicted_time_is_never_worse(part, dtype):
    with gensor_kernels.emulated(part):
        plan = Prepared(Source(body()).graph(), Weights(), Options(dtype))
    assert plan.layouts.predicted_us <= plan.layouts.first_us + 1e-9


def bottleneck(blocks=2, width=64, side=28):
    """A body like ResNet-50's."""
    nodes, constants, image = [], {}, "x"
    for block in range(blocks):
        sizes = ((width, 4 * width, 1), (width, width, 3), (4 * width, width, 1))
        first = image
        for number, (k, c, r) in enumerate(sizes):
            name = f"{block}.{number}"
            constants[f"w{name}"] = drawn(k, c, r, r)
            nodes.append(node("Conv", [image, f"w{name}"], [f"c{name}"], pads=[r // 2] * 4))
            if number == 2:
                nodes.append(node("Add", [f"c{name}", first], [f"s{name}"]))
            nodes.append(node("Relu", [f"s{name}" if number == 2 else f"c{name}"], [f"r{name}"]))
            image = f"r{name}"
    nodes += [node("GlobalAveragePool", [image], ["g"]), node("Flatten", ["g"], ["y"])]
    return proto(nodes, {"x": ("float32", (1, 4 * width, side, side))}, ["y"], constants)


@pytest.mark.parametrize("part", ["sm_80", "sm_87", "sm_90"])
def test_a_residual_body_of_16_bits_has_channels_last(part):
    with gensor_kernels.emulated(part):
        plan = Prepared(Source(bottleneck()).graph(), Weights(), Options("float16"))
        convolutions = [each for each in plan.graph.nodes if each.op == "Conv"]
        assert [each.layout for each in convolutions] == ["last"] * 6
        assert sum(each.op == "Layout" for each in plan.graph.nodes) <= 1  # in front of the body
        assert plan.layouts.predicted_us < 0.97 * plan.layouts.first_us
    assert "channels last" in str(plan.layouts)


def test_weights_lie_as_kernels_read_them():
    """No call of a body with channels last copies its weights."""
    model = Model(Source(bottleneck(1, 16, 8)), "model", Options("float16"))
    x = RNG.standard_normal((1, 64, 8, 8)).astype(np.float32)
    with gensor_kernels.emulated("sm_87"):
        layers = model.explain(x)
    assert not any(each.staged for layer in layers for each in layer.served)
    assert "channels last" in str(layers) and str(layers.layouts) in str(layers)


def test_a_graph_without_images_is_left_alone():
    made = proto([node("MatMul", ["x", "w"], ["y"])], {"x": ("float32", (4, 8))}, ["y"], {"w": drawn(8, 8)})
    with gensor_kernels.emulated("sm_87"):
        graph = Source(made).graph()
        before = [replace(each) for each in graph.nodes]
        assert choose_layouts(graph) is None and graph.nodes == before


def served(made, *inputs, dtype=None):
    """Return the plan of a call, and what served it."""
    model = Model(Source(made), "model", Options(dtype))
    with gensor_kernels.emulated("sm_87"):
        layers = model.explain(*inputs)
    (plan,) = model._plans.values()
    return plan, [each for layer in layers for each in layer.served]


@pytest.mark.parametrize("dtype", ["float16", None])
def test_weights_of_transposed_convolutions_are_laid_out_once(dtype):
    made = proto(
        [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])], {"x": ("float32", (1, 8, 6, 6))}, ["y"], {"w": W}
    )
    plan, found = served(made, RNG.standard_normal((1, 8, 6, 6)).astype(np.float32), dtype=dtype)
    (name,) = (each for node in plan.graph.nodes if node.op == "ConvTranspose" for each in node.inputs[1:2])
    assert not plan.graph.constants[name].flags.c_contiguous
    assert [each.staged for each in found] == [None]


def test_misaligned_weights_of_few_rows_are_packed_once():
    """Rows of 2049 elements are misaligned, columns of 2048 are aligned."""
    weights = drawn(2048, 2049)
    made = proto([node("MatMul", ["x", "w"], ["y"])], {"x": ("float32", (1, 2048))}, ["y"], {"w": weights})
    x = RNG.standard_normal((1, 2048)).astype(np.float32)
    model = Model(Source(made), "model", Options("float16"))
    with gensor_kernels.emulated("sm_80"):
        found = model(x)
    (plan,) = model._plans.values()
    (name,) = (each.inputs[1] for each in plan.graph.nodes if each.op == "MatMul")
    assert plan.graph.constants[name].strides == (2, 4096)
    np.testing.assert_allclose(found, x @ weights, atol=2**-8 * np.abs(x @ weights).max())


def test_a_product_of_channels_last_reads_memory_with_channels_first():
    """A pointwise convolution may read such an image: the shipped kernel is one for any strides."""
    image, weights = drawn(2, 32, 4, 4).transpose(0, 2, 3, 1), drawn(512, 32).T
    with gensor_kernels.emulated("sm_87"):
        np.testing.assert_allclose(gensor_kernels.matmul(image, weights), image @ weights, rtol=1e-4, atol=1e-5)
