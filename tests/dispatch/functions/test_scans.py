"""Running sums and products, and the library's functions of rows; tests/public_cases draws calls."""

import ml_dtypes
import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.devices.emulator import build
from gensor_kernels.dispatch.functions.rows import Parameters, function_of
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.rows.views import workload
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.problem import Problem
from tests.doubles.device import FakeDevice, emulate
from tests.doubles.kernels import kernels, put, runtime_of

WANTED = workload("cumsum", (3, 20_000), (1,), "float32")


@pytest.fixture
def stocked(monkeypatch, needs_emulator):
    """A Runtime with kernels for contiguous rows of float32, which the emulator executes."""
    return put(monkeypatch, runtime_of(FakeDevice("sm_87", emulate), kernels(WANTED)))


def test_a_stored_kernel_serves_before_a_race_and_inside_deterministic(stocked):
    """CuPy copies an array before it scans the copy, by look-back in an order that differs between runs."""
    x = np.random.default_rng(0).standard_normal((3, 400_000), np.float32)
    explained = gk.explain(gk.cumsum, x, 1)
    assert explained.tier == 3 and explained.kernel in kernels(WANTED)
    with gk.deterministic():
        assert gk.explain(gk.cumsum, x, 1).kernel == explained.kernel
        first = gk.cumsum(x, 1)
    assert len(stocked.device.ran) == 1
    np.testing.assert_allclose(first, np.cumsum(x, 1, np.float64), atol=5e-3)


def test_calls_without_a_stored_kernel_are_the_librarys(stocked):
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    for axis in (None, 0, 1):
        np.testing.assert_array_equal(gk.cumsum(x, axis), np.cumsum(x, axis))
        np.testing.assert_array_equal(gk.cumprod(x, axis, "int32"), np.cumprod(x, axis, "int32"))
    assert gk.explain(gk.cumsum, x).tier == 4 and not stocked.device.ran


@pytest.mark.parametrize(("shape", "axis"), [((2, 3000), 1), ((600, 12), 0)])
def test_bits_do_not_depend_on_the_order_of_warps(shape, axis, needs_emulator):
    family, wanted = FAMILIES["rows"], workload("cumsum", shape, (axis,), "float32")
    split = {"threads_k": 64, "threads_m": 2, "items": 2, "vector": 4, "split_k": 3, "keep": 0}
    program = family.starters(wanted, lookup("sm_87"))[-1].replace(**split)
    each = candidate(family, program, wanted)
    results = set()
    for order in ("forward", "reverse", 1, 2):
        problem = Problem(Case("any", wanted), 7)
        problem.run(each, build(each.source()), copies="late", order=order)
        results.add(problem.out.view().tobytes())
    assert len(results) == 1


def test_axes_and_results_that_do_not_fit():
    x = np.ones((3, 4), np.float32)
    with gk.emulated("sm_87"):
        for wrong in ((x, 2), (x, (0, 1)), (x, 1, None, np.empty(3, "f")), (x, 0, None, np.empty((3, 4), "i4"))):
            with pytest.raises((ValueError, TypeError)):
                gk.cumsum(*wrong)
        assert gk.cumsum(np.ones(())).shape == (1,) and gk.cumsum(x[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("name", "dtype"), [("nanmean", "float64"), ("nanmean", None), ("nansum", None), ("nanmax", None)]
)
def test_the_librarys_functions_leave_nan_of_bfloat16_out(name, dtype):
    x, dtype = np.array([1, np.nan, 4], ml_dtypes.bfloat16), None if name == "nanmax" else dtype
    parameters, out = Parameters(name, (0,), dtype=dtype), np.zeros((), dtype or x.dtype)
    wanted = getattr(np, name)(x.astype("float32"))
    assert function_of(name).library(FakeDevice(), (x,), parameters, None) == wanted
    assert function_of(name).library(FakeDevice(), (x,), parameters, None, out) is out and out == wanted
