// A ring of STAGES shared buffers between the thread that requests tensor copies and the warpgroups that multiply: a
// full and an empty mbarrier for each buffer, in turns from the start of shared memory on.
#pragma once
#include "hopper.cuh"

DEVICE sptr<u64> full(int slot) {
    return shared_base().as<u64>() + 2 * slot;
}
DEVICE sptr<u64> empty(int slot) {
    return shared_base().as<u64>() + (2 * slot + 1);
}

// A place in the ring, and the parity of the phases in which its mbarriers are there now.
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

// The descriptor of a tile some bytes further on: they count its address in 16 bytes.
DEVICE u64 further(u64 descriptor, int bytes) {
    return descriptor + (u64)(bytes >> 4);
}

// The last parts of a split may begin behind the end of k. Turns are skipped by counts: they must not be negative.
DEVICE i32 at_least_none(i32 count) {
    return count > 0 ? count : 0;
}
