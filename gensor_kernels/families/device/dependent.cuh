// Programmatic dependent launch (sm_90): a launch that starts while the one in front of it drains. As in intrinsics.cuh
// all functions have two bodies; the models are in the emulator's gensor_emulator_dependent.h.
//
//   grid_dependency_wait()   until the launch in front is complete and all that it wrote is visible. Every thread calls
//                            it, before anything that touches global memory: see docs/reliability.md. Nothing where the
//                            launch is an ordinary one, and before sm_90
//   launch_dependents()      the launch behind may start once every block has come here or ended: a hint. What this
//                            launch writes is seen behind the wait, wherever this stands
//   load_finished<BYTES>(gptr, predicate) -> Vec   what launches in front have stored; zeros where the predicate is
//                            false; BYTES 4, 8, 16. It passes the L1, which may have held the same sector since before
//                            they stored it, and the read-only path, which is for what nobody writes meanwhile
#pragma once
#include "intrinsics.cuh"

#ifdef __CUDACC__
DEVICE void grid_dependency_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
template <int BYTES, class T>
DEVICE Vec<BYTES> load_finished(gptr<T> p, bool predicate) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "What was written is loaded in words.");
    Vec<BYTES> v = Vec<BYTES>::zero();
    if constexpr (BYTES == 16)
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0;\n  @p ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4]; }"
                     : "+r"(v.word[0]), "+r"(v.word[1]), "+r"(v.word[2]), "+r"(v.word[3])
                     : "l"(p.address), "r"((int)predicate));
    else if constexpr (BYTES == 8)
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0;\n  @p ld.global.cg.v2.u32 {%0, %1}, [%2]; }"
                     : "+r"(v.word[0]), "+r"(v.word[1])
                     : "l"(p.address), "r"((int)predicate));
    else
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n  @p ld.global.cg.u32 %0, [%1]; }"
                     : "+r"(v.word[0])
                     : "l"(p.address), "r"((int)predicate));
    return v;
}
#else
#include <gensor_emulator_dependent.h>
#endif
