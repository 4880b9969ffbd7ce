// From folded rows to C: one result per row, or a map over its elements, then the epilogue.
#pragma once
#include "rows_lanes.cuh"

// Adjacent outputs of one store into C.
constexpr int C_WIDTH = C_UNIT ? minimum(ELEMENTS, C_VECTOR / (int)sizeof(OUT_TYPE)) : 1;
constexpr bool REAL = same_type<ACC_TYPE, float> || same_type<ACC_TYPE, double>;

// What a fold has found of each of a thread's rows: (mean, sum of squared deviations), (maximum, sum of
// exponentials), (value, index), or one word.
struct Totals {
    ACC_TYPE first[WIDTH], second[WIDTH];
};

template <int FOLD>
DEVICE Totals totals_of(const State<FOLD> (&states)[WIDTH]) {
    constexpr int WORDS = State<FOLD>::WORDS;
    Totals totals;
    UNROLL for (int c = 0; c < WIDTH; ++c) {
        totals.first[c] = states[c].word[WORDS - (WORDS > 1 ? 2 : 1)];
        totals.second[c] = states[c].word[WORDS - 1];
    }
    return totals;
}

// Epilogue and stores; integers have no epilogue.
template <int GROUP, class T, int SIZE, class Placement>
DEVICE void finish(const Params &params, const Batch &batch, T (&values)[SIZE], const Placement &place) {
    if constexpr (same_type<T, float> || same_type<T, double>)
        finish_outputs<OUT_TYPE, GROUP, C_UNIT>(params, batch, values, place);
    else
        store_outputs<OUT_TYPE, GROUP, C_UNIT>(params, batch, values, place);
}

// ---- one result per row

template <class T>
DEVICE auto result_of(const Params &params, T first, T second) {
    if constexpr (ARGUMENT)
        return word_index(second);
    else if constexpr (OPERATION == MEAN)
        return first / T(params.k);
    else if constexpr (OPERATION == L2_NORM)
        return sqrt_(first);
    else if constexpr (OPERATION == VARIANCE)
        return second / (T(params.k) - T(params.rows.value));
    else if constexpr (OPERATION == LOGSUMEXP)
        return first == highest() ? first : shift_of(first) + log_(second);
    else
        return first;
}

struct RowPlaces {
    i32 row, column;
    bool valid;
    MEMBER Place operator()(int group) const { return Place{row, column + group * C_WIDTH, valid}; }
};

DEVICE void store_results(const Params &params, const Spot &spot, const Totals &totals) {
    decltype(result_of(params, totals.first[0], totals.second[0])) values[WIDTH];
    UNROLL for (int c = 0; c < WIDTH; ++c) values[c] = result_of(params, totals.first[c], totals.second[c]);
    const RowPlaces place = {spot.row, spot.column, spot.inside && within(spot.lane, 1)};
    finish<COLUMNS ? C_WIDTH : 1>(params, spot.batch, values, place);
}

// ---- maps

// What every element of a row is mapped with.
struct Factors {
    ACC_TYPE center[WIDTH], scale[WIDTH];
};

// Of one row, from what was folded.
template <class T>
DEVICE void factors_of(const Params &params, T first, T second, T &center, T &scale) {
    if constexpr (EXPONENTIAL) {
        center = shift_of(first);
        scale = OPERATION == SOFTMAX ? T(1) / second : log_(second);
    } else if constexpr (OPERATION == LAYERNORM || OPERATION == RMSNORM) {
        center = OPERATION == LAYERNORM ? first : T(0);
        scale = T(1) / sqrt_(second / T(params.k) + T(params.rows.value));
    }
}

template <class T>
DEVICE T mapped(T x, T center, T scale) {
    if constexpr (HOLDS_EXPONENTIALS)
        return x * scale;
    else if constexpr (OPERATION == SOFTMAX)
        return exp_of_negative(x - center) * scale;
    else if constexpr (OPERATION == LOG_SOFTMAX)
        return x - center - scale;
    else if constexpr (OPERATION == COPY)
        return x;
    else
        return (x - center) * scale;
}

// Mapped elements are outputs at (k, column) of columns, at (row, k) of rows.
struct MapPlaces {
    i32 row, column, first;
    bool inside;
    MEMBER Place operator()(int group) const {
        const i32 k = first + group * C_WIDTH / ELEMENTS * PACE, along = group * C_WIDTH % ELEMENTS;
        return COLUMNS ? Place{k, column + along, inside} : Place{row, k + along, inside};
    }
};

// Outputs that pass through the epilogue at once: few, because its operands come on top of a thread's elements.
constexpr int AT_ONCE = minimum(COUNT, 16);

DEVICE void store_some(const Params &params, const Spot &spot, const ACC_TYPE *v, const Factors &f, i32 first) {
    ACC_TYPE values[AT_ONCE];
    UNROLL for (int i = 0; i < AT_ONCE; ++i) {
        const int c = COLUMNS ? i % ELEMENTS : 0;
        values[i] = mapped(v[i], f.center[c], f.scale[c]);
    }
    finish<C_WIDTH>(params, spot.batch, values, MapPlaces{spot.row, spot.column, first, spot.inside});
}

DEVICE void store_mapped(const Params &params, const Spot &spot, const Chunk &chunk, const Factors &f) {
    constexpr int ROUNDS = COUNT / AT_ONCE, FURTHER = AT_ONCE / ELEMENTS * PACE;
    if constexpr (ROUNDS == 1 || EPILOGUE_CODES != 0) {
        unrolled<ROUNDS>(
            [&](int round) { store_some(params, spot, &chunk.v[round * AT_ONCE], f, chunk.first + round * FURTHER); });
    } else {
        // Rolled, so that a run-time epilogue is in the code once; rotating keeps register numbers constant.
        Chunk left = chunk;
        ROLLED for (int round = 0; round < ROUNDS; ++round) {
            store_some(params, spot, left.v, f, left.first);
            left.first += FURTHER;
            rotate<AT_ONCE>(left.v);
        }
    }
}

// The last pass: what each thread's elements, read once more or still at hand, become.
template <bool AGAIN>
DEVICE void map_rows(const Params &params, const Spot &spot, const Totals &totals, Chunk &chunk) {
    Factors factors = {};
    UNROLL for (int c = 0; c < WIDTH; ++c)
        factors_of(params, totals.first[c], totals.second[c], factors.center[c], factors.scale[c]);
    each_chunk<AGAIN>(params, spot, chunk, [&](const Chunk &here) { store_mapped(params, spot, here, factors); });
}
