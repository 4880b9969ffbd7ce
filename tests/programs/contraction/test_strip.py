"""The strip family in addition to its contract (test_contract.py): bank conflicts, public calls, masks, what it
serves."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.programs.contraction.strip import shape as shapes
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.build.pool import candidate
from gensor_tuner.verify.verify import verify
from tests.programs.lattices import random_legal
from tests.programs.workloads import contract, space

STRIP = FAMILIES["contraction_strip"]
SERVED = contract(STRIP.name).served


@pytest.mark.parametrize("index", range(len(SERVED)))
def test_cases_have_the_lines_and_octets_of_their_program(index):
    lattice = space(STRIP.name, index)
    for point in random_legal(lattice, 20, seed=3):
        program = lattice.program(point)
        for case in STRIP.cases(program, lattice.workload, ()):
            assert STRIP.serves(case.workload, lattice.arch) is None, f"{case.name} of {program.to_json()}"
            call = shapes.call_of(case.workload)
            own = {"lines": call.lines, "octets": call.octets, "planes": call.planes}
            assert own == {name: program[name] for name in own}, f"{case.name} of {program.to_json()}"


def test_fragments_are_read_without_bank_conflicts():
    """Outputs 6 and 2 elements apart, and whole stores of them: docs of the kernel say so."""
    for index in (0, 2):
        arch, workload = SERVED[index]
        verdict = verify(candidate(STRIP, STRIP.starters(workload, lookup(arch))[0], workload), workload)
        assert verdict.counters["bank_conflicts"] == 0


# ---- through the public function


def direct(x, w, stride, pads):
    """A convolution of NCHW operands in float64, tap by tap; pads are (top, bottom), (left, right)."""
    x, w = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *pads)), w.astype(np.float64)
    r, s = w.shape[2:]
    high, wide = ((x.shape[2 + i] - w.shape[2 + i]) // stride[i] + 1 for i in range(2))
    total = np.zeros((x.shape[0], w.shape[0], high, wide))
    with np.errstate(invalid="ignore"):
        for i in range(r):
            for j in range(s):
                seen = x[:, :, i : i + stride[0] * high : stride[0], j : j + stride[1] * wide : stride[1]]
                for c in range(x.shape[1]):
                    total += seen[:, None, c][:, :, :high, :wide] * w[None, :, c, i, j, None, None]
    return total


def laid_out(x, gap, front):
    """The same elements, `gap` of them after each line of the innermost two (one) axes and `front` before the first:
    rows of the image stay without gaps."""
    lines, row = x.shape[:2], int(np.prod(x.shape[2:]))
    raw = np.full(front + lines[0] * lines[1] * (row + gap), np.nan, x.dtype)
    lead = -raw.ctypes.data % 16 // x.itemsize
    raw = np.full(len(raw) + 16, np.nan, x.dtype)[lead + front :]
    size = x.itemsize
    inner = [int(np.prod(x.shape[i + 1 :])) * size for i in range(2, x.ndim)]
    strides = (lines[1] * (row + gap) * size, (row + gap) * size, *inner)
    view = np.lib.stride_tricks.as_strided(raw, x.shape, strides)
    view[...] = x
    return view


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("gap", [0, 8, 4, 2, 1])
def test_lines_at_any_distance_are_served(layout, gap):
    """Rows of the image that begin at multiples of 16, 8, 4 and 2 bytes."""
    rng = np.random.default_rng(gap)
    x, w = rng.integers(-2, 3, (2, 3, 40, 64)), rng.integers(-2, 3, (64, 3, 7, 7))
    x, w = x.astype(np.float16), w.astype(np.float16)
    x[0, 1, 10, 21], x[1, 2, 5, 63], x[1, 0, 39, 0] = np.nan, np.inf, -np.inf
    wanted = direct(x, w, (2, 2), ((3, 3), (3, 3)))
    if layout == "NHWC":
        x, w, wanted = (np.ascontiguousarray(each.transpose(0, 2, 3, 1)) for each in (x, w, wanted))
    x = laid_out(x, gap, 0)
    options = {"stride": 2, "padding": 3, "layout": layout}
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, **options).family == "contraction_strip"
        np.testing.assert_array_equal(gensor_kernels.conv2d(x, w, **options).astype(np.float64), wanted)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_pixels_with_gaps_are_left_to_others(layout):
    rng = np.random.default_rng(1)
    x, w = rng.integers(-2, 3, (2, 3, 20, 128)), rng.integers(-2, 3, (16, 3, 7, 7))
    x, w = x.astype(np.float16)[..., ::2], w.astype(np.float16)
    wanted = direct(x, w, (2, 2), ((3, 3), (3, 3)))
    if layout == "NHWC":
        x, w, wanted = (each.transpose(0, 2, 3, 1) for each in (x, w, wanted))
    options = {"stride": 2, "padding": 3, "layout": layout}
    with gensor_kernels.emulated("sm_87"):
        assert gensor_kernels.explain(gensor_kernels.conv2d, x, w, **options).family != "contraction_strip"
        np.testing.assert_array_equal(gensor_kernels.conv2d(x, w, **options).astype(np.float64), wanted)


def test_what_is_read_is_asked_of_strides():
    for _, workload in SERVED:
        image, *rest = operator("conv2d").operands(workload)
        strides = {each.name: each.strides() for each in (image, *rest)}
        geometry = operator("conv2d").geometry(workload, strides)
        assert STRIP.reads(workload, geometry)
        apart = tuple(2 * stride for stride in strides["x"])
        assert not STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": apart}))
        above = (*strides["x"][:1], strides["x"][1] + 3, *strides["x"][2:])
        assert STRIP.reads(workload, operator("conv2d").geometry(workload, strides | {"x": above}))


# ---- what keeps it right is needed


# ---- what it serves
