"""Rules of convolutions, norms, GELU and rotary embeddings: what a graph becomes, with onnxruntime's results."""

import numpy as np
import pytest

from ..models import check, draw, operators, steps

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("emulator")

INPUTS = {"image": draw(2, 3, 8, 8), "x": draw(6, 16), "x3": draw(2, 5, 24), "whole": np.arange(3)}
CONSTANTS = {
    **{"w": draw(5, 3, 3, 3), "v": draw(5, 3, 3, 3), "factor": draw(5, 1, 1), "term": draw(1, 5, 1, 1)},
    **{"scale": draw(5), "bias": draw(5), "mean": draw(5), "var": np.abs(draw(5)) + np.float32(0.5)},
    **{"scale3": draw(3), "bias3": draw(3), "mean3": draw(3), "var3": np.abs(draw(3)) + np.float32(0.5)},
    **{"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "one": np.float32(1), "two": np.int64(2)},
}
CASES = {
    "a batch norm is folded into the convolution before it": (
        "c = Conv(image, w); b = BatchNormalization(c, scale, bias, mean, var); y = Relu(b)",
        "Conv + Mul + Add + Relu",
    ),
    "a batch norm alone is one element-wise kernel": (
        "b = BatchNormalization(image, scale3, bias3, mean3, var3); y = Relu(b)",
        "Mul + Add + Relu",
    ),
    "a convolution that is read twice keeps its weights": (
        "c = Conv(image, w); b = BatchNormalization(c, scale, bias, mean, var); y = Add(b, c)",
        "Conv, Mul + Add + Add",
    ),
    "padding and factors are folded": (
        "p = Pad(image, pads); c = Conv(p, w); m = Mul(c, factor); y = Add(m, term)",
        "Conv + Mul + Add",
    ),
    "padding before automatic padding is folded": (
        'p = Pad(image, pads); y = Conv<auto_pad = "SAME_LOWER", strides = [2, 2]>(p, w)',
        "Conv",
    ),
    "padding with other numbers stays": ("p = Pad(image, pads, one); y = Conv(p, w)", "Pad, Conv"),
    "the convolution computed last adds a residual": (
        "a = Conv(image, w); b = Conv(image, v); s = Add(a, b); y = Relu(s)",
        "Conv, Conv + Add + Relu",
    ),
    "integers are left alone": ("s = Add(whole, whole); y = Mul(s, two)", "Add, Mul"),
    "dropout and identity disappear": ("d = Dropout(image); i = Identity(d); y = Relu(i)", "Relu"),
    "a result of the graph is not fused away": ("c = Conv(image, w); result = Relu(c); y = Identity(c)", "Conv, Relu"),
}


@pytest.mark.parametrize("case", CASES)
def test_graphs_become(case):
    text, expected = CASES[case]
    assert operators(check(text, INPUTS, CONSTANTS)) == expected


ERF = "e = Erf(t); a = Add(e, one)"
TANH = (
    "d = Mul(c, small); e = Add(x, d); f = Mul(e, root); t = Tanh(f); a = Add(t, one); h = Mul(x, half); y = Mul(h, a)"
)
NUMBERS = {"root2": 2**0.5, "low": 0.5**0.5, "one": 1, "half": 0.5, "three": 3, "small": 0.044715, "root": 0.7978845608}
NUMBERS |= {"other": 1.5, "near": 0.9}


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (f"t = Div(x, root2); {ERF}; p = Mul(x, a); y = Mul(p, half)", "gelu"),
        (f"t = Mul(x, low); {ERF}; h = Mul(x, half); y = Mul(h, a)", "gelu"),
        (f"t = Div(x, root2); {ERF}; h = Mul(a, half); y = Mul(h, x)", "gelu"),
        (f"c = Pow(x, three); {TANH}", "gelu_tanh"),
        (f"q = Mul(x, x); c = Mul(q, x); {TANH}", "gelu_tanh"),
        (f"t = Div(x, other); {ERF}; p = Mul(x, a); y = Mul(p, half)", None),
        (f"c = Pow(x, three); {TANH.replace('root', 'near')}", None),
    ],
)
def test_a_gelu_in_parts_is_one_kernel(text, step):
    graph = check(text, INPUTS, {name: np.float32(value) for name, value in NUMBERS.items()})
    if step is not None:
        assert len(graph.nodes) == 1 and steps(graph) == [step]
    else:
        assert not {"gelu", "gelu_tanh"} & {*steps(graph)}


LAYER = (
    "m = ReduceMean(x3, axes); d = Sub(x3, m); p = Pow(d, two); v = ReduceMean(p, axes); a = Add(v, eps); s = Sqrt(a)"
)
HALF_LAYER = f"w = Cast<to = 1>(x3); {LAYER.replace('x3', 'w').replace('Pow(d, two)', 'Mul(d, d)')}"
ROOTS = {
    "Reciprocal": "p = Pow(w, two); {mean}; s = Sqrt(a); r = Reciprocal(s); n = Mul(w, r)",
    "One": "p = Pow(w, two); {mean}; s = Sqrt(a); r = Div(one, s); n = Mul(r, w)",
    "Div": "p = Mul(w, w); {mean}; s = Sqrt(a); n = Div(w, s)",
}
WEIGHTS = {
    "after the cast": "c = Cast<to = {to}>(n); y = Mul(weight, c)",
    "before the cast": "f = Mul(n, wide); y = Cast<to = {to}>(f)",
    "none": "y = Cast<to = {to}>(n)",
}


def rms(root, dtype, weight="after the cast", x="x"):
    """An RMS norm in float32, as transformers writes it."""
    first = f"w = Cast<to = 1>({x})" if dtype == "float16" else f"w = Identity({x})"
    text = f"{first}; {ROOTS[root]}; {WEIGHTS[weight]}"
    return text.format(mean="m = ReduceMean(p, axes); a = Add(m, eps)", to=10 if dtype == "float16" else 1)


def norm_constants(dtype="float32"):
    weight = draw(24, dtype=dtype)
    found = {"axes": np.array([-1]), "eps": np.float32(1e-3), "two": np.float32(2), "one": np.float32(1)}
    return found | {"weight": weight, "wide": weight.astype(np.float32), "bias": draw(24, dtype=dtype)}


@pytest.mark.parametrize(
    ("dtype", "text", "norm"),
    [
        *((dtype, rms(root, dtype), "RMSNormalization") for root in ROOTS for dtype in ("float16", "float32")),
        *(("float16", rms("Reciprocal", "float16", weight), "RMSNormalization") for weight in WEIGHTS),
        ("float32", f"{LAYER}; n = Div(d, s); y = Mul(n, weight)", "LayerNormalization"),
        ("float32", f"{LAYER}; n = Div(d, s); k = Mul(n, weight); y = Add(k, bias)", "LayerNormalization"),
        (
            "float16",
            f"{HALF_LAYER}; n = Div(d, s); c = Cast<to = 10>(n); k = Mul(c, weight); y = Add(k, bias)",
            "LayerNormalization",
        ),
    ],
)
def test_a_norm_in_parts_is_one_kernel(dtype, text, norm):
    given = {name: INPUTS["x3"].astype(dtype) for name in ("x", "x3")}
    graph = check(text, given, norm_constants(dtype))
    assert operators(graph) == norm and graph.nodes[0].attributes["epsilon"] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("dtype", "text", "changed"),
    [
        ("float16", rms("Div", "float16", "before the cast"), {"wide": np.full(24, 1 / 3, np.float32)}),
        ("float32", rms("Div", "float32").replace("Div(w, s)", "Div(v, s)"), {}),
    ],
    ids=["a weight that 16 bits round", "a root of another tensor"],
)
def test_what_is_almost_an_rms_norm_stays(dtype, text, changed):
    graph = check(text, {name: draw(24, 24, dtype=dtype) for name in "xv"}, norm_constants(dtype) | changed)
    if "wide" in changed:
        assert operators(graph) == "Cast, RMSNormalization, Cast"  # in float32
    else:
        assert "RMSNormalization" not in operators(graph)


@pytest.mark.parametrize(
    ("norm", "fused"),
    [
        ("y = LayerNormalization<axis = -1, epsilon = 1e-3>(h, weight, bias)", ["layernorm", "mul", "add"]),
        (rms("Div", "float32", x="h"), ["rmsnorm", "mul"]),
    ],
)
@pytest.mark.parametrize("faster", [True, False])
def test_a_norm_joins_the_product_where_that_is_predicted_faster(norm, fused, faster, monkeypatch):
    """BERT's, after a bias and a residual."""

    def potential(graph, nodes):
        return 1.0 if (len(nodes) == 1) == faster else 2.0

    monkeypatch.setattr("gensor_kernels.graph.rewrites.predict", potential)
    given = {"given": draw(2, 5, 16), "r": draw(2, 5, 24)}
    constants = norm_constants() | {"k": draw(16, 24), "term": draw(24)}
    graph = check(f"product = MatMul(given, k); sum = Add(product, term); h = Add(sum, r); {norm}", given, constants)
    assert graph.nodes[0].op == "MatMul" and len(graph.nodes) == (1 if faster else 2)
    if faster:
        assert steps(graph) == ["add", "add", *fused]
    else:
        assert any("no faster" in each.why for each in graph.reasons(graph.nodes[1].name))


def test_a_sum_that_is_read_also_without_its_norm_keeps_the_norm_apart(monkeypatch):
    monkeypatch.setattr("gensor_kernels.graph.rewrites.predict", lambda graph, nodes: float(len(nodes)))
    text = "p = MatMul(x, m); n = LayerNormalization(p, w); y = Add(n, p)"
    graph = check(text, {"x": draw(5, 16)}, {"m": draw(16, 24), "w": draw(24)})
    assert "LayerNormalization" in operators(graph)


ROTARY = "c = Neg(b); r = Concat<axis = -1>(c, a); s = Mul(r, sin); d = Mul(x, cos); y = Add(d, s)"
SLICES = "a = Slice(x, none, half, axis); b = Slice(x, half, many, axis, step)"


@pytest.mark.parametrize(
    ("halves", "dtype", "sign", "expected"),
    [
        (SLICES, "float16", 1, "Rotary"),
        (SLICES, "float32", 1, "Rotary"),
        ("a, b = Split<axis = -1>(x, parts)", "float32", 1, "Rotary"),
        (SLICES, "float32", -1, "Mul, Concat, Mul + Mul + Add"),  # the halves have different angles
    ],
)
def test_a_rotary_embedding_in_parts_is_one_node(halves, dtype, sign, expected):
    angles = draw(1, 1, 6, 8)
    both = np.concatenate([angles, sign * angles], axis=-1)
    places = {"none": [0], "half": [8], "axis": [3], "step": [1], "many": [2**63 - 1], "parts": [8, 8]}
    constants = {name: np.array(value) for name, value in places.items()}
    constants |= {"sin": np.sin(both).astype(dtype), "cos": np.cos(both).astype(dtype)}
    graph = check(f"{halves}; {ROTARY}", {"x": draw(2, 3, 6, 16, dtype=dtype)}, constants)
    assert operators(graph) == expected
