"""The winograd family: its Programs compile, compute what they should, and are what the terms say."""

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload as matmul
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.space import Space
from gensor_tuner.build.pool import candidate
from gensor_tuner.strategies.parallel import Request, search
from gensor_tuner.verify.verify import verify

from .lattices import random_legal
from .window import padded
from .winograd import SERVED, WINOGRAD, convolution, every_winograd, space


def resources(constants: dict) -> tuple[int, int]:
    """(threads, shared bytes) as the top of winograd.cu says."""
    v = {name: value for name, value in constants.items() if isinstance(value, int)}
    down, across = v["BLOCK_M"] // v["THREAD_M"], v["BLOCK_N"] // v["THREAD_N"]
    pad = 32 // min(v["BLOCK_K"], 8)
    of_filters = not v["FILTERS_LAST"] and not v["PREPARED"]
    by_channel = v["CHANNELS_LAST"] or of_filters, v["CHANNELS_LAST"] and of_filters
    rows = v["BLOCK_M"] + by_channel[0] * pad + v["BLOCK_N"] + by_channel[1] * pad
    store_rows = min(v["THREAD_M"], 16 // (v["THREAD_N"] * v["HELD"]))
    slab_row = next(4 * c for c in range(v["BLOCK_N"] // 4, 1000) if c % 8 == across % 8)
    tiles = v["STAGES"] * 64 * v["BLOCK_K"] * rows
    return 16 // v["HELD"] * down * across, max(tiles, 2 * 64 * store_rows * down * slab_row)


@every_winograd
def test_starters_compile_without_spills(index):
    lattice = space(index)
    programs = WINOGRAD.starters(lattice.workload, lattice.arch)
    assert 3 <= len(programs) <= 8
    assert lattice.legal(np.array([lattice.point(program) for program in programs])).all()
    for program in programs[:1]:
        binary = compile_cubin(candidate(WINOGRAD, program, lattice.workload).source(), lattice.arch.target)
        assert binary.error is None, f"{program.to_json()}\n{binary.error}"
        assert binary.entries["winograd"].spill_bytes == 0


@every_winograd
def test_random_programs_compile_and_compute_what_they_should(index):
    lattice = space(index)
    for point in random_legal(lattice, 1, seed=index):
        program = lattice.program(point)
        each = candidate(WINOGRAD, program, lattice.workload)
        binary = compile_cubin(each.source(), lattice.arch.target)
        assert binary.error is None, f"{program.to_json()}\n{binary.error}"
        verdict = verify(each, lattice.workload)
        assert verdict.outcome == "ok", f"{program.to_json()}\n{verdict.detail}"
        assert verdict.counters["bank_conflicts"] == 0, program.to_json()


@every_winograd
def test_launches_agree_with_the_terms(index):
    lattice = space(index)
    for point in random_legal(lattice, 40, seed=2):
        program = lattice.program(point)
        launches = {each.entry: each for each in WINOGRAD.launches(program, lattice.workload)}
        main = launches.pop("winograd")
        terms = lattice.explain(point)
        assert (main.grid, main.block) == (terms["blocks"], 32 * terms["warps"])
        assert main.shared_bytes == terms["shared_bytes"] <= lattice.arch.smem_per_block
        assert (main.block, main.shared_bytes) == resources(WINOGRAD.constants(program, lattice.workload))
        workspace, zeroed = WINOGRAD.workspace(program, lattice.workload)
        assert not zeroed
        others = {"contraction_reduce": program["split_k"] > 1, "winograd_filters": program["prepared"]}
        assert set(launches) == {name for name, there in others.items() if there}
        assert bool(launches) == (workspace > 0) == (terms["after"] > 0)
        assert all(np.isfinite(value) for value in terms.values())


@every_winograd
def test_no_program_is_faster_than_its_components(index):
    """No term may promise more than 16 multiply-adds per channel and four outputs allow."""
    lattice = space(index)
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
    verdict = verify(candidate(WINOGRAD, program, workload), workload)
    assert verdict.outcome == "ok" and verdict.branches["prepared"] > 0, verdict.detail
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


def test_a_compile_time_epilogue_binds_its_codes():
    workload = SERVED[0][1]
    program = WINOGRAD.starters(workload, lookup("sm_87"))[1].replace(epilogue_fixed=1)
    assert WINOGRAD.constants(program, workload)["EPILOGUE_CODES"] == 2 | 5 << 5
    verdict = verify(candidate(WINOGRAD, program, workload), workload)
    assert verdict.outcome == "ok", verdict.detail
    assert verdict.branches["epilogue_step"] > 0
    assert WINOGRAD.constants(program, workload.with_epilogue(()))["EPILOGUE_CODES"] == 31


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
