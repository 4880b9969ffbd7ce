"""Convolutions: epilogues, and what does not fit; test_library.py and tests/public_cases draw calls."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.convolution import _read
from gensor_kernels.dispatch.calls.conv_parameters import Parameters
from gensor_kernels.dispatch.functions.convolution import convolve, full_sizes
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.operators.windows.conv_product import patches
from gensor_kernels.programs import space
from gensor_kernels.programs.core import params
from gensor_kernels.programs.registry import FAMILIES
from tests.doubles.device import FakeDevice


def reference(x, w, p: Parameters):
    """(n, k, oh, ow) in float64 by gathered patches; images and weights with channels first."""
    sizes = full_sizes(x.shape, w.shape, p)
    g = sizes["groups"]
    n, c, h, width = x.shape
    image = x.astype(np.float64).reshape(n, g, c // g, h, width).transpose(0, 3, 4, 1, 2)
    gathered = patches(image, sizes, p.transposed)
    if p.transposed:
        own = w.astype(np.float64).reshape(g, c // g, *w.shape[1:]).transpose(0, 3, 4, 1, 2)
    else:
        own = w.astype(np.float64).reshape(g, -1, *w.shape[1:]).transpose(0, 3, 4, 2, 1)
    found = gathered @ own.reshape(g, -1, own.shape[-1])
    from gensor_kernels.operators.windows.conv_product import output_size

    oh, ow = (output_size(sizes, side, p.transposed) for side in "hw")
    return found.reshape(g, n, oh, ow, -1).transpose(1, 0, 4, 2, 3).reshape(n, -1, oh, ow)


def test_epilogue_out_and_same_padding():
    rng = np.random.default_rng(0)
    x, w, bias = rng.standard_normal((2, 5, 8, 8)), rng.standard_normal((4, 5, 3, 3)), rng.standard_normal(4)
    more = rng.standard_normal((2, 4, 8, 8))
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "groups"), 1)
    ones |= dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 1)
    p = Parameters("NCHW", tuple(ones.items()))
    wanted = np.maximum(reference(x, w, p) + bias[:, None, None] + more, 0)
    with gensor_kernels.emulated("sm_87"):
        out = np.empty_like(wanted)
        assert gensor_kernels.conv2d(x, w, bias, padding="same", add=more, activation="relu", out=out) is out
        np.testing.assert_allclose(out, wanted, atol=1e-12)
        overlapping = more.copy()
        gensor_kernels.conv2d(x, w, bias, padding=1, add=overlapping, activation="relu", out=overlapping)
        np.testing.assert_allclose(overlapping, wanted, atol=1e-12)
        point = rng.standard_normal((4, 5, 1, 1))
        found = gensor_kernels.conv2d(x, point, bias, activation="relu")
        np.testing.assert_allclose(
            found, np.maximum(np.einsum("nchw,kc->nkhw", x, point[..., 0, 0]) + bias[:, None, None], 0)
        )
        row, taps = x[:, :, 0], w[:, :, 0]
        lifted = gensor_kernels.conv2d(row[:, :, None], taps[:, :, None], bias, padding=((0, 0), (1, 1)))[:, :, 0]
        np.testing.assert_allclose(gensor_kernels.conv1d(row, taps, bias, padding=1), lifted, atol=1e-12)
        assert gensor_kernels.conv2d(x[:0], w).shape == (0, 4, 6, 6)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (dict(stride=0), ValueError, "stride must be 1 or more"),
        (dict(padding="reflect"), ValueError, "'same' or 'valid'"),
        (dict(padding="same", stride=2), ValueError, "needs stride 1"),
        (dict(layout="CHWN"), ValueError, "'NCHW', 'NHWC'"),
        (dict(groups=2), ValueError, "x has 5 channels"),
        (dict(dilation=1.5), TypeError, "dilation must be an integer"),
        (dict(stride=(1, 2, 3)), ValueError, "an integer or a pair"),
        (dict(activation="swish"), ValueError, "activation must be one of"),
        (dict(out=np.empty((2, 4, 5, 5))), ValueError, r"^out has shape \(2, 4, 5, 5\)"),
    ],
)
def test_what_does_not_fit(change, error, words):
    x, w = np.zeros((2, 5, 8, 8)), np.zeros((4, 5, 3, 3))
    with gensor_kernels.emulated("sm_87"), pytest.raises(error, match=words):
        gensor_kernels.conv2d(x, w, **change)


@pytest.mark.parametrize("stride", [1.0, (1, 1.0), [1, 1.0]])
def test_numbers_are_read_anew_where_they_equal_whole_ones(stride):
    """Arguments are read once per set of them: 1.0 is equal to 1, and refused all the same."""
    x, w = np.ones((1, 3, 5, 5), np.float32), np.ones((2, 3, 3, 3), np.float32)
    with gensor_kernels.emulated("sm_87"):
        for whole in (1, (1, 1), [1, 1], np.int64(1)):
            assert gensor_kernels.conv2d(x, w, stride=whole).shape == (1, 2, 3, 3)
        with pytest.raises(TypeError, match="stride must be an integer"):
            gensor_kernels.conv2d(x, w, stride=stride)


def test_merged_groups_of_arrays_with_gaps(monkeypatch: pytest.MonkeyPatch):
    """Groups lie as far apart as their channels and filters do, in images, outputs and operands of the epilogue."""
    for tier in ("_recorded", "_predicted"):  # an empty database: the family's own Programs
        monkeypatch.setattr(tiers, tier, lambda *_: None)
    patch = FAMILIES["contraction_patch"]
    starters = patch.starters
    monkeypatch.setattr(space, "FAMILIES", {patch.name: patch})
    monkeypatch.setattr(patch, "starters", lambda *of: [each for each in starters(*of) if each["merged"]])
    rng, merged = np.random.default_rng(0), []
    pack = params.pack

    def packed(geometry, tiling, **more):
        merged.append(tiling.merged)
        return pack(geometry, tiling, **more)

    monkeypatch.setattr(params, "pack", packed)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 128, 10, 8), (64, 8, 3, 3)))
    bias, more = (rng.standard_normal(shape).astype(np.float16) for shape in ((128,), (2, 64, 10, 8)))
    x, bias, out = x[:, ::2], bias[::2], np.zeros((2, 128, 10, 8), np.float16)
    ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w"), 1) | {"groups": 8}
    p = Parameters("NCHW", tuple((ones | dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 1)).items()))
    wanted = reference(x, w, p) + bias[:, None, None] + more
    with gensor_kernels.emulated("sm_87"):
        gensor_kernels.conv2d(x, w, bias, padding=1, groups=8, add=more, out=out[:, ::2])
    assert merged[-1] == 2
    np.testing.assert_allclose(out[:, ::2], wanted, atol=0.05)
    assert not out[:, 1::2].any()


@pytest.mark.parametrize("shape", [(1,), (), (3,), (1, 4), (4, 1), (4, 1, 1)])
@pytest.mark.parametrize("prologue", [None, ["relu"]])
def test_a_bias_has_one_element_per_filter(shape, prologue):
    gk, bias, half = gensor_kernels, np.ones(shape, np.float16), lambda *shape: np.ones(shape, np.float16)
    calls = [
        lambda: gk.conv2d(half(1, 2, 5, 5), half(4, 2, 3, 3), bias, prologue=prologue),
        lambda: gk.conv2d(half(1, 5, 5, 2), half(4, 1, 1, 2), bias, layout="NHWC", prologue=prologue),
        lambda: gk.conv2d(half(1, 4, 5, 5), half(4, 1, 3, 3), bias, groups=4, prologue=prologue),
        lambda: gk.conv1d(half(1, 2, 5), half(4, 2, 3), bias, prologue=prologue),
        lambda: gk.conv_transpose2d(half(1, 2, 5, 5), half(2, 2, 2, 2), bias, groups=2, prologue=prologue),
    ]
    with gk.emulated("sm_87"):
        for call in calls:
            with pytest.raises(ValueError, match=r"bias has shape .*, w has 4 filters"):
                call()
        assert gk.conv2d(half(1, 2, 1, 1), half(1, 2, 1, 1), half(1)).item() == 3


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_zeros_of_the_padding_are_operands(groups, value, no_databases):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 8, 5, 6), (8, 8 // groups, 3, 3)))
    w[:, 0, 0, 0], x[0, 0, 2, 2] = value, value
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.conv2d(x, w, padding=(1, 2), groups=groups)
    p = _read.__wrapped__(1, (1, 2), 1, groups, "NCHW", w.shape, None)
    by_library = convolve(FakeDevice(), x, w, full_sizes(x.shape, w.shape, p), p, None)
    np.testing.assert_allclose(found, by_library, rtol=1e-4, atol=1e-5)
    assert np.isnan(found[0, :, 0]).all()


def test_explain_tells_what_would_serve():
    x, w = np.zeros((2, 16, 8, 8), np.float16), np.zeros((32, 16, 3, 3), np.float16)
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.explain(gensor_kernels.conv2d, x, w, padding=1, activation="relu")
        assert found.tier == 3 and found.family == "contraction_patch" and '"operator":"conv2d"' in found.workload
        point = gensor_kernels.explain(gensor_kernels.conv2d, x, w[:, :, :1, :1])
        assert '"operator":"matmul"' in point.workload
        scores = gensor_kernels.define("i k, j k -> i j")
        assert gensor_kernels.explain(scores, x[0, :, 0], w[:16, 0, 0, :1]).tier == 3
        assert gensor_kernels.explain(gensor_kernels.conv2d, x[:0], w).tier == 0
        with pytest.raises(ValueError, match="16 channels"):
            gensor_kernels.explain(gensor_kernels.conv2d, x, w[:, :5])
