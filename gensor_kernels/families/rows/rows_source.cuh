// Which rows a thread works on, and its elements of x, step by step.
#pragma once
#include "rows_fold.cuh"
#include "unrolled.cuh"

constexpr bool COLUMNS = LAYOUT == 1;
constexpr int THREADS = THREADS_K * THREADS_M;
constexpr int ELEMENTS = VECTOR / (int)sizeof(IN_TYPE); // per access
constexpr int WIDTH = COLUMNS ? ELEMENTS : 1;           // rows whose elements a thread holds
constexpr int LANE_PITCH = COLUMNS ? 1 : ELEMENTS;      // of k between neighbouring lanes
constexpr int PACE = THREADS_K * LANE_PITCH;            // of k between a thread's accesses
constexpr int STEP = PACE * ITEMS;                      // of k per step
constexpr int COUNT = ELEMENTS * ITEMS;                 // elements a thread holds
constexpr int WORD = (int)sizeof(ACC_TYPE);

// Shared memory: the lanes' states of the first and the second pass, then rows that stay there (KEEP 2).
template <int FOLD>
DEVICE constexpr int scratch_bytes() {
    constexpr int STATES = COLUMNS ? (THREADS_K > 1 ? THREADS * WIDTH : 0) : THREADS_K > 32 ? THREADS / 32 : 0;
    return (STATES * State<FOLD>::WORDS * WORD + 15) / 16 * 16;
}
constexpr int SECOND_SCRATCH = scratch_bytes<FIRST_FOLD>();
constexpr int KEPT_BASE = SECOND_SCRATCH + (TWO_PASSES ? scratch_bytes<SECOND_FOLD>() : 0);

struct Spot {
    Batch batch;
    i32 line;        // number of the row among all rows (of the batch entry's rows of x where columns are rows)
    i32 row, column; // its index within the batch entry; its first column
    i32 lane;        // among the THREADS_K threads of the row
    bool inside;     // not past the last row or column
    i32 begin, end;  // range of k: one part of the split
    i32 part;
};

// Rows of a batch entry: columns that are mapped have their other kept axes in the batch.
DEVICE i32 entry_rows(const Params &params) {
    return COLUMNS && MAPS ? 1 : params.m;
}

DEVICE Spot find_spot(const Params &params) {
    const u32 tiles = (u32)params.tiles_m * (u32)params.tiles_n, block = (u32)block_index();
    // Without parts of k, a block has a whole tile of rows: there is no need to divide.
    const u32 tile = SPLIT || OPERATION == COPY ? block % tiles : block, thread = (u32)thread_index();
    const i32 rows = entry_rows(params), lines = params.batch * rows;
    Spot spot;
    spot.part = SPLIT || OPERATION == COPY ? (i32)(block / tiles) : 0;
    spot.lane = (i32)(COLUMNS ? thread / THREADS_M : thread % THREADS_K);
    const i32 group = (i32)(COLUMNS ? thread % THREADS_M : thread / THREADS_K);
    if (COLUMNS) {
        spot.line = (i32)(tile / (u32)params.tiles_n);
        spot.column = ((i32)(tile % (u32)params.tiles_n) * THREADS_M + group) * ELEMENTS;
        spot.inside = within(spot.column, params.n);
    } else {
        spot.line = (i32)tile * THREADS_M + group;
        spot.column = 0;
        spot.inside = within(spot.line, lines);
    }
    if (!spot.inside)
        cover("edge_rows");
    const i32 line = spot.inside ? spot.line : 0;
    spot.row = line;
    spot.batch = Batch{};
    if (params.batch > 1) {
        cover("batch_entries");
        spot.row = (i32)((u32)line % (u32)rows);
        spot.batch = split_batch(params, (i32)((u32)line / (u32)rows));
    }
    spot.begin = spot.part * params.k_per_split;
    spot.end = spot.begin + minimum(params.k_per_split, params.k - spot.begin);
    return spot;
}

// A thread's place in x: position is its k, counted through all digits, `from` the address of that element.
struct Source {
    gptr<IN_TYPE> from;
    i32 position;
    i32 middle, inner; // digits of k where it has several
};

DEVICE Source begin_source(const Params &params, const Spot &spot) {
    const i64 k_stride = A_UNIT && !COLUMNS ? 1 : params.a_k;
    Source source;
    source.position = spot.begin + spot.lane * LANE_PITCH;
    source.from = gptr<IN_TYPE>(params.a) + (batch_offset(params.a_batch, spot.batch) + spot.column);
    if (!(COLUMNS && MAPS))
        source.from = source.from + spot.row * params.a_m;
    if (DIGITS == 1) {
        source.from = source.from + source.position * k_stride;
        return source;
    }
    const i32 extent = params.rows.k_extent[1], outer = source.position / extent;
    source.inner = source.position % extent;
    source.middle = outer % params.rows.k_extent[0];
    source.from = source.from + (outer / params.rows.k_extent[0] * params.rows.k_stride[0] +
                                 source.middle * params.rows.k_stride[1] + source.inner * k_stride);
    return source;
}

// PACE further along k. With several digits, PACE is added digit by digit, and carried.
DEVICE void advance(const Params &params, Source &source) {
    const i64 k_stride = A_UNIT && !COLUMNS ? 1 : params.a_k;
    source.position += PACE;
    if (DIGITS == 1) {
        source.from = source.from + PACE * k_stride;
        return;
    }
    const i64 outer_stride = params.rows.k_stride[0], middle_stride = params.rows.k_stride[1];
    source.inner += params.advance[2];
    source.middle += params.advance[1];
    i64 offset = params.advance[0] * outer_stride + params.advance[1] * middle_stride + params.advance[2] * k_stride;
    if (!within(source.inner, params.rows.k_extent[1])) {
        cover("carry_inner");
        source.inner -= params.rows.k_extent[1];
        source.middle += 1;
        offset += middle_stride - params.rows.k_extent[1] * k_stride;
    }
    if (!within(source.middle, params.rows.k_extent[0])) {
        cover("carry_middle");
        source.middle -= params.rows.k_extent[0];
        offset += outer_stride - params.rows.k_extent[0] * middle_stride;
    }
    source.from = source.from + offset;
}

// A thread's elements of one step: ITEMS accesses of ELEMENTS each, in that order.
struct Chunk {
    ACC_TYPE v[COUNT];
    bool inside[ITEMS];
    i32 first; // position of v[0]
};

DEVICE sptr<u8> kept_place(int item) {
    return shared_base() + (KEPT_BASE + (item * THREADS + thread_index()) * VECTOR);
}

// An access full of -inf, whose exponential is zero.
template <class T>
DEVICE Vec<VECTOR> minus_infinities() {
    Vec<VECTOR> full = Vec<VECTOR>::zero();
    UNROLL for (int e = 0; e < ELEMENTS; ++e) full.set(e, convert<T>(lowest()));
    return full;
}

// Step number `step`. The first pass reads x; later ones read it again, or what was kept in shared memory.
template <bool AGAIN>
DEVICE void read_chunk(const Params &params, const Spot &spot, Source &source, int step, Chunk &chunk) {
    Vec<VECTOR> raw[ITEMS];
    chunk.first = spot.begin + spot.lane * LANE_PITCH + step * STEP;
    bool whole = true;
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        chunk.inside[i] = spot.inside && within(chunk.first + i * PACE, spot.end);
        whole = whole && chunk.inside[i];
        if (KEEP == 2 && AGAIN) {
            raw[i] = load_shared<VECTOR>(kept_place(step * ITEMS + i));
        } else {
            raw[i] = load_global<VECTOR>(source.from, chunk.inside[i]);
            advance(params, source);
        }
    }
    if (whole)
        cover("whole_step");
    else
        cover("partial_step");
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        if constexpr (EXPONENTIAL) {
            if (!chunk.inside[i])
                raw[i] = minus_infinities<IN_TYPE>();
        }
        if (KEEP == 2 && !AGAIN)
            store_shared(kept_place(step * ITEMS + i), raw[i]);
        UNROLL for (int e = 0; e < ELEMENTS; ++e) chunk.v[i * ELEMENTS + e] =
            convert<ACC_TYPE>(raw[i].template get<IN_TYPE>(e));
    }
}

// body(chunk) for every step of the thread's range. Rows that are kept in registers are one step long.
template <bool AGAIN, class Body>
DEVICE void each_chunk(const Params &params, const Spot &spot, Chunk &chunk, const Body &body) {
    if constexpr (KEEP == 1 && AGAIN) {
        body(chunk);
    } else {
        Source source = begin_source(params, spot);
        if constexpr (KEEP == 1) {
            read_chunk<false>(params, spot, source, 0, chunk);
            body(chunk);
        } else {
            i32 step = 0;
            ROLLED for (i32 at = spot.begin; within(at, spot.end); at += STEP) {
                read_chunk<AGAIN>(params, spot, source, step++, chunk);
                body(chunk);
            }
        }
    }
}
