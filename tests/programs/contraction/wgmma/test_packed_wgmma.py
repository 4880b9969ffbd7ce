"""Hopper's convolutions of images with channels first: packed, then read by their pixels, which are columns."""

from functools import partial

import numpy as np

import gensor_kernels
from gensor_kernels import conv2d, explain
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.windows.conv_product import output_size
from gensor_kernels.programs.registry import FAMILIES
from tests.doubles.stored import store_kernels
from tests.programs.warpgroups import ARCH, small
from tests.programs.workloads.contraction_packed_wgmma import workload

FAMILY = FAMILIES["contraction_packed_wgmma"]


made = partial(small, FAMILY, vector_c=2)


def test_it_reads_what_copies_can_walk_and_store():
    """Operands have any layout, because they are packed; steps are those of tensor maps."""
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
