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

// Byte addresses of x; the batch entry's part is computed once.
struct OperandAddress {
    gptr<u8> base;
    i64 m_bytes, n_bytes;
    MEMBER OperandAddress(const EpilogueStep &step, const Batch &batch) {
        const i32 bytes = operand_bytes(step.dtype);
        base = gptr<u8>(step.pointer) + batch_offset(step.batch_stride, batch) * bytes;
        m_bytes = step.m_stride * bytes;
        n_bytes = step.n_stride * bytes;
    }
    MEMBER gptr<u8> operator()(const Place &at) const { return base + (at.row * m_bytes + at.column * n_bytes); }
};

template <class T, class S>
DEVICE T convert_operand(S value) {
    if constexpr (same_type<S, u8>)
        return convert<T>((i32)value);
    else
        return convert<T>(value);
}

// Groups whose WIDTH elements of type S (or Other, of the same size) are adjacent and aligned: vector loads, all
// issued before the first use.
template <int WIDTH, class S, class T, int COUNT>
DEVICE void convert_runs(const Vec<minimum(16, WIDTH *(int)sizeof(S))> *raw, T (&x)[COUNT]) {
    constexpr int EACH = minimum(16, WIDTH * (int)sizeof(S)) / (int)sizeof(S);
    UNROLL for (int i = 0; i < COUNT; ++i) x[i] = convert_operand<T>(raw[i / EACH].template get<S>(i % EACH));
}

template <int WIDTH, class S, class Other, class T, int COUNT, class Placement>
DEVICE void load_runs(const Params &params, const OperandAddress &address, bool other, T (&x)[COUNT],
                      const Placement &place) {
    constexpr int BYTES = minimum(16, WIDTH * (int)sizeof(S)), PIECES = WIDTH * (int)sizeof(S) / BYTES;
    Vec<BYTES> raw[COUNT / WIDTH * PIECES];
    UNROLL for (int g = 0; g < COUNT / WIDTH; ++g) {
        const Place at = place(g);
        const gptr<u8> from = address(at);
        const bool inside = inside_output(params, at);
        UNROLL for (int p = 0; p < PIECES; ++p) raw[g * PIECES + p] = load_global<BYTES>(from + p * BYTES, inside);
    }
    if (other)
        convert_runs<WIDTH, Other>(raw, x);
    else
        convert_runs<WIDTH, S>(raw, x);
}

// One element of any dtype.
template <class T>
DEVICE T load_element(gptr<u8> from, i32 dtype, bool inside) {
    switch (dtype) {
    case OPERAND_FLOAT64:
        return convert<T>(load_global<8>(from, inside).template get<double>(0));
    case OPERAND_FLOAT32:
        return convert<T>(load_global<4>(from, inside).template get<float>(0));
    case OPERAND_FLOAT16:
        return convert<T>(load_global<2>(from, inside).template get<half_t>(0));
    case OPERAND_BFLOAT16:
        return convert<T>(load_global<2>(from, inside).template get<bfloat16_t>(0));
    case OPERAND_INT8:
        return convert<T>(load_global<1>(from, inside).template get<i8>(0));
    case OPERAND_INT32:
        return convert<T>(load_global<4>(from, inside).template get<i32>(0));
    default: // OPERAND_BOOL
        return convert_operand<T>(load_global<1>(from, inside).template get<u8>(0));
    }
}

// x for every output of the thread, zeros outside C.
template <int WIDTH, class T, int COUNT, class Placement>
DEVICE void load_operand(const Params &params, const EpilogueStep &step, const Batch &batch, T (&x)[COUNT],
                         const Placement &place) {
    const i32 bytes = operand_bytes(step.dtype);
    const i64 strides = (step.m_stride | step.batch_stride[0] | step.batch_stride[1] | step.batch_stride[2]) * bytes;
    const bool aligned = (((i64)step.pointer | strides) & (minimum(16, WIDTH * bytes) - 1)) == 0;
    const OperandAddress address(step, batch);
    if (aligned && (WIDTH == 1 || step.n_stride == 1)) {
        if (bytes == 4)
            return load_runs<WIDTH, float, i32>(params, address, step.dtype == OPERAND_INT32, x, place);
        if constexpr (same_type<T, double>) {
            if (bytes == 8)
                return load_runs<WIDTH, double, double>(params, address, false, x, place);
        } else {
            if (bytes == 2)
                return load_runs<WIDTH, half_t, bfloat16_t>(params, address, step.dtype == OPERAND_BFLOAT16, x, place);
            if (bytes == 1)
                return load_runs<WIDTH, i8, u8>(params, address, step.dtype == OPERAND_BOOL, x, place);
        }
    }
    // The others one by one in a rolled loop, as in apply_curve; columns that share a value load it once per group.
    ROLLED for (int i = 0; i < COUNT; ++i) {
        Place at = place(i / WIDTH);
        at.column += i % WIDTH;
        if (step.n_stride == 0 && i % WIDTH != 0)
            x[0] = x[COUNT - 1];
        else
            x[0] = load_element<T>(address(at), step.dtype, inside_output(params, at));
        rotate<1>(x);
    }
}
