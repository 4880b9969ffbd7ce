// The position of a thread's outputs in C, and the loads of the epilogue's operands for them.
#pragma once
// 1: columns of C are the pixels of all images, one image after the other. The stride from image to image is that of
// the middle batch axis, whose extent is 1.
#pragma parameter ALL_IMAGES 0
#include "intrinsics.cuh"
#include "params.cuh"

// The row and first column of a group of adjacent outputs; `valid` is false where a thread has no such group.
struct Place {
    i32 row, column;
    bool valid;
};

// Returns the elements from column 0 of a row to a column, of an operand with this stride from image to image. Further
// columns of the same image may follow.
DEVICE i64 to_column(const Params &params, i32 column, i64 stride, i64 image_stride) {
    if constexpr (ALL_IMAGES) {
        const Divided at = divided((u32)column, params.by.middle); // the number of pixels of an image
        return (i32)at.quotient * image_stride + (i32)at.rest * stride;
    } else {
        return column * stride;
    }
}

enum OperandType : i32 { // EpilogueStep::dtype
    OPERAND_FLOAT64,
    OPERAND_FLOAT32,
    OPERAND_FLOAT16,
    OPERAND_BFLOAT16,
    OPERAND_INT8,
    OPERAND_INT32,
    OPERAND_BOOL,      // also unsigned bytes
    OPERAND_COMPLEX64, // for complex results only
    OPERAND_COMPLEX128
};

// Bytes of an element of x, in an epilogue on values of type T.
template <class T>
DEVICE i32 operand_bytes(i32 dtype) {
    if (is_complex<T> && dtype >= OPERAND_COMPLEX64)
        return dtype == OPERAND_COMPLEX64 ? 8 : 16;
    return dtype == OPERAND_FLOAT64                                ? 8
           : dtype == OPERAND_FLOAT32 || dtype == OPERAND_INT32    ? 4
           : dtype == OPERAND_FLOAT16 || dtype == OPERAND_BFLOAT16 ? 2
                                                                   : 1;
}

// Moves the first BY values to the end. COUNT / BY rotations restore the order.
template <int BY, class T, int COUNT>
DEVICE void rotate(T (&v)[COUNT]) {
    T head[BY];
    UNROLL for (int i = 0; i < BY; ++i) head[i] = v[i];
    UNROLL for (int i = 0; i < COUNT - BY; ++i) v[i] = v[i + BY];
    UNROLL for (int i = 0; i < BY; ++i) v[COUNT - BY + i] = head[i];
}

// A run: the operand's elements for a group of outputs, from `from` on. `inside`: the group is in C.
struct Run {
    gptr<u8> from;
    bool inside;
};

// Whether every group's WIDTH elements of x are adjacent and aligned to the vectors that load them.
template <int WIDTH>
DEVICE bool allows_vectors(const EpilogueStep &step, i32 bytes) {
    const u32 strides = (u32)(step.m_stride | step.batch_stride[0] | step.batch_stride[1] | step.batch_stride[2]);
    const u32 low_bits = (u32)step.pointer | strides * (u32)bytes;
    return (low_bits & (u32)(minimum(16, WIDTH * bytes) - 1)) == 0 && (WIDTH == 1 || step.n_stride == 1);
}

// An element of x as T. An epilogue in int32 gets floats as their bits, because it may continue in float before it
// uses x.
template <class T, class S>
DEVICE T convert_operand(S value) {
    if constexpr (same_type<S, u8>)
        return convert<T>((i32)value);
    else if constexpr (same_type<T, i32> && !same_type<S, i8> && !same_type<S, i32>)
        return bit_cast<i32>(convert<float>(value));
    else
        return convert<T>(value);
}

template <int SIZE, class S, class T, int COUNT>
DEVICE void convert_runs(const Vec<SIZE> *raw, T (&x)[COUNT]) {
    constexpr int EACH = SIZE / (int)sizeof(S);
    UNROLL for (int i = 0; i < COUNT; ++i) x[i] = convert_operand<T>(raw[i / EACH].template get<S>(i % EACH));
}

// Loads runs as vectors of elements of type S, or Other where `other` is true. All loads are issued before the first
// use.
template <int WIDTH, class S, class Other, class T, int COUNT>
DEVICE void load_runs(const Run (&runs)[COUNT / WIDTH], bool other, T (&x)[COUNT]) {
    constexpr int BYTES = minimum(16, WIDTH * (int)sizeof(S)), PIECES = WIDTH * (int)sizeof(S) / BYTES;
    Vec<BYTES> raw[COUNT / WIDTH * PIECES];
    UNROLL for (int i = 0; i < COUNT / WIDTH * PIECES; ++i) raw[i] =
        load_global<BYTES>(runs[i / PIECES].from + i % PIECES * BYTES, runs[i / PIECES].inside);
    if (other)
        convert_runs<BYTES, Other>(raw, x);
    else
        convert_runs<BYTES, S>(raw, x);
}

// One element of any dtype.
template <class T>
DEVICE T load_element(gptr<u8> from, i32 dtype, i32 bytes, bool inside) {
    if constexpr (is_complex<T>) {
        if (bytes == 16)
            return convert_operand<T>(load_global<16>(from, inside).template get<c128>(0));
        if (dtype == OPERAND_COMPLEX64)
            return convert_operand<T>(load_global<8>(from, inside).template get<c64>(0));
    }
    if (bytes == 8)
        return convert_operand<T>(load_global<8>(from, inside).template get<double>(0));
    if (bytes == 4) {
        const Vec<4> raw = load_global<4>(from, inside);
        return dtype == OPERAND_INT32 ? convert_operand<T>(raw.get<i32>(0)) : convert_operand<T>(raw.get<float>(0));
    }
    if (bytes == 2) {
        const Vec<2> raw = load_global<2>(from, inside);
        return dtype == OPERAND_BFLOAT16 ? convert_operand<T>(raw.get<bfloat16_t>(0))
                                         : convert_operand<T>(raw.get<half_t>(0));
    }
    const Vec<1> raw = load_global<1>(from, inside);
    return dtype == OPERAND_BOOL ? convert_operand<T>(raw.get<u8>(0)) : convert_operand<T>(raw.get<i8>(0));
}

// Loads x element by element in a rolled loop, as in apply_curve. Columns that share a value load it once per group.
template <int WIDTH, class T, int COUNT>
DEVICE void load_elements(const EpilogueStep &step, i32 bytes, Run (&runs)[COUNT / WIDTH], T (&x)[COUNT]) {
    Run run = runs[0];
    ROLLED for (int i = 0; i < COUNT; ++i) {
        const bool first = i % WIDTH == 0;
        if (first) {
            run = runs[0];
            rotate<1>(runs);
        }
        x[0] = step.n_stride == 0 && !first ? x[COUNT - 1] : load_element<T>(run.from, step.dtype, bytes, run.inside);
        run.from = run.from + step.n_stride * bytes;
        rotate<1>(x);
    }
}

// Loads x for every output of the thread, zeros outside C.
template <int WIDTH, class T, int COUNT, class Placement>
DEVICE void load_operand(const Params &params, const EpilogueStep &step, const Batch &batch, T (&x)[COUNT],
                         const Placement &place) {
    const i32 bytes = operand_bytes<T>(step.dtype);
    const gptr<u8> base = gptr<u8>(step.pointer) + batch_offset(step.batch_stride, batch) * bytes;
    Run runs[COUNT / WIDTH];
    UNROLL for (int g = 0; g < COUNT / WIDTH; ++g) {
        const Place at = place(g);
        runs[g].from =
            base + (at.row * step.m_stride + to_column(params, at.column, step.n_stride, step.batch_stride[1])) * bytes;
        runs[g].inside = at.valid && within(at.row, params.m) && within(at.column, params.n);
    }
    if (allows_vectors<WIDTH>(step, bytes)) {
        if (bytes == 4)
            return load_runs<WIDTH, float, i32>(runs, step.dtype == OPERAND_INT32, x);
        if constexpr (is_complex<T>) {
            if (bytes == 8)
                return load_runs<WIDTH, c64, double>(runs, step.dtype == OPERAND_FLOAT64, x);
            if (bytes == 16)
                return load_runs<WIDTH, c128, c128>(runs, false, x);
        } else if constexpr (same_type<T, double>) {
            if (bytes == 8)
                return load_runs<WIDTH, double, double>(runs, false, x);
        } else {
            if (bytes == 2)
                return load_runs<WIDTH, half_t, bfloat16_t>(runs, step.dtype == OPERAND_BFLOAT16, x);
            if (bytes == 1)
                return load_runs<WIDTH, i8, u8>(runs, step.dtype == OPERAND_BOOL, x);
        }
    }
    load_elements<WIDTH>(step, bytes, runs, x);
}
