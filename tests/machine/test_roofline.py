"""The potential: never faster than the hardware, and sensitive to everything it models."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gensor_kernels.families.contraction.mma.cost import unswizzled_degree
from gensor_kernels.families.contraction.simt.cost import fragment_clocks, transposing_clocks
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace, Space
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.rows import views as rows
from gensor_tuner.search.walk import walk
from gensor_tuner.shapes.reader import read_shapes
from tests.campaign_size import FULL, sample
from tests.families.lattices import LATTICES, MMA, SIMT, WGMMA, random_legal, space

#: Lattices of all families: some of them in a push, all nightly.
some_spaces = pytest.mark.parametrize("index", sample(range(len(LATTICES)), 8))
ROOT = Path(__file__).resolve().parents[2]


def seconds(lattice, *programs):
    return lattice.potential(np.array([lattice.point(program) for program in programs]))


def base(problem, arch="sm_80", family=MMA):
    """A lattice and its first starter: a large block tile."""
    lattice = FamilySpace(family, problem, lookup(arch))
    return lattice, family.starters(problem, lookup(arch))[0]


def test_the_bound_is_the_largest_of_three_and_of_what_may_multiply_float32():
    a100 = lookup("a100-40gb")
    assert roofline.bound_us(workload(8192, 8192, 8192), a100) == pytest.approx(2 * 8192**3 / 311.87e6, rel=1e-3)
    copied = 2 * (4096 * 4096 + 4096 + 4096)
    assert roofline.bound_us(workload(1, 4096, 4096), a100) == pytest.approx(copied / 1555e3, rel=1e-3)
    assert roofline.bound_us(workload(8, 8, 8), a100) == a100.launch_us
    a100 = lookup("a100-40gb")
    long, short = workload(4096, 4096, 384, dtype="float32"), workload(4096, 4096, 383, dtype="float32")
    assert roofline.arithmetic_peak(long, a100) == pytest.approx(312e12 / 6, rel=0.03)
    assert roofline.arithmetic_peak(short, a100) == pytest.approx(19.5e12, rel=0.01)
    depthwise = operator("depthwise_conv2d")
    found = [row.workload for row in read_shapes(ROOT / "examples" / "every_operator.csv") if row.workload]
    assert any(operator(each.operator) is depthwise for each in found)
    for each in found:  # no tensor core slides windows, or reduces rows
        if each.kind == "float32" and operator(each.operator).product(each) is None:
            assert roofline.arithmetic_peak(each, a100) == a100.peak("float32")


@some_spaces
def test_no_program_beats_the_hardware(index):
    lattice = space(index)
    predicted = lattice.potential(random_legal(lattice, 2_000 if FULL else 500, seed=3)) * 1e6
    assert np.isfinite(predicted).all()
    assert predicted.min() >= roofline.bound_us(lattice.workload, lattice.arch)


@some_spaces
def test_the_potential_does_not_depend_on_the_batch(index):
    lattice = space(index)
    points = random_legal(lattice, 300, seed=4)
    together = lattice.potential(points)
    assert (together == np.concatenate([lattice.potential(points[:7]), lattice.potential(points[7:])])).all()
    assert (lattice.potential(points[::-1]) == together[::-1]).all()
    assert lattice.explain(points[5])["seconds"] == together[5]


@pytest.mark.parametrize(
    ("arch", "warps", "registers", "shared", "expected"),
    [
        ("sm_80", 8, 128, 0, 2),  # 65,536 / (128 x 256)
        ("sm_80", 8, 129, 0, 1),  # allocated as 136
        ("sm_80", 4, 32, 0, 16),  # 2,048 threads
        ("sm_80", 1, 32, 0, 32),  # the block limit
        ("sm_80", 4, 64, 48 * 1024, 3),  # 164 KB / (48 + 1)
        ("sm_86", 4, 64, 49 * 1024, 2),  # 100 KB / (49 + 1): exactly
        ("sm_86", 4, 64, 49 * 1024 + 1, 1),
        ("sm_75", 4, 64, 32 * 1024, 2),  # no driver's share before sm_80
        ("sm_80", 5, 96, 0, 4),  # five schedulers' worth of warps per quarter: 20 warps fit
        ("sm_89", 32, 64, 0, 1),
    ],
)
def test_residency(arch, warps, registers, shared, expected):
    values = (np.array([value], dtype=np.float32) for value in (warps, registers, shared))
    assert roofline.residency(*values, lookup(arch))[0] == expected


def test_conflicts_of_ldmatrix_fragments_and_transposing_stores():
    assert [unswizzled_degree(length) for length in (16, 32, 48, 64, 80, 128, 144, 256)] == [1, 2, 1, 4, 1, 8, 1, 8]
    assert fragment_clocks("n", 4, 8, 4) == 4, "eight lanes, 16 bytes each, repeated four times"
    assert fragment_clocks("n", 8, 8, 4) == 16, "32 bytes apart: two-way, two reads"
    assert fragment_clocks("m", 1, 32, 4) == 1
    assert transposing_clocks(8, 1, 512, 32, 4) == 1, "swizzled"
    assert transposing_clocks(8, 1, 512 % 128, 1, 4) == 8, "neither swizzled nor padded"
    assert transposing_clocks(2, 4, (128 + 4) * 4 % 128, 1, 4) == 1, "padded rows"


SMALL = {"block_m": 64, "block_n": 64, "warp_m": 32, "warp_n": 32}
SKINNY = {"block_m": 16, "block_n": 32, "warp_m": 16, "warp_n": 16, "block_k": 32}
#: Costs: sizes, changes of the first starter, what is faster, what is slower, and how many times at least.
COSTS = {
    **{
        f"{name} of {value}": ((4096, 4096, 4096), {}, {}, {name: value}, 1.0)
        for name, value in (("swizzle", 0), ("vector_a", 4), ("vector_c", 4), ("epilogue_staged", 0))
    },
    "an empty device": ((64, 64, 65536), SMALL, {"split_k": 32}, {}, 4.0),
    "a split of a full device": ((8192, 8192, 1024), {}, {}, {"split_k": 8}, 1.0),
    "latency that few stages do not hide": ((16, 2048, 8192), SKINNY, {"stages": 5}, {"stages": 2}, 1 / 0.7),
}


@pytest.mark.parametrize(("sizes", "changes", "better", "worse", "ratio"), COSTS.values(), ids=COSTS)
def test_what_costs_time(sizes, changes, better, worse, ratio):
    lattice, program = base(workload(*sizes))
    program = program.replace(**changes)
    fast, slow = seconds(lattice, program.replace(**better), program.replace(**worse))
    assert slow > ratio * fast


def test_edge_waste_multiplies_compute_only_and_raster_groups_save_dram_traffic():
    lattice, good = base(workload(4096, 4096, 4096))
    ragged, _ = base(workload(4097, 4096, 4096))
    full, edge = lattice.explain(lattice.point(good)), ragged.explain(ragged.point(good))
    assert edge["blocks"] > full["blocks"]
    assert edge["math"] == full["math"]
    assert edge["dram_bytes"] == pytest.approx(full["dram_bytes"], rel=0.05)
    assert edge["blocks"] * edge["l2_bytes"] < full["blocks"] * full["l2_bytes"] * 1.02
    lattice, good = base(workload(16384, 16384, 4096))
    plain, grouped = (lattice.explain(lattice.point(good.replace(raster=raster))) for raster in (1, 8))
    assert grouped["dram_bytes"] < 0.7 * plain["dram_bytes"]


def test_a_tail_round_costs_a_round():
    one_round = FamilySpace(MMA, workload(128 * 108, 128, 4096), lookup("sm_80"))
    program = MMA.starters(one_round.workload, one_round.arch)[0].replace(stages=2, block_k=64, min_blocks=0)
    residents = one_round.explain(one_round.point(program))["residents"]
    full = int(108 * residents)
    times = []
    for tiles in (full, full + 1):
        lattice = FamilySpace(MMA, workload(128 * tiles, 128, 4096), lookup("sm_80"))
        times.append(seconds(lattice, program)[0])
    assert times[1] > 1.2 * times[0]


def test_blocks_that_walk_tiles_hide_how_these_begin_and_end():
    problem = workload(128 * 132 * 8, 128, 512, dtype="bfloat16", trans_b=True)
    lattice, program = base(problem, "h200", WGMMA)
    shared = {"block_m": 128, "block_n": 128, "block_k": 64, "stages": 4, "consumers": 2, "split_k": 1}
    alone, walking = seconds(lattice, *(program.replace(**shared, persistent=each) for each in (0, 1)))
    assert walking < alone
    rounds = np.array([3.0], np.float32)
    terms = lattice.terms(lattice.point(program.replace(**shared, persistent=2))[None])
    pieces = tuple(np.array([[each], [each]], np.float32) for each in (10.0, 100.0, 70.0, 0.0))
    none = np.zeros(1, np.float32)
    for behind, wanted in ((0.0, 10 + 3 * 170), (1.0, 10 + 3 * 100 + 70), (0.5, 10 + 3 * 120 + 50)):
        terms.ahead, terms.behind = np.ones(1, np.float32), np.float32(behind)
        assert roofline._total(terms, rounds, none, pieces)[0] == wanted
    terms.ahead = 0.0
    assert roofline._total(terms, rounds, none, pieces)[0] == 3 * 180


def test_blocks_that_queue_for_dram_hide_their_start_and_end():
    """Rounds of a copy run in sequence; rounds on busy pipes hide no more of their ends than before."""
    arch = lookup("sm_87")
    space = FamilySpace(FAMILIES["rows"], rows.workload("softmax", (4096, 4096), (1,), "float16"), arch)
    held = {"threads_k": 64, "threads_m": 1, "split_k": 1, "vector": 8, "items": 8, "keep": 1, "online": 0}
    program = FAMILIES["rows"].starters(space.workload, arch)[0].replace(**held, min_blocks=0)
    terms = space.terms(space.point(program)[None])
    residents, active = terms.residents[None], np.full((1, 1), arch.sms, np.float32)
    running = residents * active
    start, loop, finish, overlap = (each[0, 0] for each in roofline._rounds(terms, arch, residents, active, running))
    assert 0.5 * (start + finish) < overlap <= start + loop + finish
    terms.math = terms.math * 100
    assert roofline._rounds(terms, arch, residents, active, running)[3][0, 0] == 0


def decoding():
    """Return terms of 1280 blocks of attention that wait for DRAM, on an sm_86."""
    arch = lookup("sm_86")
    problem = attention.workload(1, 4096, batch=4, heads=16, head=128)
    space = FamilySpace(FAMILIES["attention"], problem, arch)
    tile = {"block_q": 16, "warp_q": 16, "block_k": 32, "head_tile": 128, "split_k": 20, "q_registers": 1}
    wanted = {**tile, "copy": 1, "stages": 1, "epilogue_staged": 0, "min_blocks": 1}
    program = FAMILIES["attention"].starters(problem, arch)[0].replace(**wanted)
    return space.terms(space.point(program)[None])


def loop_clocks(terms, residents, running):
    """Return the time of a loop with blocks on every SM of an sm_86, of which a number per SM run on average."""
    arch = lookup("sm_86")
    active = np.full((1, 1), arch.sms, np.float32)
    return roofline._rounds(terms, arch, np.full((1, 1), residents, np.float32), active, running * active)[1][0, 0]


def test_blocks_share_dram_wherever_they_run_and_sub_cores_evenly():
    """SMs that have a block less than others in the last round do not prolong it."""
    terms = decoding()
    assert loop_clocks(terms, 3, 2.5) / loop_clocks(terms, 3, 3.0) == pytest.approx(2.5 / 3, rel=0.02)
    terms.dram_bytes = terms.dram_bytes / 100
    assert loop_clocks(terms, 3, 2.5) == loop_clocks(terms, 3, 3.0)  # the fullest SM computes as long
    terms = decoding()
    assert loop_clocks(terms, 8, 8.0) / loop_clocks(terms, 2, 2.0) == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize("arch", ["sm_80", "sm_87", "sm_90"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_that_fit_stay_in_registers(arch, dtype):
    """One read of each row and fewer instructions win where a softmax waits for DRAM."""
    space = FamilySpace(FAMILIES["rows"], rows.workload("softmax", (4096, 4096), (1,), dtype), lookup(arch))
    found = walk(Space(space.workload, space.arch), chains=32, steps=150, keep=1).best[0][0]
    assert found["keep"] == 1


def test_spills_are_penalised_not_forbidden():
    lattice = FamilySpace(FAMILIES["contraction_simt"], workload(2048, 2048, 2048, dtype="float32"), lookup("sm_80"))
    program = SIMT.starters(lattice.workload, lattice.arch)[0]
    assert (program["thread_m"], program["thread_n"]) == (8, 8)
    squeezed = program.replace(min_blocks=4)
    assert lattice.legal(lattice.point(squeezed)[None])[0]
    assert seconds(lattice, squeezed)[0] > 1.5 * seconds(lattice, program)[0]


def test_facts_of_a_binary_replace_the_estimates():
    lattice, program = base(workload(4096, 4096, 4096))
    before = lattice.explain(lattice.point(program))
    multiplies = before["multiplies"]
    unrolled = {"HMMA": 2 * multiplies, "LDSM": 1000 - 2 * multiplies}  # two iterations of 500 instructions
    lattice.add_feedback(program, registers=255, spill_bytes=400, hot_loop=unrolled)
    for twin in (program, program.replace(raster=8)):
        after = lattice.explain(lattice.point(twin))
        assert after["registers"] == 255
        assert after["issue"] == pytest.approx(500 - before["multiplies"])
        assert after["wavefronts"] == pytest.approx(before["wavefronts"] + 100 * before["warps"])
    split = lattice.explain(lattice.point(program.replace(split_k=2)))
    assert split["registers"] == before["registers"], "another source: facts do not carry over"
    assert seconds(lattice, program)[0] > before["seconds"]


def test_no_loop_is_faster_than_its_stalls_let_a_warp_issue_it():
    """The stall counts of a loop bound the share of peak: warps per scheduler times tensor clocks over stalls."""
    problem, arch = workload(8192, 8192, 8192, math="tf32", dtype="float32"), replace(lookup("sm_80"), sustained={})
    lattice = FamilySpace(MMA, problem, arch)
    program = MMA.starters(problem, arch)[0].replace(min_blocks=0, stages=2)
    point = lattice.point(program)
    before = lattice.explain(point)
    per_scheduler = before["warps"] * before["residents"] / roofline.SUBCORES
    wanted = lattice.family.multiplies(program, lattice.workload)[1]
    for chain in (0.82, 0.5, 4.0):
        stalls = per_scheduler * before["math"] / chain
        # The compiler unrolled the loop once, and matrix instructions have modifiers.
        products = {"HMMA.1688.F32.TF32": 2 * wanted, "FFMA": 3}
        lattice.add_feedback(program, int(before["registers"]), 0, None, round(2 * stalls), products)
        after = lattice.explain(point)
        assert after["stalls"] == pytest.approx(stalls, rel=1e-3)
        share = 2 * 8192**3 / (after["seconds"] * lattice.arch.peak("float32", "tf32"))
        assert share <= min(chain, 1.0)
        least = 2 * 8192**3 / (chain * lattice.arch.peak("float32", "tf32"))
        assert after["seconds"] < max(before["seconds"], least) + 2 * before["exposed"] * before["seconds"]
    lattice.add_feedback(program, int(before["registers"]), 0)
    assert lattice.explain(point)["stalls"] == 0, "machine code that was not read says nothing"


def test_facts_correct_the_estimates_of_others():
    lattice, program = base(workload(4096, 4096, 4096))
    other = program.replace(stages=2)
    assert lattice.explain(lattice.point(other))["stalls"] == 0
    busy = {name: lattice.explain(lattice.point(other))[name] for name in ("math", "multiplies", "issue")}
    pipe = max(busy["math"], busy["multiplies"] + busy["issue"])
    wanted = lattice.family.multiplies(program, lattice.workload)[1]
    own = lattice.explain(lattice.point(program))
    own_pipe = max(own["math"], own["multiplies"] + own["issue"])
    lattice.add_feedback(program, int(own["registers"]), 0, None, round(1.5 * own_pipe), {"HMMA.16816.F32": wanted})
    assert lattice.explain(lattice.point(other))["stalls"] == pytest.approx(1.5 * pipe, rel=0.01)
    lattice.add_feedback(program, 255, 400, None, round(9 * own_pipe), {"HMMA.16816.F32": wanted})
    assert lattice.explain(lattice.point(other))["stalls"] == 0, "stalls of spills are no measure"
    lattice, program = base(workload(4096, 4096, 4096))
    other = program.replace(stages=2)
    before = lattice.explain(lattice.point(other))["registers"]
    lattice.add_feedback(program, registers=int(before) + 16, spill_bytes=0)
    assert lattice.explain(lattice.point(other))["registers"] == pytest.approx(before + 16, abs=1.0)
