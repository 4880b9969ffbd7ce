// An operand that is read through a sliding window: the matrix of an implicit convolution, which is never stored.
//
// Its entries (rows of A, or columns of B) are positions (image, output row, output column), and its k is (row, column,
// channel) or (channel, row, column) of the filter. A thread reads a few entries at a few values of k in every step. It
// computes what depends on an entry once. It adds a constant to k after each step, digit by digit with carries, so that
// the main loop has no divisions.
#pragma once
#include "epilogue_operand.cuh"

enum WindowKind {
    WINDOW_NONE,
    WINDOW_CHANNELS_LAST,
    WINDOW_CHANNELS_FIRST,
    WINDOW_TRANSPOSED_LAST,
    WINDOW_TRANSPOSED_FIRST
};

struct Digits {
    i32 outer, middle, inner;

    // Returns the digits of `value`, of which the inner two have these extents.
    static MEMBER Digits of(i32 value, const i32 (&extent)[2]) {
        const u32 rest = (u32)value / (u32)extent[1];
        return Digits{(i32)(rest / (u32)extent[0]), (i32)(rest % (u32)extent[0]), (i32)((u32)value % (u32)extent[1])};
    }
    MEMBER void add(const Digits &other, const i32 (&extent)[2]) {
        inner += other.inner;
        const bool carry = !within(inner, extent[1]);
        inner -= carry ? extent[1] : 0;
        middle += other.middle + (carry ? 1 : 0);
        const bool twice = !within(middle, extent[0]);
        middle -= twice ? extent[0] : 0;
        outer += other.outer + (twice ? 1 : 0);
    }
};

// Returns a word with bits [from, to) set, where 0 <= from and to <= 31.
DEVICE u32 bit_range(i32 from, i32 to) {
    return to > from ? (1u << to) - (1u << from) : 0;
}

// Returns a bit for each tap of a filter along an axis: set if `first` + tap * dilation is outside the image.
DEVICE u32 taps_outside(i32 first, i32 dilation, i32 extent, i32 taps) {
    i32 from = first < 0 ? -first : 0, to = extent > first ? extent - first : 0;
    if (dilation > 1) {
        from = (i32)(((u32)from + (u32)dilation - 1) / (u32)dilation);
        to = (i32)(((u32)to + (u32)dilation - 1) / (u32)dilation);
    }
    return bit_range(0, taps) & ~bit_range(minimum(from, taps), minimum(to, taps));
}

// A thread's ENTRIES entries, which are ENTRY_PACE apart, and its KS values of k in each step of STEP values, which are
// K_PACE apart. BY_MASK: an entry keeps a bit for each row, then for each column of the filter that is outside the
// image (31 bits at most).
template <int KIND, int ENTRIES, int ENTRY_PACE, int KS, int K_PACE, int STEP, bool BY_MASK = false>
struct WindowWalk {
    static constexpr bool LAST = KIND == WINDOW_CHANNELS_LAST || KIND == WINDOW_TRANSPOSED_LAST;
    static constexpr bool DIVIDED = KIND == WINDOW_TRANSPOSED_LAST || KIND == WINDOW_TRANSPOSED_FIRST;
    static constexpr bool WHOLE = KS * K_PACE == STEP; // a thread's values of k are K_PACE apart from step to step

    static constexpr bool ENDS_KNOWN = !DIVIDED;    // `inside` is false for entries past the last one
    static constexpr i32 NOWHERE = -2147483647 - 1; // a row from which no tap reaches the image

    static_assert(!BY_MASK || !DIVIDED, "Where a transposed convolution reads is no range of taps.");

    gptr<IN_TYPE> operand;
    i64 offset[ENTRIES];
    i32 h[BY_MASK ? 1 : ENTRIES], w[BY_MASK ? 1 : ENTRIES];
    u32 outside[BY_MASK ? ENTRIES : 1];
    i32 rows; // of the filter
    Digits k, pace, step;

    // `from` points at element 0 of the batch entry. A filter has `depth` values of k, and there are `extent` entries.
    MEMBER WindowWalk(const Window &window, gptr<IN_TYPE> from, i32 first_entry, i32 first_k, i32 extent, i32 depth)
        : operand(from + -window.shift), rows(LAST ? depth / (window.ks[0] * window.ks[1]) : window.ks[0]) {
        UNROLL for (int e = 0; e < ENTRIES; ++e) {
            const Digits place = Digits::of(first_entry + e * ENTRY_PACE, window.rows);
            const i32 down = place.middle * window.step[0] - window.pad[0];
            const i32 right = place.inner * window.step[1] - window.pad[1];
            const bool ends = !within(first_entry + e * ENTRY_PACE, extent);
            if constexpr (BY_MASK) {
                outside[e] = taps_outside(down, window.dilation[0], window.extent[0], rows) |
                             taps_outside(right, window.dilation[1], window.extent[1], window.ks[LAST ? 0 : 1]) << rows;
                outside[e] = ends ? ~0u : outside[e];
            } else {
                h[e] = ENDS_KNOWN && ends ? NOWHERE : down, w[e] = right;
            }
            offset[e] = place.outer * window.row_stride[0];
            if (!DIVIDED)
                offset[e] += place.middle * window.row_stride[1] + place.inner * window.row_stride[2];
        }
        k = Digits::of(first_k, window.ks);
        pace = Digits::of(K_PACE, window.ks);
        step = Digits::of(STEP, window.ks);
    }

    // Calls visit(entry, number of the value of k, address, inside, channel) for the step's elements; `inside` says
    // whether the address is in the image.
    template <class Visit>
    MEMBER void for_each(const Window &window, const Visit &visit) {
        Digits at = k;
        UNROLL for (int c = 0; c < KS; ++c) {
            if (c > 0)
                at.add(pace, window.ks);
            const i32 r = LAST ? at.outer : at.middle, s = LAST ? at.middle : at.inner;
            const i32 down = r * window.dilation[0], right = s * window.dilation[1];
            const gptr<IN_TYPE> tap = operand + (at.outer * window.k_stride[0] + at.middle * window.k_stride[1] +
                                                 at.inner * window.k_stride[2]);
            UNROLL for (int e = 0; e < ENTRIES; ++e) {
                if constexpr (DIVIDED) {
                    const i32 y = h[e] + down, x = w[e] + right;
                    const u32 row = (u32)y / (u32)window.divisor[0], column = (u32)x / (u32)window.divisor[1];
                    const bool whole = (i32)row * window.divisor[0] == y && (i32)column * window.divisor[1] == x;
                    const bool inside = within(row, (u32)window.extent[0]) && within(column, (u32)window.extent[1]);
                    visit(e, c, tap + (offset[e] + row * window.row_stride[1] + column * window.row_stride[2]),
                          whole && inside, LAST ? at.inner : at.outer);
                } else if constexpr (BY_MASK) {
                    const u32 tap_bits = 1u << (r & 31) | 1u << ((rows + s) & 31); // past the end of k: any bits
                    visit(e, c, tap + offset[e], within(outside[e] & tap_bits, 1u), LAST ? at.inner : at.outer);
                } else {
                    // A negative index becomes a large unsigned number.
                    const bool inside = within((u32)(h[e] + down), (u32)window.extent[0]) &&
                                        within((u32)(w[e] + right), (u32)window.extent[1]);
                    visit(e, c, tap + offset[e], inside, LAST ? at.inner : at.outer);
                }
            }
        }
        if (WHOLE) {
            at.add(pace, window.ks);
            k = at;
        } else {
            k.add(step, window.ks);
        }
    }
};
