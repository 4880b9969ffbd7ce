"""Block-scaled formats: conversions compared with ml_dtypes' types, products with float64 ones of what they hold."""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.functions.block_formats import FORMATTED, Formatted
from gensor_kernels.dispatch.functions.vendor_call import library_call
from gensor_kernels.families.contraction.mma.instructions import Code
from gensor_kernels.operators.products.quantised import FORMATS, formatted
from tests.doubles.device import FakeDevice

ELEMENTS = {"mxfp8": ml_dtypes.float8_e4m3fn, "mxfp8_e5m2": ml_dtypes.float8_e5m2}
BRAIN, KINDS = np.dtype(ml_dtypes.bfloat16), ("float16", "bfloat16")


def element_of(name):
    """ml_dtypes' type of elements, its largest number and that number's exponent."""
    kind = ELEMENTS.get(name, ml_dtypes.float4_e2m1fn)
    largest = float(ml_dtypes.finfo(kind).max)
    return kind, largest, int(np.log2(largest))


def held(name, elements, scales, alpha=1.0):
    """The numbers of an array in a format, in float64, by ml_dtypes' types."""
    kind, *_ = element_of(name)
    scale = ml_dtypes.float8_e4m3fn if name == "nvfp4" else ml_dtypes.float8_e8m0fnu
    if FORMATS[name].bits == 4:
        elements = np.stack([elements & 15, elements >> 4], -1).reshape(*elements.shape[:-1], -1)
    factors = np.repeat(scales.view(scale).astype(np.float64), FORMATS[name].group, -1)
    return elements.view(kind).astype(np.float64) * factors[..., : elements.shape[-1]] * float(alpha)


def drawn(*shape, seed=0, spread=0):
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.standard_normal(shape), rng.integers(-spread, spread + 1, shape)).astype(np.float32)


def converted(name, x):
    """quantize's three results."""
    with gk.emulated("sm_87"):
        return gk.quantize(x, name)


# ---- conversions


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_rounded_as_the_specifications_say(name, dtype):
    kind, largest, emax = element_of(name)
    x = drawn(3, 40, 128, spread=6).astype(BRAIN if dtype == "bfloat16" else dtype)
    x[0, 0] = 0
    x[0, 1] = np.resize([5, 5.5, 6, -6.5, 7, 1.75, -1.25, 0.25, 0.75, -2.5, 3.5, 256, -464, 448, 0.1, 1], 128)
    elements, scales, alpha = converted(name, x)
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], -1, FORMATS[name].group)
    most = np.abs(blocks).max(-1)
    if name == "nvfp4":
        wanted = np.abs(blocks).max() / np.float32(6 * 448)
        assert alpha == wanted and alpha.shape == () and alpha.dtype == np.float32
        expected = np.minimum(most / np.float32(6) / wanted, 448).astype(ml_dtypes.float8_e4m3fn)
        factors = expected.astype(np.float32) * wanted
    else:
        assert alpha == 1
        exponent = np.floor(np.log2(most, where=most > 0, out=np.full_like(most, -np.inf))) - emax
        expected = np.exp2(np.clip(exponent, -127, 127)).astype(ml_dtypes.float8_e8m0fnu)
        factors = expected.astype(np.float32)
    np.testing.assert_array_equal(scales, expected.view(np.uint8))
    with np.errstate(invalid="ignore", divide="ignore"):
        quotients = np.where(factors[..., None] > 0, blocks / factors[..., None], np.copysign(0, blocks))
    bits = np.clip(quotients, -largest, largest).astype(kind).view(np.uint8).reshape(x.shape)
    stored = bits[..., ::2] | bits[..., 1::2] << 4 if FORMATS[name].bits == 4 else bits
    assert elements.dtype == np.uint8
    np.testing.assert_array_equal(elements, stored)
    with gk.emulated("sm_87"):
        back = gk.dequantize(elements, scales, name, alpha=alpha)
    np.testing.assert_array_equal(back, held(name, elements, scales, alpha).astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_every_element_and_scale_is_read_and_kept(name):
    """Rounding what a format holds changes nothing, but where another scale holds a block's numbers too."""
    form = FORMATS[name]
    elements = np.tile(np.arange(256, dtype=np.uint8), 2).reshape(1, -1)
    scales = np.full((1, elements.size * (8 // form.bits) // form.group), 0x38 if name == "nvfp4" else 127, np.uint8)
    every = np.repeat(np.arange(256, dtype=np.uint8)[:, None], scales.shape[1], 1)
    with gk.emulated("sm_87"):
        numbers = gk.dequantize(np.repeat(elements, 256, 0), every, name)
        np.testing.assert_array_equal(numbers, held(name, np.repeat(elements, 256, 0), every).astype(np.float32))
        kept = np.where(elements & 7 == 7, 0, elements) if name == "mxfp8" else elements  # 1.875 times 2^e saturates
        finite = np.nan_to_num(gk.dequantize(kept.astype(np.uint8), scales, name), nan=0, posinf=0, neginf=0)
        again = gk.quantize(finite, name, **({"alpha": 1} if name == "nvfp4" else {}))
        np.testing.assert_array_equal(gk.dequantize(*again[:2], name, alpha=again[2]), finite)


@pytest.mark.parametrize("name", FORMATS)
def test_infinities_nan_and_tiny_numbers(name):
    x = np.ones((4, 64), np.float32)
    x[0, 3], x[1, 40], x[2] = np.nan, np.inf, 1e-44
    found = np.zeros_like(x)
    for row in range(4):
        found[row] = (lambda e, s, a: held(name, e, s, a))(*converted(name, x[row]))
    group = FORMATS[name].group
    assert np.isnan(found[0, :group]).all() and (found[0, group:] == 1).all()
    if name == "nvfp4":
        assert (found[1] == 1).all()  # an infinity becomes the largest number
    else:
        assert np.isnan(found[1, 32:]).all() and (found[1, :32] == 1).all()
    assert (np.abs(found[2]) < 1e-36).all() and (found[3] == 1).all()


# ---- products


def operands(name, m, n, k, dtype=None):
    """(x, w, scales of w, scales of x or None, factor), and the product of what they hold, and that of magnitudes."""
    w, ws, second = converted(name, drawn(n, k, seed=1, spread=3))
    if dtype is None:
        x, xs, first = converted(name, drawn(m, k, seed=2, spread=3))
        values = held(name, x, xs)
    else:
        values = x = drawn(m, k, seed=2).astype(BRAIN if dtype == "bfloat16" else dtype)
        xs, first, values = None, 1, x.astype(np.float64)
    weights, factor = held(name, w, ws), np.asarray(np.float32(first) * np.float32(second))
    return (x, w, ws, xs, factor), values @ weights.T * factor, np.abs(values) @ np.abs(weights).T * factor


def close(found, wanted, size, k):
    """Within the roundings of k float32 additions and of the result."""
    unit = {"float32": 2.0**-24, "float16": 2.0**-11}.get(found.dtype.name, 2.0**-8)
    error = np.abs(found.astype(np.float64) - wanted)
    assert (error <= unit * np.abs(wanted) + k * 2.0**-23 * size + 1e-7).all(), error.max()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_linear_multiplies_by_weights_in_a_format(name, dtype):
    (x, w, scales, _, alpha), wanted, size = operands(name, 33, 72, 288, dtype)
    bias = drawn(72, seed=3).astype(x.dtype)
    arguments = {"scales": scales, "format": name, "alpha": alpha}
    with gk.emulated("sm_87"):
        assert gk.explain(gk.linear, x, w, **arguments).family == "contraction_blocks"
        close(gk.linear(x, w, **arguments), wanted, size, 288)
        found = gk.linear(x.reshape(3, 11, 288), w, bias, "relu", **arguments)
        more = wanted + bias.astype(np.float64)
        close(found.reshape(33, 72), np.maximum(more, 0), size + np.abs(bias.astype(np.float64)), 288)
        np.testing.assert_array_equal(gk.linear(x, w, **arguments), gk.linear(x, w, **arguments))
        typed = scales.view(ml_dtypes.float8_e4m3fn if name == "nvfp4" else ml_dtypes.float8_e8m0fnu)
        found = gk.linear(x[0], w.view(ELEMENTS.get(name, np.uint8)), **arguments | {"scales": typed})
        close(found, wanted[0], size[0], 288)
    library = FORMATTED["linear"].library(FakeDevice(), (x, w, scales, None), Formatted(name), None)
    close(library * np.float32(alpha), wanted, size, 288)


@pytest.mark.parametrize(("arch", "k"), [("sm_87", 288), ("sm_89", 288), ("sm_120", 256)])
@pytest.mark.parametrize("name", FORMATS)
def test_scaled_matmul_multiplies_two_operands_in_a_format(name, arch, k):
    (x, w, ws, xs, alpha), wanted, size = operands(name, 33, 72, k)
    with gk.emulated(arch):
        found = gk.scaled_matmul(x, w.T, xs, ws.T, format=name, alpha=alpha)
        assert found.dtype == np.float32
        program = gk.explain(gk.scaled_matmul, x, w.T, xs, ws.T, format=name).program
        assert (program["instruction"] == Code.BLOCK_SCALED) == (arch == "sm_120")
        short = 2.0**-12 * size if arch == "sm_89" and name.startswith("mxfp8") else 0  # sums of 14 bits (float22)
        assert (np.abs(found - wanted) <= k * 2.0**-23 * size + short).all()
        half = gk.scaled_matmul(x, w.T, xs, ws.T, format=name, alpha=float(alpha), dtype="bfloat16", activation="relu")
        assert half.dtype == BRAIN and (half.astype(float) >= 0).all()
        turned = np.asfortranarray(x), np.ascontiguousarray(w.T), np.asfortranarray(xs), np.ascontiguousarray(ws.T)
        assert gk.explain(gk.scaled_matmul, *turned, format=name).staged == "operands are copied"
        np.testing.assert_array_equal(gk.scaled_matmul(*turned, format=name, alpha=alpha), found)
        leading = x.reshape(3, 11, -1), w.T, xs.reshape(3, 11, -1), ws.T
        np.testing.assert_array_equal(gk.scaled_matmul(*leading, format=name, alpha=alpha).reshape(33, 72), found)
    workload = formatted(33, 72, k, name, out="float32")
    arrays = {"a": x, "b": w, "d": ws, "e": xs, "c": np.empty((33, 72), np.float32)}
    close(library_call(FakeDevice(), workload, arrays, ())() * np.float32(alpha), wanted, size, k)


@pytest.mark.parametrize("name", FORMATS)
def test_tensor_memory_scales_two_operands(name):
    (x, w, ws, xs, alpha), wanted, size = operands(name, 33, 72, 2048)
    with gk.emulated("sm_100"):
        found = gk.scaled_matmul(x, w.T, xs, ws.T, format=name, alpha=alpha)
        assert gk.explain(gk.scaled_matmul, x, w.T, xs, ws.T, format=name).family == "contraction_tcgen05"
    assert (np.abs(found - wanted) <= 2048 * 2.0**-23 * size).all()


@pytest.mark.parametrize("name", FORMATS)
def test_every_scale_scales_exactly(name):
    """Results are single numbers of w, for all 256 bytes of elements and scales: a row of x has a single 1."""
    form = FORMATS[name]
    k, group = 128, form.group
    w = np.repeat(np.arange(256, dtype=np.uint8)[:, None], k * form.bits // 8, 1)
    scales = (np.arange(256)[:, None] + np.arange(k // group) * 37).astype(np.uint8)
    one_hot = np.eye(k, dtype=np.float16)[:: group // 2 + 1]
    numbers = np.nan_to_num(held(name, w, scales), nan=0, posinf=0, neginf=0)
    with np.errstate(all="ignore"):
        wanted = (one_hot.astype(np.float64) @ numbers.T).astype(np.float32)
    with gk.emulated("sm_87"):
        found = gk.linear(one_hot, w, scales=scales, format=name, out=np.empty(wanted.shape, np.float32))
    bad = ~np.isfinite(held(name, w, scales))
    # A NaN among its terms makes a sum NaN; infinity times 0 is NaN.
    clear = ~bad.any(1)
    assert clear.sum() > 100
    np.testing.assert_array_equal(found[:, clear], wanted[:, clear])
    assert not np.isfinite(found[:, ~clear]).all()


X, W, S = np.ones((4, 64), np.float16), np.zeros((8, 32), np.uint8), np.zeros((8, 2), np.uint8)
REFUSED = [
    (lambda: gk.quantize(np.ones((4, 64), np.float32), "mxfp6"), ValueError, "mxfp"),
    (lambda: gk.quantize(np.ones((4, 60), np.float32), "mxfp4"), ValueError, "multiples of 32"),
    (lambda: gk.quantize(np.ones((4, 64), np.int32), "mxfp4"), TypeError, "int32"),
    (lambda: gk.quantize([[1.0]], "mxfp4"), TypeError, "numpy array"),
    (lambda: gk.quantize(np.ones((4, 64), np.float32), "mxfp4", alpha=2.0), ValueError, "no scale of the tensor"),
    (lambda: gk.dequantize(W, S[:, :1], "mxfp4"), ValueError, "scales"),
    (lambda: gk.dequantize(W.astype("int8"), S, "mxfp4"), TypeError, "int8"),
    (lambda: gk.linear(X, W, scales=S, format="fp4"), ValueError, "fp4"),
    (lambda: gk.linear(X, W, format="mxfp4"), ValueError, "takes scales"),
    (lambda: gk.linear(X, W, scales=S, group=32, format="mxfp4"), ValueError, "neither zeros nor group"),
    (lambda: gk.linear(X, W, scales=S, format="nvfp4"), ValueError, "scales"),
    (lambda: gk.linear(X[:, 1:], W, scales=S, format="mxfp4"), ValueError, "64"),
    (lambda: gk.linear(X, W, scales=S.astype("float16"), format="mxfp4"), TypeError, "float16"),
    (lambda: gk.linear(X, W, None, "swiglu", scales=S, format="mxfp4"), gk.UnsupportedError, "swiglu"),
    (lambda: gk.scaled_matmul(W, W.T, S, S.T, format="mxfp4", dtype_a="int8"), ValueError, "names the types"),
    (lambda: gk.scaled_matmul(W, W.T, S, S.T, format="mxfp4", dtype="int32"), TypeError, "int32"),
    (lambda: gk.scaled_matmul(W[:, 1:], W.T, S, S.T, format="mxfp4"), ValueError, "different"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_what_does_not_fit_is_refused(call, kind, words):
    with gk.emulated("sm_87"), pytest.raises(kind, match=words):
        call()
