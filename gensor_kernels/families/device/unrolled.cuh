// Loops that are unrolled when templates are instantiated.
#pragma once
#include "types.cuh"

// Calls body(0), ... body(COUNT - 1): for outer loops around much code. The compiler unrolls UNROLL loops late, inner
// loops first, and can spend most of its time on a nest of them; the machine code is the same.
template <int COUNT, class Body>
DEVICE void unrolled(const Body &body) {
#ifdef __CUDACC__
    if constexpr (COUNT > 0) {
        unrolled<COUNT - 1>(body);
        body(COUNT - 1);
    }
#else
    for (int i = 0; i < COUNT; ++i) {
        body(i);
    }
#endif
}

// Calls body(index) for a run-time index from FIRST to LAST - 1, as a call with a constant, so that each index accesses
// its own registers. A binary search keeps branches: a linear search would become a select per index and register.
template <int LAST, int FIRST = 0, class Body>
DEVICE void at_constant(int index, const Body &body) {
    constexpr int MIDDLE = (FIRST + LAST) / 2;
    if constexpr (LAST - FIRST == 1)
        body(FIRST);
    else if (index < MIDDLE)
        at_constant<MIDDLE, FIRST>(index, body);
    else
        at_constant<LAST, MIDDLE>(index, body);
}
