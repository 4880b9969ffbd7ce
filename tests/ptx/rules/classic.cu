// Two kernels per rule of sm_80 and later: `_wrong` breaks the rule, and `_right` is the same kernel without the fault.
//
// `a` contains 8 KiB of numbers, each thread stores 16 bytes to `c`, and the workspace contains zeros at first.
#include "rules.cuh"

// ---- Addresses (PTX ISA 6.4.1, 9.7.9.8 to 9.7.9.11)

RULE(global_alignment, 32, "misaligned", "misaligned") {
    finish(params, load_global<16>(given(params, thread_index() * 16 + (WRONG ? 4 : 0)), true));
}
RULE(shared_alignment, 32, "misaligned", "misaligned") {
    store_shared(slot(thread_index()), word(params));
    warp_barrier();
    const Vec<8> half = load_shared<8>(slot(thread_index()) + (WRONG ? 4 : 8));
    store_global(gptr<u8>(params.c) + thread_index() * 8, half, true);
}
RULE(extent_of_an_operand, 32, "out_of_bounds", "out_of_bounds") {
    const Vec<16> last = load_global<16>(given(params, GIVEN - 16 + (WRONG ? 16 : 0)), thread_index() == 31);
    finish(params, last);
}
RULE(operand_is_read_only, 32, "out_of_bounds", "out_of_bounds") {
    store_global(gptr<u8>(WRONG ? params.a : params.c) + thread_index() * 16, word(params), true);
}
RULE(extent_of_shared_memory, 32, "out_of_bounds", "out_of_bounds") {
    const sptr<u8> last = shared_base() + (SHARED - 512 + (WRONG ? 16 : 0) + thread_index() * 16);
    store_shared(last, word(params));
    finish(params, load_shared<16>(last));
}
RULE(written_before_it_is_read, 32, "uninitialised", "uninitialised") {
    if (!WRONG)
        store_shared(slot(thread_index()), word(params));
    finish(params, load_shared<16>(slot(thread_index())));
}

// ---- Instructions of a whole warp: .sync and .aligned (9.7.9.6, 9.7.13.1, 9.7.14.5)

RULE(rows_of_ldmatrix, 32, "misaligned", "misaligned") {
    u32 r[4];
    store_shared(slot(thread_index()), word(params));
    store_shared(slot(thread_index() + 32), word(params));
    warp_barrier();
    load_matrix<4, false>(r, slot(thread_index()) + (WRONG ? 8 : 0));
    finish(params, r);
}
RULE(aligned_ldmatrix, 32, "divergent|deadlock", "divergent") {
    u32 r[4] = {};
    store_shared(slot(thread_index()), word(params));
    warp_barrier();
    if (!WRONG || within(thread_index(), 16))
        load_matrix<4, false>(r, slot(thread_index()));
    finish(params, r);
}
RULE(aligned_mma, 32, "divergent|deadlock", "divergent") {
    float d[4] = {};
    const Vec<16> x = word(params);
    const u32 a[4] = {x.word[0], x.word[1], x.word[2], x.word[3]}, b[2] = {x.word[0], x.word[1]};
    if (!WRONG || within(thread_index(), 16))
        mma_m16n8k16(d, a, b, half_t{});
    finish(params, d);
}
RULE(members_of_a_shuffle, 32, "divergent", "divergent") {
    u32 x = word(params).word[0];
    if (!WRONG || within(thread_index(), 16))
        x = shuffle_xor(x, 1);
    warp_barrier();
    finish(params, x);
}
RULE(lanes_that_a_shuffle_reads, 32, "divergent|deadlock", "invalid") {
    if (WRONG && !within(thread_index(), 16))
        return;
    finish(params, shuffle_xor(word(params).word[0], 16));
}
RULE(aligned_barrier, 32, "divergent", "divergent") {
    if (!WRONG || within(thread_index(), 16))
        barrier();
    warp_barrier();
    finish(params, word(params));
}

// ---- Asynchronous copies (9.7.9.25)

DEVICE void copy(const Params &params, int to, int from) {
    copy_async<16>(slot(to), given(params, from * 16), true);
}
RULE(source_alignment_of_a_copy, 32, "misaligned", "misaligned") {
    copy_async<16>(slot(thread_index()), given(params, thread_index() * 16 + (WRONG ? 8 : 0)), true);
    copy_async_commit();
    copy_async_wait<0>();
    finish(params, load_shared<16>(slot(thread_index())));
}
RULE(target_alignment_of_a_copy, 32, "misaligned", "misaligned") {
    const sptr<u8> to = slot(2 * thread_index()) + (WRONG ? 4 : 8);
    copy_async<8>(to, given(params, thread_index() * 8), true);
    copy_async_commit();
    copy_async_wait<0>();
    store_global(gptr<u8>(params.c) + thread_index() * 8, load_shared<8>(to), true);
}
RULE(waits_for_a_copy, 32, "race", "race") {
    copy(params, thread_index(), thread_index());
    copy_async_commit();
    copy_async_wait<WRONG ? 1 : 0>();
    finish(params, load_shared<16>(slot(thread_index())));
}
RULE(groups_of_copies, 32, "race", "race") {
    copy(params, thread_index(), thread_index());
    if (!WRONG)
        copy_async_commit();
    copy_async_wait<0>();
    finish(params, load_shared<16>(slot(thread_index())));
}
RULE(copies_of_a_group, 32, "race", "race") {
    copy(params, thread_index(), thread_index());
    copy(params, thread_index() + (WRONG ? 0 : 32), thread_index() + 32);
    copy_async_commit();
    copy_async_wait<0>();
    finish(params, load_shared<16>(slot(thread_index())));
}
RULE(source_of_a_copy, 32, "race", "race") {
    const gptr<u8> from = gptr<u8>(params.workspace) + thread_index() * 16;
    copy_async<16>(slot(thread_index()), from, true);
    copy_async_commit();
    if (WRONG)
        store_global(from, word(params), true);
    copy_async_wait<0>();
    if (!WRONG)
        store_global(from, word(params), true);
    finish(params, load_shared<16>(slot(thread_index())));
}

// ---- Order (8.9, 8.10; 9.7.13.1, 9.7.13.2)

RULE(order_of_lanes, 32, "race|uninitialised", "race|uninitialised") {
    store_shared(slot(thread_index()), word(params));
    if (!WRONG)
        warp_barrier();
    finish(params, load_shared<16>(slot(thread_index() ^ 1)));
}
RULE(order_of_warps, 64, "race|uninitialised", "race|uninitialised") {
    store_shared(slot(thread_index()), word(params));
    if (WRONG)
        warp_barrier();
    else
        barrier();
    finish(params, load_shared<16>(slot(thread_index() ^ 32)));
}
RULE(order_of_a_copy, 64, "race", "race") {
    copy(params, thread_index(), thread_index());
    copy_async_commit();
    if (WRONG)
        barrier();
    copy_async_wait<0>();
    if (!WRONG)
        barrier();
    finish(params, load_shared<16>(slot(thread_index() ^ 32)));
}
// Of two blocks that are resident together, the first one stores and the second one reads after a flag.
RULE(release_of_a_flag, 32, "race|uninitialised", "race", blocks = 2) {
    const gptr<u8> data = gptr<u8>(params.workspace) + (64 + thread_index() * 16);
    if (block_index() == 0) {
        if (WRONG && thread_index() == 0)
            give_flag(gptr<u64>(params.workspace), 1);
        store_global(data, word(params), true);
        barrier();
        if (!WRONG && thread_index() == 0)
            give_flag(gptr<u64>(params.workspace), 1);
    } else {
        if (thread_index() == 0)
            take_flag(gptr<u64>(params.workspace), 1);
        barrier();
        finish(params, load_written<16>(data));
    }
}
RULE(flag_that_nobody_gives, 32, "deadlock", "deadlock") {
    if (thread_index() == 0) {
        if (!WRONG)
            give_flag(gptr<u64>(params.workspace), 1);
        take_flag(gptr<u64>(params.workspace), 1);
    }
    finish(params, word(params));
}
RULE(read_only_path, 32, "race", "noncoherent") {
    const gptr<u8> data = gptr<u8>(params.workspace) + thread_index() * 16;
    store_global(data, word(params), true);
    finish(params, WRONG ? load_global<16>(data, true) : load_written<16>(data));
}

// ---- Launches that depend on the previous launch (9.7.13.13)

KERNEL(in_front, Params, 32, 0) {
    const gptr<u8> data = gptr<u8>(params.workspace) + thread_index() * 16;
    copy_async<16>(slot(thread_index()), data, true); // loads the old contents into a cache
    copy_async_commit();
    copy_async_wait<0>();
    Vec<16> sum = word(params);
    sum.word[0] += load_shared<16>(slot(thread_index())).word[0];
    launch_dependents();
    store_global(data, sum, true);
}
RULE(waits_for_the_launch_in_front, 32, "race", "dependent", front = 1) {
    if (!WRONG)
        grid_dependency_wait();
    finish(params, load_finished<16>(gptr<u8>(params.workspace) + thread_index() * 16, true));
    if (WRONG)
        grid_dependency_wait();
}
RULE(sectors_of_the_launch_in_front, 32, "race", "unseen", front = 1) {
    grid_dependency_wait();
    const gptr<u8> data = gptr<u8>(params.workspace) + thread_index() * 16;
    finish(params, WRONG ? load_global<16>(data, true) : load_finished<16>(data, true));
}

// Not a rule: a copy that reads nothing needs no aligned source (6.4.1 requires alignment of the accessed bytes).
KERNEL(copies_nothing_right, Params, 32, 0) {
    copy_async<16>(slot(thread_index()), given(params, 8), false);
    copy_async_commit();
    copy_async_wait<0>();
    finish(params, load_shared<16>(slot(thread_index())));
}
