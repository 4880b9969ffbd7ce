// The multiply-adds of a step, and the loads of x where it does not go through shared memory.
#pragma once
#include "gemv_tile.cuh"

// sums[s][r] += w[r][e] * x[e], over a thread's adjacent k.
DEVICE void add_rows(ACC_TYPE (&sums)[COUNT], int s, const ACC_TYPE (&w)[ROWS][ELEMENTS],
                     const ACC_TYPE (&x)[ELEMENTS]) {
    UNROLL for (int half = 0; half < HALVES; ++half) {
        UNROLL for (int e = 0; e < ELEMENTS; ++e) {
            UNROLL for (int r = 0; r < ROWS; ++r) sums[s * ROWS + r] =
                multiply_add(w[r][e], x[e], sums[s * ROWS + r], half);
        }
    }
}

// Converts LINES loads of weights.
template <int LINES>
DEVICE void widen_weights(const Vec<W_VECTOR> (&weights)[LOADS], int first, ACC_TYPE (&w)[LINES][ELEMENTS]) {
    UNROLL for (int r = 0; r < LINES; ++r) {
        UNROLL for (int e = 0; e < ELEMENTS; ++e) w[r][e] = element_of<W_CONJUGATE>(weights[first + r], e);
    }
}

// Reads X_PIECE adjacent k of a row of x from shared memory.
template <int LENGTH>
DEVICE void read_input(sptr<ACC_TYPE> from, ACC_TYPE (&x)[LENGTH], int first) {
    const Vec<X_PIECE * WORD> words = load_shared<X_PIECE * WORD>(from);
    UNROLL for (int i = 0; i < X_PIECE; ++i) x[first + i] = words.template get<ACC_TYPE>(i);
}

// sums[s][e] += w[k][e] * x[s][k], X_PIECE of a thread's adjacent k at a time.
DEVICE void multiply_columns(const Vec<W_VECTOR> (&weights)[LOADS], sptr<ACC_TYPE> buffer, const Spot &spot,
                             ACC_TYPE (&sums)[COUNT]) {
    UNROLL for (int part = 0; part < X_PARTS; ++part) {
        ACC_TYPE w[X_PIECE][ELEMENTS], x[X_PIECE];
        widen_weights(weights, part * X_PIECE, w);
        UNROLL for (int s = 0; s < SMALL; ++s) {
            read_input(buffer + (s * STEP + spot.lane * RUN + part * X_PIECE), x, 0);
            UNROLL for (int i = 0; i < X_PIECE * HALVES; ++i) {
                UNROLL for (int e = 0; e < ELEMENTS; ++e) sums[s * ELEMENTS + e] =
                    multiply_add(w[i / HALVES][e], x[i / HALVES], sums[s * ELEMENTS + e], i % HALVES);
            }
        }
    }
}

// sums[s][r] += w[r][k] * x[s][k], one load of each row at a time.
DEVICE void multiply_rows(const Vec<W_VECTOR> (&weights)[LOADS], sptr<ACC_TYPE> buffer, const Spot &spot,
                          ACC_TYPE (&sums)[COUNT]) {
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        ACC_TYPE w[ROWS][ELEMENTS], x[ELEMENTS];
        widen_weights(weights, item * ROWS, w);
        UNROLL for (int s = 0; s < SMALL; ++s) {
            const sptr<ACC_TYPE> from = buffer + (s * STEP + (item * X_PARTS * THREADS_K + spot.lane) * X_PIECE);
            UNROLL for (int p = 0; p < X_PARTS; ++p) read_input(from + p * THREADS_K * X_PIECE, x, p * X_PIECE);
            add_rows(sums, s, w, x);
        }
    }
}

#if !X_SHARED
// ---- x straight into registers

constexpr int X_PIECES = SMALL * ITEMS * ELEMENTS / X_ELEMENTS;

// Loads the elements of x that a thread needs in a step.
DEVICE void load_input(const Source &source, const Spot &spot, const Remaining &left, Vec<X_VECTOR> (&x)[X_PIECES]) {
    UNROLL for (int p = 0; p < X_PIECES; ++p) {
        constexpr int EACH = ELEMENTS / X_ELEMENTS;
        const int row = p / (ITEMS * EACH), item = p / EACH % ITEMS;
        const int k = spot.lane * RUN + item * THREADS_K * ELEMENTS + p % EACH * X_ELEMENTS;
        const bool inside = within(row, left.small_axis) && within(k, left.k);
        x[p] = load_global<X_VECTOR>(source.x + (row * source.x_small + k * source.x_k), inside);
    }
}

// The same with x in registers.
DEVICE void multiply_rows(const Vec<W_VECTOR> (&weights)[LOADS], const Vec<X_VECTOR> (&raw)[X_PIECES],
                          ACC_TYPE (&sums)[COUNT]) {
    constexpr int EACH = ELEMENTS / X_ELEMENTS;
    UNROLL for (int item = 0; item < ITEMS; ++item) {
        ACC_TYPE w[ROWS][ELEMENTS], x[ELEMENTS];
        widen_weights(weights, item * ROWS, w);
        UNROLL for (int s = 0; s < SMALL; ++s) {
            UNROLL for (int e = 0; e < ELEMENTS; ++e) x[e] =
                element_of<X_CONJUGATE>(raw[(s * ITEMS + item) * EACH + e / X_ELEMENTS], e % X_ELEMENTS);
            add_rows(sums, s, w, x);
        }
    }
}
#endif
