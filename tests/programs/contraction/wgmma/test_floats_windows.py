"""float32 convolutions on Hopper's bfloat16 warpgroup products: pixels and filters are divided first, tap by tap.

`GENSOR_CAMPAIGN=full pytest tests/programs/contraction/wgmma/test_floats_windows.py -k random` runs 400 random windows
instead of 8.
"""

from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import conv2d, explain
from gensor_kernels.programs.contraction.rewrite.split_float import product_of_parts
from gensor_kernels.programs.contraction.wgmma.implicit_gemm import least_terms, unreadable
from gensor_kernels.programs.registry import FAMILIES
from tests.campaign_size import FULL
from tests.doubles.stored import store_kernels
from tests.programs.warpgroups import ARCH, small
from tests.programs.workloads.contraction_floats_wgmma import FIRST, ONE_TAP, image

from .test_windows import drawn, match_float64

FAMILY = FAMILIES["contraction_floats_wgmma"]


made = partial(small, FAMILY, vector_c=4)


def test_outputs_beside_the_padding_have_sums_that_are_long_enough():
    assert least_terms(image()) == 4 * 256 and least_terms(image(pad_top=0, pad_bottom=0)) == 6 * 256
    assert least_terms(image(**FIRST, r=5, pad_top=1, pad_bottom=1, dilation_h=2)) == 4 * 2 * 256
    assert least_terms(image(pad_left=9)) == 2 * 1 * 256  # outputs of the padding alone are zero
    assert least_terms(image(**ONE_TAP)) == 1024


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

    match_float64(kernel, WINDOWS // 2, draw, lambda wanted: unreadable(product_of_parts(wanted), "ab") is None)
