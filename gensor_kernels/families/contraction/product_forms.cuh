// Real multiply-adds of a complex one: what the shared tiles of CUDA cores store, and what a thread sums.
//
// FORM 1: real numbers, one multiply-add. FORM 4: complex numbers, four real multiply-adds. FORM 3: Gauss's formula. A
// tile then has three planes, the real parts, the imaginary parts and their sums, which are computed when an element is
// stored to shared memory. A thread sums three real products, and computes the complex sum from them at the end.
// Kernels on tensor cores have tiles of complex numbers in all forms (mma_complex.cuh).
#pragma once
#include "contraction.cuh"

static_assert(is_complex<ACC_TYPE> ? FORM == 3 || FORM == 4 : FORM == 1,
              "FORM is 3 or 4 for complex accumulators and 1 for real ones.");
static_assert(is_complex<IN_TYPE> == is_complex<ACC_TYPE> && is_complex<OUT_TYPE> == is_complex<ACC_TYPE>,
              "Operands, accumulators and results must be all complex or all real.");
static_assert(is_complex<IN_TYPE> || (!A_CONJUGATE && !B_CONJUGATE), "Only complex operands can be conjugated.");

// The sums of products of real parts, of imaginary parts, and of the sums of both parts.
template <class T>
struct ThreeSums {
    T real, imaginary, mixed;
};

template <class T, int FORM_>
struct FormOf {
    typedef T Word, Sum;
};
template <class T>
struct FormOf<complex_t<T>, 3> {
    typedef T Word;
    typedef ThreeSums<T> Sum;
};
typedef FormOf<ACC_TYPE, FORM>::Word TileWord; // of a shared tile
typedef FormOf<ACC_TYPE, FORM>::Sum Sum;       // of a thread, one per output
constexpr int PLANES = FORM == 3 ? 3 : 1;      // of a shared tile
constexpr int HALVES = FORM == 4 ? 2 : 1;      // of a multiply-add: by the real part of a, then by the imaginary one

// Returns the part of an element that belongs to a plane.
template <class Word, bool CONJUGATE, class T>
DEVICE Word plane_word(T x, int plane) {
    if constexpr (CONJUGATE)
        x.im = -x.im;
    if constexpr (same_type<Word, T>)
        return x;
    else
        return plane == 0 ? x.re : plane == 1 ? x.im : x.re + x.im;
}

DEVICE float multiply_add(float a, float b, float sum, int) {
    return fma_(a, b, sum);
}
DEVICE double multiply_add(double a, double b, double sum, int) {
    return fma_(a, b, sum);
}
DEVICE i32 multiply_add(i32 a, i32 b, i32 sum, int) {
    return (i32)((u32)a * (u32)b + (u32)sum); // wraps around instead of being undefined
}
template <class T>
DEVICE complex_t<T> multiply_add(complex_t<T> a, complex_t<T> b, complex_t<T> sum, int half) {
    if (half == 0)
        return complex_t<T>{fma_(a.re, b.re, sum.re), fma_(a.re, b.im, sum.im)};
    return complex_t<T>{fma_(-a.im, b.im, sum.re), fma_(a.im, b.re, sum.im)};
}

// Adds a[.][i] * b[.][j] to a sum.
template <class S, class Word, int M, int N>
DEVICE void add_product(S &sum, const Word (&a)[PLANES][M], const Word (&b)[PLANES][N], int i, int j, int half) {
    if constexpr (same_type<S, Word>) {
        sum = multiply_add(a[0][i], b[0][j], sum, half);
    } else {
        sum.real = multiply_add(a[0][i], b[0][j], sum.real, half);
        sum.imaginary = multiply_add(a[1][i], b[1][j], sum.imaginary, half);
        sum.mixed = multiply_add(a[2][i], b[2][j], sum.mixed, half);
    }
}

// Computes outputs from their sums.
template <class T, int COUNT>
DEVICE void resolve_sums(const T (&sums)[COUNT], T (&outputs)[COUNT]) {
    UNROLL for (int i = 0; i < COUNT; ++i) outputs[i] = sums[i];
}
template <class T, int COUNT>
DEVICE void resolve_sums(const ThreeSums<T> (&sums)[COUNT], complex_t<T> (&outputs)[COUNT]) {
    UNROLL for (int i = 0; i < COUNT; ++i) {
        const ThreeSums<T> &sum = sums[i];
        outputs[i] = complex_t<T>{sum.real - sum.imaginary, sum.mixed - sum.real - sum.imaginary};
    }
}
