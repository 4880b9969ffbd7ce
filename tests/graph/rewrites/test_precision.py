"""Float32 models in 16 bits, and weights in 8 and 4 bits, compared with float64 and with the unquantised model."""

import numpy as np
import onnx
import pytest

import gensor_kernels
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.execution.model import Model, load
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.readers.onnx_file import Source
from gensor_kernels.graph.rewrites.quantised import eight_bits, four_bits
from gensor_kernels.operators.types.dtypes import array_dtype
from tests.campaign_size import sample

from ..models import proto
from ..networks import exported_graphs

RNG = np.random.default_rng(0)
#: Unit roundoff by dtype.
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
in_16_bits = pytest.mark.parametrize("dtype", ROUNDOFF)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def compute(made, *inputs, dtype=None, weights=None):
    """Return the results, and the graph that gave them."""
    loaded = Model(Source(made), "model", Options(dtype, weights))
    with gensor_kernels.emulated("sm_87"):
        found = loaded(*inputs)
        (plan,) = loaded._plans.values()
    return found, plan.graph


def compute_text(text, inputs, constants, dtype, outputs=("y",)):
    """Return the results of nodes in onnx's syntax in 16 bits, and the graph."""
    kinds = {name: (str(each.dtype), each.shape) for name, each in inputs.items()}
    return compute(proto(text, kinds, outputs, constants), *inputs.values(), dtype=dtype)


@in_16_bits
def test_attention_of_a_float32_file_is_one_kernel(dtype):
    """In parts, as exporters write it, with a mask of the least float32."""
    q, k, v = (draw(1, 2, 32, 64) for _ in range(3))
    hidden = np.where(np.tril(np.ones((32, 32))) > 0, 0, np.finfo(np.float32).min).astype(np.float32)
    text = "kt = Transpose<perm = [0, 1, 3, 2]>(k); s = MatMul(q, kt); t = Mul(s, scale); u = Add(t, mask)"
    text += "; p = Softmax<axis = -1>(u); y = MatMul(p, v)"
    given = {"q": q, "k": k, "v": v}
    found, graph = compute_text(text, given, {"scale": np.float32(0.125), "mask": hidden[None, None]}, dtype)
    assert [each.op for each in graph.nodes if each.op not in ("Cast", "Transpose")] == ["Attention"]
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2).astype(np.float64) * 0.125 + hidden
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    expected = shares / shares.sum(-1, keepdims=True) @ v
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=16 * ROUNDOFF[dtype])


@in_16_bits
def test_a_batch_norm_is_folded_before_the_cast(dtype):
    """A variance of 1e-6 and an epsilon of 1e-5 vanish in 16 bits."""
    x, w = draw(1, 8, 6, 6), draw(16, 8, 3, 3) * 1e-3
    s, b, m, v = (np.abs(draw(16)) + 0.5 for _ in range(4))
    constants = dict(w=w, s=s, b=b, m=m * 1e-3, v=v * 1e-6)
    found, graph = compute_text("c = Conv(x, w); y = BatchNormalization(c, s, b, m, v)", {"x": x}, constants, dtype)
    assert [each.op for each in graph.nodes if each.op not in ("Cast", "Layout")] == ["Conv"]
    wide = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    product = np.einsum("nchwrs,kcrs->nkhw", wide, w.astype(np.float64))
    s, b, m, v = (constants[name].reshape(1, -1, 1, 1) for name in "sbmv")
    expected = (product - m) / np.sqrt(v + 1e-5) * s + b
    np.testing.assert_allclose(found, expected, atol=8 * ROUNDOFF[dtype] * np.abs(expected).max())


@in_16_bits
def test_squares_of_large_numbers_stay_wide(dtype):
    """x ** 2 of 1000 is beyond float16, and epsilon of 1e-12 below it."""
    x = draw(4, 64) * 1000
    text = "p = Pow(x, two); m = ReduceMean<keepdims = 1>(p, axis); a = Add(m, eps); r = Sqrt(a); y = Div(x, r)"
    constants = {"two": np.float32(2), "axis": np.array([-1]), "eps": np.float32(1e-12)}
    found, _ = compute_text(text, {"x": x}, constants, dtype)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=4 * ROUNDOFF[dtype])


@in_16_bits
def test_masks_and_positions_from_integers_stay_wide(dtype):
    """A mask of integers, (1 - mask) * least, keeps every weight finite; positions beyond 256 are exact."""
    x, w = draw(2, 512, 16), draw(16, 16)
    mask = np.ones((2, 512, 1), np.int64)
    mask[1] = 0
    positions = np.broadcast_to(np.arange(512)[:, None], (2, 512, 1)).astype(np.int64)
    text = "h = MatMul(x, w); m = Cast<to = 1>(mask); i = Sub(one, m); term = Mul(i, least); y = Add(h, term)"
    text += "; p = Cast<to = 1>(positions); angle = Mul(p, turn); sine = Sin(angle); z = Mul(h, sine)"
    constants = {"w": w, "one": np.float32(1), "least": np.finfo(np.float32).min, "turn": np.float32(1)}
    given = {"x": x, "mask": mask, "positions": positions}
    (y, z), _ = compute_text(text, given, constants, dtype, ["y", "z"])
    product = x.astype(np.float64) @ w
    tolerance = 4 * ROUNDOFF[dtype] * np.abs(product).max()
    np.testing.assert_allclose(y[0], product[0], atol=tolerance)
    assert np.isfinite(y).all() and (y[1] < -6e4).all()
    np.testing.assert_allclose(z, product * np.sin(positions), atol=tolerance)


def test_constants_beyond_the_range_that_are_no_masks_are_computed_wide():
    x, constants = draw(3, 5), {"large": np.float32(1e6), "small": np.float32(1e-6)}
    found, _ = compute_text("a = Mul(x, large); y = Mul(a, small)", {"x": x}, constants, "float16")
    np.testing.assert_allclose(found, x, rtol=4 * ROUNDOFF["float16"])


def test_integers_and_their_results_stay():
    text = "best = ArgMax<axis = -1, keepdims = 0>(x); y = Gather(table, best)"
    made = proto(text, {"x": ("float32", (4, 9))}, ["y", "best"], {"table": draw(9, 8)})
    made.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    x = np.eye(9, dtype=np.float32)[[3, 1, 8, 5]]
    (y, best), _ = compute(made, x, dtype="float16")
    assert best.tolist() == [3, 1, 8, 5] and best.dtype == np.int64 and y.dtype == np.float32


# ---- quantised weights


def mlp(width=256):
    text = "[up] a = MatMul(x, w); c = Add(a, b); d = Gelu(c); [down] f = Gemm(d, v, e); y = Add(f, r)"
    constants = {"w": draw(128, width) / 12, "b": draw(width), "v": draw(width, 64) / 16, "e": draw(64)}
    return proto(text, {"x": ("float32", (16, 128)), "r": ("float32", (16, 64))}, {"y": (16, 64)}, constants)


@in_16_bits
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_of_fewer_bits_keep_their_epilogues(weights, dtype):
    """Independent errors of up to half a scale: 127 or 7 steps to the largest of the weights that share it."""
    made, x, r = mlp(), draw(16, 128), draw(16, 64)
    plain, _ = compute(made, x, r, dtype=dtype)
    found, graph = compute(made, x, r, dtype=dtype, weights=weights)
    products = [each for each in graph.nodes if each.op == "QuantisedLinear"]
    assert [str(each) for each in products] == ["QuantisedLinear + Add + Gelu", "QuantisedLinear + Add + Add"]
    assert not any(each.op in ("MatMul", "Gemm", "Elementwise") for each in graph.nodes)
    # The largest of 128 normal weights is near 3 of their deviations; the error of a rounded one is uniform.
    share = 3.5 / (127 if weights == "int8" else 7) / np.sqrt(12)
    error = np.sqrt(((found - plain) ** 2).mean()) / np.sqrt(((plain - r) ** 2).mean())
    assert 0 < error < 2 * np.sqrt(2) * (share + ROUNDOFF[dtype])


@in_16_bits
def test_a_weight_differs_by_at_most_half_a_scale(dtype):
    dtype, matrix = np.dtype(array_dtype(dtype)), draw(24, 96)
    matrix[3] = 0
    matrix[4] *= 1e-9
    numbers, scales = eight_bits(matrix, dtype)
    wide = scales.astype(np.float32)
    assert (np.abs(numbers * wide[:, None] - matrix) <= 0.501 * wide[:, None]).all()
    packed, scales = four_bits(matrix, dtype)
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(24, 96).astype(np.int32) - 8
    wide = np.repeat(scales.astype(np.float32), 32, axis=1)
    assert scales.shape == (24, 3) and (np.abs(numbers * wide - matrix) <= 0.501 * wide).all()


def test_options_of_load():
    text = str(load(mlp(), dtype="float16", weights="int8"))
    assert "QuantisedLinear + Add + Gelu" in text and "int8" in text and "MatMul" not in text
    with pytest.raises(ValueError, match="dtype must be None, 'float16' or 'bfloat16', not 'float64'"):
        load(mlp(), dtype="float64")
    with pytest.raises(ValueError, match="weights must be None, 'int8' or 'int4', not 'int2'"):
        load(mlp(), weights="int2")
    with pytest.raises(UnsupportedError, match=r"node 'up' .*needs products of 16 bits, not of float32"):
        load(mlp(), weights="int8")


# ---- exported networks


@pytest.mark.parametrize("name", sample(["mobilenet_v2_small", "bert_base_small", "gpt2_small", "llama_small"], 1))
def test_exported_float32_models_in_16_bits(name):
    """Errors of a few roundoffs of the largest element, compared with onnxruntime in float32."""
    onnxruntime = pytest.importorskip("onnxruntime")
    made = exported_graphs.draw(name)
    inputs = exported_graphs.inputs(made)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, inputs)
    found, _ = compute(made, *inputs.values(), dtype="float16")
    for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=16 * ROUNDOFF["float16"] * np.abs(theirs).max())


@pytest.mark.parametrize(("weights", "share"), sample([("int8", 0.02), ("int4", 0.25)], 1))
def test_an_exported_model_of_fewer_bits(weights, share):
    """The relative error of each product is 1 / 127 or 1 / 7 of a half or so; those of eight products add up."""
    made = exported_graphs.draw("gpt2_small")
    inputs = exported_graphs.inputs(made).values()
    (plain, *_), _ = compute(made, *inputs, dtype="float16")
    (found, *_), graph = compute(made, *inputs, dtype="float16", weights=weights)
    assert sum(each.op == "QuantisedLinear" for each in graph.nodes) == 4  # the products of useful size
    error = np.sqrt(((found - plain) ** 2).mean()) / np.sqrt((plain**2).mean())
    assert 0 < error < share
