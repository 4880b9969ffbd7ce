// Assigns rows to threads, and reads a thread's elements of x step by step.
#pragma once
#include "rows_fold.cuh"
#include "unrolled.cuh"

constexpr bool COLUMNS = LAYOUT == 1;
constexpr int THREADS = THREADS_K * THREADS_M;
constexpr int ELEMENTS = VECTOR / (int)sizeof(IN_TYPE); // per access
constexpr int WIDTH = COLUMNS ? ELEMENTS : 1;           // rows of a thread
// A thread that scans columns has adjacent elements of them, so that threads exchange one word of a column per step.
enum : bool { TOGETHER = SCANS && COLUMNS };
constexpr int LANE_PITCH = TOGETHER ? ITEMS : COLUMNS ? 1 : ELEMENTS; // along k, between neighbouring lanes
constexpr int PACE = TOGETHER ? 1 : THREADS_K * LANE_PITCH;           // along k, between a thread's accesses
constexpr int STEP = THREADS_K * LANE_PITCH * (TOGETHER ? 1 : ITEMS); // elements of a row per step
constexpr int COUNT = ELEMENTS * ITEMS;                               // elements of a thread per step
constexpr int WORD = (int)sizeof(ACC_TYPE);

// Shared memory: states of the first pass, states of the second pass, then the rows that are kept (KEEP 2). Scans write
// one half of theirs while threads still read the other one.
template <int FOLD>
DEVICE constexpr int scratch_bytes() {
    constexpr int STATES = COLUMNS ? (THREADS_K > 1 ? THREADS * WIDTH : 0) : THREADS_K > 32 ? THREADS / 32 : 0;
    constexpr int SCANNED = !SCANS ? 1 : COLUMNS ? 2 : 2 * ITEMS;
    return (STATES * SCANNED * State<FOLD>::WORDS * WORD + 15) / 16 * 16;
}
constexpr int SECOND_SCRATCH = scratch_bytes<FIRST_FOLD>();
constexpr int KEPT_BASE = SECOND_SCRATCH + (TWO_PASSES ? scratch_bytes<SECOND_FOLD>() : 0);

// A thread's rows and its range of k.
struct Spot {
    Batch batch;
    i32 line;        // index among the rows of all batch entries; with LAYOUT 1, of the pair (batch entry, m)
    i32 row, column; // its index within the batch entry; the first column
    i32 lane;        // among the THREADS_K threads of the row
    bool inside;     // not past the last row or column
    i32 begin, end;  // range of k: one part of the split
    i32 part;
#if STAGED
    sptr<u8> staged; // the row in shared memory (rows_staged.cuh)
#endif
};

// Rows of a batch entry. Maps of columns have all their other kept axes in the batch.
DEVICE i32 entry_rows(const Params &params) {
    return COLUMNS && MAPS ? 1 : params.m;
}

DEVICE Spot find_spot(const Params &params) {
    const u32 tiles = (u32)params.tiles_m * (u32)params.tiles_n, block = (u32)block_index();
    // Without parts of k, there is one block per tile and no need to divide.
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

// A thread's next access to x: `position` is its k, counted through all digits, and `from` its address.
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

// Advances by PACE along k. Several digits are added one by one, with carries.
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

// A thread's elements of one step: [ITEMS][ELEMENTS].
struct Chunk {
    ACC_TYPE v[COUNT];
    bool inside[ITEMS];
    i32 first; // position of v[0]
};

DEVICE sptr<u8> kept_address(int item) {
    return shared_base() + (KEPT_BASE + (item * THREADS + thread_index()) * VECTOR);
}

// A vector of -inf, whose exponentials are zero.
template <class T>
DEVICE Vec<VECTOR> minus_infinities() {
    Vec<VECTOR> full = Vec<VECTOR>::zero();
    UNROLL for (int e = 0; e < ELEMENTS; ++e) full.set(e, convert<T>(lowest()));
    return full;
}

// A vector of elements that the first fold of staged rows ignores.
template <class T>
DEVICE Vec<VECTOR> ignored() {
    Vec<VECTOR> full = Vec<VECTOR>::zero();
    const ACC_TYPE word = neutral<FIRST_FOLD>().word[0];
    UNROLL for (int e = 0; e < ELEMENTS; ++e) {
        if constexpr (same_type<T, i8>) // narrower than ACC_TYPE, whose least and largest numbers it has not
            full.set(e, (T)(word < -128 ? -128 : word > 127 ? 127 : word));
        else if constexpr (same_type<T, i32>)
            full.set(e, (T)word);
        else
            full.set(e, convert<T>(word));
    }
    return full;
}

// Reads the elements of step number `step`: from x, or, in a later pass with KEEP 2, from shared memory.
template <bool AGAIN>
DEVICE void read_chunk(const Params &params, const Spot &spot, Source &source, int step, Chunk &chunk) {
    Vec<VECTOR> raw[ITEMS];
    chunk.first = spot.begin + spot.lane * LANE_PITCH + step * STEP;
    bool whole = true;
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        chunk.inside[i] = spot.inside && within(chunk.first + i * PACE, spot.end);
        whole = whole && chunk.inside[i];
#if STAGED
        raw[i] = chunk.inside[i] ? load_shared<VECTOR>(spot.staged + (step * ITEMS + i) * VECTOR) : ignored<IN_TYPE>();
#else
        if (KEEP == 2 && AGAIN) {
            raw[i] = load_shared<VECTOR>(kept_address(step * ITEMS + i));
        } else {
            raw[i] = load_global<VECTOR>(source.from, chunk.inside[i]);
            advance(params, source);
        }
#endif
    }
    if constexpr (TOGETHER)
        source.from = source.from + (i64)(STEP - ITEMS) * params.a_k;
    if (whole)
        cover("whole_step");
    else
        cover("partial_step");
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        if constexpr (EXPONENTIAL && !STAGED) {
            if (!chunk.inside[i])
                raw[i] = minus_infinities<IN_TYPE>();
        }
        if (KEEP == 2 && !AGAIN)
            store_shared(kept_address(step * ITEMS + i), raw[i]);
        UNROLL for (int e = 0; e < ELEMENTS; ++e) chunk.v[i * ELEMENTS + e] =
            convert<ACC_TYPE>(raw[i].template get<IN_TYPE>(e));
    }
}

// Calls body(chunk) for every step of the thread's range. Rows in registers (KEEP 1) are one step long.
template <bool AGAIN, class Body>
DEVICE void for_each_chunk(const Params &params, const Spot &spot, Chunk &chunk, const Body &body) {
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
