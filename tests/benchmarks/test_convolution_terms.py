"""Terms of the measured convolution, and the counts that they are made of."""

import itertools

import numpy as np
import pytest

from benchmarks.spaces import convolution_terms as kernel
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup

GOOD = dict(zip(kernel.NAMES, (64, 2, 4, 4, 0, 0), strict=True))


def columns(*changes):
    rows = [GOOD | change for change in changes]
    return {name: np.array([row[name] for row in rows]) for name in kernel.NAMES}


def configurations():
    """All blocks and tiles of the measured space, as far as they can be launched."""
    values = ((16, 32, 48, 64, 128, 256), (1, 2, 4, 8, 16), (1, 2, 3, 4), (1, 2, 3, 4), (0, 1), (0, 1))
    space = dict(zip(kernel.NAMES, np.array(list(itertools.product(*values))).T, strict=True))
    legal = ~kernel.refused(space) & (kernel._shared_bytes(space) <= 49152)
    return {name: column[legal] for name, column in space.items()}


# ---- counts


@pytest.mark.parametrize(("rows", "x", "y"), [(1, 1, 1), (4, 1, 4), (8, 2, 3), (16, 4, 2)])
def test_a_thread_reads_each_value_under_its_filters_once(rows, x, y):
    c = columns({"block_size_x": 16, "block_size_y": rows, "tile_size_x": x, "tile_size_y": y})
    values = {(b * rows + i, a * 16 + j) for a in range(x) for b in range(y) for i in range(15) for j in range(15)}
    assert kernel.reads(c).tolist() == [len(values)]


@pytest.mark.parametrize("tile", [1, 3, 4, 8])
def test_waits_are_the_turns_of_a_warp_through_both_loops(tile):
    """A warp waits where any of its threads takes the remainder loop, and where any takes the unrolled loop."""
    floats = (tile + 1, tile)
    turns = sum(any(turn < each % 4 for each in floats) for turn in range(3))
    turns += sum(any(turn < each // 4 for each in floats) for turn in range(3))
    assert kernel.waits(np.array([tile])).tolist() == [turns]


def test_a_cycle_is_that_of_blocks_in_a_row():
    blocks, busy, away = (np.array(each, dtype=float) for each in ([1, 2, 30, 4], [5, 1, 10, 3], [7, 1e6, 3, 0]))
    alone, hidden, crowded, queued = kernel.cycle(blocks, busy, away)
    assert alone == 12
    assert hidden == pytest.approx(1e6 + 1, rel=1e-6)  # they hardly meet
    assert crowded == pytest.approx(300, rel=1e-3)  # the resource never rests
    assert queued == 12
    # Two blocks with equal times: 1/3 of the cycles find the resource busy (Buzen's formula by hand).
    assert kernel.cycle(np.array([2.0]), np.array([1.0]), np.array([1.0]))[0] == pytest.approx(2.5)


# ---- terms


ALONE = {"ahead": 0.0, "behind": 0.0, "arriving": 1.0, "request": 0.0, "slot": 1.0, "stalls": 0.0}


def test_terms_are_finite_float32():
    space = configurations()
    terms = kernel.terms(space, lookup("rtx-a4000"))
    for name, values in vars(terms).items():
        if name in ALONE:  # a block has one tile, requests only its own data, and has no ring
            assert values == ALONE[name]
            continue
        assert values.shape == space["use_padding"].shape and values.dtype == np.float32, name
        assert np.isfinite(values).all() and (values >= 0).all(), name
    assert (terms.residents >= 1).all()
    outputs = terms.blocks * terms.warps * 32 * terms.multiplies / 225
    assert (outputs >= 4096.0**2).all()
    whole = (4096 % (space["block_size_x"] * space["tile_size_x"]) == 0) & (space["tile_size_y"] != 3)
    assert (outputs[whole & (terms.warps * 32 == space["block_size_x"] * space["block_size_y"])] == 4096.0**2).all()


@pytest.mark.parametrize("part", ["rtx-a4000", "h200"])
def test_physics(part):
    arch = lookup(part)
    changes = ({}, {"tile_size_x": 1, "tile_size_y": 1}, {"block_size_y": 16}, {"block_size_x": 16, "block_size_y": 1})
    good, single, apart, narrow = roofline.seconds(kernel.terms(columns(*changes), arch), arch)
    # One output per thread reads a value per tap; rows 16 apart share none; half of each warp is missing.
    assert good * 1.3 < min(single, narrow) and good < apart
    bound = 2 * 225 * 4096**2 / arch.peak("float32")
    assert bound < good < 20 * bound


def test_conflicts_cost_only_where_whole_warps_are_served_at_once():
    both = columns({"block_size_x": 16, "use_padding": 0}, {"block_size_x": 16, "use_padding": 1})
    plain, padded = kernel.terms(both, lookup("a100-40gb")).wavefronts
    assert plain > 1.5 * padded
    plain, padded = kernel.terms(both, lookup("rtx-a4000")).wavefronts
    assert plain == padded
