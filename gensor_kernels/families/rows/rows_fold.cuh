// Folds: the state of a reduction after some of its elements, and how two states are joined.
//
// The state of every fold is one to three words of ACC_TYPE, so shuffles, shared memory and the workspace need no code
// per fold. Joining is associative and commutative up to rounding, and `neutral` is the state of no element.
#pragma once
#include "epilogue.cuh"

// OPERATIONS in shape.py has the same numbers.
enum RowOperation : int {
    COPY = 0, // no reduction: x and the epilogue
    SUM = 1,
    MEAN = 2,
    MAX = 3, // NaN where the row has one
    MIN = 4,
    PROD = 5,
    ARGMAX = 6, // the first of equal elements, or the first NaN where the row has one
    ARGMIN = 7,
    L2_NORM = 8,
    VARIANCE = 9,
    LOGSUMEXP = 10,
    SOFTMAX = 11,
    LOG_SOFTMAX = 12,
    LAYERNORM = 13,
    RMSNORM = 14,
    CUMSUM = 15, // each element becomes the fold of its row up to itself
    CUMPROD = 16
};

enum Fold : int {
    FOLD_SUM,
    FOLD_SQUARES,      // of x - center
    FOLD_EXPONENTIALS, // of x - center
    FOLD_PRODUCT,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_ARGMAX,  // value, index
    FOLD_ARGMIN,  // value, index
    FOLD_SOFTMAX, // maximum, sum of exp(x - maximum)
    FOLD_MOMENTS  // count, mean, sum of (x - mean)^2
};

constexpr bool MOMENTS = OPERATION == VARIANCE || OPERATION == LAYERNORM;
constexpr bool EXPONENTIAL = OPERATION == LOGSUMEXP || OPERATION == SOFTMAX || OPERATION == LOG_SOFTMAX;
constexpr bool ARGUMENT = OPERATION == ARGMAX || OPERATION == ARGMIN;
constexpr bool MAPS = OPERATION == COPY || OPERATION >= SOFTMAX;
enum : bool { SCANS = OPERATION >= CUMSUM };
constexpr bool TWO_PASSES = !ONLINE && (MOMENTS || EXPONENTIAL);
constexpr int FIRST_FOLD = MOMENTS                                        ? (ONLINE ? FOLD_MOMENTS : FOLD_SUM)
                           : EXPONENTIAL                                  ? (ONLINE ? FOLD_SOFTMAX : FOLD_MAX)
                           : OPERATION == L2_NORM || OPERATION == RMSNORM ? FOLD_SQUARES
                           : OPERATION == MAX                             ? FOLD_MAX
                           : OPERATION == MIN                             ? FOLD_MIN
                           : OPERATION == PROD || OPERATION == CUMPROD    ? FOLD_PRODUCT
                           : OPERATION == ARGMAX                          ? FOLD_ARGMAX
                           : OPERATION == ARGMIN                          ? FOLD_ARGMIN
                                                                          : FOLD_SUM;
// The second pass over a row in registers replaces its elements by their terms: a softmax's exponentials, or a layer
// norm's deviations from the mean.
constexpr bool HOLDS_TERMS = (OPERATION == SOFTMAX || OPERATION == LAYERNORM) && TWO_PASSES && KEEP == 1;
constexpr int SECOND_FOLD = !EXPONENTIAL ? FOLD_SQUARES : HOLDS_TERMS ? FOLD_SUM : FOLD_EXPONENTIALS;

template <int FOLD>
struct State {
    static constexpr int WORDS = FOLD == FOLD_MOMENTS ? 3 : FOLD >= FOLD_ARGMAX ? 2 : 1;
    ACC_TYPE word[WORDS];
};

// Infinity, or the largest integer. No number is less than lowest().
DEVICE ACC_TYPE highest() {
    if constexpr (same_type<ACC_TYPE, float>)
        return bit_cast<float>(0x7f800000u);
    else if constexpr (same_type<ACC_TYPE, double>)
        return bit_cast<double>((u64)0x7ff0000000000000ull);
    else
        return (ACC_TYPE)0x7fffffff;
}
DEVICE ACC_TYPE lowest() {
    if constexpr (same_type<ACC_TYPE, i32> || same_type<ACC_TYPE, i64>)
        return -highest() - 1;
    else
        return -highest();
}

// A state stores an index as the bits of a word.
DEVICE ACC_TYPE index_to_word(i32 index) {
    if constexpr (same_type<ACC_TYPE, float>)
        return bit_cast<float>(index);
    else if constexpr (same_type<ACC_TYPE, double>)
        return bit_cast<double>((i64)index);
    else
        return (ACC_TYPE)index;
}
DEVICE i32 word_to_index(ACC_TYPE word) {
    if constexpr (same_type<ACC_TYPE, float>)
        return bit_cast<i32>(word);
    else if constexpr (same_type<ACC_TYPE, double>)
        return (i32)bit_cast<i64>(word);
    else
        return (i32)word;
}

// The larger (smaller) of two numbers, or NaN where one of them is NaN.
template <class T>
DEVICE T larger(T a, T b) {
    if constexpr (same_type<T, float> || same_type<T, double>)
        return max_(a, b);
    else
        return b > a ? b : a;
}
template <class T>
DEVICE T smaller(T a, T b) {
    if constexpr (same_type<T, float> || same_type<T, double>)
        return min_(a, b);
    else
        return b < a ? b : a;
}

// exp(x) for x <= 0 or NaN, subnormal results included. It takes six instructions, and expf takes eight. With t = x
// log2(e) rounded, exp(x) = 2^t exp(x - t ln 2), and the second factor is 1 + (x - t ln 2) to the last place. 2^t is
// computed as the square of 2^(t/2), which is normal wherever exp(x) is not zero: exp2_ may flush subnormal numbers.
DEVICE float exp_of_negative(float x) {
    const float near = larger(x, -120.0f); // exp(-120) is zero; an infinity would make NaN of the difference below
    const float half = near * 0.72134752f, root = exp2_(half), power = root * root;
    return fma_(power, fma_(half, -1.3862943611f, near), power);
}
DEVICE double exp_of_negative(double x) {
    return exp_(x);
}
// exp(x) for an element of a row. For results of 16 bits, one product is precise enough as the exponent of 2: the
// relative error is less than 2^-17 wherever exp(x) is a normal number. Smaller results become zero.
template <class T>
DEVICE T exp_of_element(T x) {
    if constexpr (same_type<T, float> && sizeof(OUT_TYPE) == 2)
        return exp2_(x * 1.44269504f);
    else
        return exp_of_negative(x);
}

// The number that is subtracted from exponents. A softmax of a row with +inf, or with -inf only, results in NaN.
DEVICE ACC_TYPE shift_of(ACC_TYPE maximum) {
    return maximum == lowest() ? ACC_TYPE(0) : maximum;
}
// The factor of a sum of exponentials whose maximum changes.
template <class T>
DEVICE T rescale_factor(T from, T to) {
    return from == to ? T(1) : exp_of_negative(from - to);
}

template <int FOLD>
DEVICE State<FOLD> neutral() {
    State<FOLD> state = {};
    if constexpr (FOLD == FOLD_PRODUCT)
        state.word[0] = ACC_TYPE(1);
    if constexpr (FOLD == FOLD_MAX || FOLD == FOLD_SOFTMAX || FOLD == FOLD_ARGMAX)
        state.word[0] = lowest();
    if constexpr (FOLD == FOLD_MIN || FOLD == FOLD_ARGMIN)
        state.word[0] = highest();
    // A thread that has a row alone keeps the first of equals as it goes, and a whole row of the least number has its
    // result at 0.
    if constexpr (FOLD == FOLD_ARGMAX || FOLD == FOLD_ARGMIN)
        state.word[1] = index_to_word(STAGED ? 0 : 0x7fffffff);
    return state;
}

// Joins states of one word.
template <int FOLD>
DEVICE ACC_TYPE join_words(ACC_TYPE a, ACC_TYPE b) {
    if constexpr (FOLD == FOLD_PRODUCT)
        return a * b;
    else if constexpr (FOLD == FOLD_MAX)
        return larger(a, b);
    else if constexpr (FOLD == FOLD_MIN)
        return smaller(a, b);
    else
        return a + b;
}

// Whether y is further in the order that the fold looks for, NaN first.
template <int FOLD>
DEVICE bool is_better(ACC_TYPE x, ACC_TYPE y) {
    return (FOLD == FOLD_ARGMAX ? y > x : y < x) || (y != y && x == x);
}

template <int FOLD>
DEVICE State<FOLD> join_arguments(State<FOLD> a, State<FOLD> b) {
    const ACC_TYPE x = a.word[0], y = b.word[0];
    const bool better = FOLD == FOLD_ARGMAX ? y > x : y < x;
    const bool tie = x == y || (x != x && y != y);
    const bool first = word_to_index(b.word[1]) < word_to_index(a.word[1]);
    return better || (y != y && x == x) || (tie && first) ? b : a;
}

// Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
template <int FOLD>
DEVICE State<FOLD> join_moments(State<FOLD> a, State<FOLD> b) {
    const ACC_TYPE count = a.word[0] + b.word[0];
    const ACC_TYPE share = b.word[0] == ACC_TYPE(0) ? ACC_TYPE(0) : b.word[0] / count;
    const ACC_TYPE delta = b.word[1] - a.word[1];
    return State<FOLD>{
        {count, a.word[0] == ACC_TYPE(0) ? b.word[1] : a.word[1] + delta * share,
         a.word[2] + b.word[2] + (a.word[0] == ACC_TYPE(0) ? ACC_TYPE(0) : delta * delta * share * a.word[0])}};
}

template <int FOLD>
DEVICE State<FOLD> join(State<FOLD> a, State<FOLD> b) {
    if constexpr (FOLD == FOLD_ARGMAX || FOLD == FOLD_ARGMIN) {
        return join_arguments(a, b);
    } else if constexpr (FOLD == FOLD_MOMENTS) {
        return join_moments(a, b);
    } else if constexpr (FOLD == FOLD_SOFTMAX) {
        const ACC_TYPE maximum = larger(a.word[0], b.word[0]);
        return State<FOLD>{
            {maximum, a.word[1] * rescale_factor(a.word[0], maximum) + b.word[1] * rescale_factor(b.word[0], maximum)}};
    } else {
        return State<FOLD>{{join_words<FOLD>(a.word[0], b.word[0])}};
    }
}

// Joins t[0 .. COUNT) pairwise, so rounding errors grow with the logarithm of COUNT. COUNT is a power of two.
template <int FOLD, int COUNT, int SIZE>
DEVICE ACC_TYPE join_pairs(ACC_TYPE (&t)[SIZE]) {
    if constexpr (COUNT > 1) {
        UNROLL for (int i = 0; i < COUNT / 2; ++i) t[i] = join_words<FOLD>(t[i], t[i + COUNT / 2]);
        return join_pairs<FOLD, COUNT / 2>(t);
    }
    return t[0];
}
