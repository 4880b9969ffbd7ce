"""Columns as channels: which convolutions are folded, and that nothing but the view changes."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import conv, conv_folded
from gensor_kernels.programs.families import FAMILIES
from gensor_tuner.pool import candidate
from gensor_tuner.verify import verify

from .test_convolutions import Parameters, reference

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


@pytest.mark.parametrize(
    ("change", "by"),
    [
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
        (
            {"c": 3, "w": 224, "s": 16, "stride_w": 16},
            16,
        ),  # 48 channels
        ({"c": 5, "w": 28, "s": 4, "stride_w": 4}, 4),
    ],
)
def test_how_many(change, by):
    assert conv_folded.fold({**conv.DEFAULTS, **SPEECH, **change}, "float16") == by


def test_planes_of_several_channels_and_filters_first_stay():
    assert conv.workload(**SPEECH | {"c": 2}, layout="nchw").size["c"] == 2
    assert conv.workload(**SPEECH | {"c": 2}, layout="nhwc").size["c"] == 4
    assert conv.workload(**SPEECH | {"c": 2}, layout="nhwc", weights="rsck").size["c"] == 2


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("gap", [1, 2])
def test_calls_are_folded_where_pixels_are_neighbours(layout, gap):
    rng = np.random.default_rng(0)
    channels = 1 if layout == "NCHW" else 2
    x, w = rng.standard_normal((2, channels, 11, 24 * gap))[..., ::gap], rng.standard_normal((5, channels, 3, 4))
    bias = rng.standard_normal(5)
    sizes = {**conv.DEFAULTS, "stride_h": 1, "stride_w": 2, "pad_left": 2, "pad_right": 4, "pad_top": 1}
    wanted = reference(x, w, Parameters("NCHW", tuple(sizes.items()))) + bias[:, None, None]
    if layout == "NHWC":
        wide = np.zeros((2, 11, 24 * gap, 2))
        wide[:, :, ::gap] = x.transpose(0, 2, 3, 1)
        x, w, wanted = wide[:, :, ::gap], w.transpose(0, 2, 3, 1).copy(), wanted.transpose(0, 2, 3, 1)
    with gensor_kernels.emulated("sm_87"):
        call = {"stride": (1, 2), "padding": ((1, 0), (2, 4)), "layout": layout}
        np.testing.assert_allclose(gensor_kernels.conv2d(x, w, bias, **call), wanted, atol=1e-12)
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, bias, **call).tier == 3


@pytest.mark.parametrize(("family", "dtype"), [("contraction_mma", "float16"), ("contraction_packed", "int8")])
def test_kernels_of_folded_images_are_right(family, dtype):
    workload, arch = conv.workload(**SPEECH, layout="nchw", dtype=dtype), lookup("sm_87")
    program = FAMILIES[family].starters(workload, arch)[1]
    verdict = verify(candidate(FAMILIES[family], program, workload), workload)
    assert verdict.outcome == "ok", verdict.detail
