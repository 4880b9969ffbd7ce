"""Columns as channels, bands of rows as images: which convolutions are read so, and that only the view changes."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows import conv, conv_folded
from gensor_kernels.operators.windows.sides import output_size
from tests.families.verified import convolved

SPEECH = {"n": 1, "h": 161, "w": 700, "c": 1, "k_out": 32, "r": 5, "s": 20, "stride_h": 2, "stride_w": 2}


def test_columns_that_windows_skip_together_become_channels():
    folded = conv.workload(**SPEECH, layout="nchw", dtype="float16")
    size = folded.size
    assert (size["w"], size["c"], size["s"], size["stride_w"], size["stride_h"]) == (350, 2, 10, 1, 2)
    assert folded.layouts == {"x": "nhwc", "w": "krsc", "y": "nkhw"}
    assert folded.align["x"] == 4
    plain = conv.workload(**SPEECH, layout="nchw", dtype="float16", fold=False)
    assert plain.layouts["x"] == "nchw" and plain.size["c"] == 1
    assert folded.flops() == plain.flops() and folded.bytes_moved() == plain.bytes_moved()


#: Changes of a convolution, and how many of its columns become channels.
COLUMNS = [
    ({}, 2),
    ({"stride_w": 4}, 4),
    ({"stride_w": 1}, 1),
    ({"s": 5}, 1),
    ({"w": 701}, 1),
    ({"pad_left": 1}, 1),
    ({"pad_left": 2, "pad_right": 4}, 2),
    ({"dilation_w": 2}, 1),
    ({"groups": 2, "c": 2}, 1),
    ({"c": 8}, 1),
    ({"c": 3}, 2),
    ({"c": 0}, 1),
    ({"c": 3, "w": 224, "s": 16, "stride_w": 16}, 16),  # 48 channels
    ({"c": 5, "w": 28, "s": 4, "stride_w": 4}, 4),
]


def test_how_many_columns():
    for change, by in COLUMNS:
        assert conv_folded.fold({**conv.DEFAULTS, **SPEECH, **change}, "float16") == by, change


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("gap", [1, 2])
def test_calls_are_folded_where_pixels_are_neighbours(layout, gap):
    rng = np.random.default_rng(0)
    channels = 1 if layout == "NCHW" else 2
    x, w = rng.standard_normal((2, channels, 11, 24 * gap))[..., ::gap], rng.standard_normal((5, channels, 3, 4))
    bias = rng.standard_normal(5)
    stride, pads = (1, 2), ((1, 0), (2, 4))
    wanted = convolved(x, w, stride, pads) + bias[:, None, None]
    if layout == "NHWC":
        wide = np.zeros((2, 11, 24 * gap, 2))
        wide[:, :, ::gap] = x.transpose(0, 2, 3, 1)
        x, w, wanted = wide[:, :, ::gap], w.transpose(0, 2, 3, 1).copy(), wanted.transpose(0, 2, 3, 1)
    with gensor_kernels.emulated("sm_87"):
        call = {"stride": stride, "padding": pads, "layout": layout}
        np.testing.assert_allclose(gensor_kernels.conv2d(x, w, bias, **call), wanted, atol=1e-12)
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, bias, **call).tier == 3


PATCHES = {"n": 2, "h": 224, "w": 224, "c": 3, "k_out": 768, "r": 16, "s": 16, "stride_h": 16, "stride_w": 16}


def test_rows_of_patches_become_images():
    banded = conv.workload(**PATCHES, dtype="float16")
    size = banded.size
    assert (size["n"], size["h"], size["stride_h"], size["w"], size["c"]) == (28, 16, 1, 14, 48)
    assert banded.align == {"x": 16, "w": 16, "y": 16}
    plain = conv.workload(**PATCHES, dtype="float16", fold=False)
    assert banded.flops() == plain.flops() and banded.bytes_moved() == plain.bytes_moved()
    assert "contraction_wgmma" in Space(banded, lookup("sm_90")).names
    assert "contraction_wgmma" not in Space(plain, lookup("sm_90")).names


#: Changes of patches, and how many bands of rows become images.
BANDS = [
    ({}, 14),
    ({"r": 15}, 14),
    ({"r": 8, "dilation_h": 2}, 14),
    ({"r": 9, "dilation_h": 2}, 1),  # windows overlap
    ({"r": 17}, 1),
    ({"r": 1}, 1),
    ({"h": 225}, 1),
    ({"pad_top": 16}, 1),
    ({"pad_bottom": 1}, 1),
    ({"stride_h": 32, "r": 7}, 7),
    ({"h": 16}, 1),
]


def test_how_many_bands():
    layouts = {"x": "nhwc", "w": "krsc", "y": "nhwk"}
    for change, by in BANDS:
        sizes = {**conv.DEFAULTS, **PATCHES, **change}
        assert conv_folded.bands(sizes, layouts) == by, change
        assert conv_folded.bands(sizes, layouts | {"y": "nkhw"}) == 1
        assert conv_folded.bands(sizes, layouts | {"x": "nchw"}) == 1
        conv.check(found := conv_folded.split_bands(sizes, by), False)
        if by > 1:
            assert output_size(found, "h", False) == 1 and found["n"] == 2 * output_size(sizes, "h", False)


@pytest.mark.parametrize(("gap", "images"), [("", 9), ("image", 3), ("result", 9), ("residual", 9)])
def test_calls_are_banded_where_images_have_no_gaps(gap, images):  # outputs and residuals with gaps are copied
    rng = np.random.default_rng(1)
    x, w, bias = rng.standard_normal((3, 12, 9, 4)), rng.standard_normal((5, 3, 2, 4)), rng.standard_normal(5)
    wanted = convolved(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), (4, 3)).transpose(0, 2, 3, 1)
    wide, out = np.zeros((6, *x.shape[1:])), np.zeros((6, *wanted.shape[1:]))
    add = rng.standard_normal(wanted.shape)
    wide[::2] = x
    call = {"stride": (4, 3), "layout": "NHWC", "out": out[::2] if gap == "result" else out[:3]}
    call["add"] = np.repeat(add, 2, axis=0)[::2] if gap == "residual" else add
    image = wide[::2] if gap == "image" else x
    with gensor_kernels.emulated("sm_87"):
        told = gensor_kernels.explain(gensor_kernels.conv2d, image, w, bias, **call)
        gensor_kernels.conv2d(image, w, bias, **call)
    np.testing.assert_allclose(call["out"], wanted + bias + add, atol=1e-12)
    assert told.tier == 3 and Workload.from_json(told.workload).size["n"] == images


def test_planes_of_several_channels_and_filters_first_stay():
    assert conv.workload(**SPEECH | {"c": 2}, layout="nchw").size["c"] == 2
    assert conv.workload(**SPEECH | {"c": 2}, layout="nhwc").size["c"] == 4
    assert conv.workload(**SPEECH | {"c": 2}, layout="nhwc", weights="rsck").size["c"] == 2
