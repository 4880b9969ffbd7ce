"""Products that are joined, gated and scaled, element-wise chains, and views around products."""

import sys

import numpy as np
import pytest

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.rewrites import rewrite

from ..models import check, draw, operators, steps

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("emulator")
X = draw(3, 5, 16)
SINGLE = np.dtype(np.float32)


OPS = ("Relu", "Tanh", "Sigmoid")


@pytest.mark.parametrize("biases", ["", "qkv", "qv"])
def test_siblings_are_one_product(biases):
    parts = [f"m{name} = MatMul(x, w{name})" for name in "qkv"]
    parts += [f"r{name} = Add(m{name}, b{name})" for name in biases]
    parts += [f"y{name} = {op}({'r' if name in biases else 'm'}{name})" for name, op in zip("qkv", OPS, strict=True)]
    widths = {"q": 8, "k": 4, "v": 4}
    constants = {f"w{name}": draw(16, width) for name, width in widths.items()}
    constants |= {f"b{name}": draw(width) for name, width in widths.items()}
    graph = check("; ".join(parts), {"x": X}, constants)
    assert [each.op for each in graph.nodes] == ["MatMul", "Split", *["Elementwise"] * 3]
    (decision,) = [each for each in graph.decisions if each.rule == "Siblings"]
    assert decision.after_us <= decision.before_us and "3 products read x" in str(decision)


def two_products(*widths):
    pairs = dict(zip("yz", widths, strict=True))
    specs = {name: Spec(SINGLE, (3, 5, width)) for name, width in pairs.items()}
    nodes = [Node("MatMul", ("x", f"w{name}"), (name,), {}, name) for name in "yz"]
    constants = {f"w{name}": np.zeros((16, width), SINGLE) for name, width in pairs.items()}
    return Graph(nodes, {"x": Spec(SINGLE, (3, 5, 16))}, ["y", "z"], constants, specs)


def test_predicted_times_decide_whether_siblings_join():
    graph = rewrite(two_products(8, 4), lambda graph, nodes: 3.0 if len(nodes) == 1 else 2.0)
    assert [each.op for each in graph.nodes] == ["MatMul", "MatMul"]
    (decision,) = graph.decisions
    assert str(decision) == (
        "Siblings: y left as they are (joined, it is predicted to be slower): 2.0 µs before, 3.0 µs after (predicted)"
    )
    assert graph.reasons("y") == [decision] and graph.reasons("other") == []
    graph = rewrite(two_products(8, 4), lambda graph, nodes: None)
    assert [each.op for each in graph.nodes] == ["MatMul", "Split"]


PRODUCTS = "a = MatMul(x, g); b = MatMul(x, u)"
BIASED = "p = MatMul(x, g); q = MatMul(x, u); a = Add(p, c); b = Add(d, q)"
GATES = [
    "s = Sigmoid(a); f = Mul(a, s)",
    "s = Sigmoid(a); f = Mul(s, a)",
    "f = Gelu(a)",
    'f = Gelu<approximate = "tanh">(a)',
    "f = Relu(a)",
]


@pytest.mark.parametrize(("products", "dtype"), [(PRODUCTS, "float16"), (BIASED, "float32")])
@pytest.mark.parametrize("gate", GATES)
def test_a_gate_is_in_the_product(gate, products, dtype):
    constants = {"g": draw(16, 8), "u": draw(16, 8), "c": draw(8), "d": draw(8)}
    constants = {name: (each / 4).astype(dtype) for name, each in constants.items()}
    given = {"x": X.astype(dtype), "r": draw(3, 5, 8, dtype=dtype)}
    graph = check(f"{products}; {gate}; h = Mul(f, b); y = Add(h, r)", given, constants)
    assert [each.op for each in graph.nodes] == ["GatedMatMul"] and steps(graph) == ["add"]
    assert [each.rule for each in graph.decisions].count("Gates") == 1


def test_predicted_times_decide_whether_a_gate_joins():
    graph = two_products(8, 8)
    graph.nodes += [Node("Swish", ("y",), ("f",), {}, "f"), Node("Mul", ("f", "z"), ("p",), {}, "p")]
    graph.specs |= dict.fromkeys("fp", Spec(SINGLE, (3, 5, 8)))
    graph.outputs = ["p"]
    found = rewrite(graph, lambda graph, nodes: 1.0 + any(each.op == "GatedMatMul" for each in nodes))
    assert "GatedMatMul" not in [each.op for each in found.nodes]
    assert any("gate in the product" in each.why for each in found.reasons("f"))


A, B = draw(4, 8, 16, dtype="float16"), draw(4, 16, 8, dtype="float16")


@pytest.mark.parametrize(("op", "scale"), [("Mul", 0.5), ("Div", 0.125)])
def test_factors_of_operands_scale_the_product(op, scale):
    text = f"c = {op}(a, s); d = Mul(t, b); y = MatMul(c, d)"
    (only,) = check(text, {"a": A, "b": B}, {"s": np.float16(2), "t": np.float16(0.25)}).nodes
    (step,) = only.epilogue
    assert only.op == "MatMul" and step.name == "scale" and step.scalar == scale


INPUTS = {
    **{"x": X * 3, "v": draw(3, 5, 16), "large": draw(3, 5, 16) + np.float32(9), "rows": draw(6, 16)},
    **{"halves": X.astype("float16"), "image": draw(1, 3, 4, 4), "node": draw(3, 5, 8), "flat_node": draw(6, 8)},
    **{"scalar": np.array(0.5, np.float32), "left": draw(16, 4), "right": draw(16, 4)},
}
CONSTANTS = {
    **{"c": draw(16), "powers": np.float32(2) ** np.arange(16, dtype=np.float32), "seven": np.float32(7)},
    **{"zero": np.float32(0), "three": np.float32(3), "six": np.float32(6), "half": np.float32(0.5)},
    **{"same": np.array([3, 5, 16]), "w": draw(16, 8), "u": draw(16, 8), "bias": draw(8), "square": draw(16, 16)},
    **{"taps": draw(2, 3, 1, 1), "axes": np.array([-1]), "counts": (np.arange(16) + 3).astype("float16")},
    **{"flat": np.array([-1, 16]), "whole": np.array([3, -1, 8]), "split": np.array([3, 5, 4, 4]), "one": np.array(1)},
    "pair": np.array([2, -1, 8]),
}
CONSTANTS |= {"wt": CONSTANTS["w"].T.copy(), "tall": draw(15, 8)}
#: Nodes after the rules; a product takes in the operations after it, at the place of the last operand.
CASES = {
    "y = Sub(x, c)": "Add",
    "y = Sub(c, x)": "Sub",
    "y = Sub(x, v)": "Sub",
    "y = Div(x, seven)": "Div",
    "y = Div(x, powers)": "Mul",
    "y = Div(halves, counts)": "Div",  # a rounded reciprocal
    "t = Neg(x); y = Mul(t, v)": "Mul + Mul",
    "y = HardSwish(x)": "HardSwish",
    "y = HardSigmoid<alpha = 0.3, beta = 0.4>(x)": "HardSigmoid",
    "t = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x); y = Mul(t, v)": "HardSigmoid + Mul",
    "y = Clip(x, zero, six)": "Clip",
    "t = Clip(x, zero, three); y = Div(t, large)": "Clip + Div",  # no kernel has these steps
    "t = Sigmoid(x); y = Mul(t, x)": "Swish",
    "k = Greater(v, zero); y = Where(k, x, seven)": "Greater + Where",
    "t = Expand(x, same); r = Cast<to = 1>(t); y = Relu(r)": "Relu",
    "y = Sum(x, v)": "Add",
    "m = MatMul(x, w); y = Add(m, node)": "MatMul + Add",
    "m = MatMul(x, w); y = Add(m, scalar)": "MatMul + Add",
    "m = Conv(image, taps); y = Add(m, half)": "Conv + Add",
    "m = MatMul(v, square); r = Relu(m); e = Exp(v); l = ReduceMax(e, axes); y = Mul(r, l)": (
        "Exp, ReduceMax, MatMul + Relu + Mul"
    ),
    "t = Mul(x, c); y = MatMul(t, w)": "Mul, MatMul",  # a factor per column
    'm = MatMul(rows, w); t = Add(bias, m); g = Gelu<approximate = "none">(t); y = Neg(g)': "MatMul + Add + Gelu + Mul",
    'm = MatMul(rows, w); t = Add(bias, m); g = Gelu<approximate = "tanh">(t); y = Neg(g)': "MatMul + Add + Gelu + Mul",
    # NumPy makes scalars of arrays without axes
    "y = Gemm<beta = 0.5, alpha = 2.0>(rows, w, scalar)": "Gemm",
    "y = Gemm<beta = 0.5, alpha = 2.0>(rows, w, half)": "Gemm",
    # neither siblings nor gates
    "y = MatMul(x, left); z = MatMul(x, right)": "MatMul, MatMul",
    "a = MatMul(x, w); b = MatMul(v, u); f = Relu(a); y = Mul(f, b)": "MatMul, MatMul + Relu + Mul",
    "a = MatMul(x, w); b = MatMul(x, u); z = Tanh(b); f = Relu(a); y = Mul(f, b)": "MatMul, Split, Tanh, Relu + Mul",
    # linears of several axes, as exporters write them, and other products between views
    "f = Reshape(x, flat); g = Gemm(f, w, bias); h = Reshape(g, whole); y = Add(h, node)": "MatMul + Add + Add",
    "f = Reshape(x, flat); g = Gemm<transB = 1>(f, wt, bias); h = Reshape(g, whole); y = Add(h, node)": (
        "MatMul + Add + Add"
    ),
    "t = Transpose<perm = [1, 0, 2]>(x); m = MatMul(t, w); b = Add(m, bias); r = Transpose<perm = [1, 0, 2]>(b); "
    "y = Add(r, node)": "MatMul + Add + Add",
    "f = Reshape(x, flat); g = Gemm(f, w); y = Relu(g)": "Reshape, Gemm + Relu",
    "f = Reshape(x, flat); g = Gemm<alpha = 2.0>(f, w); y = Reshape(g, whole)": "Reshape, Gemm, Reshape",
    "f = Reshape(x, flat); g = Gemm<transA = 1>(f, tall); y = Reshape(g, pair)": "Reshape, Gemm, Reshape",
    "r = Reshape(x, split); g = Gather<axis = 3>(r, one); y = Relu(g)": "Reshape, Gather, Relu",
    # a copy that others read is made once
    "r = Reshape(x, split); t = Transpose<perm = [0, 2, 1, 3]>(r); q = Reshape(t, same); y = Relu(q); "
    "z = Transpose(q)": ("Reshape, Transpose, Reshape, Relu, Transpose"),
}


@pytest.mark.parametrize("text", CASES)
def test_a_graph_becomes(text):
    graph = check(text, INPUTS, CONSTANTS)
    assert operators(graph, views=True) == CASES[text]
    assert {each.op for each in graph.nodes if each.epilogue} <= {"Elementwise", "MatMul", "Conv", "Gemm"}
    assert any(each.rule == "Linears" and each.applied for each in graph.decisions) == (
        CASES[text] == "MatMul + Add + Add"
    )
    for approximate, name in (("none", "gelu"), ("tanh", "gelu_tanh")):
        if approximate in text:
            assert steps(graph) == ["add", name, "scale"]


@pytest.mark.parametrize(
    "shape, steps, left",
    [
        ((2, 4, 3, 5), ([8, 3, 5], (0, 2, 1), [2, 4, 5, 3]), ["Transpose"]),
        ((2, 3, 20), ([2, 3, 4, 5], (0, 2, 1, 3), [8, 3, 5], (0, 2, 1), [2, 4, 5, 3]), ["Reshape", "Transpose"]),
        ((2, 3, 4), ([6, 4], [2, 3, 4], [3, 2, 4]), ["Reshape"]),
        ((2, 3, 4), ((1, 0, 2), [3, 2, 4, 1], (1, 0, 2, 3), [6, 4]), ["Reshape"]),
        ((2, 3, 4), ((1, 2, 0), (2, 0, 1), [6, 4]), ["Reshape"]),
        ((2, 3, 4), ((0, 2, 1), [2, 12], [24], [4, 6]), ["Transpose", "Reshape"]),
        ((6, 1, 4), ([2, 3, 4], (1, 0, 2), [3, 1, 8], [24]), ["Reshape", "Transpose", "Reshape"]),
        ((4, 6), ((1, 0), [8, 3]), ["Transpose", "Reshape"]),  # axes across each other: left as it is
        ((2, 3, 4), ([2, 12], [2, 3, 4]), []),
    ],
)
def test_a_chain_of_views_becomes_the_shortest(shape, steps, left):
    """Tuples of axes are transposes, lists of extents reshapes."""
    parts, constants, name = [], {}, "x"
    for number, step in enumerate(steps):
        constants[f"s{number}"] = np.array(step)
        op = f"Transpose<perm = {list(step)}>({name})" if isinstance(step, tuple) else f"Reshape({name}, s{number})"
        parts, name = [*parts, f"t{number} = {op}"], f"t{number}"
    graph = check("; ".join([*parts, f"z = Relu({name})"]), {"x": draw(*shape)}, constants)
    assert [each.op for each in graph.nodes if each.op != "Elementwise"] == left


def test_one_of_three_stacked_products_is_a_slice():
    """As torch's MultiheadAttention takes queries, keys and values apart."""
    text = "m = MatMul(x, w); r = Reshape(m, shape); t = Transpose<perm = [2, 0, 1, 3]>(r); " + "; ".join(
        f"g{place} = Gather<axis = 0>(t, i{place}); y{place} = {op}(g{place})" for place, op in enumerate(OPS)
    )
    constants = {"w": draw(8, 12), "shape": np.array([2, 5, 3, 4])} | {f"i{each}": np.array(each) for each in range(3)}
    found = [each.op for each in check(text, {"x": draw(2, 5, 8)}, constants).nodes]
    assert "Gather" not in found and found.count("Slice") == 3 and "Transpose" not in found


def test_planning_makes_calls_in_proportion_to_the_nodes():
    """Rules keep an index of readers: a graph of four times the nodes makes about four times the calls, not sixteen."""

    def calls(count):
        spec, nodes, calls = Spec(SINGLE, (4, 4)), [], 0
        for place, op in enumerate(("Exp", "Relu", "Neg") * count):
            nodes.append(Node(op, (f"t{place}",), (f"t{place + 1}",), {}, f"n{place}"))
        specs = {name: spec for node in nodes for name in node.outputs}
        graph = Graph(nodes, {"t0": spec}, [f"t{3 * count}"], {}, specs)

        def count_call(frame, event, argument):
            nonlocal calls
            calls += event.endswith("call")  # of Python and of C

        sys.setprofile(count_call)
        try:
            found = rewrite(graph, lambda graph, nodes: None)
        finally:
            sys.setprofile(None)
        assert count / 25 < len(found.nodes) < count / 15  # programs have at most 96 steps
        return calls

    calls(50)
    assert 200 < calls(200) < calls(800) < 5 * calls(200)
