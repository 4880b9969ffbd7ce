"""Spellings of activations, softmax and norms: each is one node, with onnxruntime's results."""

import numpy as np
import pytest

from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.readers.onnx_file import Source

from ..models import by_onnxruntime, check, draw, operators
from ..networks.channels_last import classifier

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("emulator")

X = draw(4, 24)
IMAGE = draw(2, 4, 6, 5)
NUMBERS = {"one": 1, "two": 2, "half": 0.5, "third": 3, "six": 6, "zero": 0, "sixth": 1 / 6, "minus": -1, "eps": 1e-3}
NUMBERS |= {"low": 0.5**0.5, "root2": 2**0.5, "cubic": 0.044715, "wide": (8 / np.pi) ** 0.5, "root": (2 / np.pi) ** 0.5}
NUMBERS |= {"both": 0.044715 * (2 / np.pi) ** 0.5, "rows": 24, "inverse": 1 / 24, "power": -0.5}
CONSTANTS = {name: np.float32(value) for name, value in NUMBERS.items()}
CONSTANTS |= {"w": draw(24), "b": draw(24), "wc": draw(4, 1, 1), "bc": draw(1, 4, 1, 1), "axis": np.array([-1])}
CONSTANTS |= {"image": np.array([2, 3]), "groups": np.array([2, 2, -1]), "back": np.array([2, 4, 6, 5])}
CONSTANTS |= {"other": np.array([0]), "channel": np.array([1]), "lifted": np.array([4, 1])}
CONSTANTS |= {"least": np.float32(-np.inf)}

MOMENTS = "m = ReduceMean(x, axis); q = Mul(x, x); u = ReduceMean(q, axis); n = Mul(m, m); v = Sub(u, n)"
CENTRED = "m = ReduceMean(x, axis); d = Sub(x, m); q = Mul(d, d); v = ReduceMean(q, axis)"
SPELLINGS = {
    "Gelu": [
        "t = Mul(x, low); e = Erf(t); h = Mul(half, x); k = Mul(h, e); y = Add(h, k)",  # multiplied out
        "t = Div(x, root2); e = Erf(t); a = Add(one, e); h = Mul(a, x); y = Div(h, two)",
        "c = Mul(x, x); d = Mul(c, cubic); e = Add(d, one); f = Mul(e, x); g = Mul(f, root); t = Tanh(g);"
        "a = Add(t, one); h = Mul(a, half); y = Mul(x, h)",
        "c = Pow(x, third); d = Mul(c, both); e = Mul(x, root); f = Add(d, e); t = Tanh(f); h = Mul(x, half);"
        "k = Mul(h, t); y = Add(k, h)",
        "c = Pow(x, third); d = Mul(c, cubic); e = Add(x, d); f = Mul(e, wide); s = Sigmoid(f); y = Mul(x, s)",
    ],
    "Swish": [
        "s = Sigmoid(x); y = Mul(s, x)",
        "n = Neg(x); e = Exp(n); a = Add(e, one); y = Div(x, a)",
        "n = Mul(x, minus); e = Exp(n); a = Add(one, e); r = Reciprocal(a); y = Mul(r, x)",
        "h = Mul(x, half); t = Tanh(h); a = Add(t, one); k = Mul(a, half); y = Mul(k, x)",
    ],
    "HardSwish": [
        "a = Add(x, third); c = Clip(a, zero, six); m = Mul(x, c); y = Div(m, six)",
        "a = Add(x, third); r = Relu(a); c = Min(r, six); d = Mul(c, sixth); y = Mul(d, x)",
        "h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x); y = Mul(h, x)",
        "a = Add(third, x); c = Max(a, zero); d = Min(six, c); m = Div(d, six); y = Mul(m, x)",
    ],
    "Softmax": [
        "m = ReduceMax(x, axis); d = Sub(x, m); e = Exp(d); s = ReduceSum(e, axis); y = Div(e, s)",
        "e = Exp(x); s = ReduceSum(e, axis); r = Reciprocal(s); y = Mul(r, e)",
        "m = ReduceMax<keepdims = 0>(x, axis); f = Max(m, least); u = Unsqueeze(f, axis); d = Sub(x, u); e = Exp(d);"
        "s = ReduceSum<keepdims = 0>(e, axis); t = Reshape(s, lifted); y = Div(e, t)",
    ],
    "LogSoftmax": [
        "m = ReduceMax(x, axis); d = Sub(x, m); e = Exp(d); s = ReduceSum(e, axis); l = Log(s); y = Sub(d, l)",
    ],
    "LayerNormalization": [
        f"{CENTRED}; a = Add(v, eps); s = Sqrt(a); n = Div(d, s); k = Mul(n, w); y = Add(k, b)",
        f"{CENTRED}; a = Add(eps, v); r = Pow(a, power); n = Mul(d, r); k = Mul(w, n); y = Add(b, k)",
        f"{MOMENTS}; a = Add(v, eps); s = Sqrt(a); r = Reciprocal(s); d = Sub(x, m); y = Mul(d, r)",
        # Keras: x * (r * w) + (b - m * r * w).
        f"{MOMENTS}; a = Add(v, eps); s = Sqrt(a); r = Reciprocal(s); f = Mul(r, w); h = Mul(m, f); i = Sub(b, h);"
        "j = Mul(x, f); y = Add(j, i)",
        "t = ReduceSum(x, axis); m = Mul(t, inverse); d = Sub(x, m); q = Pow(d, two); u = ReduceSum(q, axis);"
        "v = Div(u, rows); a = Add(v, eps); s = Sqrt(a); n = Div(d, s); y = Mul(n, w)",
        "m = ReduceMean(x, axis); d = Sub(m, x); q = Mul(d, d); v = ReduceMean(q, axis); a = Add(v, eps); s = Sqrt(a);"
        "n = Div(d, s); k = Mul(n, w); y = Sub(b, k)",
    ],
    # JAX: the moments have lost the axis.
    "LayerNormalization ": [
        "t = ReduceSum<keepdims = 0>(x, axis); m = Mul(t, inverse); q = Mul(x, x);"
        "u = ReduceSum<keepdims = 0>(q, axis); i = Div(u, rows); j = Mul(m, m); v = Sub(i, j); f = Max(zero, v);"
        "g = Reshape(f, lifted); h = Expand(g, lifted); a = Add(h, eps); s = Sqrt(a); r = Reciprocal(s); k = Mul(r, w);"
        "l = Reshape(m, lifted); o = Expand(l, lifted); d = Sub(x, o); n = Mul(d, k); y = Add(n, b)",
    ],
    "RMSNormalization": [
        "v = ReduceSumSquare(x, axis); u = Div(v, rows); a = Add(u, eps); s = Sqrt(a); n = Div(x, s); y = Mul(n, w)",
        "q = Pow(x, two); v = ReduceMean(q, axis); a = Add(v, eps); r = Pow(a, power); k = Mul(r, w); y = Mul(k, x)",
    ],
    "InstanceNormalization": [
        "m = ReduceMean(image4, image); d = Sub(image4, m); q = Mul(d, d); v = GlobalAveragePool(q); a = Add(v, eps);"
        "s = Sqrt(a); n = Div(d, s); k = Mul(n, wc); y = Add(k, bc)",
    ],
    "Transpose, LayerNormalization, Transpose": [  # over channels
        "m = ReduceMean(image4, channel); d = Sub(image4, m); q = Pow(d, two); v = ReduceMean(q, channel);"
        "a = Add(v, eps); s = Sqrt(a); n = Div(d, s); k = Mul(n, wc); y = Add(k, bc)",
    ],
    "Transpose, RMSNormalization, Transpose, Mul": [
        "q = Mul(x, x); v = ReduceMean(q, other); a = Add(v, eps); s = Sqrt(a); n = Div(x, s); y = Mul(n, w)",
    ],
    "Reshape, LayerNormalization, Reshape, Mul + Add": [  # a group norm
        "g = Reshape(image4, groups); m = ReduceMean(g, axis); d = Sub(g, m); q = Mul(d, d); v = ReduceMean(q, axis);"
        "a = Add(v, eps); s = Sqrt(a); n = Div(d, s); i = Reshape(n, back); k = Mul(i, wc); y = Add(k, bc)",
    ],
    "ReduceMax, Sub, Softmax": [  # the maxima of another axis
        "m = ReduceMax(x, other); d = Sub(x, m); e = Exp(d); s = ReduceSum(e, axis); y = Div(e, s)",
    ],
    # Almost a pattern.
    "": [
        "t = Mul(x, half); e = Erf(t); h = Mul(half, x); k = Mul(h, e); y = Add(h, k)",
        "a = Add(x, third); c = Clip(a, zero, third); m = Mul(x, c); y = Div(m, six)",
        "e = Exp(x); s = ReduceSum(e, axis); a = Add(s, one); y = Div(e, a)",
        f"{CENTRED}; s = Sqrt(v); a = Add(s, eps); y = Div(d, a)",
        f"{MOMENTS.replace('ReduceMean(q, axis)', 'ReduceMean(q, other)')}; a = Add(v, eps);s = Sqrt(a); y = Div(x, s)",
        "s = Sigmoid(x); k = Mul(s, two); y = Mul(k, x)",
    ],
}


@pytest.mark.parametrize(("expected", "text"), [(op, text) for op, texts in SPELLINGS.items() for text in texts])
def test_a_spelling_is_the_operator(expected, text):
    graph = check(text, {"x": X, "image4": IMAGE}, CONSTANTS)
    found = operators(graph, views=True)
    if expected:
        assert found == expected.strip()
    else:
        assert not set(SPELLINGS) & set(found.split(", "))


def test_a_classifier_of_jax_has_the_nodes_of_a_clean_export():
    made, shape = classifier()
    x = np.random.default_rng(0).integers(0, 32, shape, np.int32)
    model = Model(Source(made), "model")
    (wanted,) = by_onnxruntime(made, {"x": x})
    np.testing.assert_allclose(model(x), wanted, rtol=1e-4, atol=1e-6)
    (plan,) = model._plans.values()
    assert operators(plan.graph) == (
        "Equal + Cast, MatMul + Add + Gelu, LayerNormalization, Conv, Squeeze, Add + Gelu, GlobalMaxPool, Squeeze, "
        "LayerNormalization, MatMul + Add, Softmax"
    )
