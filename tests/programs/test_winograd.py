"""The winograd family beside its contract (test_contract.py): its potential, prepared filters, stores, epilogues."""

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import Space
from gensor_tuner.strategies.request import Request, search
from tests.programs.verified import is_right

from .lattices import random_legal
from .workloads import contract, space
from .workloads.window import padded
from .workloads.winograd import convolution

WINOGRAD = FAMILIES["winograd"]
SERVED = contract("winograd").served


@pytest.mark.parametrize("index", range(len(SERVED)))
def test_no_program_is_faster_than_its_components(index):
    """No term may promise more than 16 multiply-adds per channel and four outputs allow."""
    lattice = space("winograd", index)
    seconds = lattice.potential(random_legal(lattice, 300, seed=3))
    size = lattice.workload.size
    positions = size["n"] * (size["h"] // 2) * (size["w"] // 2)
    least = 2 * 16 * positions * size["c"] * size["k_out"] / lattice.arch.peak("float32")
    assert (seconds > max(least, lattice.arch.launch_us * 1e-6) * 0.8).all()


def test_prepared_filters_lie_behind_the_partial_sums():
    workload, arch = convolution(14, 64, 80, n=1, weights="rsck"), lookup("sm_87")
    program = next(p for p in WINOGRAD.starters(workload, arch) if (p["block_m"], p["block_n"]) == (32, 64))
    program = program.replace(prepared=1, split_k=2)
    assert WINOGRAD.workspace(program, workload) == (2 * 144 * 80 * 4 + 64 * 16 * 128 * 4, False)
    first, _, _ = WINOGRAD.launches(program, workload)
    assert (first.entry, first.grid, first.block) == ("winograd_filters", 64 * 128 // 256, 256)
    verdict = is_right(WINOGRAD, program, workload)
    assert verdict.branches["prepared"] > 0
    assert verdict.counters["bank_conflicts"] == 0
    old = Space(workload, lookup("sm_75")).family("winograd")
    with pytest.raises(ValueError, match="prepared=1"):
        old.point(program)


def test_pairs_of_outputs_are_stored_where_rows_hold_them():
    even, odd = convolution(16, 32, 32, layout="nchw"), convolution(15, 32, 32, layout="nchw")
    arch = lookup("sm_87")
    program = WINOGRAD.starters(even, arch)[0]
    assert program["vector_c"] == 8 and WINOGRAD.widest(program.replace(vector_c=4), even) == program
    with pytest.raises(ValueError, match="vector_c=8"):
        Space(odd, arch).family("winograd").point(program)
    assert WINOGRAD.widest(program, odd)["vector_c"] == 4


def test_it_says_why_it_does_not_serve():
    arch = lookup("sm_87")
    assert "no convolution" in str(WINOGRAD.serves(matmul(8, 8, 8), arch))
    direct = conv.workload(**{**SERVED[0][1].size, "layout": "nchw"})
    assert "does not allow" in str(WINOGRAD.serves(direct, arch))
    assert "3 x 3 taps" in str(WINOGRAD.serves(SERVED[0][1].with_sizes(stride_h=2), arch))
    for name, workload in SERVED:
        others = {each.family.name for each in Space(workload, lookup(name)).families} - {"contraction_mma"}
        assert others == {"contraction_simt", "winograd"}  # beside float32 in parts, where that is fast


def test_a_compile_time_epilogue_is_right():
    workload = SERVED[0][1]
    program = WINOGRAD.starters(workload, lookup("sm_87"))[1].replace(epilogue_fixed=1)
    verdict = is_right(WINOGRAD, program, workload)
    assert verdict.branches["epilogue_step"] > 0


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_the_walk_chooses_between_it_and_the_direct_sum(layout):
    """By the potential: many channels and filters are worth the transforms, a few are not."""
    many = convolution(56, 128, 128, n=32, layout=layout, **padded())
    few = convolution(56, 3, 4, n=1, layout=layout, **padded())
    chosen = {}
    for name, workload in (("many", many), ("few", few)):
        best, seconds = search(Request(workload, lookup("sm_87"), 0, "full")).best[0]
        direct = search(Request(conv.workload(**{**workload.size, "layout": layout}), lookup("sm_87"), 0, "full"))
        chosen[name] = best.family
        assert seconds <= direct.best[0][1] * 1.05
    assert chosen == {"many": "winograd", "few": "contraction_simt"}
