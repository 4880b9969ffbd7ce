"""Memory order: hand-written PTX in which accesses are ordered, or are in a race, by the manual's memory model."""

import struct

import numpy as np
import pytest

from gensor_kernels.families.core.family import Launch
from tests.ptx.execute import Kernel, Memory, PtxFault
from tests.ptx.test_instructions import HEAD, entry

pytestmark = pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++

#: %r1 and %r2: a thread's word of shared memory and that of another, both zero; %rd2 and %rd3: the same of the output
OWN = """
    mov.u32 %r1, shared; xor.b32 %r4, %r0, {other};
    mad.lo.u32 %r2, %r4, 4, %r1; mad.lo.u32 %r1, %r0, 4, %r1;
    mad.wide.u32 %rd2, %r0, 8, %rd0; mad.wide.u32 %rd3, %r4, 8, %rd0;
    setp.eq.u32 %p1, %r0, 0; st.shared.u32 [%r1], 0; bar.sync 0;
"""
NEIGHBOUR, OTHER_WARP = OWN.format(other=1), OWN.format(other=32)
STORE, LOAD = "st.shared.u32 [%r1], %r0; ", "ld.shared.u32 %r6, [%r2]; "

#: warp 0 stores, and arrives at an mbarrier for which warp 1 waits before it loads
PHASE = (
    OTHER_WARP
    + """mov.u32 %r7, shared; @%p1 mbarrier.init.shared::cta.b64 [%r7+512], {count}; bar.sync 0;
    setp.ge.u32 %p2, %r0, 32; @%p2 bra again; st.shared.u32 [%r1], %r0;
    {arrive}.shared::cta.b64 _, [%r7+512]; bra done;
again: mbarrier.{take}.parity.shared::cta.b64 %p4, [%r7+512], 0; @!%p4 bra again; ld.shared.u32 %r6, [%r2]; done:"""
)
#: warp 0 arrives at a barrier and continues, warp 1 waits there
ARRIVE = (
    OTHER_WARP
    + """setp.ge.u32 %p2, %r0, 32; @%p2 bra taker; {front} bar.arrive 1, 64; {behind} bra done;
taker: {other_front} bar.sync 1, 64; {other_behind} done:"""
)
#: one block of 64 threads: body, and the fault, empty where everything is ordered
BLOCK = {
    "barrier": (OTHER_WARP + STORE + "bar.sync 0; " + LOAD, ""),
    "no_barrier": (OTHER_WARP + STORE + LOAD, "race"),
    "reused": (OTHER_WARP + STORE + "bar.sync 0; " + LOAD + "bar.sync 0; " + STORE, ""),
    "reused_at_once": (OTHER_WARP + STORE + "bar.sync 0; " + LOAD + STORE, "race"),
    "both_store": ("mov.u32 %r1, shared; st.shared.u32 [%r1], %r0;", "race"),
    "warp": (NEIGHBOUR + STORE + "bar.warp.sync -1; " + LOAD, ""),
    "warp_too_small": (OTHER_WARP + STORE + "bar.warp.sync -1; " + LOAD, "race"),
    "half_warps": (OWN.format(other=16) + STORE + "setp.lt.u32 %p2, %r0, 16; selp.b32 %r7, 0xFFFF, 0xFFFF0000, %p2; "
                   "and.b32 %r8, %r0, 31; setp.lt.u32 %p2, %r8, 16; selp.b32 %r7, 0xFFFF, 0xFFFF0000, %p2; "
                   "bar.warp.sync %r7; " + LOAD, "race"),
    # shuffles and votes exchange registers; they order no memory (9.7.9, 9.7.13)
    "shuffle": (NEIGHBOUR + STORE + "shfl.sync.bfly.b32 %r7, %r0, 1, 31, -1; " + LOAD, "race"),
    "vote": (NEIGHBOUR + STORE + "vote.sync.any.pred %p2, %p1, -1; " + LOAD, "race"),
    # a named barrier of one warp, and of both
    "named": (NEIGHBOUR + STORE + "shr.u32 %r7, %r0, 5; add.u32 %r7, %r7, 1; bar.sync %r7, 32; " + LOAD, ""),
    "named_apart": (OTHER_WARP + STORE + "shr.u32 %r7, %r0, 5; add.u32 %r7, %r7, 1; bar.sync %r7, 32; " + LOAD, "race"),
    "named_both": (OTHER_WARP + STORE + "bar.sync 3, 64; " + LOAD, ""),
    # bytes: neighbours in a word are no race, the same byte is
    "bytes": ("mov.u32 %r1, shared; add.u32 %r1, %r1, %r0; st.shared.u8 [%r1], %r0;", ""),
    "same_byte": (
        "mov.u32 %r1, shared; shr.u32 %r2, %r0, 1; add.u32 %r1, %r1, %r2; st.shared.u8 [%r1], %r0;", "race"
    ),
    "byte_of_word": (
        "mov.u32 %r1, shared; @%p7 bra on; on: setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 33; "
        "@%p1 st.shared.u32 [%r1], %r0; @%p2 st.shared.u8 [%r1+3], %r0;", "race"
    ),
    # unwritten memory
    "unwritten": (OTHER_WARP + "ld.shared.u32 %r6, [%r2+256];", "uninitialised"),
    "partly_written": (
        OTHER_WARP + "st.shared.u8 [%r1+256], %r0; bar.sync 0; ld.shared.u32 %r6, [%r2+256];", "uninitialised"
    ),
    # copies: unordered until their own thread has waited, and then like its stores
    "copy": (OTHER_WARP + "cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.wait_all; bar.sync 0; " + LOAD, ""),
    "copy_of_group": (
        OTHER_WARP + "cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group; cp.async.wait_group 0; "
        "bar.sync 0; " + LOAD, ""
    ),
    "copy_not_awaited": (
        OTHER_WARP + "cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.commit_group; cp.async.wait_group 1; "
        "bar.sync 0; " + LOAD, "race"
    ),
    "copy_not_committed": (
        OTHER_WARP + "cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.wait_group 0; bar.sync 0; " + LOAD, "race"
    ),
    "copy_awaited_behind_the_barrier": (
        OTHER_WARP + "cp.async.ca.shared.global [%r1], [%rd1], 4; bar.sync 0; cp.async.wait_all; " + LOAD, "race"
    ),
    "copy_over_a_load": (
        OTHER_WARP + STORE + "bar.sync 0; " + LOAD + "cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.wait_all;",
        "race"
    ),
    "copy_over_an_own_load": (
        NEIGHBOUR + STORE + "ld.shared.u32 %r6, [%r1]; cp.async.ca.shared.global [%r1], [%rd1], 4; cp.async.wait_all;",
        ""
    ),
    "source_stored_under_a_copy": (
        OTHER_WARP + "cp.async.ca.shared.global [%r1], [%rd2], 4; st.global.u32 [%rd2], %r0; cp.async.wait_all;", "race"
    ),
    "source_stored_behind_a_copy": (
        OTHER_WARP + "cp.async.ca.shared.global [%r1], [%rd2], 4; cp.async.wait_all; st.global.u32 [%rd2], %r0;", ""
    ),
    # strong accesses are no race; they must be of equal extent
    "atomics": ("mov.u32 %r1, shared; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r1], 0; bar.sync 0; "
                "red.shared.add.u32 [%r1], %r0; bar.sync 0; ld.shared.u32 %r2, [%r1];", ""),
    "atomics_and_a_load": ("mov.u32 %r1, shared; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r1], 0; bar.sync 0; "
                "red.shared.add.u32 [%r1], %r0; ld.shared.u32 %r2, [%r1];", "race"),
    "atomics_and_a_volatile_load": (
        "mov.u32 %r1, shared; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [%r1], 0; bar.sync 0; "
        "red.shared.add.u32 [%r1], %r0; ld.volatile.shared.u32 %r2, [%r1];", ""
    ),
    "atomics_of_two_extents": (
        "mov.u32 %r1, shared; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u64 [%r1], 0; bar.sync 0; "
        "@%p1 red.shared.add.u32 [%r1], %r0; @!%p1 red.shared.add.u64 [%r1], 1;", "race"
    ),
    # what the launch stores is not loaded by .nc, before or after the store
    "read_only": ("mad.wide.u32 %rd2, %r0, 4, %rd0; ld.global.nc.u32 %r2, [%rd2];", ""),
    "read_only_behind": (
        "mad.wide.u32 %rd2, %r0, 4, %rd0; st.global.u32 [%rd2], %r0; ld.global.nc.L2::128B.u32 %r2, [%rd2];",
        "noncoherent"
    ),
    "read_only_in_front": (
        "mad.wide.u32 %rd2, %r0, 4, %rd0; ld.global.nc.u32 %r2, [%rd2]; st.global.u32 [%rd2], %r0;", "noncoherent"
    ),
    # an arrival hands on what its own thread did, and a wait takes it; those of .relaxed do not (9.7.13.15)
    "arrivals": (PHASE.format(count=32, arrive="mbarrier.arrive", take="try_wait"), ""),
    "phase_tested": (PHASE.format(count=32, arrive="mbarrier.arrive", take="test_wait"), ""),
    "phase_not_awaited": (PHASE.replace("@!%p4 bra again;", "").format(
        count=33, arrive="mbarrier.arrive", take="test_wait"), "race"),
    "one_arrives_for_all": (PHASE.format(count=1, arrive="@%p1 mbarrier.arrive", take="try_wait"), "race"),
    "one_arrives_behind_a_barrier": (
        PHASE.format(count=1, arrive="bar.warp.sync -1; @%p1 mbarrier.arrive", take="try_wait"), ""),
    "relaxed_arrivals": (PHASE.format(count=32, arrive="mbarrier.arrive.relaxed.cta", take="try_wait"), "race"),
    "relaxed_wait": (
        PHASE.format(count=32, arrive="mbarrier.arrive", take="try_wait").replace(
            "parity.shared", "parity.relaxed.cta.shared"), "race"),
    # bar.arrive: those who wait take it, and hand nothing back
    "arrivals_at_a_barrier": (ARRIVE.format(front=STORE, behind="", other_front="", other_behind=LOAD), ""),
    "nothing_comes_back": (ARRIVE.format(front="", behind=LOAD, other_front=STORE, other_behind=""), "race"),
    # a generic address of shared memory is the same memory
    "generic": (
        OTHER_WARP + "cvt.u64.u32 %rd4, %r2; cvta.shared.u64 %rd4, %rd4; " + STORE + "ld.u32 %r6, [%rd4];", "race"
    ),
}  # fmt: skip


def run(kernel: Kernel, launch: Launch, *, order: str = "forward") -> None:
    """Run a launch over 8 KB that it may write and 1 KB that it may not."""
    memory = Memory()
    out, source = np.zeros(1024, np.uint64), np.zeros(128, np.uint64)
    places = [memory.place(each.ctypes.data, each.nbytes, each is out) for each in (out, source)]
    kernel.run([launch], struct.pack("<2Q", *places), memory, late=True, order=order, ordered=True)


def outcome(kernel: Kernel, launch: Launch, order: str = "forward") -> str:
    """The fault of a launch; empty where there is none."""
    try:
        run(kernel, launch, order=order)
    except PtxFault as fault:
        return str(fault)
    return ""


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_accesses_of_a_block(order):
    kernel = Kernel(HEAD + "".join(entry(name, body) for name, (body, _) in BLOCK.items()))
    wrong = {}
    for name, (_, kind) in BLOCK.items():
        found = outcome(kernel, Launch(name, 1, 64, 1024), order)
        if found.partition(":")[0] != kind:
            wrong[name] = found
    assert not wrong


#: block 0 gives a value, its own number of the thread, to block 1: how it stores, orders and raises a flag ...
GIVE = """
    mov.u32 %r3, %ctaid.x; mad.wide.u32 %rd2, %r0, 8, %rd0; setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r3, 1;
    @%p2 bra taker;
    st.global.u32 [%rd2+64], %r0; {order} {give}
    bra done;
taker:
    {take} {ordered}
    ld.global.u32 %r6, [%rd2+64];
done:
"""
RAISE = "@%p1 st.{how}.global.u64 [%rd0], 1;"
#: ... and how block 1 waits for the flag
WAIT = "@!%p1 bra seen; again: ld.{how}.global.u64 %rd4, [%rd0]; setp.eq.u64 %p3, %rd4, 0; @%p3 bra again; seen:"
BARRIER, RELEASE, ACQUIRE = "bar.sync 0;", RAISE.format(how="release.gpu"), WAIT.format(how="acquire.gpu")
RELAXED, POLL = RAISE.format(how="relaxed.gpu"), WAIT.format(how="relaxed.gpu")
COUNT = "@%p1 atom.{how}.global.add.u64 %rd5, [%rd0], 1;"
#: two blocks that are resident together: (order, give, take, ordered), and the fault
BLOCKS = {
    "flag": ((BARRIER, RELEASE, ACQUIRE, BARRIER), ""),
    "no_barrier_before": (("", RELEASE, ACQUIRE, BARRIER), "race"),
    "no_barrier_behind": ((BARRIER, RELEASE, ACQUIRE, ""), "race"),
    "relaxed_store": ((BARRIER, RELAXED, ACQUIRE, BARRIER), "race"),
    "relaxed_load": ((BARRIER, RELEASE, POLL, BARRIER), "race"),
    "fences": ((BARRIER + "fence.acq_rel.gpu;", RELAXED, POLL + "fence.acq_rel.gpu;", BARRIER), ""),
    "fence_of_old_name": ((BARRIER + "membar.gl;", RELAXED, POLL + "membar.gl;", BARRIER), ""),
    "fence_of_a_block": ((BARRIER + "fence.acq_rel.cta;", RELAXED, POLL + "fence.acq_rel.gpu;", BARRIER), "race"),
    "only_one_fence": ((BARRIER + "fence.acq_rel.gpu;", RELAXED, POLL, BARRIER), "race"),
    "volatile": ((BARRIER, RAISE.format(how="volatile"), WAIT.format(how="volatile"), BARRIER), "race"),
    "release_of_a_block": ((BARRIER, RAISE.format(how="release.cta"), ACQUIRE, BARRIER), "race"),
    "acquire_of_a_block": ((BARRIER, RELEASE, WAIT.format(how="acquire.cta"), BARRIER), "race"),
    "weak_store": ((BARRIER, RAISE.format(how="weak"), ACQUIRE, BARRIER), "race"),
    "atomic": ((BARRIER, COUNT.format(how="release.gpu"), ACQUIRE, BARRIER), ""),
    "atomic_of_a_block": ((BARRIER, COUNT.format(how="release.cta"), ACQUIRE, BARRIER), "race"),
    # an atomic continues the release of the store before it, a store ends it
    "release_sequence": ((BARRIER, RELEASE + COUNT.format(how="relaxed.gpu"), ACQUIRE, BARRIER), ""),
    "overwritten": ((BARRIER, RELEASE + RELAXED, ACQUIRE, BARRIER), "race"),
    "flag_of_another_extent": ((BARRIER, "@%p1 st.release.gpu.global.u32 [%rd0], 1;", ACQUIRE, BARRIER), "race"),
}
#: two blocks that may run one after the other
APART = {
    "each_its_own": ("mad.lo.u32 %r2, %r3, 32, %r0; mad.wide.u32 %rd2, %r2, 4, %rd0; st.global.u32 [%rd2], %r0;", ""),
    "neighbours": (  # bytes of one word
        "mad.lo.u32 %r2, %r0, 2, %r3; cvt.u64.u32 %rd2, %r2; add.u64 %rd2, %rd2, %rd0; st.global.u8 [%rd2], %r0;", "",
    ),
    "both_store": ("mad.wide.u32 %rd2, %r0, 4, %rd0; st.global.u32 [%rd2], %r0;", "race"),
    "both_load": ("mad.wide.u32 %rd2, %r0, 4, %rd0; ld.global.u32 %r4, [%rd2];", ""),
    "loads_and_then_stores": (
        "mad.wide.u32 %rd2, %r0, 4, %rd0; setp.eq.u32 %p1, %r3, 0; @%p1 ld.global.u32 %r4, [%rd2]; "
        "@!%p1 st.global.u32 [%rd2], %r0;", "race",
    ),
    "stores_and_then_loads": (
        "mad.wide.u32 %rd2, %r0, 4, %rd0; setp.eq.u32 %p1, %r3, 0; @!%p1 ld.global.u32 %r4, [%rd2]; "
        "@%p1 st.global.u32 [%rd2], %r0;", "race",
    ),
    "counted": ("red.global.add.u32 [%rd0], 1; red.relaxed.gpu.global.add.u32 [%rd0], 2;", ""),
    "counted_in_the_block": ("red.relaxed.cta.global.add.u32 [%rd0], 1;", "race"),
    # threads that have not started give no flag, and a weak load may find the old value for ever (8.9.6)
    "waits_for_what_is_not_resident": (
        "setp.eq.u32 %p1, %r3, 0; @!%p1 st.release.gpu.global.u64 [%rd0], 1; @!%p1 bra done; again: "
        "ld.acquire.gpu.global.u64 %rd4, [%rd0]; setp.eq.u64 %p3, %rd4, 0; @%p3 bra again; done:", "deadlock",
    ),
}  # fmt: skip


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_blocks_that_are_resident_together(order):
    bodies = {
        name: GIVE.format(order=first, give=give, take=take, ordered=ordered)
        for name, ((first, give, take, ordered), _) in BLOCKS.items()
    }
    kernel = Kernel(HEAD + "".join(entry(name, body) for name, body in bodies.items()))
    wrong = {}
    for name, (_, kind) in BLOCKS.items():
        found = outcome(kernel, Launch(name, 2, 32, 0, together=True), order)
        if found.partition(":")[0] != kind:
            wrong[name] = found
    assert not wrong


def test_blocks_that_are_not_resident_together():
    block = "mov.u32 %r3, %ctaid.x; "
    kernel = Kernel(HEAD + "".join(entry(name, block + body) for name, (body, _) in APART.items()))
    found = {name: outcome(kernel, Launch(name, 2, 32, 0)) for name in APART}
    assert {name: text.partition(":")[0] for name, text in found.items()} == {
        name: kind for name, (_, kind) in APART.items()
    }


def test_a_weak_load_may_never_see_a_flag():
    weak = GIVE.format(order="", give=RELEASE, take=WAIT.format(how="weak"), ordered=BARRIER)
    kernel = Kernel(HEAD + entry("spins", weak))
    launch = Launch("spins", 2, 32, 0, together=True)
    assert outcome(kernel, launch).startswith("race: ")  # the store is before the loads
    assert outcome(kernel, launch, "reverse").startswith("deadlock: thread 0 of block 1 spins on")


def test_both_instructions_are_named():
    kernel = Kernel(HEAD + entry("named", BLOCK["no_barrier"][0]))
    with pytest.raises(PtxFault) as found:
        run(kernel, Launch("named", 1, 64, 1024))
    assert str(found.value) == (
        "race: ld.shared.u32 %r6, [%r2] of thread 0 of block 0, and then st.shared.u32 [%r1], %r0 of thread 32 of "
        "block 0, at shared 0x480, are not ordered in named"
    )
