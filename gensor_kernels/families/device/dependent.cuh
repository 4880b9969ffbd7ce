// Programmatic dependent launch (sm_90): a launch starts while the previous launch of the stream drains. As in
// intrinsics.cuh, every function has two bodies; the models are in the emulator's gensor_emulator_dependent.h.
//
//   grid_dependency_wait()   waits until the previous launch is complete and its writes are visible. Every thread calls
//                            it before it accesses global memory: see docs/reliability.md. It does nothing in an
//                            ordinary launch, and before sm_90
//   launch_dependents()      a hint: the next launch may start once every block has called this or has ended. The next
//                            launch sees this launch's writes after its wait, wherever this call is
//   load_finished<BYTES>(gptr, predicate) -> Vec   loads what previous launches have stored, zeros where the predicate
//                            is false; BYTES 4, 8, 16. The load bypasses the L1, which may hold the sector from before
//                            the store, and the read-only path, which needs data that no launch writes meanwhile
#pragma once
#include "intrinsics.cuh"

#ifdef __CUDACC__
DEVICE void grid_dependency_wait() {
    if constexpr (ARCH >= 900)
        asm volatile("griddepcontrol.wait;" ::: "memory");
}
DEVICE void launch_dependents() {
    if constexpr (ARCH >= 900)
        asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
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
