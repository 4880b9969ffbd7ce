"""Convolutions, pooling and rows: routes, special values and splits; tests/public_cases draws calls."""

import numpy as np
import pytest

import gensor_kernels as gk
from gensor_kernels.dispatch.api.convolution import conv2d_to
from gensor_kernels.dispatch.api.rows import rows_parameters
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.conv_parameters import Parameters as Windows
from gensor_kernels.dispatch.calls.conv_parameters import _read
from gensor_kernels.dispatch.functions.convolution import convolve, full_sizes
from gensor_kernels.dispatch.functions.rows import COMPOSED, ONE_CALL, Parameters
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.families import space
from gensor_kernels.families.core import params
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.rows.views import workload
from tests.campaign_size import sample
from tests.doubles.device import FakeDevice
from tests.families.verified import is_right


def test_pairs_and_wide_windows():
    x, w = np.zeros((2, 5, 8, 8)), np.zeros((4, 5, 3, 3))
    with gk.emulated("sm_87"):
        for whole in (1, (1, 1), [1, 1], np.int64(1)):  # parsed arguments are cached, and 1.0 is equal to 1
            assert gk.conv2d(x, w, stride=whole).shape == (2, 4, 6, 6)
        for keywords in ({"kernel_size": 4}, {"kernel_size": 2, "dilation": 4}):
            assert gk.explain(gk.max_pool2d, x, padding=2, **keywords).kernel


def test_merged_groups_of_arrays_with_gaps(monkeypatch: pytest.MonkeyPatch):
    """Groups have the strides of their channels and filters, in images, outputs and operands of the epilogue."""
    for tier in ("_from_records", "_from_predictions"):  # an empty database: the family's own Programs
        monkeypatch.setattr(tiers, tier, lambda *_: None)
    patch = FAMILIES["contraction_patch"]
    starters = patch.starters
    monkeypatch.setattr(space, "FAMILIES", {patch.name: patch})
    monkeypatch.setattr(patch, "starters", lambda *of: [each for each in starters(*of) if each["merged"]])
    rng, merged = np.random.default_rng(0), []
    pack = params.pack

    def pack_and_note(geometry, tiling, **more):
        merged.append(tiling.merged)
        return pack(geometry, tiling, **more)

    monkeypatch.setattr(params, "pack", pack_and_note)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 128, 10, 8), (64, 8, 3, 3)))
    bias, more = (rng.standard_normal(shape).astype(np.float16) for shape in ((128,), (2, 64, 10, 8)))
    x, bias, out = x[:, ::2], bias[::2], np.zeros((2, 128, 10, 8), np.float16)
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1) | {"groups": 8}
    p = Windows("NCHW", tuple((ones | dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 1)).items()))
    wide = [each.astype(np.float64) for each in (x, w)]
    wanted = convolve(FakeDevice(), *wide, full_sizes(x.shape, w.shape, p), p, None) + bias[:, None, None] + more
    with gk.emulated("sm_87"):
        gk.conv2d(x, w, bias, padding=1, groups=8, add=more, out=out[:, ::2])
    assert merged[-1] == 2
    np.testing.assert_allclose(out[:, ::2], wanted, atol=0.05)
    assert not out[:, 1::2].any()


@pytest.mark.parametrize(("groups", "value"), [(1, np.nan), (8, np.inf)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_zeros_of_the_padding_are_operands(groups, value, no_databases):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 8, 5, 6), (8, 8 // groups, 3, 3)))
    w[:, 0, 0, 0], x[0, 0, 2, 2] = value, value
    with gk.emulated("sm_87"):
        found = gk.conv2d(x, w, padding=(1, 2), groups=groups)
    p = _read.__wrapped__(1, (1, 2), 1, groups, "NCHW", w.shape, None)
    by_library = convolve(FakeDevice(), x, w, full_sizes(x.shape, w.shape, p), p, None)
    np.testing.assert_allclose(found, by_library, rtol=1e-4, atol=1e-5)
    assert np.isnan(found[0, :, 0]).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("taps, groups", [(3, 1), (1, 1), (3, 8)])
def test_sums_of_int8_become_other_types_through_an_epilogue(layout, taps, groups):
    """The first operation is on integers; an int8 result drops the fraction, and the library computes the same."""
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-128, 128, shape).astype("int8") for shape in ((2, 8, 6, 5), (8, 8 // groups, taps, taps)))
    z, s = rng.integers(-99, 99, (8, 1, 1)).astype("int32"), rng.random((8, 1, 1)).astype("float32") / 200
    with gk.emulated("sm_87"):
        sums = gk.conv2d(x, w, padding=taps // 2, groups=groups)
        turn = [0, 2, 3, 1] if layout == "NHWC" else [0, 1, 2, 3]
        x, w = x.transpose(turn), w.transpose(turn)
        z, s = (each.reshape(8) if layout == "NHWC" else each for each in (z, s))
        steps = [("add", z), ("mul", s)]
        wanted = (sums.transpose(turn) + z) * s
        more = {"padding": taps // 2, "groups": groups, "layout": layout}
        for dtype, bound in (("float32", 1e-5), ("float16", 1e-3), ("bfloat16", 8e-3)):
            found = conv2d_to(x, w, steps, dtype, **more)
            assert found.dtype.name == dtype
            np.testing.assert_allclose(found.astype("float32"), wanted, rtol=bound, atol=bound)
        clamped = [*steps, "relu6", ("scale", 10)]
        found, wanted = conv2d_to(x, w, clamped, "int8", **more), 10 * np.clip(wanted, 0, 6)
        assert (
            found.dtype == np.int8
            and (np.abs(found - np.trunc(wanted)) <= (wanted % 1 < 1e-3) + (wanted % 1 > 0.999)).all()
        )
        with pytest.raises(TypeError, match="a result of float64 is not computed of int8"):
            conv2d_to(x, w, steps, "float64", **more)


NAN, INF = float("nan"), float("inf")


# ---- rows


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
FUNCTIONS |= {"l2_norm": gk.norm, "cumsum": gk.cumsum, "cumprod": gk.cumprod}


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
