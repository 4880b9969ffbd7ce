// The multiply-adds of a step of gemv.cu.
#pragma once
#include "gemv_tile.cuh"

// sums[s][r] += w[r][.] * x[.] over a thread's adjacent k.
DEVICE void add_rows(ACC_TYPE (&sums)[COUNT], int s, const ACC_TYPE (&w)[ROWS][ELEMENTS],
                     const ACC_TYPE (&x)[ELEMENTS]) {
    UNROLL for (int half = 0; half < HALVES; ++half) {
        UNROLL for (int e = 0; e < ELEMENTS; ++e) {
            UNROLL for (int r = 0; r < ROWS; ++r) sums[s * ROWS + r] =
                multiply_add(w[r][e], x[e], sums[s * ROWS + r], half);
        }
    }
}

template <int LINES>
DEVICE void widen_weights(const Vec<W_VECTOR> (&weights)[LOADS], int first, ACC_TYPE (&w)[LINES][ELEMENTS]) {
    UNROLL for (int r = 0; r < LINES; ++r) {
        UNROLL for (int e = 0; e < ELEMENTS; ++e) w[r][e] = element_of<W_CONJUGATE>(weights[first + r], e);
    }
}

#if X_SHARED
// X_PIECE adjacent k of a row of x.
template <int LENGTH>
DEVICE void read_input(sptr<ACC_TYPE> from, ACC_TYPE (&x)[LENGTH], int first) {
    const Vec<X_PIECE * WORD> words = load_shared<X_PIECE * WORD>(from);
    UNROLL for (int i = 0; i < X_PIECE; ++i) x[first + i] = words.template get<ACC_TYPE>(i);
}
#endif

#if W_COLUMNS
// sums[s][e] += w[k][e] * x[s][k], X_PIECE of a thread's adjacent k at a time.
DEVICE void multiply_step(const Vec<W_VECTOR> (&weights)[LOADS], sptr<ACC_TYPE> buffer, const Spot &spot,
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
#elif X_SHARED
DEVICE void multiply_step(const Vec<W_VECTOR> (&weights)[LOADS], sptr<ACC_TYPE> buffer, const Spot &spot,
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
#else
DEVICE void multiply_step(const Vec<W_VECTOR> (&weights)[LOADS], const Vec<X_VECTOR> (&raw)[X_PIECES],
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
