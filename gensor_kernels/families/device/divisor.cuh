// Division of a number below 2^31 by a divisor that the host knows, by a multiplication and a shift (Granlund and
// Montgomery, "Division by invariant integers using multiplication", PLDI 1994). An ordinary integer division takes
// about 20 instructions, one of which is a reciprocal.
#pragma once
#include "types.cuh"

struct Divided {
    u32 quotient, rest;
};

struct Divisor { // packed by core/divisors.py
    u32 number;
    u32 multiplier, shift; // ceil(2^(31 + shift) / number), ceil(log2(number))
};
static_assert(sizeof(Divisor) == 12, "A Divisor is packed by Python as three 32-bit numbers.");

DEVICE Divided divided(u32 value, const Divisor &by) {
    const u32 quotient = (u32)((u64)(value << 1) * by.multiplier >> 32) >> by.shift;
    return Divided{quotient, value - quotient * by.number};
}
