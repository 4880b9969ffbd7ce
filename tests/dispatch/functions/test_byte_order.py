"""Results and `out` in the other byte order; tests/public_cases swaps the arrays of every function."""

import numpy as np
import pytest

import gensor_kernels as gk
from tests.doubles.device import FakeDevice
from tests.doubles.kernels import put, runtime_of

A, B, ROW = np.ones((6, 8), np.float32), np.ones((8, 6), np.float32), np.ones(6, np.float32)
HALVES = A.astype("float16"), B.astype("float16")


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """A device whose kernels write their marks into results."""
    put(monkeypatch, runtime_of(FakeDevice("sm_87", emulated=True)))


@pytest.mark.parametrize(
    ("function", "arguments", "keywords"),
    [
        (gk.matmul, HALVES, {}),
        (gk.matmul, (A, B), {"activation": "swiglu"}),
        (gk.matmul, (A, B), {"epilogue": ["layernorm"]}),
        (gk.matmul, (A, B), {"prologue": ["relu"]}),
        (gk.matmul, (A.astype("uint8"), B), {"dtype_a": "float8_e5m2"}),
        (gk.grouped_matmul, (A, np.stack([B, B]), [2, 6]), {}),
        (gk.einsum, ("ij,jk", A, B), {}),
        (gk.einsum, ("ij,jk,k", A, B, ROW), {}),
        (gk.sum, (A,), {}),
    ],
)
def test_results_of_a_dtype_of_the_other_order_are_native(function, arguments, keywords):
    for dtype in (">f4", np.dtype(">f4")):
        assert function(*arguments, dtype=dtype, **keywords).dtype == np.dtype("=f4")


def test_read_only_results_are_refused():
    out = np.zeros((6, 6), ">f4")
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        gk.matmul(A, B, out)
    assert not out.any()
