// Switching between fibers: saves the callee-saved registers on one stack and loads them from another.
// ucontext, the fallback, makes a system call for every switch and is several times slower.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_UCONTEXT 1
#endif

#ifdef EMULATOR_UCONTEXT
#include <ucontext.h>
namespace emulator {
// `save` and `load` hold ucontext_t objects allocated by prepare_stack and by the first switch away.
inline void switch_stack(void **save, void *load) {
    if (!*save)
        *save = calloc(1, sizeof(ucontext_t));
    swapcontext((ucontext_t *)*save, (ucontext_t *)load);
}
inline void *prepare_stack(char *base, size_t bytes, void (*entry)()) {
    ucontext_t *context = new (base) ucontext_t; // the context is at the far end of the stack
    getcontext(context);
    context->uc_stack.ss_sp = base + sizeof(ucontext_t);
    context->uc_stack.ss_size = bytes - sizeof(ucontext_t);
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}
} // namespace emulator
#else

extern "C" __attribute__((visibility("hidden"))) void emulator_switch_stack(void **save, void *load);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.hidden emulator_switch_stack
.globl emulator_switch_stack
.type emulator_switch_stack, @function
emulator_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulator_switch_stack, . - emulator_switch_stack
)");
#else
asm(R"(
.text
.p2align 4
.hidden emulator_switch_stack
.globl emulator_switch_stack
.type emulator_switch_stack, %function
emulator_switch_stack:
    stp x29, x30, [sp, #-160]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x29, x30, [sp], #160
    ret
.size emulator_switch_stack, . - emulator_switch_stack
)");
#endif

namespace emulator {
inline void switch_stack(void **save, void *load) {
    emulator_switch_stack(save, load);
}
// Lays out the frame that switch_stack pops: registers of zero and the entry as return address.
inline void *prepare_stack(char *base, size_t bytes, void (*entry)()) {
    void **top = (void **)(base + bytes);
#if defined(__x86_64__)
    *--top = nullptr; // the ABI requires a stack 8 bytes off a 16-byte boundary at a function's entry
    *--top = (void *)entry;
    for (int i = 0; i < 6; ++i)
        *--top = nullptr;
#else
    top -= 20;
    memset((void *)top, 0, 160);
    top[1] = (void *)entry; // x30
#endif
    return top;
}
} // namespace emulator
#endif
