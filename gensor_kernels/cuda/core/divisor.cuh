// Division of a number below 2^31 by a divisor that the host knows: a multiplication and a shift (Granlund and
// Montgomery, "Division by invariant integers using multiplication", PLDI 1994). A division by another number takes
// about 20 instructions, a reciprocal among them.
#pragma once
#include "types.cuh"

struct Divided {
    u32 quotient, rest;
};
DEVICE Divided divided(u32 value, u32 by) {
    return Divided{value / by, value % by};
}

struct Divisor {           // of d, by programs/core/divisors.py:
    u32 multiplier, shift; // ceil(2^(31 + shift) / d), ceil(log2(d))
};
static_assert(sizeof(Divisor) == 8, "A Divisor is packed by Python as two 32-bit numbers.");

// `by` is d.
DEVICE Divided divided(u32 value, u32 by, const Divisor &divisor) {
    const u32 quotient = (u32)((u64)(value << 1) * divisor.multiplier >> 32) >> divisor.shift;
    return Divided{quotient, value - quotient * by};
}
