"""Flags between blocks: what orders one block's stores before another one's loads, and what does not."""

import numpy as np
import pytest

from gensor_kernels.devices.emulator import KernelFault
from tests.doubles.emulated_kernels import execute

# Two blocks of 64 threads at the same time. `left` is where block 0 leaves 16 bytes per thread.
PREAMBLE = """
constexpr u64 MARK = 0x1234567890abcdef;
DEVICE gptr<u64> flag(const Params &p, int i = 0) { return gptr<u64>(p.p[0]) + i; }
DEVICE gptr<u8> left(const Params &p, int thread) { return gptr<u8>(p.p[0]) + (64 + (thread & 63) * 16); }
DEVICE void leave(const Params &p, int thread) {
    Vec<16> v;
    for (int i = 0; i < 4; ++i) v.set(i, (u32)thread);
    store_global(left(p, thread), v, true);
}
DEVICE void give(const Params &p) { if (thread_index() == 0) give_flag(flag(p), MARK); }
DEVICE void take(const Params &p) { if (thread_index() == 0) take_flag(flag(p), MARK); }
DEVICE void fetch(const Params &p, int thread) {
    Vec<4> v;
    v.set(0, load_written<16>(left(p, thread)).template get<u32>(0));
    store_global(gptr<u32>(p.p[1]) + thread_index(), v, true);
}
KERNEL(test, Params, 64, 0) {
    const Params &p = params;
    const int me = thread_index();
    switch (p.mode * 2 + block_index()) {
"""
GIVES, TAKES = "leave(p, me); barrier(); give(p);", "take(p); barrier(); fetch(p, me ^ 33);"

ORDERED = {
    "a barrier on either side": (GIVES, TAKES),
    "the giver's own store": ("if (me == 0) { leave(p, 0); } give(p);", "take(p); barrier(); fetch(p, 0);"),
    "the taker himself": (GIVES, "take(p); if (me == 0) fetch(p, 7);"),
}
UNORDERED = {
    "no flag": ("leave(p, me); barrier();", "fetch(p, me ^ 33);"),
    "no barrier in front of the flag": ("leave(p, me); give(p);", TAKES),
    "no barrier behind the flag": (GIVES, "take(p); fetch(p, me ^ 33);"),
    "stores behind the flag": ("barrier(); give(p); leave(p, me);", TAKES),
    "a flag that is stored as anything else": (
        "leave(p, me); barrier(); Vec<8> v; v.set(0, MARK); store_global(flag(p), v, me == 0);",
        TAKES,
    ),
    "a read-only load": (GIVES, "take(p); barrier(); load_global<16>(left(p, me), true);"),
    "another flag": (GIVES.replace("give(p)", "if (me == 0) give_flag(flag(p, 1), MARK)"), TAKES),
    "a flag that nobody gives": ("leave(p, me);", TAKES),
    "a flag given twice": ("leave(p, me); barrier(); give(p); give(p);", ""),
}
CASES = ORDERED | UNORDERED
BODIES = [body for case in CASES.values() for body in case]
KERNEL = PREAMBLE + "".join(f"case {i}: {{ {body} }} break;\n" for i, body in enumerate(BODIES)) + "}\n}\n"
ORDERS = ["forward", "reverse", *range(10, 16)]


def run_case(name: str, order: str | int) -> np.ndarray:
    memory, found = np.full(256, 0x55555555_55555555, np.uint64), np.zeros(64, np.uint32)
    mode = list(CASES).index(name)
    execute(KERNEL, [memory, found], mode=mode, grid=2, block=64, order=order, writable=2, resident=2)
    assert memory[0] != 0x1234567890ABCDEF  # it was cleared
    return found


@pytest.mark.parametrize("name", ORDERED)
def test_what_flags_order_raises_no_alarm(name):
    """No other assertion than that of `run_case` is needed: the emulator raises KernelFault where it finds a race."""
    for order in ORDERS:
        run_case(name, order)


@pytest.mark.parametrize("name", UNORDERED)
def test_what_flags_do_not_order_is_caught_in_every_order(name):
    for order in ORDERS:
        with pytest.raises(KernelFault) as caught:
            run_case(name, order)
        assert caught.value.kind in {"race", "uninitialised", "deadlock", "invalid"}


def test_what_was_left_arrives():
    for order in ORDERS:
        np.testing.assert_array_equal(run_case("a barrier on either side", order), np.arange(64) ^ 33)
