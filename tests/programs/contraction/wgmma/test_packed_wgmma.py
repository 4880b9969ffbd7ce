"""Hopper's convolutions of images with channels first: packed, then read by their pixels, which are columns."""

import struct
from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import conv2d, explain
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.geometry import Geometry, Window
from gensor_kernels.operators.windows.conv_packed import packed, packed_window
from gensor_kernels.operators.windows.conv_product import output_size
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.tensor_maps import TensorMap, described
from gensor_kernels.programs.registry import FAMILIES
from tests.doubles.stored import store_kernels
from tests.programs.lattices import WGMMA, fastest
from tests.programs.workloads.contraction_packed_wgmma import workload
from tests.programs.workloads.window import padded

from .small import ARCH, is_right, small

FAMILY = FAMILIES["contraction_packed_wgmma"]
PADDED = padded()


made = partial(small, FAMILY, vector_c=2)


@pytest.mark.parametrize(
    ("problem", "values"),
    [
        (workload(groups=2, epilogue="bias_add_relu"), {"split_k": 2}),
        (workload(dtype="bfloat16", **PADDED), {"cluster": 1, "persistent": 1, "block_n": 16}),
        (workload(**PADDED), {"cluster": 2, "block_n": 128, "epilogue_staged": 3, "vector_c": 16}),
        (workload(dtype="int8"), {"block_k": 128, "persistent": 2, "consumers": 2, "vector_c": 4}),
        (workload(dtype="float32", math="tf32"), {"block_k": 32, "vector_c": 4, "epilogue_staged": 0}),
    ],
    ids=["groups, split", "pairs share pixels", "pairs share filters", "in turns", "tf32"],
)
def test_convolutions_match_float64(problem, values):
    is_right(made(problem, **values), problem)


def test_it_says_what_it_serves():
    def reason(arch="sm_90", **sizes):
        return FAMILY.serves(workload(**sizes), lookup(arch))

    assert reason() is reason(groups=4) is reason(c=9) is None
    assert "innermost" in reason(layout="nhwc")
    assert "transposed" in reason(transposed=True)
    assert "no warpgroup products" in reason("sm_89")
    assert "multiples of 16 bytes" in reason(c=3)
    assert "no warpgroup product of float32" in reason(dtype="float32")
    assert "do not step" in reason(stride_w=9)


def test_it_reads_what_copies_can_walk_and_store():
    """Operands lie as they like, for they are packed; steps are those of tensor maps."""
    problem = workload()
    assert FAMILY.reads(problem, _geometry(problem, flipped=True))
    far = problem.with_sizes(stride_w=9)
    assert not FAMILY.reads(far, _geometry(far))


def _geometry(problem, flipped=False) -> Geometry:
    z = problem.size
    each, filters = z["c"] // z["groups"], z["k_out"] // z["groups"]
    high, wide = (output_size(z, side, False) for side in "hw")
    of_filter, taps, out = each * z["r"] * z["s"], z["r"] * z["s"], high * wide
    strides = {
        "x": (z["c"] * z["h"] * z["w"], z["w"] * (-1 if flipped else 1), 1, each * z["h"] * z["w"], z["h"] * z["w"]),
        "w": (filters * of_filter, of_filter, z["s"], 1, taps),
        "y": (z["k_out"] * out, wide, 1, filters * out, out),
    }
    return operator(problem.operator).geometry(problem, strides)


@pytest.mark.parametrize(
    "sizes", [{"groups": 2, "c": 20}, {"r": 1, "stride_h": 2, "pad_left": 1}, {"s": 1, "stride_w": 3, "pad_top": 2}]
)
def test_maps_are_those_of_the_packed_operands(sizes):
    """What contraction_pack writes: the image as the packed workload has it, a tap's channels behind another's."""
    problem = workload(**sizes)
    geometry, other = _geometry(problem), packed(problem).size
    window, taps, channels = packed_window(Window.unpack(geometry.tail), geometry.sizes[2], 2)
    assert (window.extent, taps, channels * other["groups"]) == (
        (other["h"], other["w"]),
        other["r"] * other["s"],
        other["c"],
    )
    assert (window.step, window.pad) == ((other["stride_h"], other["stride_w"]), (other["pad_top"], other["pad_left"]))
    tiling = params.tiling({"m": 64, "n": 64, "k": 64, "split": 1, "raster": 1}, geometry)
    arguments = bytearray(params.pack(geometry, tiling))
    struct.pack_into("<Q", arguments, params.WORKSPACE_OFFSET, 1 << 20)
    image = described(arguments, TensorMap("b", False, 2, 64, window="image", copied_at=0))
    filters = described(arguments, TensorMap("a", False, 2, 64, window="filters", copied_at=4096))
    planes, groups = other["n"] * other["groups"], other["groups"]
    assert image.extents == (channels, other["w"], other["h"], planes) and image.address == 1 << 20
    assert image.strides == tuple(2 * channels * each for each in (1, other["w"], other["w"] * other["h"]))
    of_group = other["k_out"] // groups
    assert filters.extents == (channels, of_group, taps, groups, 1) and filters.address == (1 << 20) + 4096
    assert filters.strides[:2] == (2 * taps * channels, 2 * channels if taps > 1 else 16)
    assert groups == 1 or filters.strides[2] == 2 * of_group * taps * channels


def test_packing_pays_where_pixels_are_read_often():
    """Against the same convolution by mma.sync behind the same launch."""

    large = workload(n=32, c=512, k_out=512, **PADDED)
    few, other = workload(c=9, k_out=16), FAMILIES["contraction_packed"]
    assert fastest(FAMILY, large, ARCH) < 0.85 * fastest(other, large, ARCH)
    assert fastest(FAMILY, few, ARCH) > fastest(other, few, ARCH)


def test_calls_reach_a_stored_kernel_however_operands_lie(no_databases):
    """Groups, strides, dilation, padding, channels that are no whole accesses, and views."""
    problem = workload(c=21, k_out=40, h=11, w=9, s=2)  # the least aligned class: what others' kernels do not read
    store_kernels(no_databases, ARCH, (made(problem).program, problem))
    rng = np.random.default_rng(2)
    x, w, bias = (rng.standard_normal(shape).astype(np.float16) for shape in ((3, 42, 11, 9), (40, 21, 3, 2), (40,)))
    how = {"layout": "NCHW", "stride": (2, 1), "padding": 1, "dilation": (1, 3), "groups": 2, "activation": "relu"}
    pads = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    with gensor_kernels.emulated("sm_90"):
        for flip in (slice(None), slice(None, None, -1)):
            assert explain(conv2d, x[:, :, flip], w, bias, **how).family == FAMILY.name
            found = conv2d(x[:, :, flip], w, bias, **how)
            pixels = np.lib.stride_tricks.sliding_window_view(pads[:, :, flip], (3, 4), (2, 3))[:, :, ::2, :, :, ::3]
            grouped = pixels.reshape(3, 2, 21, *pixels.shape[2:])
            wanted = np.einsum("ngchwrs,gkcrs->ngkhw", grouped, w.reshape(2, 20, 21, 3, 2).astype(float))
            wanted = np.maximum(wanted.reshape(3, 40, *wanted.shape[3:]) + bias[:, None, None], 0)
            np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=0.03)


def test_families_share_the_images():
    """Channels last are contraction_wgmma's, channels first this one's."""
    for layout in ("nhwc", "nchw"):
        assert [family.serves(workload(layout=layout), ARCH) for family in (WGMMA, FAMILY)].count(None) == 1
