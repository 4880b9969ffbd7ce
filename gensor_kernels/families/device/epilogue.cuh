// The epilogue: up to six operations on every output, conversion, and the stores into C.
//
// A thread holds its outputs as COUNT / WIDTH groups of WIDTH adjacent columns, values[group * WIDTH + i]. A Placement
// `place(group)` returns the position of each group in C. Include this header after the family's parameters: it uses
// EPILOGUE_CODES, which is 0 for the list of operations in Params, or a compile-time list of 5 bits per operation, the
// first operation in the lowest bits (EPILOGUE_NONE as first entry: no operations). Operands and scalars always come
// from Params. Double accumulators are processed in double. The first integer_steps operations on int32 accumulators
// are int32 operations with integer operands. All other operations on real numbers are float operations. Complex
// accumulators are processed in complex arithmetic: a real operand has an imaginary part of 0, and operations that
// compare numbers, and curves, do not exist.
#pragma once
#include "epilogue_operand.cuh"

enum EpilogueCode : i32 {
    EPILOGUE_SCALE = 1,     // v * scalar
    EPILOGUE_BIAS = 2,      // v + x
    EPILOGUE_ADD = 3,       // v + x
    EPILOGUE_MUL = 4,       // v * x
    EPILOGUE_RELU = 5,      // max(v, 0), NaN kept
    EPILOGUE_RELU6 = 6,     // min(max(v, 0), 6), NaN kept
    EPILOGUE_GELU = 7,      // v / 2 * (1 + erf(v / sqrt(2)))
    EPILOGUE_GELU_TANH = 8, // v / 2 * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 v^3)))
    EPILOGUE_SILU = 9,      // v * sigmoid(v)
    EPILOGUE_TANH = 10,
    EPILOGUE_SIGMOID = 11, // 1 / (1 + exp(-v))
    EPILOGUE_MASK = 12,    // x == 0 ? scalar : v
    EPILOGUE_CAST = 13,    // rounded to the output's dtype and back
    EPILOGUE_NONE = 31     // a compile-time list without operations
};

DEVICE constexpr bool takes_operand(i32 code) {
    return code == EPILOGUE_BIAS || code == EPILOGUE_ADD || code == EPILOGUE_MUL || code == EPILOGUE_MASK;
}

DEVICE constexpr bool is_curve(i32 code) {
    return code >= EPILOGUE_GELU && code <= EPILOGUE_SIGMOID;
}

// The scalar of a step. A complex scalar has an imaginary part where the step reads no operand.
template <class T>
DEVICE T read_scalar(const EpilogueStep &step, i32 code) {
    if constexpr (is_complex<T>) {
        const double imaginary = takes_operand(code) ? 0.0 : bit_cast<double>(step.pointer);
        return T{(part_t<T>)step.scalar, (part_t<T>)imaginary};
    } else {
        return (T)step.scalar;
    }
}

// The product, rounded by itself: a compiler does not fuse it with a following sum, so that its bits are always the
// same.
template <class T>
DEVICE T multiply(T a, T b) {
    if constexpr (is_complex<T>)
        return T{fma_(a.re, b.re, -multiply_(a.im, b.im)), fma_(a.re, b.im, multiply_(a.im, b.re))};
    else if constexpr (same_type<T, i32>)
        return (i32)((u32)a * (u32)b); // wraps around instead of being undefined
    else
        return multiply_(a, b);
}

// Operations of a few instructions, unrolled over all outputs of the thread.
template <class Out, class T, int COUNT>
DEVICE void apply_arithmetic(i32 code, T (&v)[COUNT], const T (&x)[COUNT], T scalar) {
    switch (code) {
    case EPILOGUE_SCALE:
        UNROLL for (int i = 0; i < COUNT; ++i) v[i] = multiply(v[i], scalar);
        break;
    case EPILOGUE_BIAS:
    case EPILOGUE_ADD:
        UNROLL for (int i = 0; i < COUNT; ++i) v[i] = v[i] + x[i];
        break;
    case EPILOGUE_MUL:
        UNROLL for (int i = 0; i < COUNT; ++i) v[i] = multiply(v[i], x[i]);
        break;
    case EPILOGUE_MASK:
        UNROLL for (int i = 0; i < COUNT; ++i) v[i] = x[i] == T{} ? scalar : v[i];
        break;
    case EPILOGUE_CAST:
        UNROLL for (int i = 0; i < COUNT; ++i) v[i] = convert<T>(convert<Out>(v[i]));
        break;
    }
    if constexpr (!is_complex<T>) {
        if (code == EPILOGUE_RELU6) {
            UNROLL for (int i = 0; i < COUNT; ++i) v[i] = v[i] > T(6) ? T(6) : v[i];
        }
        if (code == EPILOGUE_RELU || code == EPILOGUE_RELU6) {
            UNROLL for (int i = 0; i < COUNT; ++i) v[i] = v[i] < T(0) ? T(0) : v[i];
        }
    }
}

// Operations of tens of instructions. Operations that use the same function share its code.
template <class T>
DEVICE T curve(i32 code, T v) {
    if (code == EPILOGUE_GELU)
        return T(0.5) * v * (T(1) + erf_(v * T(0.70710678118654752440)));
    if (code == EPILOGUE_GELU_TANH || code == EPILOGUE_TANH) {
        const bool gelu = code == EPILOGUE_GELU_TANH;
        const T t = tanh_(gelu ? T(0.79788456080286535588) * (v + T(0.044715) * v * v * v) : v);
        return gelu ? T(0.5) * v * (T(1) + t) : t;
    }
    const T sigmoid = T(1) / (T(1) + exp_(-v));
    return code == EPILOGUE_SILU ? v * sigmoid : sigmoid;
}

// The loop over values is rolled, because every kernel with a run-time list contains all operations. Rotating the
// values keeps every register index constant. With a compile-time list, an iteration processes a whole group.
template <int WIDTH, class T, int COUNT>
DEVICE void apply_curve(i32 code, T (&v)[COUNT]) {
    constexpr int STEP = EPILOGUE_CODES ? WIDTH : 1;
    ROLLED for (int g = 0; g < COUNT / STEP; ++g) {
        UNROLL for (int i = 0; i < STEP; ++i) v[i] = curve(code, v[i]);
        rotate<STEP>(v);
    }
}

// One floating-point operation on v, with its operand x. FIXED is its code if known at compile time, else 0.
template <i32 FIXED, class Out, int WIDTH, class T, int COUNT>
DEVICE void apply_step(const EpilogueStep &step, i32 code, T (&v)[COUNT], const T (&x)[COUNT]) {
    static_assert(!is_complex<T> || !is_curve(FIXED), "Curves are not defined for complex numbers.");
    if constexpr (FIXED == 0 && !is_complex<T>) {
        if (is_curve(code))
            apply_curve<WIDTH>(code, v);
        else
            apply_arithmetic<Out>(code, v, x, read_scalar<T>(step, code));
    } else if constexpr (is_curve(FIXED)) {
        apply_curve<WIDTH>(code, v);
    } else {
        apply_arithmetic<Out>(code, v, x, read_scalar<T>(step, code));
    }
}

DEVICE bool is_integer(i32 dtype) {
    return dtype >= OPERAND_INT8 && dtype <= OPERAND_BOOL;
}

// Operation number s. After the last int32 operation, int32 values are replaced by the bits of floats.
template <i32 FIXED, class Out, int WIDTH, class T, int COUNT, class Placement>
DEVICE void run_step(const Params &params, i32 s, const Batch &batch, T (&v)[COUNT], const Placement &place) {
    cover("epilogue_step");
    const EpilogueStep &step = params.step[s];
    const i32 code = FIXED ? FIXED : step.code;
    T x[COUNT] = {};
    if constexpr (FIXED == 0 || takes_operand(FIXED)) {
        if (takes_operand(code))
            load_operand<WIDTH>(params, step, batch, x, place);
    }
    if constexpr (!same_type<T, i32>) {
        apply_step<FIXED, Out, WIDTH>(step, code, v, x);
    } else if (s < params.integer_steps) {
        apply_arithmetic<Out>(code, v, x, (i32)step.scalar);
    } else {
        const bool first = s == params.integer_steps, whole = is_integer(step.dtype);
        float real[COUNT], operand[COUNT];
        UNROLL for (int i = 0; i < COUNT; ++i) real[i] = first ? (float)v[i] : bit_cast<float>(v[i]);
        UNROLL for (int i = 0; i < COUNT; ++i) operand[i] = whole ? (float)x[i] : bit_cast<float>(x[i]);
        apply_step<FIXED, Out, WIDTH>(step, code, real, operand);
        UNROLL for (int i = 0; i < COUNT; ++i) v[i] = bit_cast<i32>(real[i]);
    }
}

// Runs the operations from number FIRST on.
template <int FIRST, class Out, int WIDTH, class T, int COUNT, class Placement>
DEVICE void run_steps(const Params &params, const Batch &batch, T (&v)[COUNT], const Placement &place) {
    constexpr i32 CODE = FIRST < MAX_EPILOGUE_STEPS ? (i32)((u32)(EPILOGUE_CODES) >> (5 * FIRST) & 31) : 0;
    if constexpr (EPILOGUE_CODES == 0) {
        ROLLED for (i32 s = FIRST; within(s, params.steps); ++s) run_step<0, Out, WIDTH>(params, s, batch, v, place);
    } else if constexpr (CODE != 0 && CODE != EPILOGUE_NONE) {
        run_step<CODE, Out, WIDTH>(params, FIRST, batch, v, place);
        run_steps<FIRST + 1, Out, WIDTH>(params, batch, v, place);
    }
}

// COUNT adjacent values as elements of C.
template <class Out, int COUNT, class T>
DEVICE Vec<COUNT *(int)sizeof(Out)> converted(const T *v) {
    Vec<COUNT *(int)sizeof(Out)> packed = Vec<COUNT *(int)sizeof(Out)>::zero();
    if constexpr (same_type<T, float> && (same_type<Out, half_t> || same_type<Out, bfloat16_t>) && COUNT % 2 == 0) {
        UNROLL for (int i = 0; i < COUNT; i += 2) packed.word[i / 2] = pack_pair(v[i], v[i + 1], Out{});
    } else {
        UNROLL for (int i = 0; i < COUNT; ++i) packed.set(i, convert<Out>(v[i]));
    }
    return packed;
}
// COUNT adjacent values after the epilogue as elements of C. Int32 values are the bits of floats where the last
// operation was in float.
template <class Out, int COUNT, class T>
DEVICE auto finished(const Params &params, const T *v) {
    if constexpr (same_type<T, i32>) {
        if (params.integer_steps != params.steps) {
            float real[COUNT];
            UNROLL for (int i = 0; i < COUNT; ++i) real[i] = bit_cast<float>(v[i]);
            return converted<Out, COUNT>(real);
        }
    }
    return converted<Out, COUNT>(v);
}

// One value after the epilogue as an element of C.
template <class Out, class T>
DEVICE Out finished(const Params &params, T v) {
    return finished<Out, 1>(params, &v).template get<Out>(0);
}

// Returns the elements from column 0 of a row of C to a column.
template <bool UNIT>
DEVICE i64 to_output(const Params &params, i64 column) {
    if constexpr (ALL_IMAGES)
        return to_column(params, (i32)column, UNIT ? 1 : params.c_n, params.c_batch[1]);
    else
        return UNIT ? column : column * params.c_n;
}

// Converts and stores every group, WIDTH * sizeof(Out) bytes at once where columns are adjacent in C (UNIT).
template <class Out, int WIDTH, bool UNIT, class T, int COUNT, class Placement>
DEVICE void store_outputs(const Params &params, const Batch &batch, const T (&v)[COUNT], const Placement &place) {
    constexpr int STORES = UNIT ? 1 : WIDTH, EACH = WIDTH / STORES;
    const gptr<Out> c = gptr<Out>(params.c) + batch_offset(params.c_batch, batch);
    UNROLL for (int g = 0; g < COUNT / WIDTH; ++g) {
        const Place at = place(g);
        UNROLL for (int s = 0; s < STORES; ++s) {
            const i64 column = at.column + s * EACH;
            const bool inside = at.valid && within(at.row, params.m) && within(column, (i64)params.n);
            store_global(c + (at.row * params.c_m + to_output<UNIT>(params, column)),
                         finished<Out, EACH>(params, &v[g * WIDTH + s * EACH]), inside);
        }
    }
}

// Runs the epilogue on a thread's outputs, converts and stores them. `values` is overwritten.
// With UNIT, WIDTH must divide n, and C's rows must be aligned to WIDTH * sizeof(Out) bytes (at most 16).
template <class Out, int WIDTH, bool UNIT, class T, int COUNT, class Placement>
DEVICE void finish_outputs(const Params &params, const Batch &batch, T (&values)[COUNT], const Placement &place) {
    static_assert(COUNT % WIDTH == 0, "Outputs come in whole groups.");
    run_steps<0, Out, WIDTH>(params, batch, values, place);
    store_outputs<Out, WIDTH, UNIT>(params, batch, values, place);
}
