"""Convolutions by contraction_wgmma: right under every order of events, split and shared out tap by tap.

`GENSOR_CAMPAIGN=full pytest tests/programs/contraction/wgmma/test_windows.py -k random` runs 2,000 random windows
instead of 24.
"""

from functools import partial

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import conv2d, explain
from gensor_kernels.devices.emulator import build
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.core.cases import Case
from gensor_tuner.verify.problem import Problem
from tests.campaign_size import FULL, SEED
from tests.doubles.stored import store_kernels
from tests.programs.lattices import WGMMA
from tests.programs.warpgroups import small

SIZES = {"n": 8, "h": 28, "w": 28, "c": 128, "k_out": 128, "r": 3, "s": 3}


WINDOWS = 2000 if FULL else 24


made = partial(small, WGMMA, vector_c=16, epilogue_fixed=1)


def test_cases_have_one_group_and_taps_of_several_steps():
    workload = conv.workload(**SIZES, dtype="float16")
    made_of = made(workload)
    cases = WGMMA.cases(made_of.program, workload, ())
    assert {case.workload.size["groups"] for case in cases} == {1}
    assert all(WGMMA.serves(case.workload, lookup("sm_90")) is None for case in cases)
    assert {case.workload.size["c"] for case in cases} >= {0, 128, 72}


def test_calls_reach_a_stored_kernel_where_copies_can_read_the_image(no_databases):
    workload, arch = conv.workload(**SIZES, dtype="float16"), lookup("sm_90")
    store_kernels(no_databases, arch, (made(workload, epilogue_fixed=0).program, workload))
    rng = np.random.default_rng(2)
    x, w, bias = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 11, 9, 72), (40, 3, 2, 72), (40,)))
    how = {"layout": "NHWC", "stride": (2, 1), "padding": 1, "dilation": (1, 3), "activation": "relu"}
    with gensor_kernels.emulated("sm_90"):
        told, found = explain(conv2d, x, w, bias, **how), conv2d(x, w, bias, **how)
        assert told.family == WGMMA.name
        assert explain(conv2d, x[:, ::-1], w, bias, **how).family != WGMMA.name
    padded = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    pixels = np.lib.stride_tricks.sliding_window_view(padded, (3, 4), (1, 2))[:, ::2, :, :, :, ::3]
    wanted = np.maximum(np.einsum("nhwcrs,krsc->nhwk", pixels, w.astype(float)) + bias, 0)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=0.02)


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


def match_float64(kernel, count, draw, serves):
    """Assert that a kernel is correct for `count` drawn Workloads that it serves, in as many orders of events."""
    rng, library, served = np.random.default_rng(SEED), build(kernel.source()), 0
    while served < count:
        wanted = draw(rng)
        if serves(wanted):
            problem = Problem(Case("random", wanted), seed=served)
            problem.run(kernel, library, copies=("late", "early")[served % 2], order=served)
            assert problem.check() <= 1
            served += 1


@pytest.mark.parametrize("weights", ["krsc", "rsck"])
def test_random_windows_match_float64(weights):
    workload = conv.workload(**SIZES, dtype="float16", weights=weights, epilogue="bias")
    kernel = made(workload, persistent=int(weights == "krsc"), split_k=1 + (weights == "rsck"))

    def serves(wanted):
        return WGMMA.serves(wanted, lookup("sm_90")) is None

    match_float64(kernel, WINDOWS // 2, lambda rng: workload.with_sizes(**drawn(rng)), serves)
