// Sums of a tensor core as they were measured on V100 (Fasi, Higham, Mikaitis and Pranesh, PeerJ Comput. Sci. 7:e330,
// 2021): four products, which are exact, and the sum so far are aligned to the largest of them, cut below the 24 bits
// of a float there, added without error, normalised, and cut to a float. k has one such step for every four terms.
#pragma once
#include "numbers.h"

inline f32 truncated_step(const f64 (&terms)[5]) {
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
        total += (s64)std::ldexp(term, 23 - most); // towards zero
    const bool negative = total < 0;
    u64 size = (u64)(negative ? -total : total);
    int unit = most - 23;
    for (; size >> 24; size >>= 1)
        unit++;
    return (f32)std::ldexp(negative ? -(f64)size : (f64)size, unit);
}
inline f32 truncated_sum(const f64 *a, const f64 *b, int k, f32 c) {
    for (int j = 0; j < k; j += 4)
        c = truncated_step({a[j] * b[j], a[j + 1] * b[j + 1], a[j + 2] * b[j + 2], a[j + 3] * b[j + 3], (f64)c});
    return c;
}
