"""Terms of CLBlast's kernel, and the costs of its accesses lane by lane."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.spaces import clblast_terms
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup

from .clblast_space import columns, configurations

# ---- lanes


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


# ---- terms


def seconds(arch, *changes):
    return roofline.seconds(clblast_terms.terms(columns(*changes), arch), arch)


ALONE = {"ahead": 0.0, "behind": 0.0, "arriving": 1.0, "request": 0.0, "slot": 1.0, "stalls": 0.0}


def test_terms_are_finite_float32():
    arch = lookup("rtx-3090")
    space = configurations()
    terms = clblast_terms.terms(space, arch)
    for name, values in vars(terms).items():
        if name in ALONE:  # a block has one tile, requests only its own data, and has no ring
            assert values == ALONE[name]
            continue
        assert values.shape == space["MWG"].shape and values.dtype == np.float32 and np.isfinite(values).all(), name
    assert (terms.residents >= 1).all()
    assert (terms.blocks * terms.iterations * terms.multiplies * terms.warps * 32 == 4096.0**3).all()


@pytest.mark.parametrize("part", ["rtx-3090", "h200"])
def test_physics(part):
    arch = lookup(part)
    good, small, narrow, spilling = seconds(
        arch,
        {},
        {"MWG": 16, "NWG": 16, "NDIMC": 16, "NDIMB": 16, "VWM": 1, "VWN": 1},
        {"VWM": 1, "SA": 0},
        {"MDIMC": 8},
    )
    assert good < narrow < small and good * 2 < spilling
    assert seconds(replace(arch, clock_ghz=arch.clock_ghz / 2), {})[0] > good * 1.7
    # Adjacent lanes read without conflicts.
    split, joined = clblast_terms.terms(columns({"VWM": 1, "STRM": 1}, {"VWM": 1}), arch).wavefronts
    assert split < joined


def test_spilled_words_are_touched_in_the_loop():
    terms = clblast_terms.terms(columns({}, {"MDIMC": 8}), lookup("rtx-3090"))
    assert terms.registers[1] == 255 > terms.registers[0]
    assert terms.l2_bytes[1] > 4 * terms.l2_bytes[0] and terms.issue[1] > terms.issue[0] * 4
