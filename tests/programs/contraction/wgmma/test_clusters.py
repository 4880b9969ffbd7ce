"""contraction_wgmma in clusters: pairs of blocks that share tiles, in every order of events, and what breaks them."""

import pytest

from gensor_kernels.devices.emulator import KernelFault, build
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.windows import conv
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.space import FamilySpace
from tests.programs.contraction.machine_code import machine_code
from tests.programs.lattices import WGMMA
from tests.programs.verified import is_right
from tests.programs.workloads.contraction_harness import Case, Problem, wgmma

PLAIN = {"EPILOGUE_CODES": 31}
SCHEDULES = (("forward", "late"), ("reverse", "early"), (5, "late"), (6, "early"))

# The second block of a pair is partial, or has nothing at all.
KERNELS = {
    "along m": (wgmma(CLUSTER=1, **PLAIN), (Case(200, 72, 328), Case(140, 72, 200))),
    "along n, walking": (wgmma(a="m", b="n", CLUSTER=2, PERSISTENT=1, **PLAIN), (Case(136, 200, 328, raster=2),)),
    "in turns": (
        wgmma("float8_e4m3fn", CLUSTER=1, PERSISTENT=2, CONSUMERS=2, STAGES=2, EPILOGUE_STAGED=0, **PLAIN),
        (Case(264, 72, 400, batch=(1, 1, 2)), Case(136, 72, 0)),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_pairs_match_float64(name):
    kernel, cases = KERNELS[name]
    for case in cases:
        problem = Problem(kernel, case)
        for order, copies in SCHEDULES:
            problem.right(order=order, copies=copies)


FAULTS = {
    "no meeting in front": (
        0,
        "make_ring();\n    }\n    if constexpr (CLUSTER)\n        cluster_begin();",
        "make_ring();\n    }",
    ),
    "leaving too early": (0, "#if CLUSTER && !PERSISTENT\n    cluster_barrier();", "#if CLUSTER && !PERSISTENT\n"),
    "leaving the last tile too early": (1, "#if CLUSTER && PERSISTENT\n    cluster_barrier();", "#if 0\n"),
    "a buffer that the other block still reads": (0, "READING_WARPS * PEERS);", "READING_WARPS);"),
    "a buffer kept from the other block": (0, "if (lane < PEERS)", "if (lane == rank_in_cluster())"),
    "half a tile": (0, "ROWS / FETCHERS) : 0", "0) : 0"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(name):
    walking, before, after = FAULTS[name]
    kernel = wgmma(CLUSTER=1, PERSISTENT=walking, STAGES=2, BLOCK_N=16, **PLAIN)
    source = kernel.source().replace("\n\n", "\n")
    assert source.count(before) == 1, name
    library = build(source.replace(before, after))
    with pytest.raises(KernelFault) as fault:
        for order, copies in SCHEDULES:
            Problem(kernel, Case(264, 16, 330)).run(library, order=order, copies=copies)
    assert fault.value.kind in {"divergent", "race", "deadlock", "invalid", "uninitialised"}, fault.value


def test_launches_are_whole_clusters():
    assert [Launch("any", 10, 128, 0, per_sm=1, cluster=2).blocks(sms) for sms in (1, 7, 132)] == [2, 6, 10]
    kernel = wgmma(CLUSTER=1, **PLAIN)
    with pytest.raises(ValueError, match="clusters of 2 blocks"):
        Problem(kernel.with_constants(CLUSTER=0), Case(64, 64, 64)).run(build(kernel.source()))


def test_convolutions_share_pixels():
    workload = conv.workload(n=8, h=28, w=28, c=72, k_out=128, r=3, s=3, dtype="float16")
    program = WGMMA.starters(workload, lookup("sm_90"))[0].replace(
        block_m=64, block_n=64, block_k=64, stages=2, consumers=1, split_k=1, cluster=2, persistent=1
    )
    is_right(WGMMA, program, workload, use_cache=False)


def test_copies_for_both_blocks_in_sass():
    kernel = wgmma(BLOCK_M=128, BLOCK_N=256, CONSUMERS=2, STAGES=4, CLUSTER=1, **PLAIN)
    _, entry = machine_code(kernel, "sm_90a")
    assert entry.opcodes["UTMALDG"] == 2 and entry.opcodes["UCGABAR_WAIT"] >= 2
    # An arrival at the other block must not wait for what its thread has stored.
    assert entry.hot_loop["HGMMA"] == 4 and "MEMBAR" not in entry.hot_loop
    assert sum(entry.hot_loop.values()) <= 17 * 4, entry.hot_loop


def test_pairs_request_less_and_gain_where_the_l2_is_the_limit():
    workload = matmul.workload(8192, 8192, 8192, trans_b=True)
    space = FamilySpace(WGMMA, workload, lookup("h200"))
    program = space.family.starters(workload, space.arch)[0].replace(
        block_m=128, block_n=256, block_k=64, persistent=1, stages=4, consumers=2, split_k=1
    )
    alone, along_m, along_n = (space.point(program.replace(cluster=cluster)) for cluster in (0, 1, 2))
    requested = [space.explain(point)["l2_bytes"] for point in (alone, along_m, along_n)]
    assert requested[1] == pytest.approx(requested[0] * 2 / 3, rel=0.01)
    assert requested[2] == pytest.approx(requested[0] * 5 / 6, rel=0.01)
    times = [float(space.potential(point[None])[0]) for point in (alone, along_m)]
    assert times[1] < 0.98 * times[0]
    narrow = FamilySpace(WGMMA, matmul.workload(64, 8192, 8192, trans_b=True), lookup("h200"))
    lonely, paired = (narrow.point(program.replace(block_m=64, consumers=1, cluster=cluster)) for cluster in (0, 1))
    assert narrow.potential(lonely[None])[0] < narrow.potential(paired[None])[0]  # the second block has no rows
