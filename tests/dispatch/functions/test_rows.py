"""Reductions, softmax, norms and elementwise: dtypes, special values, splits, and what is refused.

tests/public_cases draws calls of all of them.
"""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.reductions import rows_parameters
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.functions.rows import COMPOSED, ONE_CALL, Parameters
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.rows.views import workload
from tests.campaign_size import sample
from tests.doubles.device import FakeDevice
from tests.families.verified import is_right

NAN, INF = float("nan"), float("inf")


def by_library(name, x, axes, **keywords):
    """The result of the array library, here NumPy."""
    function, parameters = rows_parameters(name, axes, x.ndim, **keywords)
    result, operands = function.result((x,), parameters), Operands((x,), None, ())
    return function.by_library(FakeDevice(), operands, parameters, result, None)


def test_the_library_sums_in_the_type_of_the_result():
    x = np.full((2, 3000), 60, np.float16)
    total = ONE_CALL.library(FakeDevice(), (x,), Parameters("reduce_sum", (1,), False, "float32"), None)
    assert total.dtype == np.float32 and (total == 180000).all()
    spread = COMPOSED.library(FakeDevice(), (x,), Parameters("reduce_var", (1,), False, "float64"), None)
    assert spread.dtype == np.float64 and (spread == 0).all()


# ---- special values

FUNCTIONS = {f"reduce_{name}": getattr(gk, name) for name in ("sum", "mean", "max", "min", "prod", "var")}
FUNCTIONS |= {name: getattr(gk, name) for name in ("argmax", "argmin", "logsumexp", "softmax", "log_softmax")}
FUNCTIONS |= {"l2_norm": gk.norm}


@pytest.mark.parametrize("dtype", sample(["float16", "float32", "float64"], 1))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_kernels_and_the_library_agree_on_nan_and_infinities(dtype):
    values = (1.0, -0.0, NAN, INF, -INF)
    x = np.array([[a, b, c] for a in values for b in values for c in values], dtype)
    with gk.emulated("sm_87"):
        for name, function in FUNCTIONS.items():
            np.testing.assert_allclose(function(x, axis=1), by_library(name, x, 1), rtol=1e-3, err_msg=name)
        for name, function in (("layernorm", gk.layer_norm), ("rmsnorm", gk.rms_norm)):
            for eps in (0.0, 1e-5, -2.0, INF, NAN):
                wanted = by_library(name, x, 1, value=eps)
                np.testing.assert_allclose(function(x, 3, eps=eps), wanted, rtol=1e-3, atol=1e-7, err_msg=name)
        for ddof in (INF, -INF, np.float32(1.5), True):
            wanted = by_library("reduce_var", x, 1, ddof=ddof)
            np.testing.assert_allclose(gk.var(x, axis=1, ddof=ddof), wanted, rtol=1e-3)


# ---- sums


def test_a_million_ones_and_a_little_more_do_not_lose():
    x = np.full((1, 1_000_000), 1.0009765625, np.float32)
    with gk.emulated("sm_87"):
        assert abs(gk.sum(x, axis=1)[0] / 1_000_976.5625 - 1) < 2e-6


def test_a_split_takes_every_part():
    wanted, family = workload("reduce_var", (3, 5000), (1,), "float32"), FAMILIES["rows"]
    program = next(each for each in family.starters(wanted, lookup("sm_87")) if each["split_k"] > 1)
    assert is_right(family, program, wanted, use_cache=False).branches["split_reduce"]


def test_elementwise_reduces_no_axes():
    with pytest.raises(ValueError, match=r"elementwise reduces no axes, not \(1,\)"):
        workload("elementwise", (2, 3), (1,), "float32")


def test_places_of_dtype_and_out():
    out = np.empty(4, np.float32)
    with gk.emulated("sm_87"):
        assert gk.sum(np.ones((4, 5), np.float16), 1, "float32", out) is out and (out == 5).all()
