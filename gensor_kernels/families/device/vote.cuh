// An intrinsic for branches that all threads of a block take together. As in intrinsics.cuh, it has two bodies; the
// model is in the emulator's gensor_emulator_vote.h.
//
//   barrier_any(bool) -> bool    a barrier() that returns whether any thread of the block passed true
#pragma once
#include "intrinsics.cuh"

#ifdef __CUDACC__
DEVICE bool barrier_any(bool value) {
    return __syncthreads_or(value);
}
#else
#include <gensor_emulator_vote.h>
#endif
