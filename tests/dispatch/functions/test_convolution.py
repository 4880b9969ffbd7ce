"""Convolutions and pooling: routes and refusals; tests/public_cases draws calls."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.convolution import _read
from gensor_kernels.dispatch.calls.conv_parameters import Parameters
from gensor_kernels.dispatch.functions.convolution import convolve, full_sizes
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.families import space
from gensor_kernels.families.core import params
from gensor_kernels.families.registry import FAMILIES
from tests.doubles.device import FakeDevice


def test_pairs_and_wide_windows():
    x, w = np.zeros((2, 5, 8, 8)), np.zeros((4, 5, 3, 3))
    with gensor_kernels.emulated("sm_87"):
        for whole in (1, (1, 1), [1, 1], np.int64(1)):  # parsed arguments are cached, and 1.0 is equal to 1
            assert gensor_kernels.conv2d(x, w, stride=whole).shape == (2, 4, 6, 6)
        for keywords in ({"kernel_size": 4}, {"kernel_size": 2, "dilation": 4}):
            assert gensor_kernels.explain(gensor_kernels.max_pool2d, x, padding=2, **keywords).kernel


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
    p = Parameters("NCHW", tuple((ones | dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), 1)).items()))
    wide = [each.astype(np.float64) for each in (x, w)]
    wanted = convolve(FakeDevice(), *wide, full_sizes(x.shape, w.shape, p), p, None) + bias[:, None, None] + more
    with gensor_kernels.emulated("sm_87"):
        gensor_kernels.conv2d(x, w, bias, padding=1, groups=8, add=more, out=out[:, ::2])
    assert merged[-1] == 2
    np.testing.assert_allclose(out[:, ::2], wanted, atol=0.05)
    assert not out[:, 1::2].any()


def test_a_bias_has_one_element_per_filter():
    gk, half = gensor_kernels, lambda *shape: np.ones(shape, np.float16)
    calls = [
        lambda bias, **more: gk.conv2d(half(1, 2, 5, 5), half(4, 2, 3, 3), bias, **more),
        lambda bias, **more: gk.conv2d(half(1, 5, 5, 2), half(4, 1, 1, 2), bias, layout="NHWC", **more),
        lambda bias, **more: gk.conv2d(half(1, 4, 5, 5), half(4, 1, 3, 3), bias, groups=4, **more),
        lambda bias, **more: gk.conv1d(half(1, 2, 5), half(4, 2, 3), bias, **more),
        lambda bias, **more: gk.conv_transpose2d(half(1, 2, 5, 5), half(2, 2, 2, 2), bias, groups=2, **more),
    ]
    with gk.emulated("sm_87"):
        for shape in ((1,), (), (3,), (1, 4), (4, 1), (4, 1, 1)):
            for prologue in (None, ["relu"]):
                for call in calls:
                    with pytest.raises(ValueError, match=r"bias has shape .*, w has 4 filters"):
                        call(half(*shape), prologue=prologue)
        assert gk.conv2d(half(1, 2, 1, 1), half(1, 2, 1, 1), half(1)).item() == 3


@pytest.mark.parametrize(("groups", "value"), [(1, np.nan), (8, np.inf)])
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
