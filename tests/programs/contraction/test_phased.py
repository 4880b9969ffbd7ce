"""Transposed convolutions phase by phase: only taps that meet a pixel are multiplied; outputs are in their places."""

from itertools import product

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.windows.conv_phased import all_phases, axis, least_depth, phases
from gensor_kernels.operators.windows.conv_product import _indices, output_size
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import candidate
from tests.programs.workloads.contraction_phased import transposed

SIMT, MMA = FAMILIES["contraction_phased"], FAMILIES["contraction_phased_mma"]


@pytest.mark.parametrize("family", [SIMT, MMA])
def test_starters_of_usual_types_do_not_spill(family):
    """The arguments of a phase are copied to registers, not to memory of the thread."""
    problem = transposed(dtype="float16" if family is MMA else "float32", c=128, k_out=128)
    for program in family.starters(problem, lookup("sm_87"))[:4]:
        if program["block_m"] * program["block_n"] > 64 * 64:
            continue
        binary = compile_cubin(candidate(family, program, problem).source(), "sm_87")
        entry = binary.entries[family.name]
        assert entry.stack_bytes == entry.spill_stores == 0


def test_phases_are_the_sets_of_taps_that_outputs_meet():
    for stride, dilation, taps in product((1, 2, 3, 5), (1, 2, 3, 4), (1, 2, 3, 5)):
        _meets(stride, dilation, taps)


def _meets(stride: int, dilation: int, taps: int) -> None:
    sizes = transposed(h=6, r=taps, stride_h=stride, dilation_h=dilation, pad_top=0, pad_bottom=0).size
    sets = {tuple(r for r in range(taps) if (o - r * dilation) % stride == 0) for o in range(stride)} - {()}
    found, lengths = axis(sizes, "h"), [len(each) for each in sets]
    assert (found.phases, found.taps) == (len(sets), max(lengths))
    assert sum(lengths) == taps and min(lengths) == taps // found.phases
    outputs = output_size(sizes, "h", True)
    assert found.outputs == max(len(range(first, outputs, stride)) for first in range(stride))
    # Nothing else meets a pixel, by the index arithmetic of the reference.
    _, inside = _indices(sizes, "h", True)
    for output, tap in zip(*np.nonzero(inside), strict=True):
        assert any(tap in each and (output - each[0] * dilation) % stride == 0 for each in sets)


def test_the_convolution_of_all_phases_has_the_taps_that_are_walked():
    problem = transposed(n=1, h=16, w=16, c=128, k_out=64)
    other = all_phases(problem)
    assert phases(problem) == 4 and other.flops() == problem.flops() and least_depth(problem) == 4 * 128
    assert other.operator == "conv2d" and other.size["groups"] == 4
    assert least_depth(transposed(r=3, s=3)) == 32
    assert phases(transposed(stride_h=4, stride_w=4, r=2, s=3)) == 6
    assert phases(transposed(dilation_h=2, dilation_w=2)) == 1


def test_padding_may_cut_outputs_off():
    """Then no phase meets every pixel."""
    for pad, taps, stride in product(range(5), (1, 2, 4), (2, 3)):
        _is_served(pad, taps, stride)


def _is_served(pad: int, taps: int, stride: int) -> None:
    """Assert that an image of six pixels across has a potential, with ``pad`` at each end."""
    pads = dict.fromkeys(("pad_top", "pad_bottom", "pad_left", "pad_right"), pad)
    problem = transposed(h=6, w=6, r=taps, s=taps, stride_h=stride, stride_w=stride, **pads)
    other, z = all_phases(problem), problem.size
    assert [output_size(other.size, side, False) for side in "hw"] == [axis(z, side).outputs for side in "hw"]
    assert SIMT.serves(problem, lookup("sm_87")) is None
    lattice = Space(problem, lookup("sm_87")).family(SIMT.name)
    starters = SIMT.starters(problem, lookup("sm_87"))
    assert starters and np.isfinite(lattice.potential(np.stack([lattice.point(each) for each in starters]))).all()
