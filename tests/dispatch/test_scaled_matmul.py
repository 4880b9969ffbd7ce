"""scaled_matmul: on the emulator and by the array library, against float64; what is copied, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.functions.low_precision_matmul import BLOCK_SCALED_MATMUL, ElementTypes
from gensor_kernels.dispatch.functions.vendor_call import library_call
from gensor_kernels.operators.products import block_scaled
from tests.doubles.device import FakeDevice

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def numbers(shape, dtype=E4M3, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def scales(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.25, 1.75, shape).astype(np.float32)


def operands(m, n, k, dtype_a=E4M3, dtype_b=E4M3):
    """(a, b, scale_a, scale_b) as layers have them: weights (n, k), transposed."""
    blocks = block_scaled.blocks_of
    return (
        *(numbers((m, k), dtype_a), numbers((n, k), dtype_b, 1).T),
        *(scales(m, blocks(k)), scales(blocks(n), blocks(k), seed=1).T),
    )


def test_the_vendors_call_of_a_workload_is_the_same():
    workload = block_scaled.workload(9, 150, 272, out="float32")
    a, b, d, e = operands(9, 150, 272)
    declared = {"a": a, "b": b.T, "d": d, "e": e.T, "c": np.empty((9, 150), np.float32)}
    found = library_call(FakeDevice(), workload, declared, ())()
    types = ElementTypes(None, None, None)
    np.testing.assert_array_equal(found, BLOCK_SCALED_MATMUL.library(FakeDevice(), (a, b, d, e), types, "ieee"))


def test_which_arrays_are_copied():
    a, b, d, e = operands(12, 32, 256)
    rows = a.reshape(3, 4, 256), b, d.reshape(3, 4, 2), e
    gaps = numbers((4, 6, 256))[:, :4]  # whose rows do not follow each other evenly
    bytes_ = np.zeros(12 * 256 + 64, np.uint8)
    start = -bytes_.ctypes.data % 16 + 1
    moved = bytes_[start : start + 12 * 256].view(E4M3).reshape(12, 256)
    moved[...] = a
    with gk.emulated("sm_90"):
        plain = gk.scaled_matmul(a, b, d, e)
        assert not gk.explain(gk.scaled_matmul, *rows).staged
        np.testing.assert_array_equal(gk.scaled_matmul(*rows), plain.reshape(3, 4, 32))
        backwards = gk.scaled_matmul(a, b, d, e, out=np.zeros((12, 32), np.float32)[::-1])
        np.testing.assert_array_equal(backwards, plain)
        for call in (
            (np.asfortranarray(a), b, d, e),
            (moved, b, d, e),
            (a[::-1], b, d[::-1], e),
            (a, np.ascontiguousarray(b), d, e),
            (a, b, d.astype(np.float64), e),
        ):
            assert gk.explain(gk.scaled_matmul, *call).staged == "operands are copied"
            flipped = plain[::-1] if call[0].strides[0] < 0 else plain
            np.testing.assert_array_equal(gk.scaled_matmul(*call), flipped)
        scale = scales(4, 4, 2)
        assert gk.explain(gk.scaled_matmul, gaps, b, scale, e).staged == "operands are copied"
        flat = gk.scaled_matmul(gaps.reshape(16, 256), b, scale.reshape(16, 2), e)
        np.testing.assert_array_equal(gk.scaled_matmul(gaps, b, scale, e), flat.reshape(4, 4, 32))
        row = gk.scaled_matmul(a[0], b, d[0], e)
        assert row.shape == (32,)
        np.testing.assert_array_equal(row, plain[0])


def test_what_is_refused():
    a, b, d, e = operands(4, 200, 256)
    raw = a.view(np.uint8), b.view(np.uint8)
    call = gk.scaled_matmul
    with gk.emulated("sm_90"):
        for error, words, made in (
            (ValueError, r"a \(..., k\) and b \(k, n\), not \(4, 256\) and \(200, 256\)", lambda: call(a, b.T, d, e)),
            (ValueError, r"scale_a has the shape \(4, 1\).*take \(4, 2\)", lambda: call(a, b, d[:, :1], e)),
            (ValueError, r"scale_b has the shape \(2, 1\).*take \(2, 2\)", lambda: call(a, b, d, e[:, :1])),
            (TypeError, "not uint8 and float8_e4m3fn", lambda: call(raw[0], b, d, e)),
            (TypeError, "not float32 and float8_e4m3fn", lambda: call(a.astype("float32"), b, d, e)),
            (TypeError, "does not hold float8_e5m2", lambda: call(a, b, d, e, dtype_a="float8_e5m2")),
            (TypeError, "scale_a holds floating-point numbers, not int32", lambda: call(a, b, d.astype(np.int32), e)),
            (TypeError, "is no int8", lambda: call(a, b, d, e, dtype="int8")),
            (gk.UnsupportedError, "multiples of 16 as k, not 250", lambda: call(a[:, :250], b[:250], d, e)),
            (
                gk.UnsupportedError,
                "float32, float16 or bfloat16, not float64",
                lambda: call(a, b, d, e, dtype="float64"),
            ),
        ):
            with pytest.raises(error, match=words):
                made()
    with gk.emulated("sm_89"), pytest.raises(gk.UnsupportedError, match="warpgroup products"):
        call(a, b, d, e)
