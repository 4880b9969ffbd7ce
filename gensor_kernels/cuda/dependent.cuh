// Programmatic dependent launch (sm_90): a launch that starts while the one in front of it drains. As in intrinsics.cuh
// both functions have two bodies; the models are in the emulator's gensor_emulator_dependent.h.
//
//   grid_dependency_wait()   until the launch in front is complete and all that it wrote is visible. Every thread calls
//                            it, before anything that touches global memory: see docs/reliability.md. Nothing where the
//                            launch is an ordinary one, and before sm_90
//   launch_dependents()      the launch behind may start once every block has come here or ended: a hint. What this
//                            launch writes is seen behind the wait, wherever this stands
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
#else
#include <gensor_emulator_dependent.h>
#endif
