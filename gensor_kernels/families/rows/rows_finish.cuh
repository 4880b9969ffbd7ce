// Computes C from folded rows: one result per row or a map of its elements, and then the epilogue.
#pragma once
#include "rows_lanes.cuh"

// Adjacent outputs of one store to C.
constexpr int C_WIDTH = C_UNIT ? minimum(ELEMENTS, C_VECTOR / (int)sizeof(OUT_TYPE)) : 1;
constexpr bool REAL = same_type<ACC_TYPE, float> || same_type<ACC_TYPE, double>;

// Results of the folds of a thread's rows: (mean, sum of squared deviations), (maximum, sum of exponentials), (value,
// index), or one word.
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

// Runs the epilogue. Integers have none.
template <int GROUP, class T, int SIZE, class Placement>
DEVICE void run_epilogue(const Params &params, const Batch &batch, T (&values)[SIZE], const Placement &place) {
    if constexpr (same_type<T, float> || same_type<T, double>)
        run_steps<0, OUT_TYPE, GROUP>(params, batch, values, place);
}

// ---- one result per row

template <class T>
DEVICE auto result_of(const Params &params, T first, T second) {
    if constexpr (ARGUMENT)
        return word_to_index(second);
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
    constexpr int GROUP = COLUMNS ? C_WIDTH : 1;
    run_epilogue<GROUP>(params, spot.batch, values, place);
    store_outputs<OUT_TYPE, GROUP, C_UNIT>(params, spot.batch, values, place);
}

// ---- maps

// The numbers by which each row's elements are mapped.
struct Factors {
    ACC_TYPE center[WIDTH], scale[WIDTH];
};

// Computes these numbers for one row from the results of its folds.
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
    if constexpr (HOLDS_TERMS)
        return x * scale;
    else if constexpr (OPERATION == SOFTMAX)
        return exp_of_element(x - center) * scale;
    else if constexpr (OPERATION == LOG_SOFTMAX)
        return x - center - scale;
    else if constexpr (OPERATION == COPY || SCANS)
        return x;
    else
        return (x - center) * scale;
}

// Places of mapped elements in C: (k, column) with LAYOUT 1, else (row, k). Group 0 is at k = first + offset.
struct MapPlaces {
    i32 row, column, first, offset;
    bool inside;
    // Distance of a group from group 0 along k, and along the elements of an access.
    static MEMBER i32 along_k(int group) { return group * C_WIDTH / ELEMENTS * PACE; }
    static MEMBER i32 within_access(int group) { return group * C_WIDTH % ELEMENTS; }
    MEMBER Place operator()(int group) const {
        const i32 k = first + offset + along_k(group), along = within_access(group);
        return COLUMNS ? Place{k, column + along, inside} : Place{row, k + along, inside};
    }
};

// Converts and stores outputs of one row. The distances between their places in C are constants.
template <int COUNT>
DEVICE void store_in_row(const Params &params, const Spot &spot, const ACC_TYPE (&v)[COUNT], const MapPlaces &place) {
    const i64 stride = C_UNIT ? 1 : params.c_n;
    const gptr<OUT_TYPE> c =
        gptr<OUT_TYPE>(params.c) + (batch_offset(params.c_batch, spot.batch) + place.row * params.c_m +
                                    (place.first + (i64)place.offset) * stride);
    UNROLL for (int g = 0; g < COUNT / C_WIDTH; ++g) {
        const i32 along = MapPlaces::along_k(g) + MapPlaces::within_access(g);
#if STAGED
        const i32 at = place.first + place.offset + along;
        if (within(at, params.n))
            store_shared(spot.staged + at * (int)sizeof(OUT_TYPE),
                         finished<OUT_TYPE, C_WIDTH>(params, &v[g * C_WIDTH]));
#else
        store_global(c + along * stride, finished<OUT_TYPE, C_WIDTH>(params, &v[g * C_WIDTH]),
                     place.inside && within(place.first + place.offset + along, params.n));
#endif
    }
}

// Outputs per epilogue: few, because its operands need registers in addition to a thread's elements.
constexpr int AT_ONCE = minimum(COUNT, 16);

DEVICE void store_group(const Params &params, const Spot &spot, const ACC_TYPE *v, const Factors &f, i32 first,
                        i32 offset) {
    ACC_TYPE values[AT_ONCE];
    UNROLL for (int i = 0; i < AT_ONCE; ++i) {
        const int c = COLUMNS ? i % ELEMENTS : 0;
        values[i] = mapped(v[i], f.center[c], f.scale[c]);
    }
    const MapPlaces place = {spot.row, spot.column, first, offset, spot.inside};
    run_epilogue<C_WIDTH>(params, spot.batch, values, place);
    if constexpr (COLUMNS)
        store_outputs<OUT_TYPE, C_WIDTH, C_UNIT>(params, spot.batch, values, place);
    else
        store_in_row(params, spot, values, place);
}

DEVICE void store_mapped(const Params &params, const Spot &spot, const Chunk &chunk, const Factors &f) {
    constexpr int ROUNDS = COUNT / AT_ONCE, ROUND_STRIDE = AT_ONCE / ELEMENTS * PACE;
    if constexpr (ROUNDS == 1 || EPILOGUE_CODES != 0) {
        unrolled<ROUNDS>([&](int round) {
            store_group(params, spot, &chunk.v[round * AT_ONCE], f, chunk.first, round * ROUND_STRIDE);
        });
    } else {
        // The loop is rolled, so the code has a run-time epilogue once. Rotation keeps register numbers constant.
        Chunk left = chunk;
        ROLLED for (int round = 0; round < ROUNDS; ++round) {
            store_group(params, spot, left.v, f, left.first, round * ROUND_STRIDE);
            rotate<AT_ONCE>(left.v);
        }
    }
}

// The last pass: maps and stores the thread's elements. With AGAIN, an earlier pass has read them.
template <bool AGAIN>
DEVICE void map_rows(const Params &params, const Spot &spot, const Totals &totals, Chunk &chunk) {
    Factors factors = {};
    UNROLL for (int c = 0; c < WIDTH; ++c)
        factors_of(params, totals.first[c], totals.second[c], factors.center[c], factors.scale[c]);
    for_each_chunk<AGAIN>(params, spot, chunk,
                          [&](const Chunk &elements) { store_mapped(params, spot, elements, factors); });
}
