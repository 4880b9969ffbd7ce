// A ring of STAGES shared buffers between the thread that requests tensor copies and the warpgroups that multiply.
// Shared memory starts with a full and an empty mbarrier per buffer, alternately.
#pragma once
#include "hopper.cuh"
#include "params.cuh"

DEVICE sptr<u64> full(int slot) {
    return shared_base().as<u64>() + 2 * slot;
}
DEVICE sptr<u64> empty(int slot) {
    return shared_base().as<u64>() + (2 * slot + 1);
}

// A buffer of the ring, and the parity of the current phases of its mbarriers.
struct Turn {
    int slot = 0;
    u32 parity = 0;
    MEMBER void next() {
        if (++slot == STAGES)
            slot = 0, parity ^= 1;
    }
    MEMBER void skip(int steps) {
        const int at = slot + steps;
        parity ^= (u32)(at / STAGES) & 1;
        slot = at % STAGES;
    }
};

// The descriptor of the tile `bytes` after a tile: descriptors count addresses in units of 16 bytes.
DEVICE u64 further(u64 descriptor, int bytes) {
    return descriptor + (u64)(bytes >> 4);
}

// max(count, 0): the last parts of a split may begin after the end of k, and Turn::skip needs a count of at least 0.
DEVICE i32 at_least_none(i32 count) {
    return count > 0 ? count : 0;
}

// Coordinates of an operand's first tile: along the axis of unit stride, along the other axis, and of the batch entry,
// where an axis of stride 0 has one entry only.
DEVICE void locate_tile(i32 (&at)[5], bool k_contiguous, i32 first, i32 k, const Batch &batch, const i64 (&stride)[3]) {
    at[0] = k_contiguous ? k : first;
    at[1] = k_contiguous ? first : k;
    UNROLL for (int i = 0; i < 3; ++i) at[2 + i] = stride[2 - i] == 0 ? 0 : batch.index[2 - i];
}
