"""Convolutions on Hopper's warpgroup products: images that stored kernels read, and random windows.

`GENSOR_CAMPAIGN=full pytest tests/families/contraction/wgmma/test_windows.py -k random` runs 2,400 random windows
instead of 32.
"""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import conv2d, explain
from gensor_kernels.devices.emulator import build
from gensor_kernels.families.contraction.rewrite.split_float import product_of_parts
from gensor_kernels.families.contraction.wgmma.implicit_gemm import least_terms, unreadable
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators import operator
from gensor_kernels.operators.windows import conv
from gensor_tuner.verify.problem import Problem
from tests.campaign_size import FULL, SEED
from tests.doubles.stored import store_kernels
from tests.families.lattices import WGMMA
from tests.families.verified import ARCH, convolved, small
from tests.families.workloads.images import FIRST, ONE_TAP, image, packed_image

FLOATS, PACKED = FAMILIES["contraction_floats_wgmma"], FAMILIES["contraction_packed_wgmma"]
SIZES = {"n": 8, "h": 28, "w": 28, "c": 128, "k_out": 128, "r": 3, "s": 3, "dtype": "float16"}
HALF = conv.workload(**SIZES)
VECTORS = {WGMMA: 16, FLOATS: 4, PACKED: 2}


def test_cases_have_one_group_and_taps_of_several_steps():
    cases = WGMMA.cases(small(WGMMA, HALF, vector_c=16).program, HALF, ())
    assert {case.workload.size["groups"] for case in cases} == {1}
    assert all(WGMMA.serves(case.workload, ARCH) is None for case in cases)
    assert {case.workload.size["c"] for case in cases} >= {0, 128, 72}


def test_outputs_beside_the_padding_have_sums_that_are_long_enough():
    assert least_terms(image()) == 4 * 256 and least_terms(image(pad_top=0, pad_bottom=0)) == 6 * 256
    assert least_terms(image(**FIRST, r=5, pad_top=1, pad_bottom=1, dilation_h=2)) == 4 * 2 * 256
    assert least_terms(image(pad_left=9)) == 2 * 1 * 256  # outputs of the padding alone are zero
    assert least_terms(image(**ONE_TAP)) == 1024


def test_packed_images_have_any_layout_and_steps_of_tensor_maps():
    for problem, read in ((packed_image(), True), (packed_image().with_sizes(stride_w=9), False)):
        declared = operator(problem.operator)
        strides = {each.name: each.strides() for each in declared.operands(problem)}
        n, row, *rest = strides["x"]
        backwards = declared.geometry(problem, strides | {"x": (n, -row, *rest)})
        assert PACKED.reads(problem, backwards) == read


#: Options of a call with strides, dilation and padding.
USUAL = {"stride": (2, 1), "padding": 1, "dilation": (1, 3)}
#: Family, Workload of the stored kernel, shapes of an array and of filters, options, and images in the array: of
#: channels in the middle, rows back to front, every other column.
STORED = {
    "half": (WGMMA, HALF, (2, 11, 9, 72), (40, 3, 2, 72), {"layout": "NHWC"} | USUAL, [np.s_[:]]),
    "floats": (
        *(FLOATS, image(c=254), (2, 11, 18, 257), (30, 3, 3, 254)),
        {"layout": "NHWC", "stride": (1, 2), "padding": 1},
        [np.s_[..., 3:], np.s_[:, ::-1, :, 1:255], np.s_[:, ::2, ::2, 2:256]],
    ),
    "floats, channels first": (
        *(FLOATS, image(c=254, **FIRST).with_sizes(h=13, w=13), (2, 257, 11, 18), (30, 254, 3, 3)),
        {"layout": "NCHW", "stride": (1, 2), "padding": 1},
        [np.s_[:, 3:], np.s_[:, 1:255, ::-1], np.s_[:, 2:256, ::2, ::2]],
    ),
    # The least aligned class, which others' kernels do not read.
    "packed": (
        *(PACKED, packed_image(c=21, k_out=40, h=11, w=9, s=2), (3, 42, 11, 9), (40, 21, 3, 2)),
        {"layout": "NCHW", "groups": 2} | USUAL,
        [np.s_[:], np.s_[:, :, ::-1]],
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_calls_reach_a_stored_kernel_however_the_image_lies(name, no_databases):
    family, problem, shape, filters, how, images = STORED[name]
    program = small(family, problem, vector_c=VECTORS[family]).program
    store_kernels(no_databases, ARCH, (program, problem))
    rng, dtype = np.random.default_rng(3), problem.dtype["x"]
    whole, w, bias = (rng.standard_normal(each).astype(dtype) for each in (shape, filters, filters[:1]))
    order = (0, 3, 1, 2) if how["layout"] == "NHWC" else (0, 1, 2, 3)
    options = {name: how[name] for name in ("stride", "dilation", "groups") if name in how}
    with gensor_kernels.emulated("sm_90"):
        for x in (whole[each] for each in images):
            assert explain(conv2d, x, w, bias, **how).family == family.name
            found = conv2d(x, w, bias, activation="relu", **how).transpose(order)
            wanted = convolved(x.transpose(order), w.transpose(order), pads=((1, 1), (1, 1)), **options)
            wanted = np.maximum(wanted + bias[:, None, None], 0)
            tolerance = {"rtol": 0, "atol": 8e-4} if family is FLOATS else {"rtol": 2e-3, "atol": 0.02}
            np.testing.assert_allclose(found, wanted, **tolerance)
        if family is WGMMA:  # whose tensor maps have no negative steps
            assert explain(conv2d, x[:, ::-1], w, bias, **how).family != family.name


def drawn(rng):
    """Sizes of a small convolution whose image copies can walk."""
    z = {name: int(rng.integers(1, most + 1)) for name, most in (("n", 4), ("h", 12), ("w", 12), ("r", 4), ("s", 4))}
    z |= {
        f"{what}_{side}": int(rng.integers(1, most + 1))
        for what, most in (("stride", 8), ("dilation", 5))
        for side in "hw"
    }
    z |= {f"pad_{side}": int(rng.choice([0, 0, 1, 2, 7])) for side in ("top", "bottom", "left", "right")}
    for axis, taps, first in (("h", "r", "pad_top"), ("w", "s", "pad_left")):
        reach = (z[taps] - 1) * z[f"dilation_{axis}"] + 1
        z[first] += max(0, reach - z[axis] - z[first])
    return z | {"c": 8 * int(rng.integers(1, 25)), "k_out": 8 * int(rng.integers(1, 12))}


def is_read(family, workload):
    """Whether tensor copies read a Workload; floats are divided first, so that any number of channels is read."""
    if family is FLOATS:
        return unreadable(product_of_parts(workload), "ab") is None
    return family.serves(workload, ARCH) is None


WALKING, SPLIT = {"persistent": 1}, {"split_k": 2}
RANDOM = {
    "half": (WGMMA, conv.workload(**SIZES, epilogue="bias"), WALKING),
    "half, filters last": (WGMMA, conv.workload(**SIZES, weights="rsck", epilogue="bias"), SPLIT),
    "half, filters last, in pairs": (WGMMA, conv.workload(**SIZES, weights="rsck", epilogue="bias"), {"cluster": 1}),
    "floats": (FLOATS, image(c=117, epilogue="bias"), WALKING),
    "floats, channels first": (FLOATS, image(c=117, **FIRST, epilogue="bias"), SPLIT),
}


@pytest.mark.parametrize("name", RANDOM)
def test_random_windows_match_float64(name):
    family, workload, values = RANDOM[name]
    kernel = small(family, workload, vector_c=VECTORS[family], **values)
    rng, library, served = np.random.default_rng(SEED), build(kernel.source()), 0
    few, many = (12, 1000) if family is WGMMA else (4, 200)
    while served < (many if FULL else few):
        sizes = drawn(rng)
        if family is FLOATS:
            sizes |= {"c": int(rng.integers(1, 150)), "k_out": int(rng.integers(1, 90))}
        wanted = workload.with_sizes(**sizes)
        if is_read(family, wanted):
            problem = Problem(Case("random", wanted), seed=served)
            problem.run(kernel, library, copies=("late", "early")[served % 2], order=served)
            assert problem.check() <= 1
            served += 1
