"""Layouts over whole graphs: results do not depend on them, and predicted times fall."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.execution.plan import Plan
from gensor_kernels.graph.execution.weights import Weights
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.layouts import laid_out as module
from gensor_kernels.graph.layouts.laid_out import choose_layouts
from gensor_kernels.graph.layouts.times import Times
from gensor_kernels.graph.readers.onnx_file import Source
from tests.campaign_size import sample

from ..models import by_onnxruntime, proto

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("emulator")
RNG = np.random.default_rng(0)
PARTS = ["sm_80", "sm_87", "sm_90"]


def draw(*shape):
    """Weights and images that keep activations near 1."""
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


#: All kinds of nodes over images: residuals, poolings, concatenations, grouped, depthwise and transposed convolutions,
#: a result in the middle, a constant image, and a flattened end.
BODY = """
c0 = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w0, b0); r0 = Relu(c0);
p0 = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(r0);
c1 = Conv<pads = [1, 1, 1, 1]>(p0, w1); r1 = Relu(c1); c2 = Conv(r1, w2, b0); s2 = Add(c2, p0); middle = Relu(s2);
c3 = Conv<pads = [1, 1, 1, 1], group = 16>(middle, w3); r3 = Clip(c3, zero, six);
c4 = Conv<pads = [1, 1, 1, 1], group = 2>(r3, w4); r4 = HardSwish(c4); joined = Concat<axis = 1>(r4, middle);
half, other = Split<axis = 1, num_outputs = 2>(joined); o5 = Conv(other, w2); rest = Sub(six, half);
again = Concat<axis = 1>(o5, rest); t5 = ConvTranspose<strides = [2, 2]>(again, w5); i5 = Add(t5, image);
a5 = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(i5); means = ReduceMean<keepdims = 1>(a5, axes);
gated = Mul(a5, means); g = GlobalAveragePool(gated); f = Flatten(g); y = Gemm(f, w6)
"""


def body():
    constants = {
        **{"w0": draw(16, 3, 3, 3), "b0": draw(16), "w1": draw(16, 16, 3, 3), "w2": draw(16, 16, 1, 1)},
        **{"w3": draw(16, 1, 3, 3), "w4": draw(16, 8, 3, 3), "w5": draw(32, 8, 2, 2), "w6": draw(8, 5)},
        **{"axes": np.array([2, 3]), "zero": np.float32(0), "six": np.float32(6), "image": draw(1, 8, 16, 16)},
    }
    return proto(BODY, {"x": ("float32", (2, 3, 32, 32))}, ["y", "middle"], constants)


def test_an_operation_on_whole_images_takes_as_long_in_either_order(monkeypatch):
    nodes = "s = Add(x, z); u = Relu(s); y = Mul(u, w)"
    given = {name: ("float32", (2, 16, 32, 32)) for name in "xz"}
    source = Source(proto(nodes, given, ["y"], {"w": np.float32(3)}))
    (node,) = (graph := Plan(source.graph(), Weights()).graph).nodes
    first, last = (replace(node, layout=each) for each in ("first", "last"))
    times = Times(graph)
    assert node.op == "Elementwise" and times._is_flat(node) and times.of(first, False) > 0
    monkeypatch.setattr(Times, "_is_flat", lambda self, node: False)
    assert times.of(last, True) == times.of(first, False)


class Preferring:
    """Predicted times that prefer channels last for some nodes, and forbid direct reads or make them free."""

    def __init__(self, prefers_last, direct):
        self.prefers_last, self.direct = prefers_last, direct

    def __call__(self, graph):
        self.places = {node.outputs: place for place, node in enumerate(graph.nodes)}
        return self

    def conversion(self, name):
        return 0.01

    def of(self, node, read_last):
        is_last = node.layout == "last"
        if read_last != is_last:
            return 0.0 if self.direct else np.inf
        return 1.0 if is_last == self.prefers_last(node.op, self.places[node.outputs]) else 2.0


RULES = {
    "last": lambda op, place: True,
    "first": lambda op, place: False,
    "even": lambda op, place: place % 2 == 0,
    "odd": lambda op, place: place % 2 == 1,
    "products": lambda op, place: op == "Conv",
    "poolings": lambda op, place: "Pool" in op,
}


@pytest.mark.parametrize(("rule", "direct"), sample(list(itertools.product(RULES, (False, True))), 4))
def test_results_do_not_depend_on_layouts(rule, direct, monkeypatch):
    """Every node in either layout, next to nodes of the same and of the other one."""
    monkeypatch.setattr(module, "Times", Preferring(RULES[rule], direct))
    made, x = body(), RNG.standard_normal((2, 3, 32, 32)).astype(np.float32)
    model = Model(Source(made), "model")
    found = model(x)
    (plan,) = model._plans.values()
    for ours, theirs in zip(found, by_onnxruntime(made, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert found[1].flags.c_contiguous  # results have channels first
    layouts = {(each.op, each.layout) for each in plan.graph.nodes}
    assert (("Conv", "last") in layouts) == (rule in ("last", "even", "odd", "products"))
    if not direct:
        assert (("Layout", "last") in layouts) == (rule != "first")


@pytest.mark.parametrize(("part", "dtype"), sample(list(itertools.product(PARTS, ("float16", None))), 2))
def test_the_predicted_time_is_never_worse(part, dtype):
    with gensor_kernels.emulated(part):
        plan = Plan(Source(body()).graph(), Weights(), Options(dtype))
    assert plan.layouts.predicted_us <= plan.layouts.first_us + 1e-9


def bottleneck(blocks=2, width=64, side=28):
    text, constants, image = "", {}, "x"
    for block in range(blocks):
        text += (
            f"a{block} = Conv({image}, wa{block}); b{block} = Relu(a{block}); "
            f"c{block} = Conv<pads = [1, 1, 1, 1]>(b{block}, wb{block}); d{block} = Relu(c{block}); "
            f"e{block} = Conv(d{block}, wc{block}); s{block} = Add(e{block}, {image}); r{block} = Relu(s{block}); "
        )
        constants[f"wa{block}"], constants[f"wb{block}"] = draw(width, 4 * width, 1, 1), draw(width, width, 3, 3)
        constants[f"wc{block}"], image = draw(4 * width, width, 1, 1), f"r{block}"
    text += f"g = GlobalAveragePool({image}); y = Flatten(g)"
    return proto(text, {"x": ("float32", (1, 4 * width, side, side))}, ["y"], constants)


@pytest.mark.parametrize(("part", "layout"), [("sm_80", "last"), ("sm_87", ""), ("sm_90", "last")])
def test_a_residual_body_of_16_bits_has_one_layout(part, layout):
    with gensor_kernels.emulated(part):
        plan = Plan(Source(bottleneck()).graph(), Weights(), Options("float16"))
    convolutions = [each for each in plan.graph.nodes if each.op == "Conv"]
    assert [each.layout for each in convolutions] == [layout] * 6
    assert sum(each.op == "Layout" for each in plan.graph.nodes) == (layout == "last")  # before the body
    if layout == "last":
        assert plan.layouts.predicted_us < 0.97 * plan.layouts.first_us
        assert "channels last" in str(plan.layouts)


def test_a_graph_without_images_is_left_alone():
    made = proto("y = MatMul(x, w)", {"x": ("float32", (4, 8))}, ["y"], {"w": draw(8, 8)})
    graph = Source(made).graph()
    before = [replace(each) for each in graph.nodes]
    assert choose_layouts(graph) is None and graph.nodes == before


def computed(text, weights, dtype, *shape):
    """Compute a node of one input and one weight; return its input, result, layers and the weight of the plan."""
    x = RNG.standard_normal(shape).astype(np.float32)
    made = Model(Source(proto(text, {"x": ("float32", shape)}, ["y"], {"w": weights})), "model", Options(dtype))
    found, layers = made(x), made.explain(x)
    (plan,) = made._plans.values()
    (node,) = [each for each in plan.graph.nodes if each.op in text]
    return x, found, layers, plan.graph.constants[node.inputs[1]]


def test_no_call_of_a_body_with_channels_last_copies_its_weights():
    model = Model(Source(bottleneck(1, 16, 8)), "model", Options("float16"))
    layers = model.explain(RNG.standard_normal((1, 64, 8, 8)).astype(np.float32))
    assert not any(each.staged for layer in layers for each in layer.served)
    assert "channels last" in str(layers) and str(layers.layouts) in str(layers)


@pytest.mark.parametrize("dtype", ["float16", None])
def test_weights_of_transposed_convolutions_are_laid_out_once(dtype):
    text = "y = ConvTranspose<strides = [2, 2]>(x, w)"
    _, _, layers, weights = computed(text, draw(8, 4, 2, 2), dtype, 1, 8, 6, 6)
    assert not weights.flags.c_contiguous
    assert [each.staged for layer in layers for each in layer.served] == [None]


def test_misaligned_weights_of_few_rows_are_packed_once():
    """Rows of 2049 elements are misaligned, columns of 2048 are aligned."""
    given = draw(2048, 2049)
    with gensor_kernels.emulated("sm_80"):
        x, found, _, weights = computed("y = MatMul(x, w)", given, "float16", 1, 2048)
    assert weights.strides == (2, 4096)
    np.testing.assert_allclose(found, x @ given, atol=2**-8 * np.abs(x @ given).max())
