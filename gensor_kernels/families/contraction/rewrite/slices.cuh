// Rows of A and columns of B as digits, which contraction_slice stores in the workspace.
//
// An element of a row is x = 2^e * F * 2^-62, where |x| < 2^e for the whole row, and F is an integer, truncated:
// elements within 2^10 of the largest are exact. F = sum over s = 1 .. SLICES of q_s * 128^(SLICES - s); digits q_s are
// -64 to 64. The last slice contains leading bits, floor(|x| * 2^(7 - e)). The layout is [batch entry][slice][row]
// [pitch], where zeros pad k to whole vectors: first A's rows, then B's columns, then all e.
#pragma once
#include "contraction.cuh"

constexpr int SLICES = 9, WRITTEN_SLICES = SLICES + 1; // the last one contains leading bits
constexpr int SLICE_BITS = 7, FRACTION_BITS = 62, LEADING_SHIFT = FRACTION_BITS - SLICE_BITS;
// The longest k whose sums of SLICES products of digits of at most 64 fit 32 bits.
constexpr int MOST_K = 2147483647 / (SLICES * 64 * 64);
// Stored instead of e for a row of zeros, and for one with an infinity or NaN.
constexpr i32 EMPTY = -(1 << 20), UNBOUNDED = 1 << 20;
constexpr u64 MAGNITUDE_BITS = 0x7fffffffffffffffull, FRACTION_MASK = 0xfffffffffffffull;

DEVICE i32 slice_pitch(const Params &params) {
    return (params.k + 15) / 16 * 16;
}
// The first slice of a batch entry's rows of A, or columns of B.
DEVICE gptr<i8> slices_of(const Params &params, bool of_b, i32 entry) {
    const i64 line_bytes = (i64)WRITTEN_SLICES * slice_pitch(params);
    const i64 lines = of_b ? (i64)params.batch * params.m + (i64)entry * params.n : (i64)entry * params.m;
    return gptr<i8>(params.workspace) + lines * line_bytes;
}
DEVICE gptr<i32> exponents_of(const Params &params, bool of_b, i32 entry) {
    const i64 lines = (i64)params.batch * ((i64)params.m + params.n);
    const gptr<i8> slices_end = gptr<i8>(params.workspace) + lines * WRITTEN_SLICES * slice_pitch(params);
    return slices_end.as<i32>() + (of_b ? (i64)params.batch * params.m + (i64)entry * params.n : (i64)entry * params.m);
}

// Converts an element to F; `largest` is the biased exponent of the row's largest element.
DEVICE i64 fixed_point(u64 bits, i32 largest) {
    const i32 stored = (i32)(bits >> 52 & 0x7ff), exponent = stored > 0 ? stored : 1;
    const u64 fraction = (bits & FRACTION_MASK) | (stored > 0 ? FRACTION_MASK + 1 : 0);
    const i32 shift = exponent - largest + FRACTION_BITS - 53;
    const u64 size = shift >= 0 ? fraction << shift : shift > -64 ? fraction >> -shift : 0;
    return bits >> 63 ? -(i64)size : (i64)size;
}

// Adds the element at one of four positions to the words of all slices.
DEVICE void add_digits(u32 (&words)[WRITTEN_SLICES], i64 value, int position) {
    constexpr u64 HALVES = 0x0081020408102040ull; // 64 in every digit except the first: digits become -64 .. 63
    const u64 raised = (u64)value + HALVES;
    UNROLL for (int s = 0; s < SLICES; ++s) {
        const u64 above = raised >> (SLICE_BITS * (SLICES - 1 - s));
        const i32 digit = s == 0 ? (i32)(i8)(u8)above : (i32)(above & 127) - 64;
        words[s] |= ((u32)digit & 255) << (8 * position);
    }
    const u64 size = (u64)(value < 0 ? -value : value);
    words[SLICES] |= (u32)(size >> LEADING_SHIFT) << (8 * position);
}

constexpr int SLICE_THREADS = 256, BLOCK_LINES = SLICE_THREADS / 32, LANE_ELEMENTS = 4;

// A row of A or a column of B in the operand.
struct Line {
    gptr<double> from;
    i64 step; // stride along k
    i32 extent;

    MEMBER u64 bits(i32 k, bool exists) const {
        return load_global<8>(from + k * step, exists && within(k, extent)).template get<u64>(0);
    }
};

// One warp per row or column finds its largest exponent, then stores its digits, of four k per lane.
// Grid: ceil(batch * (m + n) / 8) blocks of 256 threads, no shared memory.
KERNEL(contraction_slice, Params, SLICE_THREADS, 0) {
    launch_dependents();
    const int lane = thread_index() & 31;
    const i64 rows = (i64)params.batch * params.m, number = (i64)block_index() * BLOCK_LINES + (thread_index() >> 5);
    const bool of_b = number >= rows, exists = within(number, rows + (i64)params.batch * params.n);
    const i32 extent = of_b ? params.n : params.m;
    const i64 index = exists ? number - (of_b ? rows : 0) : 0;
    const i32 entry = (i32)(index / extent), line = (i32)(index % extent);
    const Batch batch = split_batch(params, entry);
    const i64 from_a = batch_offset(params.a_batch, batch) + line * params.a_m;
    const i64 from_b = batch_offset(params.b_batch, batch) + line * params.b_n;
    const Line source = {of_b ? gptr<double>(params.b) + from_b : gptr<double>(params.a) + from_a,
                         of_b ? params.b_k : params.a_k, params.k};
    u64 largest = 0;
    ROLLED for (i32 k = lane; k < params.k; k += 32) {
        const u64 size = source.bits(k, exists) & MAGNITUDE_BITS;
        largest = size > largest ? size : largest;
    }
    UNROLL for (int mask = 1; mask < 32; mask *= 2) {
        const u64 other = shuffle_xor(largest, mask);
        largest = other > largest ? other : largest;
    }
    const i32 top = (i32)(largest >> 52), exponent = top > 0 ? top : 1;
    Vec<4> stored;
    stored.set(0, largest == 0 ? EMPTY : top == 0x7ff ? UNBOUNDED : exponent - 1022);
    store_global<4>(exponents_of(params, of_b, entry) + line, stored, exists && lane == 0);
    cover("slice");
    const i32 pitch = slice_pitch(params);
    const gptr<i8> to = slices_of(params, of_b, entry) + (i64)line * pitch;
    ROLLED for (i32 first = lane * LANE_ELEMENTS; within(first, pitch); first += 32 * LANE_ELEMENTS) {
        u32 words[WRITTEN_SLICES] = {};
        UNROLL for (int i = 0; i < LANE_ELEMENTS; ++i)
            add_digits(words, fixed_point(source.bits(first + i, exists && top < 0x7ff), exponent), i);
        UNROLL for (int s = 0; s < WRITTEN_SLICES; ++s) {
            Vec<4> word;
            word.set(0, words[s]);
            store_global<4>(to + ((i64)s * extent * pitch + first), word, exists);
        }
    }
}
