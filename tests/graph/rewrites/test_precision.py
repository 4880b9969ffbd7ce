"""Float32 models in 16 bits, and weights in 8 and 4 bits, beside float64 and the unquantised model."""

import numpy as np
import onnx
import pytest

import gensor_kernels
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.execution.model import Model, load
from gensor_kernels.graph.ir.options import Options
from gensor_kernels.graph.readers.onnx_file import Source
from gensor_kernels.graph.rewrites.quantised import eight_bits, four_bits

from ..models import node, proto
from ..networks import exported_graphs

RNG = np.random.default_rng(0)
SIXTEEN = ("float16", "bfloat16")
#: Unit roundoff by dtype.
ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def drawn(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def computed(made, *inputs, dtype=None, weights=None):
    """Return the results, and the nodes that gave them."""
    loaded = Model(Source(made), "model", Options(dtype, weights))
    with gensor_kernels.emulated("sm_87"):
        found = loaded(*inputs)
        (plan,) = loaded._plans.values()
    return found, plan.graph


def attention_model(mask=True, rows=32):
    """Attention of heads in parts, as exporters write it, with a mask of the least float32."""
    nodes = [
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Mul", ["s", "scale"], ["t"]),
        *([node("Add", ["t", "mask"], ["u"])] if mask else []),
        node("Softmax", ["u" if mask else "t"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    hidden = np.where(np.tril(np.ones((rows, rows))) > 0, 0, np.finfo(np.float32).min).astype(np.float32)
    constants = {"scale": np.float32(0.125), "mask": hidden[None, None]}
    shape = (1, 2, rows, 64)
    return proto(nodes, {name: ("float32", shape) for name in "qkv"}, ["y"], constants), hidden


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_attention_of_a_float32_file_is_one_kernel(dtype):
    made, hidden = attention_model()
    q, k, v = (drawn(1, 2, 32, 64) for _ in range(3))
    found, graph = computed(made, q, k, v, dtype=dtype)
    assert [each.op for each in graph.nodes if each.op not in ("Cast", "Transpose")] == ["Attention"]
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2).astype(np.float64) * 0.125 + hidden
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    expected = shares / shares.sum(-1, keepdims=True) @ v
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=16 * ROUNDOFF[dtype])


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_a_batch_norm_is_folded_before_the_cast(dtype):
    """A variance of 1e-6 and an epsilon of 1e-5 vanish in 16 bits."""
    x, w = drawn(1, 8, 6, 6), drawn(16, 8, 3, 3) * 1e-3
    nodes = [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"])]
    s, b, m, v = (np.abs(drawn(16)) + 0.5 for _ in range(4))
    v = v * 1e-6
    made = proto(nodes, {"x": ("float32", x.shape)}, ["y"], dict(w=w, s=s, b=b, m=m * 1e-3, v=v))
    found, graph = computed(made, x, dtype=dtype)
    assert [each.op for each in graph.nodes if each.op not in ("Cast", "Layout")] == ["Conv"]
    wide = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (2, 3))
    product = np.einsum("nchwrs,kcrs->nkhw", wide, w.astype(np.float64))
    column = (1, -1, 1, 1)
    expected = (product - m.reshape(column) * 1e-3) / np.sqrt(v.reshape(column) + 1e-5) * s.reshape(column)
    expected += b.reshape(column)
    np.testing.assert_allclose(found, expected, atol=8 * ROUNDOFF[dtype] * np.abs(expected).max())


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_squares_of_large_numbers_stay_wide(dtype):
    """x ** 2 of 1000 is beyond float16, and epsilon of 1e-12 below it."""
    x = drawn(4, 64) * 1000
    nodes = [
        node("Pow", ["x", "two"], ["square"]),
        node("ReduceMean", ["square", "axis"], ["mean"], keepdims=1),
        node("Add", ["mean", "eps"], ["more"]),
        node("Sqrt", ["more"], ["root"]),
        node("Div", ["x", "root"], ["y"]),
    ]
    constants = {"two": np.float32(2), "axis": np.array([-1]), "eps": np.float32(1e-12)}
    found, _ = computed(proto(nodes, {"x": ("float32", x.shape)}, ["y"], constants), x, dtype=dtype)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True))
    np.testing.assert_allclose(found, expected, rtol=4 * ROUNDOFF[dtype])


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_masks_and_positions_from_integers_stay_wide(dtype):
    """A mask of integers, (1 - mask) * least, keeps every weight finite; positions beyond 256 are exact."""
    x, w = drawn(2, 512, 16), drawn(16, 16)
    mask = np.ones((2, 512, 1), np.int64)
    mask[1] = 0
    positions = np.broadcast_to(np.arange(512)[:, None], (2, 512, 1)).astype(np.int64)
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Cast", ["mask"], ["m"], to=1),
        node("Sub", ["one", "m"], ["inverse"]),
        node("Mul", ["inverse", "least"], ["term"]),
        node("Add", ["h", "term"], ["y"]),
        node("Cast", ["positions"], ["p"], to=1),
        node("Mul", ["p", "turn"], ["angle"]),
        node("Sin", ["angle"], ["sine"]),
        node("Mul", ["h", "sine"], ["z"]),
    ]
    constants = {"w": w, "one": np.float32(1), "least": np.finfo(np.float32).min, "turn": np.float32(1)}
    inputs = {"x": ("float32", x.shape), "mask": ("int64", mask.shape), "positions": ("int64", positions.shape)}
    (y, z), _ = computed(proto(nodes, inputs, ["y", "z"], constants), x, mask, positions, dtype=dtype)
    product = x.astype(np.float64) @ w
    tolerance = 4 * ROUNDOFF[dtype] * np.abs(product).max()
    np.testing.assert_allclose(y[0], product[0], atol=tolerance)
    assert np.isfinite(y).all() and (y[1] < -6e4).all()
    np.testing.assert_allclose(z, product * np.sin(positions), atol=tolerance)


def test_constants_beyond_the_range_that_are_no_masks_are_computed_wide():
    nodes = [node("Mul", ["x", "large"], ["a"]), node("Mul", ["a", "small"], ["y"])]
    constants = {"large": np.float32(1e6), "small": np.float32(1e-6)}
    x = drawn(3, 5)
    found, _ = computed(proto(nodes, {"x": ("float32", x.shape)}, ["y"], constants), x, dtype="float16")
    np.testing.assert_allclose(found, x, rtol=4 * ROUNDOFF["float16"])


def test_integers_and_their_results_stay():
    nodes = [node("ArgMax", ["x"], ["best"], axis=-1, keepdims=0), node("Gather", ["table", "best"], ["y"])]
    made = proto(nodes, {"x": ("float32", (4, 9))}, ["y", "best"], {"table": drawn(9, 8)})
    made.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    x = np.eye(9, dtype=np.float32)[[3, 1, 8, 5]]
    (y, best), _ = computed(made, x, dtype="float16")
    assert best.tolist() == [3, 1, 8, 5] and best.dtype == np.int64 and y.dtype == np.float32


def mlp(width=256):
    w, v = drawn(128, width) / 12, drawn(width, 64) / 16
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="up"),
        node("Add", ["a", "b"], ["c"]),
        node("Gelu", ["c"], ["d"]),
        node("Gemm", ["d", "v", "e"], ["f"], name="down"),
        node("Add", ["f", "r"], ["y"]),
    ]
    constants = {"w": w, "b": drawn(width), "v": v, "e": drawn(64)}
    return proto(nodes, {"x": ("float32", (16, 128)), "r": ("float32", (16, 64))}, ["y"], constants)


@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_of_fewer_bits_keep_their_epilogues(weights, dtype):
    """Independent errors of up to half a scale: 127 or 7 steps to the largest of the weights that share it."""
    made, x, r = mlp(), drawn(16, 128), drawn(16, 64)
    plain, _ = computed(made, x, r, dtype=dtype)
    found, graph = computed(made, x, r, dtype=dtype, weights=weights)
    products = [each for each in graph.nodes if each.op == "QuantisedLinear"]
    assert [str(each) for each in products] == ["QuantisedLinear + Add + Gelu", "QuantisedLinear + Add + Add"]
    assert not any(each.op in ("MatMul", "Gemm", "Elementwise") for each in graph.nodes)
    # The largest of 128 normal weights is near 3 of their deviations; the error of a rounded one is uniform.
    share = 3.5 / (127 if weights == "int8" else 7) / np.sqrt(12)
    error = np.sqrt(((found - plain) ** 2).mean()) / np.sqrt(((plain - r) ** 2).mean())
    assert 0 < error < 2 * np.sqrt(2) * (share + ROUNDOFF[dtype])


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_a_weight_differs_by_at_most_half_a_scale(dtype):
    from gensor_kernels.operators.types.dtypes import array_dtype

    dtype = np.dtype(array_dtype(np.dtype(dtype).name if dtype is np.float16 else dtype))
    matrix = drawn(24, 96)
    matrix[3] = 0
    matrix[4] *= 1e-9
    numbers, scales = eight_bits(matrix, dtype)
    wide = scales.astype(np.float32)
    assert (np.abs(numbers * wide[:, None] - matrix) <= 0.501 * wide[:, None]).all()
    packed, scales = four_bits(matrix, dtype)
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(24, 96).astype(np.int32) - 8
    wide = np.repeat(scales.astype(np.float32), 32, axis=1)
    assert scales.shape == (24, 3) and (np.abs(numbers * wide - matrix) <= 0.501 * wide).all()


def test_which_products_are_quantised_is_printed(tmp_path):
    onnx.save(_declared(mlp()), tmp_path / "mlp.onnx")
    text = str(load(tmp_path / "mlp.onnx", dtype="float16", weights="int8"))
    assert "QuantisedLinear + Add + Gelu" in text and "int8" in text and "MatMul" not in text


def test_what_cannot_be_asked_for(tmp_path):
    onnx.save(_declared(mlp()), tmp_path / "mlp.onnx")
    with pytest.raises(ValueError, match="dtype must be None, 'float16' or 'bfloat16', not 'float64'"):
        load(tmp_path / "mlp.onnx", dtype="float64")
    with pytest.raises(ValueError, match="weights must be None, 'int8' or 'int4', not 'int2'"):
        load(tmp_path / "mlp.onnx", weights="int2")
    with pytest.raises(UnsupportedError, match=r"node 'up' .*needs products of 16 bits, not of float32"):
        str(load(tmp_path / "mlp.onnx", weights="int8"))


def _declared(made):
    """onnx's checker wants the shapes of results."""
    for extent in (16, 64):
        made.graph.output[0].type.tensor_type.shape.dim.add().dim_value = extent
    return made


@pytest.mark.parametrize("name", ["mobilenet_v2_small", "bert_base_small", "gpt2_small", "llama_small"])
def test_exported_float32_models_in_16_bits(name):
    """Errors of a few roundoffs of the largest element, beside onnxruntime in float32."""
    onnxruntime = pytest.importorskip("onnxruntime")
    made = exported_graphs.drawn(name)
    inputs = exported_graphs.inputs(made)
    expected = onnxruntime.InferenceSession(made.SerializeToString()).run(None, inputs)
    model = Model(Source(made), name, Options("float16"))
    with gensor_kernels.emulated("sm_87"):
        found = model(**inputs)
    for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=16 * ROUNDOFF["float16"] * np.abs(theirs).max())


@pytest.mark.parametrize(("weights", "share"), [("int8", 0.02), ("int4", 0.25)])
def test_an_exported_model_of_fewer_bits(weights, share):
    """The relative error of each product is 1 / 127 or 1 / 7 of a half or so; those of eight products add up."""
    made = exported_graphs.drawn("gpt2_small")
    inputs = exported_graphs.inputs(made)
    with gensor_kernels.emulated("sm_87"):
        plain = Model(Source(made), "gpt2", Options("float16"))(**inputs)
        model = Model(Source(made), "gpt2", Options("float16", weights))
        found = model(**inputs)
    plain, found = (each[0] if isinstance(each, tuple) else each for each in (plain, found))
    (plan,) = model._plans.values()
    assert sum(each.op == "QuantisedLinear" for each in plan.graph.nodes) == 4  # the products of useful size
    error = np.sqrt(((found - plain) ** 2).mean()) / np.sqrt((plain**2).mean())
    assert 0 < error < share
