"""The race detector: every unordered pair of accesses is found in every order of execution, ordered pairs never."""

import itertools

import numpy as np
import pytest

from gensor_kernels.devices.emulator import KernelFault
from tests.doubles.emulated_kernels import execute

# 64 threads; every thread owns the 16 bytes at 16 * thread, written before the case begins.
HELPERS = """
DEVICE sptr<u8> slot(int thread) { return shared_base() + (thread & 63) * 16; }
template <int BYTES>
DEVICE void put(int thread, int byte = 0) { store_shared<BYTES>(slot(thread) + byte, Vec<BYTES>::zero()); }
template <int BYTES>
DEVICE void get(int thread, int byte = 0) { load_shared<BYTES>(slot(thread) + byte); }
DEVICE void copy(const Params &p, int thread) {
    copy_async<16>(slot(thread), gptr<u8>(p.p[0]) + (thread & 63) * 16, true);
    copy_async_commit();
}
DEVICE void rows(int thread) {
    u32 r[4];
    load_matrix<4, false>(r, slot(thread));
}
"""
CASE = """KERNEL({name}, Params, 64, 0) {{
    const int me = thread_index();
    put<16>(me);
    barrier();
{body}
}}
"""

ORDERED = {
    "other warp's write after a barrier": "put<16>(me); barrier(); get<16>(me + 32);",
    "write after a read and a barrier": "get<16>(me + 32); barrier(); put<16>(me);",
    "warp barrier orders the lanes of a warp": "put<4>(me); warp_barrier(); get<4>(me ^ 1);",
    "write after a read and a warp barrier": "get<4>(me ^ 1); warp_barrier(); put<4>(me);",
    "many read one place": "get<4>(0); get<4>(0); barrier(); if (me == 7) put<4>(0);",
    "a thread's own accesses": "put<4>(me); get<4>(me); put<4>(me);",
    "neighbouring bytes": "put<1>(me / 2, me % 2); barrier(); get<2>(me / 2);",
    "halves of a word by two warps": "put<2>(me % 32, me / 32 * 2); barrier(); get<4>(me);",
    "wide write, narrow reads, narrow writes": "get<1>(me + 1, 3); barrier(); put<1>(me / 16, me % 16);",
    "own copy waited for": "copy(params, me); copy_async_wait<0>(); get<16>(me); put<16>(me);",
    "other's copy, waited for, then a barrier": "copy(params, me); copy_async_wait<0>(); barrier(); get<16>(me + 1);",
    "copy over an older copy": "copy(params, me); copy_async_wait<0>(); barrier(); copy(params, me + 1);",
    "rows after a warp barrier": "put<16>(me); warp_barrier(); rows(me); warp_barrier(); put<16>(me ^ 1);",
    "barriers in a loop": "for (int i = 0; i < 9; ++i) { put<8>(me + i); barrier(); get<8>(me + i + 5); barrier(); }",
    "thousands of warp barriers": "for (int i = 0; i < 5000; ++i) { warp_barrier(); put<4>(me ^ i % 32); }",
    "warp barriers in a loop": "for (int i = 0; i < 9; ++i) { put<4>(me ^ i); warp_barrier(); }",
}

UNORDERED = {
    "other warp's write": "put<16>(me); get<16>(me + 32);",
    "write after other warp's read": "get<16>(me + 32); put<16>(me);",
    "neighbour lane's write": "put<4>(me); get<4>(me ^ 1);",
    "write after neighbour lane's read": "get<4>(me ^ 1); put<4>(me);",
    "two writes": "put<4>(me / 2);",
    "same value from two warps": "put<4>(me % 32);",
    "warp barrier does not order warps": "put<4>(me); warp_barrier(); get<4>(me + 32);",
    "shuffle orders nothing": "put<4>(me); shuffle_xor(me, 1); get<4>(me ^ 1);",
    "many readers, then one writes": "get<4>(0); if (me == 7) put<4>(0);",
    "reader of another warp, then own warp": "if (me >= 32) get<4>(me - 32); if (me < 32) get<4>(me); put<4>(me);",
    "overlapping widths": "if (me < 32) put<16>(me); if (me >= 32) get<1>(me - 32, 15);",
    "own copy not waited for": "copy(params, me); get<16>(me);",
    "the wait is one group short": "copy(params, me); copy_async_wait<1>(); get<16>(me);",
    "other's copy without a barrier": "copy(params, me); copy_async_wait<0>(); get<16>(me + 1);",
    "barrier before the wait": "copy(params, me); barrier(); copy_async_wait<0>(); get<16>(me + 1);",
    "store into a copy's place": "copy(params, me); put<16>(me); copy_async_wait<0>();",
    "copy over what another reads": "get<16>(me + 1); copy(params, me); copy_async_wait<0>();",
    "two copies to one place": "copy(params, me); copy(params, me); copy_async_wait<0>();",
    "copy not committed": "copy_async<16>(slot(me), gptr<u8>(params.p[0]), true); copy_async_wait<0>(); get<16>(me);",
    "rows of other lanes": "put<16>(me); rows(me);",
    "write after the warp's rows": "rows(me); put<16>(me ^ 1);",
    "write into own row after the warp read it": "rows(me); put<16>(me);",
    "rows of another warp": "put<16>(me); warp_barrier(); rows(me + 32);",
}
ORDERS = ["forward", "reverse", 11]


def entry(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)


KERNELS = HELPERS + "".join(CASE.format(name=entry(name), body=body) for name, body in (ORDERED | UNORDERED).items())


def fault(name: str, order, copies: str = "late", **options) -> str:
    memory = [np.zeros(1024, np.uint8)]
    try:
        execute(KERNELS, memory, entry=entry(name), block=64, shared=1024, order=order, copies=copies, **options)
    except KernelFault as caught:
        return str(caught)
    return ""


def run_one(body: str, case: str = CASE, **options):
    text = HELPERS + case.format(name="test", body=body)
    execute(text, [np.zeros(1024, np.uint8)], block=64, shared=1024, **options)


@pytest.mark.parametrize("copies", ["late", "early"])
def test_ordered_accesses_raise_no_alarm(copies):
    for name, order in itertools.product(ORDERED, [*ORDERS, *range(20, 30)]):
        assert fault(name, order, copies) == "", (name, order)


@pytest.mark.parametrize("copies", ["late", "early"])
def test_unordered_accesses_are_a_race_in_every_order(copies):
    for name, order in itertools.product(UNORDERED, ORDERS):
        found = fault(name, order, copies)
        assert found.startswith("race: ") and "is not ordered with the" in found, (name, order, found)


def test_races_can_be_left_out():
    for name, order in itertools.product(UNORDERED, ORDERS):
        assert fault(name, order, races=False) == "", (name, order)


def test_a_race_names_both_sides():
    with pytest.raises(KernelFault) as caught:
        run_one("put<16>(me);\nif (me == 40) get<16>(3);", order="forward")
    assert caught.value.message.startswith("test, block 0, thread 40: the read at line ")
    assert "of shared byte 48 is not ordered with the write at line" in caught.value.message
    assert caught.value.message.endswith("by thread 3")


@pytest.mark.parametrize("access", ["get<4>(9, 12)", "get<16>(9)", "rows(me)"])
def test_reads_of_unwritten_memory(access):
    with pytest.raises(KernelFault, match="which nothing has written") as caught:
        run_one(f"{access};", CASE.replace("put<16>(me);", "if (me != 9) put<16>(me);"))
    assert caught.value.kind == "uninitialised"


def test_each_block_starts_with_unwritten_memory():
    """Its writes do not race with reads of the block before it."""
    run_one("get<4>(me);", grid=5)
    with pytest.raises(KernelFault, match="block 1"):
        run_one("get<4>(me);", CASE.replace("put<16>(me);", "if (block_index() == 0) put<16>(me);"), grid=2)


def test_random_orders_find_what_a_fixed_order_hides():
    """Without the detector a missing barrier shows in the result only where the threads run in an unlucky order."""
    kernel = """KERNEL(test, Params, 64, 0) {
        const int me = thread_index();
        Vec<4> v;
        v.set<int>(0, me);
        store_shared<4>(shared_base() + me * 4, v);
        store_global<4>(gptr<int>(params.p[0]) + me, load_shared<4>(shared_base() + (me & ~32) * 4), true);
    }"""
    wrong = []
    for order in ["forward", *range(12)]:
        result = np.zeros(64, np.int32)
        execute(kernel, [result], block=64, shared=256, order=order, races=False)
        wrong.append(not np.array_equal(result, np.arange(64) & ~32))
    assert not wrong[0] and any(wrong[1:])
