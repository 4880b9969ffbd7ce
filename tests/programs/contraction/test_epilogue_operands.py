"""Operands of epilogue operations: every dtype, contiguous axis and way to broadcast, against float64."""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels

M, N, K = 35, 72, 40
SHAPES = {"full": (2, 2, M, N), "rows": (M, 1), "columns": (2, 1, 1, N), "one": (2, 1, 1)}
#: Groups of eight columns of C, and single ones.
COLUMNS = {"groups": N, "single": N - 1}


def drawn(rng, shape, dtype, unit):
    """Random values of a dtype whose contiguous axis is the last one ("n"), the one before ("m"), or none ("s")."""
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    wide = (*shape[:-1], 2 * shape[-1]) if unit == "s" else shape
    values = rng.integers(0, 2, wide) if dtype == "bool" else np.round(4 * rng.standard_normal(wide))
    values = values.astype(kind)
    if unit == "m" and len(shape) > 1:
        return np.ascontiguousarray(values.swapaxes(-1, -2)).swapaxes(-1, -2)
    return values[..., ::2] if unit == "s" else values


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int8", "int32", "bool"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_operands(columns, dtype):
    rng, n = np.random.default_rng(3), COLUMNS[columns]
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 2, M, K), (2, 2, K, n)))
    wanted = a.astype(float) @ b.astype(float)
    with gensor_kernels.emulated("sm_87"):
        for shape in SHAPES.values():
            for unit in "nms":
                operand = drawn(rng, (*shape[:-1], min(shape[-1], n)), dtype, unit)
                how = {"epilogue": [("add", operand)], "dtype": "float16"}
                told = gensor_kernels.explain(gensor_kernels.matmul, a, b, **how)
                assert told.family == "contraction_mma", told
                found = gensor_kernels.matmul(a, b, **how).astype(float)
                np.testing.assert_allclose(found, wanted + operand.astype(float), rtol=2e-3, atol=0.02)
