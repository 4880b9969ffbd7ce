"""Tier 4 computes what the operators' references say."""

import ml_dtypes
import numpy as np
import pytest

from gensor_kernels.dispatch.calls import arguments, fallback
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.operators.products import matmul as operator
from gensor_kernels.operators.types.epilogue import OPERATIONS, Step
from tests.doubles.device import FakeDevice

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


EPILOGUES = ["relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "cast", "scale", "bias", "mul", "mask"]


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, BFLOAT16])
def test_fallback_epilogues_are_the_operators(name, dtype):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 7, 5)).astype(dtype), rng.standard_normal((5, 6)).astype(dtype)
    x = rng.integers(0, 2, 6).astype(dtype) if OPERATIONS[name].takes_operand else None
    steps = (Operation(name, x, 0.5), Operation("scale", None, 0.5))
    call = arguments.resolve(a, b, None, steps)
    found = fallback.evaluate(FakeDevice(), call, a, b, steps)
    reference = [Step(s.name, None if s.operand is None else s.operand.astype(np.float64), s.scalar) for s in steps]
    expected = operator.reference(a, b, reference, np.dtype(dtype).name)
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}[np.dtype(dtype).name]
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=tolerance)


def test_integers_stay_exact_in_the_fallback():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (9, 300), np.int8), rng.integers(-128, 128, (300, 4), np.int8)
    x = rng.integers(-(2**30), 2**30, 4).astype(np.int32)
    steps = (Operation("bias", x), Operation("relu"))
    exact = np.maximum((a.astype(np.int64) @ b.astype(np.int64) + x).astype(np.int32), 0)
    for dtype in (np.int32, np.int8, np.float32):
        call = arguments.resolve(a, b, None, steps, dtype=dtype)
        found = fallback.evaluate(FakeDevice(), call, a, b, steps)
        np.testing.assert_array_equal(found, exact.astype(dtype))
    wrapped = fallback.evaluate(FakeDevice(), arguments.resolve(a, b, None, ()), a, b, ())
    np.testing.assert_array_equal(wrapped, np.matmul(a, b))


def test_whole_scalars_are_integer_steps():
    a = np.zeros((2, 2), np.int8)
    x = np.zeros(2, np.int32)

    def count(*steps):
        return fallback.whole_steps(arguments.resolve(a, a, None, steps, dtype="int32").inputs, steps)

    assert count(Operation("bias", x), Operation("scale", None, 3.0), Operation("relu")) == 3
    assert count(Operation("bias", x), Operation("scale", None, 0.5), Operation("relu")) == 1
    assert count(Operation("bias", x.astype(np.float32))) == 0
    assert count(Operation("mask", x, float("inf"))) == 0
    half = arguments.resolve(a.astype(np.float16), a.astype(np.float16), None, (Operation("relu"),))
    assert fallback.whole_steps(half.inputs, (Operation("relu"),)) == 0
