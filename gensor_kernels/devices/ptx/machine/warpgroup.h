// Products of warpgroups (wgmma; PTX ISA 8.x, chapter 9.7.15): their state in threads and blocks. products.h executes
// them.
#pragma once
#include "numbers.h"
#include <vector>

enum Kind : u8 { F16, BF16, TF32, S8, U8, F64, E4M3, E5M2, F32, S32 };
struct Site;

struct Product { // a wgmma.mma_async: m64nNkK, its operands and their registers, of d first
    Kind d, a, b;
    u32 n, k;
    bool saturated, negated_a, negated_b, across_a, across_b; // across: M or N is contiguous, not K
    u32 sums, factors;                                        // registers of d and of a
    const u32 *offsets;                                       // of the registers in the thread's struct
    u32 sets, sets_of_sums;                                   // of registers that the same products use
    const u32 *set;                                           // their numbers
};

// Such a set in a thread: the number of the thread's wgmma.fences at the latest access by another instruction and at
// the latest access by a product; and the number of products in flight that use the set.
struct Watched {
    u32 touched = ~0u, used = ~0u, sums = 0, factors = 0;
    bool summed = false; // the latest product used it as d; else as a
    const Product *product = nullptr;
};

// An instruction that the warps of a warpgroup issue, one after the other.
struct Issue {
    const Site *site;
    u64 a = 0, b = 0;       // descriptors
    bool kept = false;      // scale-d
    u32 done = 0;           // warps whose rows are computed, a bit each
    std::vector<u32> tiles; // addresses of 16 bytes each: of A, then of B
    u32 operations[4] = {}; // in order.h, of each warp
};
struct Warpgroup {
    std::vector<Issue> issues;
    size_t place[4] = {}, released[4] = {}; // of each warp: how many it has issued, and waited for
    size_t complete = 0;
};
