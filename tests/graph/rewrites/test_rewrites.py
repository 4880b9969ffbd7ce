"""Every rule: what a graph looks like behind it, and that its results stay."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.graph.execution.prepared import Prepared
from gensor_kernels.graph.execution.weights import Weights

from ..models import model, node

RNG = np.random.default_rng(0)


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(made, *inputs):
    """Return the result on the emulator, and the text of each node behind the rewrites."""
    with gensor_kernels.emulated("sm_87"):
        found = made(*inputs)
        (plan,) = made._plans.values()
    return found, [str(each) for each in plan.graph.nodes if each.op != "Layout"]  # those are no rewrites


def convolved(x, w, padding=0):
    """A convolution of float64, by its definition."""
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (padding, padding), (padding, padding)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwrs,kcrs->nkhw", windows, w.astype(np.float64))


X, W = drawn(2, 3, 8, 8), drawn(5, 3, 3, 3)
SCALE, BIAS, MEAN, VAR = drawn(5), drawn(5), drawn(5), np.abs(drawn(5)) + 0.5
NORM = {"w": W, "scale": SCALE, "bias": BIAS, "mean": MEAN, "var": VAR}
INPUT = {"x": ("float32", X.shape)}


def normed(y):
    wide = [each.astype(np.float64).reshape(-1, 1, 1) for each in (SCALE, BIAS, MEAN, VAR)]
    return (y - wide[2]) / np.sqrt(wide[3] + 1e-5) * wide[0] + wide[1]


def test_a_batch_norm_is_folded_into_the_convolution_in_front():
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["b"]),
        node("Relu", ["b"], ["y"]),
    ]
    found, names = run(model(nodes, INPUT, ["y"], NORM), X)
    assert len(names) == 1 and names[0].startswith("Conv") and names[0].endswith("Relu")
    np.testing.assert_allclose(found, np.maximum(normed(convolved(X, W)), 0), rtol=1e-4, atol=1e-4)


def test_a_batch_norm_without_a_convolution_is_one_element_wise_kernel():
    nodes = [node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"]), node("Relu", ["n"], ["y"])]
    constants = {"s": SCALE[:3], "b": BIAS[:3], "m": MEAN[:3], "v": VAR[:3]}
    found, names = run(model(nodes, INPUT, ["y"], constants), X)
    assert names == ["Mul + Add + Relu"]
    scale, bias, mean, var = (each[:3].astype(np.float64).reshape(-1, 1, 1) for each in (SCALE, BIAS, MEAN, VAR))
    np.testing.assert_allclose(found, np.maximum((X - mean) / np.sqrt(var + 1e-5) * scale + bias, 0), 1e-4, 1e-4)


def test_a_convolution_that_is_read_twice_keeps_its_weights():
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["b"]),
        node("Add", ["b", "c"], ["y"]),
    ]
    found, names = run(model(nodes, INPUT, ["y"], NORM), X)
    assert names[0] == "Conv"
    np.testing.assert_allclose(found, normed(convolved(X, W)) + convolved(X, W), rtol=1e-4, atol=1e-4)


def test_padding_and_factors_are_folded():
    nodes = [
        node("Pad", ["x", "pads"], ["p"]),
        node("Conv", ["p", "w"], ["c"]),
        node("Mul", ["c", "factor"], ["m"]),
        node("Add", ["m", "term"], ["y"]),
    ]
    constants = {"w": W, "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "factor": drawn(5, 1, 1)}
    constants["term"] = drawn(1, 5, 1, 1)
    found, names = run(model(nodes, INPUT, ["y"], constants), X)
    assert names == ["Conv + Mul + Add"]
    wanted = convolved(X, W, 1) * constants["factor"] + constants["term"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_padding_with_other_numbers_stays():
    nodes = [node("Pad", ["x", "pads", "one"], ["p"]), node("Conv", ["p", "w"], ["y"])]
    constants = {"w": W, "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "one": np.float32(1)}
    found, names = run(model(nodes, INPUT, ["y"], constants), X)
    assert names == ["Pad", "Conv"]
    padded = np.pad(X, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=1)
    np.testing.assert_allclose(found, convolved(padded, W), rtol=1e-4, atol=1e-4)


def test_a_residual_is_added_by_the_convolution_computed_last():
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Conv", ["x", "v"], ["b"]),
        node("Add", ["a", "b"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    v = drawn(5, 3, 3, 3)
    found, names = run(model(nodes, INPUT, ["y"], {"w": W, "v": v}), X)
    assert names == ["Conv", "Conv + Add + Relu"]
    np.testing.assert_allclose(found, np.maximum(convolved(X, W) + convolved(X, v), 0), rtol=1e-4, atol=1e-4)


def test_a_result_of_the_graph_is_not_fused_away():
    nodes = [node("Conv", ["x", "w"], ["c"]), node("Relu", ["c"], ["y"])]
    (raw, found), names = run(model(nodes, INPUT, ["c", "y"], {"w": W}), X)
    assert names == ["Conv", "Relu"]
    np.testing.assert_allclose(found, np.maximum(raw, 0))


@pytest.mark.parametrize("approximate, name", [("none", "gelu"), ("tanh", "gelu_tanh")])
def test_a_product_takes_bias_activation_and_residual(approximate, name):
    a, b, bias, r = drawn(6, 16), drawn(16, 8), drawn(8), drawn(6, 8)
    nodes = [
        node("MatMul", ["x", "b"], ["m"]),
        node("Add", ["bias", "m"], ["t"]),
        node("Gelu", ["t"], ["g"], approximate=approximate),
        node("Add", ["g", "r"], ["y"]),
    ]
    inputs = {"x": ("float32", a.shape), "r": ("float32", r.shape)}
    made = model(nodes, inputs, ["y"], {"b": b, "bias": bias})
    found, names = run(made, a, r)
    assert names == ["MatMul + Add + Gelu + Add"]
    (plan,) = made._plans.values()
    assert [step.name for step in plan.graph.nodes[0].epilogue] == ["add", name, "add"]
    with gensor_kernels.emulated("sm_87"):
        wanted = gensor_kernels.matmul(a, b, epilogue=[("bias", bias), name, ("add", r)])
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_tensor_named_like_an_argument_is_no_argument():
    """Epilogues read tensors by name, whatever the name."""
    nodes = [node("MatMul", ["a", "b"], ["m"]), node("Add", ["m", "node"], ["y"])]
    inputs = {"a": ("float32", (4, 4)), "node": ("float32", (4, 4))}
    a, other, b = drawn(4, 4), drawn(4, 4), drawn(4, 4)
    found, names = run(model(nodes, inputs, ["y"], {"b": b}), a, other)
    assert names == ["MatMul + Add"]
    np.testing.assert_allclose(found, a @ b + other, rtol=1e-5, atol=1e-5)


def test_integers_and_unknown_shapes_are_left_alone():
    nodes = [node("Add", ["x", "x"], ["s"]), node("Mul", ["s", "two"], ["y"])]
    found, names = run(model(nodes, {"x": ("int64", (3,))}, ["y"], {"two": np.int64(2)}), np.arange(3))
    assert names == ["Add", "Mul"] and found.tolist() == [0, 4, 8]


def test_dropout_and_identity_disappear():
    nodes = [node("Dropout", ["x"], ["d"]), node("Identity", ["d"], ["i"]), node("Relu", ["i"], ["y"])]
    found, names = run(model(nodes, INPUT, ["y"]), X)
    assert names == ["Relu"]
    np.testing.assert_array_equal(found, np.maximum(X, 0))


def test_weights_that_a_file_computes_are_constants():
    nodes = [node("ConstantOfShape", ["shape"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    made = model(nodes, {"x": ("float32", (2, 600))}, ["y"], {"shape": np.array([600, 700])})
    plan = Prepared(made._source.graph(), Weights())
    assert [each.op for each in plan.graph.nodes] == ["MatMul"]
    assert plan.graph.constants["w"].shape == (600, 700)


def gelu_nodes(form):
    """GELU as exporters write it: x * (1 + erf) * 0.5, (x * 0.5) * (1 + erf), ((1 + erf) * 0.5) * x."""
    scaled = node("Mul", ["x", "low"], ["t"]) if form == 1 else node("Div", ["x", "root"], ["t"])
    nodes = [scaled, node("Erf", ["t"], ["e"]), node("Add", ["e", "one"], ["a"])]
    if form == 0:
        return [*nodes, node("Mul", ["x", "a"], ["p"]), node("Mul", ["p", "half"], ["y"])]
    if form == 1:
        return [*nodes, node("Mul", ["x", "half"], ["h"]), node("Mul", ["h", "a"], ["y"])]
    return [*nodes, node("Mul", ["a", "half"], ["h"]), node("Mul", ["h", "x"], ["y"])]


@pytest.mark.parametrize("form", [0, 1, 2])
def test_a_gelu_in_parts_is_one_kernel(form):
    constants = {"root": np.float32(2**0.5), "low": np.float32(0.5**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    x = drawn(6, 16)
    found, names = run(model(gelu_nodes(form), {"x": ("float32", x.shape)}, ["y"], constants), x)
    assert names == ["Gelu"]
    with gensor_kernels.emulated("sm_87"):
        np.testing.assert_allclose(found, gensor_kernels.elementwise(x, ["gelu"]), rtol=1e-6, atol=1e-6)


def test_what_is_almost_a_gelu_is_none():
    constants = {"root": np.float32(1.5), "one": np.float32(1), "half": np.float32(0.5)}
    x = drawn(6, 16)
    found, names = run(model(gelu_nodes(0), {"x": ("float32", x.shape)}, ["y"], constants), x)
    assert "Erf" in names
    from math import erf

    wanted = x * 0.5 * (1 + np.vectorize(erf)(x / 1.5))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_norm_in_parts_is_one_kernel(bias):
    nodes = [
        node("ReduceMean", ["x", "axes"], ["m"]),
        node("Sub", ["x", "m"], ["d"]),
        node("Pow", ["d", "two"], ["p"]),
        node("ReduceMean", ["p", "axes"], ["v"]),
        node("Add", ["v", "eps"], ["s"]),
        node("Sqrt", ["s"], ["r"]),
        node("Div", ["d", "r"], ["n"]),
        node("Mul", ["n", "w"], ["k" if bias else "y"]),
    ]
    nodes += [node("Add", ["k", "b"], ["y"])] if bias else []
    w, b, x = drawn(24), drawn(24), drawn(5, 24)
    constants = {"axes": np.array([-1]), "two": np.float32(2), "eps": np.float32(1e-3), "w": w, "b": b}
    found, names = run(model(nodes, {"x": ("float32", x.shape)}, ["y"], constants), x)
    assert names == ["LayerNormalization"]
    centred = x - x.mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * w + (b if bias else 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("masked", [True, False])
def test_an_attention_in_parts_is_one_kernel_of_16_bits(dtype, masked):
    nodes = [
        node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "t"], ["s"]),
        node("Div", ["s", "root"], ["f"]),
    ]
    nodes += [node("Add", ["f", "mask"], ["a"])] if masked else []
    nodes += [node("Softmax", ["a" if masked else "f"], ["p"]), node("MatMul", ["p", "v"], ["y"])]
    q, k, v = (drawn(1, 2, 8, 16).astype(dtype) for _ in range(3))
    mask = np.where(np.tri(8, dtype=bool), 0, -1e4).astype(dtype)
    inputs = {"q": (dtype, q.shape), "k": (dtype, k.shape), "v": (dtype, v.shape)}
    found, names = run(model(nodes, inputs, ["y"], {"root": np.array(4, dtype), "mask": mask}), q, k, v)
    assert ("Attention" in names) == (dtype == "float16") and ("Softmax" in names) == (dtype == "float32")
    wide = [each.astype(np.float64) for each in (q, k, v)]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) / 4 + (mask.astype(np.float64) if masked else 0)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = shares / shares.sum(-1, keepdims=True) @ wide[2]
    tolerance = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
