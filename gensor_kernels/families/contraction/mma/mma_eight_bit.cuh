// Products of 8-bit floats without widening them (INSTRUCTION 9).
//
// The tensor core keeps only 14 bits of such a sum. After at most PROMOTED steps of k (128 products), the short sums
// are therefore added to float sums in separate registers.
#pragma once
#include "mma_scales.cuh"

#if INSTRUCTION == 9

struct LongSums {
    static constexpr int PROMOTED = minimum(4, K_STEPS);
    Accumulators totals[MATRICES];

    MEMBER LongSums() : totals{} {}

    // Adds the short sums to the totals, if step `k` of a stage is the last of PROMOTED ones.
    MEMBER void promote(Accumulators (&sums)[MATRICES], int k) {
        if ((k + 1) % PROMOTED != 0)
            return;
        for_each([&](int x, int i, int j, int r) {
            totals[x][i][j][r] = totals[x][i][j][r] + sums[x][i][j][r];
            sums[x][i][j][r] = 0.0f;
        });
    }
    MEMBER void finish(Accumulators (&sums)[MATRICES]) const {
        for_each([&](int x, int i, int j, int r) { sums[x][i][j][r] = totals[x][i][j][r]; });
    }
    template <class Visit>
    static MEMBER void for_each(const Visit &visit) {
        UNROLL for (int x = 0; x < MATRICES; ++x) UNROLL for (int i = 0; i < FRAGMENTS_M; ++i)
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int r = 0; r < 4; ++r) visit(x, i, j, r);
    }
};
#else
struct LongSums {
    MEMBER void promote(Accumulators (&)[MATRICES], int) {}
    MEMBER void finish(Accumulators (&)[MATRICES]) const {}
};
#endif
