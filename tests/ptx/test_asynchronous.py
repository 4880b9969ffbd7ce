"""mbarriers, clusters, proxies and registers that change hands: correct code runs, and each broken rule is a fault."""

import functools

import numpy as np
import pytest

from tests.ptx.execute import Kernel, PtxFault
from tests.ptx.tensor_toys import (
    BAR,
    CLUSTER,
    COMMIT,
    DUMP,
    EXPECT,
    FENCE,
    FILL,
    HEAD,
    INIT,
    LOAD,
    STORE,
    UINT16,
    WAIT,
    WAIT_STORE,
    Toy,
    aligned,
    encoded,
    entry,
)

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

EXPECT_BOX = EXPECT.format(bytes=1024)
SETUP = f"{INIT} {FENCE} {BAR}"
FETCH = f"{SETUP} {EXPECT_BOX} {LOAD} {WAIT}"
SENT = f"{FILL} fence.proxy.async.shared::cta; {BAR} {STORE} {COMMIT} {WAIT_STORE}"
#: lanes 0 and 1 arrive at the mbarrier of block 0 and 1; each block waits for one arrival of each
MAPA = "mapa.shared::cluster.u32 %r9, %r1, {rank};"
INIT_TWO = "@%p1 mbarrier.init.shared::cta.b64 [%r1], 2;"
ARRIVE = f"setp.lt.u32 %p2, %r0, 2; @!%p2 bra on; {MAPA.format(rank='%r0')}"
ARRIVE += " mbarrier.arrive.shared::cluster.b64 _, [%r9]; on:"
#: each block fetches half of the box for both; the halves' bytes come together
HALF = "mov.u32 %r10, %cluster_ctarank; shl.b32 %r11, %r10, 9; add.s32 %r11, %r11, %r2; shl.b32 %r12, %r10, 2;"
SHARE = (
    "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    " [%r11], [%rd3, {{0, %r12}}], [%r1], %rs1;"
)
TWO_BLOCKS = "mov.u32 %r10, %ctaid.x; mad.wide.u32 %rd0, %r10, 2048, %rd0;"
RING = f"mov.u16 %rs1, 3; {HALF} {INIT} {FENCE} {CLUSTER} {EXPECT_BOX}"
GROUP = "mov.u32 %r20, %tid.x; shr.u32 %r20, %r20, 7; setp.eq.u32 %p4, %r20, 0;"
GIVE, TAKE = "setmaxnreg.dec.sync.aligned.u32 {};", "setmaxnreg.inc.sync.aligned.u32 {};"

#: body, blocks to a cluster, threads
RIGHT = {
    "fetch": (f"{FETCH} {DUMP}", 1, 32),
    "twice": (
        f"{FETCH} {BAR} {EXPECT_BOX} {LOAD} {WAIT.replace('again', 'more').replace(', 0;', ', 1;')} {DUMP}",
        1,
        32,
    ),
    "tested": (f"{SETUP} {EXPECT_BOX} {LOAD} {WAIT.replace('try_wait', 'test_wait')} {DUMP}", 1, 32),
    "shared": (f"{TWO_BLOCKS} {RING} {SHARE.format()} {WAIT} {DUMP} {CLUSTER}", 2, 32),
    "handed": (
        f"{TWO_BLOCKS} {INIT_TWO} {FENCE} {CLUSTER} {ARRIVE} {WAIT} st.global.u32 [%rd0], %r1; {CLUSTER}",
        2,
        32,
    ),
    "kept": (
        f"{INIT_TWO} {BAR} @%p1 mbarrier.arrive_drop.shared::cta.b64 _, [%r1];"
        f" @%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r1]; {WAIT} {BAR}"
        " @%p1 mbarrier.arrive.shared::cta.b64 %rd9, [%r1];"
        " @%p1 mbarrier.test_wait.shared::cta.b64 %p4, [%r1], %rd9; selp.u32 %r5, 1, 0, %p4;"
        " @%p1 st.global.v2.u64 [%rd0], {%rd9, %rd9}; @%p1 st.global.u32 [%rd0+16], %r5;",
        1,
        32,
    ),
    "exchanged": (f"{GROUP} @%p4 bra gives; {TAKE.format(232)} bra on; gives: {GIVE.format(40)} on:", 1, 384),
    "named": (
        "setp.lt.u32 %p2, %r0, 32; @%p2 bra waits; st.shared.u32 [%r2], %r0; bar.arrive 1, 64; bra on;"
        " waits: bar.sync 1, 64; ld.shared.u32 %r5, [%r2]; st.global.u32 [%rd0], %r5; on:",
        1,
        64,
    ),
    "depends": ("griddepcontrol.launch_dependents; griddepcontrol.wait; st.global.u32 [%rd0], %r0;", 1, 32),
    "prefetched": ("prefetch.tensormap [%rd3];", 1, 32),
    "ranked": (
        "mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %clusterid.x; mov.u32 %r6, %nclusterid.x;"
        " mov.u32 %r7, %cluster_nctarank; mov.u32 %r8, %ctaid.x; mad.wide.u32 %rd5, %r8, 16, %rd0;"
        " @%p1 st.global.v4.u32 [%rd5], {%r4, %r5, %r6, %r7};",
        2,
        32,
    ),
}
#: body, and the fault's kind; tests/ptx/rules has further rules, each next to a twin that keeps it
WRONG = {
    # phases, counts and bytes
    "no_arrivals": (SETUP.replace("], 1;", "], 0;"), "mbarrier"),
    "twice_in_a_phase": (
        f"{INIT_TWO} {FENCE} {BAR} @%p1 mbarrier.arrive.shared::cta.b64 _, [%r1], 3;",
        "mbarrier",
    ),
    "no_barrier": (
        f"{INIT} {FENCE} setp.eq.s32 %p2, %r0, 1; @%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];",
        "mbarrier",
    ),
    "wrong_parity": (
        f"{SETUP} {EXPECT_BOX} {LOAD} {WAIT.replace(', 0;', ', 1;')} {DUMP}",
        None,
    ),  # a deadlock or too early
    "too_few_bytes": (f"{SETUP} {EXPECT.format(bytes=512)} {LOAD} {WAIT} {DUMP}", "transaction"),
    "nothing_expected": (f"{SETUP} @%p1 mbarrier.arrive.shared::cta.b64 _, [%r1]; {LOAD} {WAIT} {DUMP}", "in_flight"),
    "object_read": (f"{SETUP} ld.shared.u32 %r5, [%r1+4];", "in_flight"),
    # copies into shared memory
    "waited_for_by_another": (f"{SETUP} {EXPECT_BOX} {LOAD} @!%p1 bra on; {WAIT} on: {DUMP}", None),
    "written_under_a_copy": (f"{SETUP} {EXPECT_BOX} {LOAD} st.shared.u32 [%r2], %r0; {WAIT}", "in_flight"),
    "over_stores": (f"{FILL} {FETCH}".replace(FENCE, FENCE.partition(";")[0] + ";"), "unfenced"),
    "no_map": (FETCH.replace("[%rd3,", "[%rd2,"), "map"),
    "moved_map": (FETCH.replace("[%rd3,", "[%rd3+32,"), "misaligned"),
    # copies out of shared memory
    "fenced_before": (
        f"fence.proxy.async.shared::cta; {SENT.replace('fence.proxy.async.shared::cta;', '')}",
        "unfenced",
    ),
    "unordered": (SENT.replace(BAR, ""), "unordered"),
    "not_committed": (SENT.replace(COMMIT, ""), "in_flight"),
    "overwritten": (SENT.replace(WAIT_STORE, f"{BAR} {FILL} {WAIT_STORE}"), "in_flight"),
    "misplaced_store": (f"add.s32 %r2, %r2, 16; {SENT}", "misaligned"),
    # registers and barriers
    "more_by_giving": (GIVE.format(264), "registers"),
    "fewer_by_taking": (TAKE.format(24), "registers"),
    "more_than_there_are": (f"{GROUP} @%p4 bra on; {TAKE.format(240)} on:", "registers"),
    "named_short": ("setp.lt.u32 %p2, %r0, 32; @%p2 bar.sync 1, 96;", "deadlock"),
    "named_odd": ("bar.arrive 1, 40;", "invalid"),
    # clusters
    "alone": (f"{MAPA.format(rank=1)}", "out_of_bounds"),
    "arrived_twice": ("barrier.cluster.arrive.release; barrier.cluster.arrive.release;", "invalid"),
    "not_arrived": ("barrier.cluster.wait.acquire;", "invalid"),
    "remote_as_own": (f"{SETUP} {MAPA.format(rank=0)} st.shared.u32 [%r9+64], %r0;", "out_of_bounds"),
    # dependent launches
    "early_load": ("ld.global.u32 %r5, [%rd1]; griddepcontrol.wait;", "dependent"),
    "early_store": ("st.global.u32 [%rd0], %r0; griddepcontrol.wait;", "dependent"),
}
#: of clusters of two blocks
WRONG_PAIRS = {
    "no_cluster_fence": (f"{INIT_TWO} {CLUSTER} {ARRIVE} {WAIT} {CLUSTER}", "mbarrier"),
    "left_early": (
        f"{INIT_TWO} {FENCE} {CLUSTER} mov.u32 %r10, %cluster_ctarank; setp.eq.u32 %p4, %r10, 1; @%p4 exit;"
        f" {BAR} {ARRIVE} {WAIT}",
        "ended",
    ),
    "one_arrival": (f"{INIT_TWO} {FENCE} {CLUSTER} {ARRIVE.replace('%r0, 2', '%r0, 1')} {WAIT} {CLUSTER}", "deadlock"),
    "only_half": (f"{RING.replace('%rs1, 3', '%rs1, 1')} {SHARE.format()} {WAIT} {DUMP} {CLUSTER}", "deadlock"),
    "cluster_apart": (
        "setp.lt.u32 %p2, %r0, 16; barrier.cluster.arrive.release; @%p2 bra over; barrier.cluster.wait.acquire.aligned;"
        " over:",
        "divergent",
    ),
}


@functools.cache
def kernel() -> Kernel:
    """All entries of this file, compiled once."""
    right = "".join(entry(name, body, cluster=pair, threads=count) for name, (body, pair, count) in RIGHT.items())
    wrong = "".join(entry(name, body, threads=384) for name, (body, _) in WRONG.items())
    pairs = "".join(entry(name, body, cluster=2) for name, (body, _) in WRONG_PAIRS.items())
    return Kernel(HEAD + right + wrong + pairs)


def run(name: str, *, late: bool, order="forward", **launch) -> tuple[np.ndarray, np.ndarray]:
    """Run an entry over a tensor of 64 x 16 numbers of 16 bits; the output's words and the tensor."""
    out, tensor = np.zeros(1024, np.uint32), aligned(1024, np.uint16)
    tensor[:] = np.arange(1, 1025)
    toy = Toy(out, np.zeros(8, np.uint32), tensor, writable=True)
    status, text = encoded(
        toy.tensor, UINT16, (64, 16), (128,), (64, 4 if "shar" in name or name in WRONG_PAIRS else 8)
    )
    assert status == 0
    toy.run(kernel(), name, text, late=late, order=order, **launch)
    return out, tensor


def box(tensor: np.ndarray, rows: int) -> np.ndarray:
    """The first rows of a tensor as a box has them, as words."""
    lines = tensor[: 64 * rows].reshape(rows, 8, 8)
    return np.concatenate([lines[i, [c ^ i % 8 for c in range(8)]].ravel() for i in range(rows)]).view(np.uint32)


@pytest.mark.parametrize("order", ["forward", "reverse", 3])
@pytest.mark.parametrize("late", [False, True])
def test_copies_arrive_with_their_phase(late, order):
    for name in ("fetch", "twice", "tested"):
        out, tensor = run(name, late=late, order=order)
        assert np.array_equal(out[:256], box(tensor, 8)), name


@pytest.mark.parametrize("order", ["forward", "reverse", 3])
@pytest.mark.parametrize("late", [False, True])
def test_a_copy_goes_to_all_blocks_of_a_cluster(late, order):
    out, tensor = run("shared", late=late, order=order, blocks=2, cluster=2)
    assert np.array_equal(out[:256], box(tensor, 8)) and np.array_equal(out[512:768], out[:256])


def test_blocks_of_a_cluster_know_their_place_and_arrive_at_each_other():
    out, _ = run("ranked", late=False, blocks=4, cluster=2)
    assert out[:16].reshape(4, 4).tolist() == [[0, 0, 2, 2], [1, 0, 2, 2], [0, 1, 2, 2], [1, 1, 2, 2]]
    out, _ = run("handed", late=False, blocks=2, cluster=2)
    assert out[0] and out[512]


def test_an_arrival_gives_its_phase():
    out, _ = run("kept", late=False)
    assert out[4] == 1  # of the second phase, which one arrival completes


def test_registers_change_hands_and_named_barriers_count_arrivals():
    for late in (False, True):
        run("exchanged", late=late, threads=384)
        out, _ = run("named", late=late, threads=64)
        assert out[0] >= 32


def test_dependent_launches_wait():
    for dependent in (False, True):
        run("depends", late=False, dependent=dependent)
    run("early_load", late=False, dependent=False)
    run("prefetched", late=False)


@pytest.mark.parametrize("late", [False, True])
def test_broken_rules_are_faults(late):
    for name, (_, kind) in WRONG.items():
        threads = 384 if kind == "registers" else 32
        order = "reverse" if kind == "unordered" else "forward"  # the first thread runs last
        faults(name, kind, late=late, order=order, threads=threads, dependent=kind == "dependent")


@pytest.mark.parametrize("late", [False, True])
def test_broken_rules_of_clusters_are_faults(late):
    for name, (_, kind) in WRONG_PAIRS.items():
        faults(name, kind, late=late, blocks=2, cluster=2)


def faults(name: str, kind: str | None, **launch) -> None:
    """Run an entry that breaks a rule."""
    with pytest.raises(PtxFault) as found:
        run(name, **launch)
    assert kind is None or str(found.value).startswith(f"{kind}: "), (name, str(found.value))
    assert str(found.value).endswith(f" in {name}")


def test_launches_that_clusters_forbid():
    with pytest.raises(PtxFault, match=r"^invalid: 3 blocks in clusters of 2"):
        run("ranked", late=False, blocks=3, cluster=2)
    with pytest.raises(PtxFault, match=r"^invalid: ranked has clusters of 2 blocks, the launch of 1"):
        run("ranked", late=False, blocks=2)
