"""Float32 models in 16 bits, and weights in 8 and 4 bits, compared with float32 and with the unquantised model."""

import numpy as np
import onnx
import pytest

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.execution.model import Model, load
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.readers.onnx_file import Source
from gensor_kernels.graph.rewrites.quantised import eight_bits, four_bits
from gensor_kernels.operators.types.dtypes import array_dtype
from tests.campaign_size import sample

from ..models import by_onnxruntime, draw, proto
from ..networks import exported_graphs

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.usefixtures("emulator")
#: Unit roundoff by dtype.
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
in_16_bits = pytest.mark.parametrize("dtype", ROUNDOFF)


def compute(made, inputs, dtype=None, weights=None):
    """Return the results, and the graph that gave them."""
    loaded = Model(Source(made), "model", Options(dtype, weights))
    found = loaded(**inputs)
    (plan,) = loaded._plans.values()
    return found if isinstance(found, tuple) else (found,), plan.graph


def compare(text, inputs, constants, dtype, units, relative=0, outputs=("y",)):
    """Return the results of nodes in 16 bits and their operators, compared with onnxruntime in float32.

    `units` are roundoffs of the largest element that any element may differ by, `relative` those of the element.
    """
    kinds = {name: (str(each.dtype), each.shape) for name, each in inputs.items()}
    made = proto(text, kinds, outputs, constants)
    found, graph = compute(made, inputs, dtype)
    for ours, theirs in zip(found, by_onnxruntime(made, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        bounds = relative * ROUNDOFF[dtype], units * ROUNDOFF[dtype] * np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, *bounds)
    return found, [each.op for each in graph.nodes if each.op not in ("Cast", "Layout", "Transpose")]


@in_16_bits
def test_attention_of_a_float32_file_is_one_kernel(dtype):
    """In parts, as exporters write it, with a mask of the least float32."""
    mask = np.where(np.tri(32, dtype=bool), 0, np.finfo(np.float32).min).astype(np.float32)[None, None]
    text = "kt = Transpose<perm = [0, 1, 3, 2]>(k); s = MatMul(q, kt); t = Mul(s, scale); u = Add(t, mask)"
    text += "; p = Softmax<axis = -1>(u); y = MatMul(p, v)"
    given = {name: draw(1, 2, 32, 64) for name in "qkv"}
    _, operators = compare(text, given, {"scale": np.float32(0.125), "mask": mask}, dtype, 4)
    assert operators == ["Attention"]


@in_16_bits
def test_a_batch_norm_is_folded_before_the_cast(dtype):
    """A variance of 1e-6 and an epsilon of 1e-5 vanish in 16 bits."""
    s, b, m, v = (np.abs(draw(16)) + np.float32(0.5) for _ in range(4))
    constants = dict(w=draw(16, 8, 3, 3) * np.float32(1e-3), s=s, b=b, m=m / 1000, v=v / 1_000_000)
    text = "c = Conv(x, w); y = BatchNormalization(c, s, b, m, v)"
    assert compare(text, {"x": draw(1, 8, 6, 6)}, constants, dtype, 8)[1] == ["Conv"]


@in_16_bits
def test_squares_of_large_numbers_stay_wide(dtype):
    """x ** 2 of 1000 is beyond float16, and epsilon of 1e-12 below it."""
    text = "p = Pow(x, two); m = ReduceMean<keepdims = 1>(p, axis); a = Add(m, eps); r = Sqrt(a); y = Div(x, r)"
    constants = {"two": np.float32(2), "axis": np.array([-1]), "eps": np.float32(1e-12)}
    compare(text, {"x": draw(4, 64) * 1000}, constants, dtype, 0, relative=4)


def test_constants_beyond_the_range_that_are_no_masks_are_computed_wide():
    constants = {"large": np.float32(1e6), "small": np.float32(1e-6)}
    compare("a = Mul(x, large); y = Mul(a, small)", {"x": draw(3, 5)}, constants, "float16", 0, relative=4)


@in_16_bits
def test_positions_from_integers_stay_wide(dtype):
    """Positions beyond 256 are exact."""
    text = "h = MatMul(x, w); p = Cast<to = 1>(positions); angle = Mul(p, turn); sine = Sin(angle); y = Mul(h, sine)"
    positions = np.broadcast_to(np.arange(512)[:, None], (2, 512, 1)).copy()
    given = {"x": draw(2, 512, 16), "positions": positions}
    compare(text, given, {"w": draw(16, 16), "turn": np.float32(1)}, dtype, 4)


@in_16_bits
def test_a_mask_from_integers_stays_finite(dtype):
    """(1 - mask) * least."""
    text = "h = MatMul(x, w); m = Cast<to = 1>(mask); i = Sub(one, m); term = Mul(i, least); y = Add(h, term)"
    given = {"x": draw(2, 8, 16), "mask": np.array([1, 0])[:, None, None]}
    constants = {"w": draw(16, 16), "one": np.float32(1), "least": np.finfo(np.float32).min}
    kinds = {name: (str(each.dtype), each.shape) for name, each in given.items()}
    (found,), _ = compute(proto(text, kinds, ["y"], constants), given, dtype)
    product = given["x"] @ constants["w"]
    np.testing.assert_allclose(found[0], product[0], atol=4 * ROUNDOFF[dtype] * np.abs(product).max())
    assert np.isfinite(found).all() and (found[1] < -6e4).all()


def test_integers_and_their_results_stay():
    text = "best = ArgMax<axis = -1, keepdims = 0>(x); y = Gather(table, best)"
    made = proto(text, {"x": ("float32", (4, 9))}, ["y", "best"], {"table": draw(9, 8)})
    made.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    (y, best), _ = compute(made, {"x": np.eye(9, dtype=np.float32)[[3, 1, 8, 5]]}, "float16")
    assert best.tolist() == [3, 1, 8, 5] and best.dtype == np.int64 and y.dtype == np.float32


# ---- quantised weights


def mlp(width=256):
    text = "[up] a = MatMul(x, w); c = Add(a, b); d = Gelu(c); [down] f = Gemm(d, v, e); y = Add(f, r)"
    constants = {"w": draw(128, width) / 12, "b": draw(width), "v": draw(width, 64) / 16, "e": draw(64)}
    return proto(text, {"x": ("float32", (16, 128)), "r": ("float32", (16, 64))}, {"y": (16, 64)}, constants)


def relative_error(found, exact, residual=0):
    return np.sqrt(((found - exact) ** 2).mean() / ((exact - residual) ** 2).mean())


@in_16_bits
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_of_fewer_bits_keep_their_epilogues(weights, dtype):
    """Independent errors of up to half a scale: 127 or 7 steps to the largest of the weights that share it."""
    made, given = mlp(), {"x": draw(16, 128), "r": draw(16, 64)}
    (plain,), _ = compute(made, given, dtype)
    (found,), graph = compute(made, given, dtype, weights)
    operators = [str(each) for each in graph.nodes if each.op in ("QuantisedLinear", "MatMul", "Gemm", "Elementwise")]
    assert operators == ["QuantisedLinear + Add + Gelu", "QuantisedLinear + Add + Add"]
    # The largest of 128 normal weights is near 3 of their deviations; the error of a rounded one is uniform.
    share = 3.5 / (127 if weights == "int8" else 7) / np.sqrt(12)
    assert 0 < relative_error(found, plain, given["r"]) < 2 * np.sqrt(2) * (share + ROUNDOFF[dtype])


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
    for options, error, says in (
        ({"dtype": "float64"}, ValueError, "dtype must be None, 'float16' or 'bfloat16', not 'float64'"),
        ({"weights": "int2"}, ValueError, "weights must be None, 'int8' or 'int4', not 'int2'"),
        ({"weights": "int8"}, UnsupportedError, r"node 'up' .*needs products of 16 bits, not of float32"),
    ):
        with pytest.raises(error, match=says):
            load(mlp(), **options)


# ---- exported networks


@pytest.mark.parametrize("name", sample(["mobilenet_v2_small", "bert_base_small", "gpt2_small", "llama_small"], 1))
def test_exported_float32_models_in_16_bits(name):
    """Errors of a few roundoffs of the largest element, compared with onnxruntime in float32."""
    made = exported_graphs.draw(name)
    inputs = exported_graphs.inputs(made)
    found, _ = compute(made, inputs, "float16")
    for ours, theirs in zip(found, by_onnxruntime(made, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=16 * ROUNDOFF["float16"] * np.abs(theirs).max())


@pytest.mark.parametrize(("weights", "share"), sample([("int8", 0.02), ("int4", 0.25)], 1))
def test_an_exported_model_of_fewer_bits(weights, share):
    """The relative error of each product is 1 / 127 or 1 / 7 of a half or so; those of eight products add up."""
    made = exported_graphs.draw("gpt2_small")
    inputs = exported_graphs.inputs(made)
    (plain, *_), _ = compute(made, inputs, "float16")
    (found, *_), graph = compute(made, inputs, "float16", weights)
    assert sum(each.op == "QuantisedLinear" for each in graph.nodes) == 4  # the products of useful size
    assert 0 < relative_error(found, plain) < share
