"""Terms of the measured kernels, and the counts that they are made of."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.spaces import clblast_terms, convolution_terms
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup

from . import spaces
from .spaces import columns

#: A block has one tile, requests only its own data, and has no ring.
ALONE = {"ahead": 0.0, "behind": 0.0, "arriving": 1.0, "request": 0.0, "slot": 1.0, "stalls": 0.0}


@pytest.mark.parametrize(
    ("kernel", "space", "part"),
    [(clblast_terms, spaces.clblast(), "rtx-3090"), (convolution_terms, spaces.convolution(), "rtx-a4000")],
    ids=["clblast", "convolution"],
)
def test_terms_are_finite_float32(kernel, space, part):
    terms, count = vars(kernel.terms(space, lookup(part))), len(space[kernel.NAMES[0]])
    assert {name: terms.pop(name) for name in ALONE} == ALONE
    for name, values in terms.items():
        assert values.shape == (count,) and values.dtype == np.float32, name
        assert np.isfinite(values).all() and (values >= 0).all(), name
    assert (terms["residents"] >= 1).all()


def seconds(kernel, arch, *changes):
    return roofline.seconds(kernel.terms(columns(kernel, *changes), arch), arch)


# ---- CLBlast's product


@pytest.mark.parametrize(
    ("width", "apart", "words", "clocks", "lines"),
    [
        (32, 1, 1, 1, 1),  # a row
        (32, 2, 1, 2, 2),  # every other bank
        (32, 32, 1, 32, 32),  # one bank
        (-32, 8, 1, 1, 1),  # all lanes read one word
        (32, 4, 4, 4, 4),  # 16 bytes each: a quarter warp at a time
        (-8, 8, 4, 2, 1),  # 16 bytes, neighbours read one address: half a warp at a time
        (-8, 8, 2, 1, 1),
        (16, 8, 1, 4, 4),  # 16 lanes 8 words apart: 4 banks, the others repeat them
    ],
)
def test_read_costs(width, apart, words, clocks, lines):
    assert clblast_terms.read_costs(width, apart, words) == (clocks, lines)


def test_copy_costs():
    assert clblast_terms.copy_costs(8, 4, 4096, 4) == (4.0, 4.0)
    assert clblast_terms.copy_costs(32, 1, 4096, 1) == (1.0, 1.0)


@pytest.mark.parametrize("part", ["rtx-3090", "h200"])
def test_physics_of_the_product(part):
    arch = lookup(part)
    single = {"MWG": 16, "NWG": 16, "NDIMC": 16, "NDIMB": 16, "VWM": 1, "VWN": 1}
    changes = ({}, single, {"VWM": 1, "SA": 0}, {"MDIMC": 8})
    good, small, narrow, spilling = seconds(clblast_terms, arch, *changes)
    assert good < narrow < small and good * 2 < spilling
    assert seconds(clblast_terms, replace(arch, clock_ghz=arch.clock_ghz / 2), {})[0] > good * 1.7
    # Adjacent lanes read without conflicts.
    both = columns(clblast_terms, {"VWM": 1, "STRM": 1}, {"VWM": 1})
    split, joined = clblast_terms.terms(both, arch).wavefronts
    assert split < joined


def test_the_product_computes_all_and_touches_spilled_words_in_the_loop():
    terms = clblast_terms.terms(spaces.clblast(), lookup("rtx-3090"))
    assert (terms.blocks * terms.iterations * terms.multiplies * terms.warps * 32 == 4096.0**3).all()
    terms = clblast_terms.terms(columns(clblast_terms, {}, {"MDIMC": 8}), lookup("rtx-3090"))
    assert terms.registers[1] == 255 > terms.registers[0]
    assert terms.l2_bytes[1] > 4 * terms.l2_bytes[0] and terms.issue[1] > terms.issue[0] * 4


# ---- the convolution


@pytest.mark.parametrize(("rows", "x", "y"), [(1, 1, 1), (4, 1, 4), (8, 2, 3), (16, 4, 2)])
def test_a_thread_reads_each_value_under_its_filters_once(rows, x, y):
    change = {"block_size_x": 16, "block_size_y": rows, "tile_size_x": x, "tile_size_y": y}
    values = {(b * rows + i, a * 16 + j) for a in range(x) for b in range(y) for i in range(15) for j in range(15)}
    assert convolution_terms.reads(columns(convolution_terms, change)).tolist() == [len(values)]


@pytest.mark.parametrize("tile", [1, 3, 4, 8])
def test_waits_are_the_turns_of_a_warp_through_both_loops(tile):
    """A warp waits where any of its threads takes the remainder loop, and where any takes the unrolled loop."""
    floats = (tile + 1, tile)
    turns = sum(any(turn < each % 4 for each in floats) for turn in range(3))
    turns += sum(any(turn < each // 4 for each in floats) for turn in range(3))
    assert convolution_terms.waits(np.array([tile])).tolist() == [turns]


@pytest.mark.parametrize(
    ("blocks", "busy", "away", "cycle"),
    [
        (1, 5, 7, 12),
        (2, 1, 1e6, 1e6 + 1),  # they hardly meet
        (30, 10, 3, 300),  # the resource never rests
        (4, 3, 0, 12),
        (2, 1, 1, 2.5),  # 1/3 of the cycles find the resource busy (Buzen's formula by hand)
    ],
)
def test_a_cycle_is_that_of_blocks_in_a_row(blocks, busy, away, cycle):
    found = convolution_terms.cycle(*(np.array([each], float) for each in (blocks, busy, away)))
    assert found[0] == pytest.approx(cycle, rel=1e-3)


@pytest.mark.parametrize("part", ["rtx-a4000", "h200"])
def test_physics_of_the_convolution(part):
    arch = lookup(part)
    changes = ({}, {"tile_size_x": 1, "tile_size_y": 1}, {"block_size_y": 16}, {"block_size_x": 16, "block_size_y": 1})
    good, single, apart, narrow = seconds(convolution_terms, arch, *changes)
    # One output per thread reads a value per tap; rows 16 apart share none; half of each warp is missing.
    assert good * 1.3 < min(single, narrow) and good < apart
    bound = 2 * 225 * 4096**2 / arch.peak("float32")
    assert bound < good < 20 * bound


def test_every_output_of_the_convolution_is_computed():
    space = spaces.convolution()
    terms = convolution_terms.terms(space, lookup("rtx-a4000"))
    outputs = terms.blocks * terms.warps * 32 * terms.multiplies / 225
    assert (outputs >= 4096.0**2).all()
    whole = (4096 % (space["block_size_x"] * space["tile_size_x"]) == 0) & (space["tile_size_y"] != 3)
    assert (outputs[whole & (terms.warps * 32 == space["block_size_x"] * space["block_size_y"])] == 4096.0**2).all()


def test_conflicts_cost_only_where_whole_warps_are_served_at_once():
    both = columns(convolution_terms, *({"block_size_x": 16, "use_padding": padding} for padding in (0, 1)))
    plain, padded = convolution_terms.terms(both, lookup("a100-40gb")).wavefronts
    assert plain > 1.5 * padded
    plain, padded = convolution_terms.terms(both, lookup("rtx-a4000")).wavefronts
    assert plain == padded
