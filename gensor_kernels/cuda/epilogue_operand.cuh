// Where a thread's outputs lie in C, and how the operands of epilogue operations are read for them.
#pragma once
#include "intrinsics.cuh"
#include "params.cuh"

#ifdef __CUDACC__
#define ROLLED _Pragma("unroll 1")
#define UNROLL_BY_4 _Pragma("unroll 4")
#else
#define ROLLED
#define UNROLL_BY_4
#endif

template <class T>
DEVICE constexpr T minimum(T a, T b) {
    return a < b ? a : b;
}
template <class A, class B>
constexpr bool same_type = false;
template <class A>
constexpr bool same_type<A, A> = true;

// First column of a group of adjacent outputs; `valid` is false for a thread that has no such group.
struct Place {
    i32 row, column;
    bool valid;
};

enum OperandType : i32 { // EpilogueStep::dtype
    OPERAND_FLOAT64,
    OPERAND_FLOAT32,
    OPERAND_FLOAT16,
    OPERAND_BFLOAT16,
    OPERAND_INT8,
    OPERAND_INT32,
    OPERAND_BOOL // and unsigned bytes
};

DEVICE i32 operand_bytes(i32 dtype) {
    return dtype == OPERAND_FLOAT64                                ? 8
           : dtype == OPERAND_FLOAT32 || dtype == OPERAND_INT32    ? 4
           : dtype == OPERAND_FLOAT16 || dtype == OPERAND_BFLOAT16 ? 2
                                                                   : 1;
}

// Moves the first BY values to the end; COUNT / BY times is the identity.
template <int BY, class T, int COUNT>
DEVICE void rotate(T (&v)[COUNT]) {
    T head[BY];
    UNROLL for (int i = 0; i < BY; ++i) head[i] = v[i];
    UNROLL for (int i = 0; i < COUNT - BY; ++i) v[i] = v[i + BY];
    UNROLL for (int i = 0; i < BY; ++i) v[COUNT - BY + i] = head[i];
}

DEVICE bool inside_output(const Params &params, const Place &at) {
    return at.valid && within(at.row, params.m) && within(at.column, params.n);
}

// Byte address of x at a place; 64-bit throughout.
DEVICE gptr<u8> operand_address(const EpilogueStep &step, const Batch &batch, const Place &at) {
    const i64 offset = batch_offset(step.batch_stride, batch) + at.row * step.m_stride + at.column * step.n_stride;
    return gptr<u8>(step.pointer) + offset * operand_bytes(step.dtype);
}

// Groups whose WIDTH elements of type S are adjacent and aligned: vector loads, all issued before the first use.
template <int WIDTH, class S, class T, int COUNT>
DEVICE void convert_runs(const Vec<minimum(16, WIDTH *(int)sizeof(S))> *raw, T (&x)[COUNT]) {
    constexpr int EACH = minimum(16, WIDTH * (int)sizeof(S)) / (int)sizeof(S);
    UNROLL for (int i = 0; i < COUNT; ++i) x[i] = convert<T>(raw[i / EACH].template get<S>(i % EACH));
}

template <int WIDTH, class S, class Other, class T, int COUNT, class Placement>
DEVICE void load_runs(const Params &params, const EpilogueStep &step, const Batch &batch, bool other, T (&x)[COUNT],
                      const Placement &place) {
    constexpr int BYTES = minimum(16, WIDTH * (int)sizeof(S)), PIECES = WIDTH * (int)sizeof(S) / BYTES;
    Vec<BYTES> raw[COUNT / WIDTH * PIECES];
    UNROLL for (int g = 0; g < COUNT / WIDTH; ++g) {
        const Place at = place(g);
        const gptr<u8> from = operand_address(step, batch, at);
        const bool inside = inside_output(params, at);
        UNROLL for (int p = 0; p < PIECES; ++p) raw[g * PIECES + p] = load_global<BYTES>(from + p * BYTES, inside);
    }
    if (other)
        convert_runs<WIDTH, Other>(raw, x);
    else
        convert_runs<WIDTH, S>(raw, x);
}

template <int WIDTH, class S, class T, int COUNT>
DEVICE void load_elements(gptr<u8> from, i64 stride, bool inside, T (&x)[COUNT]) {
    UNROLL for (int i = 0; i < WIDTH; ++i) {
        const Vec<sizeof(S)> raw = load_global<(int)sizeof(S)>(from + i * stride, inside);
        if constexpr (same_type<S, u8>)
            x[i] = convert<T>((i32)raw.template get<u8>(0));
        else
            x[i] = convert<T>(raw.template get<S>(0));
    }
}

// The first group's operands, element by element: any dtype, any strides.
template <int WIDTH, class T, int COUNT>
DEVICE void load_group(const EpilogueStep &step, gptr<u8> from, bool inside, T (&x)[COUNT]) {
    const i64 stride = step.n_stride * operand_bytes(step.dtype);
    switch (step.dtype) {
    case OPERAND_FLOAT64:
        return load_elements<WIDTH, double>(from, stride, inside, x);
    case OPERAND_FLOAT32:
        return load_elements<WIDTH, float>(from, stride, inside, x);
    case OPERAND_FLOAT16:
        return load_elements<WIDTH, half_t>(from, stride, inside, x);
    case OPERAND_BFLOAT16:
        return load_elements<WIDTH, bfloat16_t>(from, stride, inside, x);
    case OPERAND_INT8:
        return load_elements<WIDTH, i8>(from, stride, inside, x);
    case OPERAND_INT32:
        return load_elements<WIDTH, i32>(from, stride, inside, x);
    default: // OPERAND_BOOL
        return load_elements<WIDTH, u8>(from, stride, inside, x);
    }
}

// x for every output of the thread, zeros outside C.
template <int WIDTH, class T, int COUNT, class Placement>
DEVICE void load_operand(const Params &params, const EpilogueStep &step, const Batch &batch, T (&x)[COUNT],
                         const Placement &place) {
    const i32 bytes = operand_bytes(step.dtype);
    const i64 strides = (step.m_stride | step.batch_stride[0] | step.batch_stride[1] | step.batch_stride[2]) * bytes;
    const bool aligned = (((i64)step.pointer | strides) & (minimum(16, WIDTH * bytes) - 1)) == 0;
    if (WIDTH > 1 && step.n_stride == 1 && aligned && bytes == 4)
        return load_runs<WIDTH, float, i32>(params, step, batch, step.dtype == OPERAND_INT32, x, place);
    if (WIDTH > 1 && step.n_stride == 1 && aligned && bytes == 2)
        return load_runs<WIDTH, half_t, bfloat16_t>(params, step, batch, step.dtype == OPERAND_BFLOAT16, x, place);
    ROLLED for (int g = 0; g < COUNT / WIDTH; ++g) {
        const Place at = place(g);
        load_group<WIDTH>(step, operand_address(step, batch, at), inside_output(params, at), x);
        rotate<WIDTH>(x);
    }
}
