// The filters of a block in the order in which the strip family walks k: [octet][filter][8 positions].
#pragma once
#include "strip_tile.cuh"

// A padding of 16 bytes after each octet's filters makes writes of neighbours along k hit different banks.
constexpr int OCTET_BYTES = BLOCK_F * 16 + 16, FILTER_BYTES = 2 * K_STEPS * OCTET_BYTES;
// Filters that a warp arranges, and those that it loads at once.
constexpr int OF_WARP = divide_up(BLOCK_F, WARPS), AT_ONCE = minimum(OF_WARP, 16);

// Arranges the filters from number `filter` on. Positions outside segments hold ones: only the masks keep them out of
// the sums, so a wrong mask changes results.
DEVICE void arrange_filters(const Params &params, const Strip &strip, i32 filter, sptr<u8> arranged) {
    Vec<16> ones;
    UNROLL for (int i = 0; i < 4; ++i) ones.word[i] = pack_pair(1.0f, 1.0f, IN_TYPE{});
    ROLLED for (i32 chunk = thread_index(); within(chunk, FILTER_BYTES / 16); chunk += THREADS)
        store_shared(arranged + chunk * 16, ones);
    barrier();
    const i64 filter_stride = PIXEL_ROWS ? params.b_n : params.a_m, k_stride = PIXEL_ROWS ? params.b_k : params.a_k;
    const gptr<IN_TYPE> source = gptr<IN_TYPE>(PIXEL_ROWS ? params.b : params.a) + filter * filter_stride;
    const i32 filters = (PIXEL_ROWS ? params.n : params.m) - filter, warp = thread_index() >> 5;
    ROLLED for (i32 k = thread_index() & 31; within(k, params.k); k += 32) {
        const i32 segment = k / strip.segment, position = k % strip.segment + strip.lead;
        const i32 line = segment % WINDOW_ROWS * PLANES + segment / WINDOW_ROWS;
        const sptr<u8> to = arranged + ((line * OCTETS + position / EIGHT) * OCTET_BYTES + position % EIGHT * ELEMENT);
        const gptr<IN_TYPE> from = source + (k * k_stride + warp * filter_stride);
        ROLLED for (i32 f = 0; f < OF_WARP; f += AT_ONCE) {
            Vec<ELEMENT> elements[AT_ONCE];
            UNROLL for (int i = 0; i < AT_ONCE; ++i) elements[i] =
                load_global<ELEMENT>(from + (f + i) * WARPS * filter_stride, within(warp + (f + i) * WARPS, filters));
            UNROLL for (int i = 0; i < AT_ONCE; ++i) {
                const i32 index = warp + (f + i) * WARPS;
                if (within(index, BLOCK_F))
                    store_shared(to + (PIXEL_ROWS ? fragment_column_of(index) : index) * 16, elements[i]);
            }
        }
    }
}

// Fragments of 16 filters x 16 positions.
struct FilterFragments {
    sptr<u8> base; // address of the matrix row that this lane provides to ldmatrix

    MEMBER FilterFragments(sptr<u8> arranged, int first) {
        const int lane = thread_index() & 31;
        // The matrices alternate filters first for rows of fragments and octets first for columns, in the order of mma.
        const int octet = OUTPUTS_DOWN ? lane >> 3 & 1 : lane >> 4;
        const int filter = OUTPUTS_DOWN ? (lane & 7) + (lane >> 4) * 8 : lane & 15;
        base = arranged + (octet * OCTET_BYTES + (first + filter) * 16);
    }
    MEMBER void load(u32 (&words)[WARP_F / 16][4], int step) const {
        UNROLL for (int i = 0; i < WARP_F / 16; ++i)
            load_matrix<4, false>(words[i], base + (2 * step * OCTET_BYTES + i * 256));
    }
};
