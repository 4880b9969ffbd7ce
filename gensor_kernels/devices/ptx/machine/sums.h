// Truncated sums as in tensor cores, which `truncated` selects instead of exact ones; the emulator has the same.
#pragma once
#include "numbers.h"

// Exact products and the sum so far are aligned to the largest of them, truncated to its `bits` leading bits, added
// without error, normalised, and truncated to `bits` bits.
template <int COUNT>
inline f32 truncated_step(const f64 (&terms)[COUNT], int bits) {
    int most = std::numeric_limits<int>::min();
    f64 plain = 0;
    for (f64 term : terms) {
        plain += term;
        if (term != 0 && std::isfinite(term))
            most = std::max(most, std::ilogb(term));
    }
    if (!std::isfinite(plain) || most == std::numeric_limits<int>::min())
        return (f32)plain;
    s64 total = 0;
    for (f64 term : terms)
        total += (s64)std::ldexp(term, bits - 1 - most); // towards zero
    const bool negative = total < 0;
    u64 size = (u64)(negative ? -total : total);
    int unit = most - bits + 1;
    for (; size >> bits; size >>= 1)
        unit++;
    return (f32)std::ldexp(negative ? -(f64)size : (f64)size, unit);
}
// mma: four terms at a time, with the 24 bits of a float, as measured on V100 (Fasi, Higham, Mikaitis and Pranesh,
// PeerJ Comput. Sci. 7:e330, 2021).
inline f32 truncated_sum(const f64 *a, const f64 *b, int k, f32 c) {
    for (int j = 0; j < k; j += 4)
        c = truncated_step({a[j] * b[j], a[j + 1] * b[j + 1], a[j + 2] * b[j + 2], a[j + 3] * b[j + 3], (f64)c}, 24);
    return c;
}
// mma of 8-bit floats: all 32 terms at a time, with 14 bits, as in wgmma.
inline f32 truncated_bytes(const f64 *a, const f64 *b, f32 c) {
    f64 terms[33] = {c};
    for (int j = 0; j < 32; j++)
        terms[j + 1] = a[j] * b[j];
    return truncated_step(terms, 14);
}
// tcgen05.mma, four terms at a time with the 24 bits of a float.
template <class Term>
inline f32 tensor_sum(u32 k, f32 c, Term term) {
    for (u32 j = 0; j < k; j += 4)
        c = truncated_step({term(j), term(j + 1), term(j + 2), term(j + 3), (f64)c}, 24);
    return c;
}
// wgmma, whose factors are the columns of two arrays: of 8-bit floats 32 terms at a time, with 14 bits; other sums
// round each term.
template <class A, class B>
inline f32 group_sum(const A &a, u32 row, const B &b, u32 column, u32 k, bool bytes, f32 c) {
    if (!bytes) {
        for (u32 j = 0; j < k; j++)
            c = std::fma(a[j][row], b[j][column], c); // products are exact
        return c;
    }
    f64 terms[33] = {c};
    for (u32 j = 0; j < k; j++)
        terms[j + 1] = (f64)a[j][row] * b[j][column];
    return truncated_step(terms, 14);
}
