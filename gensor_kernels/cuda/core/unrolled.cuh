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
