"""Depthwise and folded convolutions and pooling as declarations; tests/public_cases compares their results."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.workload import View, Workload
from gensor_kernels.operators.windows import conv, conv_folded, depthwise, pooling
from gensor_kernels.operators.windows.sides import output_size
from tests.families.verified import convolved

RNG = np.random.default_rng(5)


def test_windows_in_the_padding_alone():
    more = {"pad_left": 4, "stride_h": 1, "stride_w": 1}
    x = np.full((1, 2, 2, 1), 7, np.int8)
    found = operator("max_pool2d").expect(
        pooling.workload("max_pool2d", n=1, h=2, w=2, c=1, r=1, s=2, dtype="int8", **more), {"x": x}
    )
    assert found.values[0, 0, :, 0].tolist() == [-128, -128, -128, 7, 7]
    found = operator("avg_pool2d").expect(
        pooling.workload("avg_pool2d", n=1, h=2, w=2, c=1, r=1, s=2, **more), {"x": x.astype(np.float32)}
    )
    assert found.values[0, 0, :, 0].tolist() == [0, 0, 0, 7, 7]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_short_accumulator_is_outside_the_bound(dtype):
    workload = depthwise.workload(n=1, h=40, w=40, c=8, r=7, s=7, dtype=dtype, out="float32")
    x, w = RNG.standard_normal((1, 40, 40, 8)), RNG.standard_normal((7, 7, 8))
    from gensor_kernels.operators.types.dtypes import decode, encode, round_to

    stored = {"x": encode(dtype, x), "w": encode(dtype, w)}
    x, w = (decode(dtype, stored[name]) for name in "xw")
    total = np.zeros((1, 34, 34, 8))
    for r in range(7):
        for s in range(7):
            total = round_to(dtype, total + round_to(dtype, x[:, r : r + 34, s : s + 34] * w[r, s]))
    assert not tolerance_base.check(total, operator("depthwise_conv2d").expect(workload, stored)).ok


def test_work_and_traffic_follow_from_the_declaration():
    workload = depthwise.workload(
        n=2, h=8, w=8, c=16, r=3, s=3, pad_top=1, pad_bottom=1, dtype="float16", epilogue="bias_relu6"
    )
    outputs = 2 * 8 * 6 * 16
    assert workload.flops() == outputs * 9 * 2
    assert workload.bytes_moved() == (2 * 64 * 16 + 9 * 16 + outputs + 16) * 2
    pooled = pooling.workload("max_pool2d", n=1, h=8, w=8, c=4, r=2, s=2)
    assert pooled.flops() == 16 * 4 * 4
    assert (pooled.size["stride_h"], pooled.size["stride_w"]) == (2, 2)


def test_views_give_the_class_of_how_arrays_lie():
    x = View((2, 8, 8, 16), (8 * 8 * 24, 8 * 24, 24, 1), "float16", 16)
    y = View((2, 6, 6, 16), (6 * 6 * 16, 6 * 16, 16, 1), "float16", 8)
    w = View((3, 3, 16), (48, 16, 1), "float16", 4)
    workload = depthwise.workload_from_views(x, w, y, epilogue="bias")
    assert dict(workload.alignment) == {"w": 4, "x": 16, "y": 8}
    assert dict(workload.layout) == {"w": "rsc", "x": "nhwc", "y": "nhwc"}
    planes = View((2, 8, 8, 16), (16 * 64, 8, 1, 64), "float32", 16)
    out = View((2, 4, 4, 16), (16 * 16, 4, 1, 16), "float32", 16)
    pooled = pooling.workload_from_views("max_pool2d", planes, out, layout="nchw", r=2, s=2)
    assert dict(pooled.alignment) == {"x": 4, "y": 16}


# ---- columns as channels, bands of rows as images


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
