"""Element-wise nodes that become one launch: which do, and that their results are onnxruntime's."""

import numpy as np
import pytest

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.lowerings.programs import OPERATORS
from gensor_kernels.graph.rewrites import rewrite

from ..models import check, draw, operators

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("emulator")

INPUTS = {
    "few": draw(8, 16),
    **{"x": draw(4, 8, 16), "y": draw(4, 8, 16), "rows": draw(4, 1, 16), "column": draw(8, 1)},
    **{"image": draw(2, 6, 8, 8), "half": draw(4, 8, 16, dtype="float16"), "n": np.arange(-60, 68).reshape(8, 16)},
    **{f"a{place}": draw(4, 8) for place in range(12)},
    **{name: (30 * draw(4, 8, 16)).astype("int8") for name in ("whole", "term")},
}
CONSTANTS = {
    **{
        "zero": np.float32(0),
        "one": np.float32(1),
        "two": np.float32(2),
        "low": np.float32(-0.5),
        "four": np.int64(-4),
        **{"scale": np.float32(0.05), "point": np.int8(3), "other": np.float32(0.03)},
    },
    **{"scales": np.abs(draw(6)) + np.float32(0.01), "points": np.arange(6, dtype="int8")},
    **{"w": draw(5, 6, 3, 3), "shift": draw(5, 1, 1), "axes": np.array([2]), "many": draw(1, 1, 1, 1)},
}
CASES = {
    "a chain with broadcasts": (
        "d = Sub(x, rows); s = Mul(d, column); e = Exp(s); r = Sqrt(e); i = Reciprocal(r); g = Greater(i, one); "
        "c = Where(g, d, i); f = Erf(c); z = Clip(f, low, one)",
        "Sub + Mul + Exp + Sqrt + Reciprocal + Greater + Where + Erf + Clip",
    ),
    "a diamond": (
        "e = Exp(x); a = Sin(e); b = Cos(e); y = Mul(a, b)",
        "Exp + Sin + Cos + Mul",
    ),
    "a tensor that something else reads stays": (
        "e = Exp(x); s = Sin(e); r = Softmax(e); y = Mul(s, r)",
        "Exp, Softmax, Sin + Mul",
    ),
    "a chain of an epilogue stays alone": ("r = Relu(x); t = Tanh(r)", "Relu + Tanh"),
    "a chain of an epilogue among others": (
        "e = Exp(x); r = Relu(e); t = Add(r, y); z = Log(t)",
        "Exp + Relu + Add + Log",
    ),
    "powers": ("p = Pow(x, two); q = Abs(p); r = Pow(q, low); z = Max(r, x, y)", "Pow + Abs + Pow + Max"),
    "conversions": ("c = Cast<to = 11>(x); e = Exp(c); y = Cast<to = 1>(e)", "Cast + Exp + Cast"),
    "a conversion alone": ("e = Cast<to = 10>(x); y = Cast<to = 1>(e)", "Cast + Cast"),
    "integers alone": ("m = Mod(n, four); a = Abs(m); d = Div(n, four); z = Sub(a, d)", "Mod, Abs, Div, Sub"),
    "integers": (
        "m = Mod(n, four); d = Div(n, four); s = Sub(m, d); g = Less(s, four); z = Where(g, few, one)",
        "Mod + Div + Sub + Less + Where",
    ),
    "booleans": ("g = Greater(x, zero); l = Less(x, one); a = And(g, l); o = Not(a); z = Where(o, x, y)",
                 "Greater + Less + And + Not + Where"),
    "sixteen bits": ("e = Exp(half); l = Softplus(e); y = Elu(l)", "Exp + Softplus + Elu"),
    "boxes from distances": (
        "l = Sub(x, y); h = Add(x, y); s = Add(l, h); c = Div(s, two); d = Sub(h, l); z = Concat<axis=1>(c, d)",
        "Sub + Add + Add + Div + Sub, Concat",
    ),
    "a result that is read before the last one stays": (
        "e = Exp(x); s = Softmax(e); l = Log(s); r = Sin(e); z = Add(l, r)",
        "Exp, Softmax, Log + Sin + Add",
    ),
    "more results than a kernel writes": (
        "; ".join(f"e{n + 1} = Sin(e{n})" if n else "e1 = Sin(x)" for n in range(5))
        + "".join(f"; s{n} = Softmax(e{n + 1})" for n in range(5)),
        "Sin, Sin + Sin + Sin + Sin, " + ", ".join(["Softmax"] * 5),
    ),
    "a residual of quantised tensors": (
        "a = DequantizeLinear(whole, scale, point); b = DequantizeLinear(term, other); c = Add(a, b); r = Relu(c);"
        "z = QuantizeLinear(r, other, point)",
        "DequantizeLinear + DequantizeLinear + Add + Relu + QuantizeLinear",
    ),
    "quantised by channels": (
        "q8 = QuantizeLinear<axis=1>(image, scales, points); c = Concat<axis=0>(q8, q8);"
        "y = DequantizeLinear<axis=1>(c, scales, points)",
        "QuantizeLinear, Concat, DequantizeLinear",
    ),
    "a costly row is computed once": ("e = Exp(rows); y = Mul(e, x)", "Exp, Mul"),
    "a cheap row is computed again": ("e = Neg(rows); a = Abs(e); y = Div(a, x)", "Mul + Abs + Div"),
    "an array of one element with more axes": ("e = Exp(x); y = Div(e, many)", "Exp, Div"),
    "a product keeps its epilogue": (
        "c = Conv(image, w); s = Add(c, shift); r = Relu(s); y = Exp(r)",
        "Conv + Add + Relu, Exp",
    ),
    "more arrays than a kernel reads": (
        "; ".join(f"s{n} = Div({f's{n - 1}' if n else 'a11'}, a{n})" for n in range(11)),
        "Div + Div + Div + Div, " + " + ".join(["Div"] * 7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_graphs_become(case):
    text, expected = CASES[case]
    assert operators(check(text, INPUTS, CONSTANTS), views=True) == expected


def test_what_kernels_compute_stays_where_none_computes_the_whole():
    """A library takes as long for a program as for its operators; a chain of an epilogue has a kernel."""

    def library(_, nodes):
        return sum(0.5 if each.op == "Elementwise" else each.attributes["program"].count("__") - 1.0 for each in nodes)

    names = ["x", "e", "r", "y"]
    spec = Spec(np.dtype(np.float32), (4, 8))
    nodes = [
        Node(op, (given,), (made,)) for op, given, made in zip(("Exp", "Relu", "Log"), names, names[1:], strict=False)
    ]
    for potential, expected in ((library, "Exp, Relu, Log"), (lambda graph, nodes: None, "Exp + Relu + Log")):
        graph = rewrite(Graph(nodes[:], {"x": spec}, ["y"], {}, dict.fromkeys(names, spec)), potential)
        assert operators(graph) == expected


def test_programs_that_differ_in_numbers_are_one_kernel():
    """The numbers 0.05 and 0.03 are read; 2.0 is part of the program. A third program has another step."""
    text = "a = Mul(x, scale); b = Mul(a, two); c = Exp(b); s = Softmax(c); "
    text += "d = Mul(s, other); e = Mul(d, two); f = Exp(e); g = Softmax(f); h = Mul(g, two); y = Exp(h)"
    graph = check(text, INPUTS, CONSTANTS)
    assert operators(graph) == "Mul + Mul + Exp, Softmax, Mul + Mul + Exp, Softmax, Mul + Exp"
    first, second, third = (node for node in graph.nodes if node.op == "Pointwise")
    assert first.attributes == second.attributes != third.attributes and len(third.inputs) == 1
    assert [float(graph.constants[node.inputs[1]]) for node in (first, second)] == pytest.approx([0.05, 0.03])


@pytest.mark.parametrize("rows, chosen", [(2.0, "Pointwise"), (1.0, "Elementwise"), (None, "Elementwise")])
def test_a_chain_of_an_epilogue_alone_is_a_program_where_that_is_faster(rows, chosen):
    spec = Spec(np.dtype(np.float32), (4, 8))
    node = Node("HardSwish", ("x",), ("y",))
    graph = Graph([node], {"x": spec}, ["y"], {}, dict.fromkeys("xy", spec))
    rewrite(graph, lambda graph, nodes: None if rows is None else rows if nodes[0].op == "Elementwise" else 1.0)
    assert [each.op for each in graph.nodes] == [chosen] and operators(graph) == "HardSwish"


def test_lists_of_numbers_stay_on_the_host():
    assert operators(check("m = Mul(n, n); y = Neg(m)", {"n": np.arange(5)}, {})) == "Mul, Neg"


FLOATS_OF_ONE = [
    *("Abs", "Acos", "Asin", "Asinh", "Atan", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu"),
    *(
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Neg",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Shrink",
        "Sigmoid",
    ),
    *("Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh", "ThresholdedRelu"),
]


def test_every_function_is_part_of_a_program():
    """Numbers are in its domain; six functions are at most two launches."""
    texts = [f"t{place} = Abs(x); u{place} = {op}(x)" for place, op in enumerate(FLOATS_OF_ONE)]
    for first in range(0, len(texts), 6):
        some = texts[first : first + 6]
        places = range(first, first + len(some))
        added = [f"v{place} = Add(u{place}, t{place})" for place in places]
        total = [f"w{place} = Add({f'w{place - 1}' if place > first else 'x'}, v{place})" for place in places]
        shrunk = np.tanh(INPUTS["x"]) * np.float32(0.9)
        graph = check("; ".join((*some, *added, *total)), {"x": np.abs(shrunk) if "Sqrt" in str(some) else shrunk}, {})
        assert len(graph.nodes) <= 2


def test_operators_of_the_standard_that_are_element_wise_are_traced():
    assert len(OPERATORS) >= 60 and {"Where", "Cast", "PRelu", "IsInf", "BitShift", "Elementwise"} <= set(OPERATORS)
