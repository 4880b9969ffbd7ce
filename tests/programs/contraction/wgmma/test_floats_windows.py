"""float32 convolutions on Hopper's bfloat16 warpgroup products: pixels and filters are divided first, tap by tap.

`GENSOR_CAMPAIGN=full pytest tests/programs/contraction/wgmma/test_floats_windows.py -k random` runs 400 random windows
instead of 8.
"""

from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import conv2d, explain
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.windows.conv_product import output_size
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.contraction.rewrite import split_float
from gensor_kernels.programs.contraction.rewrite.split_float import LEAST_SUM, divided
from gensor_kernels.programs.contraction.wgmma.implicit_gemm import least_terms, unreadable
from gensor_kernels.programs.registry import FAMILIES
from tests.campaign_size import FULL
from tests.doubles.stored import store_kernels
from tests.programs.lattices import MMA, fastest
from tests.programs.verified import verdict_without
from tests.programs.workloads.contraction_floats_wgmma import FIRST, ONE_TAP, image

from .small import ARCH, is_right, small
from .test_windows import drawn, match_float64

FAMILY = FAMILIES["contraction_floats_wgmma"]


made = partial(small, FAMILY, vector_c=4)


@pytest.mark.parametrize(
    ("problem", "values"),
    [
        (image(), {"split_k": 2}),
        (image(c=255, weights="rsck"), {"persistent": 2, "consumers": 2, "cluster": 2}),
        (image(n=3, h=9, w=23, c=200, k_out=77, s=5, stride_h=2, dilation_w=2), {"block_n": 16, "cluster": 1}),
        (image(**ONE_TAP, stride_h=2, epilogue=("bias", "relu", "add")), {"epilogue_staged": 0, "persistent": 1}),
        (image(), {"block_m": 128, "block_n": 128, "consumers": 2, "epilogue_staged": 3, "vector_c": 16}),
        (image(**FIRST), {"split_k": 2}),
        (image(**FIRST, c=255, k_out=77, n=3, h=9, w=11, stride_w=2), {"persistent": 2, "consumers": 2, "cluster": 2}),
        (image(**FIRST, c=512, s=1, pad_left=0, pad_right=0, stride_w=2, epilogue=("bias", "relu")), {"cluster": 1}),
    ],
    ids=[
        *("split", "filters last, in turns of pairs", "odd window", "one tap", "stored by copies"),
        *("first, split", "first, in turns of pairs", "first, one column"),
    ],
)
def test_convolutions_match_float64(problem, values):
    is_right(made(problem, **values), problem)


def test_what_is_served():
    assert FAMILY.serves(image(), ARCH) is None and FAMILY.serves(image(**FIRST), ARCH) is None
    refused = {
        "no less exact than multiply-adds from": image(c=LEAST_SUM // 4 - 1),
        "groups of channels are not divided": image(c=1024, groups=2, **FIRST),
        "do not step, pad or dilate": image(pad_left=200, c=2048),
        "no product of float32 parts": image(math="tf32"),
    }
    for reason, problem in refused.items():
        assert reason in FAMILY.serves(problem, ARCH), reason
    assert "no warpgroup products" in FAMILY.serves(image(), lookup("sm_89"))


def test_outputs_beside_the_padding_have_sums_that_are_long_enough():
    assert least_terms(image()) == 4 * 256 and least_terms(image(pad_top=0, pad_bottom=0)) == 6 * 256
    assert least_terms(image(**FIRST, r=5, pad_top=1, pad_bottom=1, dilation_h=2)) == 4 * 2 * 256
    assert least_terms(image(pad_left=9)) == 2 * 1 * 256  # outputs of the padding alone are zero
    assert least_terms(image(**ONE_TAP)) == 1024


def test_pixels_that_outputs_read_are_divided_and_no_others():
    """A line to a pixel, or to a filter and tap, of three parts padded to whole steps."""

    def bytes_of(problem):
        return [copy.bytes(extents(problem)) for copy in split_float.copies(problem)]

    assert bytes_of(image(c=120)) == [8 * 14 * 14 * 3 * 128 * 2, 128 * 9 * 3 * 128 * 2]
    halved = image(**ONE_TAP, stride_h=2, stride_w=2)
    assert bytes_of(halved) == [8 * 7 * 7 * 3 * 1024 * 2, 128 * 3 * 1024 * 2]
    columns = image(c=512, s=1, stride_w=2, pad_left=0, pad_right=0)
    assert bytes_of(columns)[0] == 8 * 14 * 7 * 3 * 512 * 2
    assert output_size(columns.size, "w", False) == 7
    assert bytes_of(image(c=120, **FIRST)) == bytes_of(image(c=120))[::-1]
    assert bytes_of(image(n=0, c=0)) == [14 * 14 * 3 * 64 * 2, 128 * 9 * 3 * 64 * 2]  # launches have a block


def test_it_is_preferred_where_products_repay_the_parts():
    many, few = image(n=128, c=256, k_out=256), image(n=128, **ONE_TAP, k_out=16)
    assert fastest(FAMILY, many, ARCH) < 0.75 * fastest(MMA, many, ARCH)
    assert fastest(FAMILY, few, ARCH) > fastest(MMA, few, ARCH)


# What a faulty kernel does wrong, and how that shows.
FAULTS = {
    "parts too near": ("steps_per_tap(window) * BLOCK_K : UNIT", "BLOCK_K : UNIT"),
    "taps in the order of filters": ("line % (u32)filters * across", "line / (u32)filters * across"),
    "one tap without its stride": ("return same ? at :", "return true ? at :"),
    "rows of the padding read": ("return within((u32)source(0, at.middle), (u32)window.extent[0]) &&", "return"),
    "formed again without padding": ("return within((u32)at, (u32)window.extent[axis]);", "return true;"),
    "formed again from the first tap": ("at.row * window.k_stride[0] +", ""),
    "first: images one behind the other": ("PIXELS_ARE_ROWS ? window.row_stride[0] : params.b_batch[1]", "params.b_k"),
    "first: taps as channels": ("PIXELS_ARE_ROWS ? k : taps * k, of_tap", "k, of_tap"),
    "first: formed again of other pixels": ("column / 2 * 8 + (thread_index() & 3) * 2 +", "column / 2 * 8 +"),
    "first: formed again of another image": (
        "(batch_offset(params.b_batch, tile.batch) - window.shift)",
        "(0 - window.shift)",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(name):
    problem = image(**FIRST if "first: " in name else {})
    verdict = verdict_without(*FAULTS[name], made(problem), problem)
    assert verdict.outcome in ("failed", "wrong"), verdict


def convolved(x, w, bias, *, steps, layout):
    """In float64, with one row and column of padding."""
    axes = (1, 2) if layout == "NHWC" else (2, 3)
    padded = np.pad(x.astype(float), [(int(axis in axes),) * 2 for axis in range(4)])
    pixels = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axes)
    if layout == "NHWC":
        return np.einsum("nhwcrs,krsc->nhwk", pixels[:, :: steps[0], :: steps[1]], w.astype(float)) + bias
    found = np.einsum("nchwrs,kcrs->nkhw", pixels[:, :, :: steps[0], :: steps[1]], w.astype(float))
    return found + bias[:, None, None]


def views(whole, layout):
    """Images of 254 channels: of a wider image, rows back to front, every other column."""
    if layout == "NHWC":
        return whole[..., 3:], whole[:, ::-1, :, 1:255], whole[:, ::2, ::2, 2:256]
    first = np.ascontiguousarray(whole.transpose(0, 3, 1, 2))
    return first[:, 3:], first[:, 1:255, ::-1], first[:, 2:256, ::2, ::2]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_calls_reach_a_stored_kernel_however_the_image_lies(layout, no_databases):
    problem = image(c=254, layout=layout.lower())  # of a class whose addresses are multiples of 4 bytes
    if layout == "NCHW":
        problem = problem.with_sizes(h=13, w=13)
    store_kernels(no_databases, ARCH, (made(problem).program, problem))
    rng = np.random.default_rng(3)
    whole = rng.standard_normal((2, 11, 18, 257)).astype(np.float32)
    filters = (30, 3, 3, 254) if layout == "NHWC" else (30, 254, 3, 3)
    w, bias = (rng.standard_normal(shape).astype(np.float32) for shape in (filters, (30,)))
    with gensor_kernels.emulated("sm_90"):
        for x in views(whole, layout):
            how = {"layout": layout, "stride": (1, 2), "padding": 1}
            assert explain(conv2d, x, w, bias, **how).family == FAMILY.name
            wanted = convolved(x, w, bias, steps=(1, 2), layout=layout)
            assert np.abs(conv2d(x, w, bias, **how) - wanted).max() < 8e-4


WINDOWS = 400 if FULL else 8


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_random_windows_match_float64(layout):
    problem = image(c=117, layout=layout, epilogue="bias")
    kernel = made(problem, persistent=int(layout == "nhwc"), split_k=1 + (layout == "nchw"))

    def draw(rng):
        return problem.with_sizes(**drawn(rng) | {"c": int(rng.integers(1, 150)), "k_out": int(rng.integers(1, 90))})

    match_float64(kernel, WINDOWS // 2, draw, lambda wanted: unreadable(divided(wanted), "ab") is None)
