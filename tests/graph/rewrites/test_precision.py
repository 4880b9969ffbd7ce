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
    loaded = Model(Source(made), "model", Options(dtype, weights))
    found = loaded(**inputs)
    (plan,) = loaded._plans.values()
    return found if isinstance(found, tuple) else (found,), plan.graph


def kinds_of(arrays):
    return {name: (str(each.dtype), each.shape) for name, each in arrays.items()}


def numbers(**values):
    return {name: np.asarray(value, np.float32) for name, value in values.items()}


MASK = np.where(np.tri(32, dtype=bool), 0, np.finfo(np.float32).min)[None, None]
STATISTICS = {name: np.abs(draw(16)) + np.float32(0.5) for name in "sbmv"}
#: What is kept -> nodes, inputs, constants, roundoffs of the largest element and of each, operators where they matter.
KEPT = {
    "attention in parts, with a mask of the least float32, is one kernel": (
        "kt = Transpose<perm = [0, 1, 3, 2]>(k); s = MatMul(q, kt); t = Mul(s, scale); u = Add(t, mask); "
        "p = Softmax<axis = -1>(u); y = MatMul(p, v)",
        {name: draw(1, 2, 32, 64) for name in "qkv"},
        *(numbers(scale=0.125, mask=MASK), 4, 0, ["Attention"]),
    ),
    "a batch norm is folded before the cast: its variance and epsilon vanish in 16 bits": (
        "c = Conv(x, w); y = BatchNormalization(c, s, b, m, v)",
        {"x": draw(1, 8, 6, 6)},
        STATISTICS | numbers(w=draw(16, 8, 3, 3) / 1000, m=STATISTICS["m"] / 1000, v=STATISTICS["v"] / 1_000_000),
        *(8, 0, ["Conv"]),
    ),
    "squares of large numbers and a small epsilon stay wide": (
        "p = Pow(x, two); m = ReduceMean<keepdims = 1>(p, axis); a = Add(m, eps); r = Sqrt(a); y = Div(x, r)",
        *({"x": draw(4, 64) * 1000}, numbers(two=2, eps=1e-12) | {"axis": np.array([-1])}, 0, 4, None),
    ),
    "positions from integers stay wide: those beyond 256 are exact": (
        "h = MatMul(x, w); p = Cast<to = 1>(positions); angle = Mul(p, turn); sine = Sin(angle); y = Mul(h, sine)",
        {"x": draw(2, 512, 16), "positions": np.broadcast_to(np.arange(512)[:, None], (2, 512, 1)).copy()},
        *(numbers(w=draw(16, 16), turn=1), 4, 0, None),
    ),
    "constants beyond the range that are no masks are wide": (
        "a = Mul(x, large); y = Mul(a, small)",
        *({"x": draw(3, 5)}, numbers(large=1e6, small=1e-6), 0, 4, None),
    ),
}


@in_16_bits
@pytest.mark.parametrize("what", KEPT)
def test_results_are_those_of_float32_but_for_roundings(what, dtype):
    text, given, constants, units, relative, wanted = KEPT[what]
    made = proto(text, kinds_of(given), ["y"], constants)
    (found,), graph = compute(made, given, dtype)
    (exact,) = by_onnxruntime(made, given)
    assert found.dtype == exact.dtype
    bounds = relative * ROUNDOFF[dtype], units * ROUNDOFF[dtype] * np.abs(exact).max()
    np.testing.assert_allclose(found, exact, *bounds)
    assert wanted in (None, [each.op for each in graph.nodes if each.op not in ("Cast", "Layout", "Transpose")])


@in_16_bits
def test_a_mask_from_integers_stays_finite(dtype):
    """(1 - mask) * least."""
    text = "h = MatMul(x, w); m = Cast<to = 1>(mask); i = Sub(one, m); term = Mul(i, least); y = Add(h, term)"
    given = {"x": draw(2, 8, 16), "mask": np.array([1, 0])[:, None, None]}
    constants = {"w": draw(16, 16), "one": np.float32(1), "least": np.finfo(np.float32).min}
    (found,), _ = compute(proto(text, kinds_of(given), ["y"], constants), given, dtype)
    product = given["x"] @ constants["w"]
    np.testing.assert_allclose(found[0], product[0], atol=4 * ROUNDOFF[dtype] * np.abs(product).max())
    assert np.isfinite(found).all() and (found[1] < -6e4).all()


def test_integers_and_their_results_stay():
    text = "best = ArgMax<axis = -1, keepdims = 0>(x); y = Gather(table, best)"
    made = proto(text, {"x": ("float32", (4, 9))}, ["y", "best"], {"table": draw(9, 8)})
    made.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    (y, best), _ = compute(made, {"x": np.eye(9, dtype=np.float32)[[3, 1, 8, 5]]}, "float16")
    assert best.tolist() == [3, 1, 8, 5] and best.dtype == np.int64 and y.dtype == np.float32


def mlp():
    text = "[up] a = MatMul(x, w); c = Add(a, b); d = Gelu(c); [down] f = Gemm(d, v, e); y = Add(f, r)"
    constants = {"w": draw(128, 256) / 12, "b": draw(256), "v": draw(256, 64) / 16, "e": draw(64)}
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


def test_small_weights_keep_their_bits():
    made = proto("y = MatMul(x, w)", {"x": ("float32", (4, 64))}, ["y"], {"w": draw(64, 255)})
    _, graph = compute(made, {"x": draw(4, 64)}, "float16", "int8")
    assert "MatMul" in [each.op for each in graph.nodes]


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


@pytest.mark.parametrize("name", sample(["mobilenet_v2_small", "bert_base_small", "gpt2_small", "llama_small"], 1))
def test_exported_float32_models_in_16_bits(name):
    made = exported_graphs.draw(name)
    inputs = exported_graphs.inputs(made)
    found, _ = compute(made, inputs, "float16")
    for ours, theirs in zip(found, by_onnxruntime(made, inputs), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=16 * ROUNDOFF["float16"] * np.abs(theirs).max())
