// Attention: exponentials by polynomials.
//
// The special-function unit computes 16 exponentials per clock and multiprocessor, the multiply-add pipes 128 products.
// POLYNOMIALS eighths of the fragments of a step take the latter, as in FlashAttention-4: 2^x is 2^k, an addition to
// the exponent, times a polynomial of x - k, which is between -1/2 and 1/2 (Cody and Waite, "Software Manual for the
// Elementary Functions", 1980).
#pragma once
#include "attention_work.cuh"
#include "saturated.cuh"

// Whether the exponentials of fragment j are polynomials: evenly spread, of N fragments N * POLYNOMIALS / 8.
DEVICE constexpr bool by_polynomial(int j) {
    return (j + 1) * POLYNOMIALS / 8 > j * POLYNOMIALS / 8;
}

// The fragment whose weights have to be known before the polynomials of fragment j.
DEVICE constexpr int known_before(int j) {
    int i = j > 2 ? j - 2 : 0;
    while (i > 0 && by_polynomial(i))
        --i;
    return i;
}

// 2^(128 y - 127) for y from 0 to 1, where 0 results in 0. The relative error of results above 2^-126 is less than
// 3.1e-6 for half_t weights and 1.03e-4 for bfloat16_t, whose roundings change them by up to 4.9e-4 and 3.9e-3. The
// polynomials are those of least relative error that are 1 at 0, so that the largest score has the weight 1.
DEVICE float power_of(float y) {
    constexpr float SHIFT = 12582912.0f - 127.0f; // 1.5 * 2^23: a sum has its integer k - 127 in its last bits
    const float shifted = fma_(y, 128.0f, SHIFT), rest = fma_(y, 128.0f, SHIFT - shifted);
    float power;
    if constexpr (same_type<IN_TYPE, half_t>) {
        power = fma_(fma_(0.009585382f, rest, 0.055906627f), rest, 0.24024038f);
        power = fma_(fma_(power, rest, 0.6931242f), rest, 1.0f);
    } else {
        power = fma_(fma_(fma_(0.055008933f, rest, 0.24221097f), rest, 0.6932829f), rest, 1.0f);
    }
    return bit_cast<float>(bit_cast<u32>(power) + (bit_cast<u32>(shifted) << 23));
}

// The weights exp(x - top) of a row by polynomials, as weight_of. The argument of power_of saturates, which makes 0 of
// a weight of NaN: `top` is NaN if a score is, and rows whose largest score is infinite become NaN at their end.
struct RowPowers {
    float top, factor, term;
    MEMBER RowPowers(float top, float unit)
        : top(top), factor(unit * 0.0078125f), term(fma_(-top * unit, 0.0078125f, 0.9921875f)) {}
    // `before` is a weight, which has to be known: ptxas would compute all polynomials first, and the special-function
    // unit would wait for it.
    MEMBER float weight(float x, float before) const {
        const float own = fma_(before, 0.0f, MASK == MASK_ADDED ? 0.9921875f : term);
        return power_of(fma_saturated_(MASK == MASK_ADDED ? x - top : x, factor, own));
    }
};

// The larger score. A NaN has to reach the largest one, where some weights cannot be NaN.
DEVICE float larger_score(float a, float b) {
    return POLYNOMIALS ? max_(a, b) : maximum_(a, b);
}
