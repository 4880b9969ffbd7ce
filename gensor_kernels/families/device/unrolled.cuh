// Loops that are unrolled while templates are instantiated.
#pragma once
#include "types.cuh"

// body(0), ... body(COUNT - 1). For outer loops around much code: UNROLL loops are unrolled late, inner ones first, and
// a nest of them can cost the compiler most of its time; the code is the same.
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

// body(index), with a constant in the place of an index that is known at run time, FIRST to LAST - 1: each takes its
// own registers then. Halves are branches: asked one after the other, every index would be a select per register.
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
