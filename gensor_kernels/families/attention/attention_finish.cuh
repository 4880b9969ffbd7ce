// Attention: stores a warp's sums as outputs, or in the workspace if the keys are split, and the launch that combines
// the parts. A row's softmax ends here, with its sink and its logarithm.
//
// The workspace holds the sums of every part as [part, entry, row, workspace_columns] of float, not yet divided, and
// after them (largest score, total weight) as [part, entry, row].
#pragma once
#include "attention_work.cuh"
#include "dependent.cuh"
#include "mma_slab.cuh"

struct OnePlace {
    Place at;
    MEMBER Place operator()(int) const { return at; }
};
// Places of pairs of columns of adjacent fragments, in one row.
struct PairPlacement {
    Place first;
    MEMBER Place operator()(int g) const {
        const int value = g * WIDTH;
        return Place{first.row, first.column + value / 2 * 8 + value % 2, first.valid};
    }
};

DEVICE i64 workspace_columns(i32 n) {
    return ((i64)n + 3) / 4 * 4;
}
// Index of a row of all parts; `line` is its index in all entries.
DEVICE i64 workspace_line(const Params &params, i32 part, i64 line) {
    return (i64)part * params.batch * params.m + line;
}
DEVICE gptr<float> workspace_sums(const Params &params, i32 part, i64 line) {
    return gptr<float>(params.workspace) + workspace_line(params, part, line) * workspace_columns(params.n);
}
DEVICE gptr<float> workspace_totals(const Params &params, i32 part, i64 line) {
    return workspace_sums(params, params.split, 0) + workspace_line(params, part, line) * 2;
}

// Whether the block computes this row of its tile. (Rows past the entry's last row are not stored in any case.)
DEVICE bool is_own(const Work &work, i32 row) {
    return WHOLE_QUERIES ? within(row, work.end) : true;
}
// Index of the sequence's row 0 in the rows of all entries.
DEVICE i64 first_line(const Params &params, const Work &work) {
#if RAGGED
    return ((i64)work.entry * params.m + work.first_query) * params.batch_inner[1];
#else
    return (i64)work.entry * work.rows;
#endif
}
// The place of a row of the block in C. Rows past the last one are past the edge of C, but rows past a sequence or a
// tile of whole queries belong to the next one.
DEVICE Place place_of(const Params &params, const Work &work, i32 row, i32 column) {
    const i32 query = row / params.batch_inner[1];
#if RAGGED
    return Place{work.first_query + query, column, within(row, work.end)};
#else
    return Place{query, column, is_own(work, row)};
#endif
}

#if SINKS || LSE
// Words of Params' tail after struct Attention: addresses of the sinks, one per query head, and of the logarithms of
// the denominators, float (batch, query heads, queries).
constexpr int SINKS_WORD = 14, LOGARITHMS_WORD = 15;
static_assert(sizeof(Attention) <= SINKS_WORD * sizeof(u64), "Addresses follow the other arguments of attention.");

// A score in registers as the natural exponent that it stands for.
DEVICE float exponent_of(const Params &params, float score) {
    const float scaled = MASK == MASK_ADDED ? score : score * score_scale(params);
    return SOFTCAP ? scaled - params.attention.softcap : scaled;
}

// Ends the total weight of a row, relative to its largest score `top`: adds the sink of its head, and stores the
// logarithm if the thread `stores` it. Returns the divisor of sums that are relative to `top`; 0: they are nothing.
// `member` is the row's head within the heads that share a head of K and V.
DEVICE float end_total(const Params &params, i32 entry, i32 member, i32 query, float top, float total, bool inside,
                       bool stores) {
    const i32 group = params.batch_inner[1];
    float base = exponent_of(params, top), divisor = total;
#if SINKS
    const gptr<SINK_TYPE> from =
        gptr<SINK_TYPE>(params.tail[SINKS_WORD]) + (entry % params.batch_inner[0] * group + member);
    const float sink = (float)widen(load_global<(int)sizeof(SINK_TYPE)>(from, inside).template get<SINK_TYPE>(0));
    const float before = base;
    base = maximum_(before, sink);
    const float kept = before == minus_infinity() ? 0.0f : exp_(before - base);
    const float own = sink == minus_infinity() ? 0.0f : sink == base ? 1.0f : exp_(sink - base);
    total = fma_(total, kept, own);
    divisor = kept == 0.0f ? 0.0f : total / kept;
    if (kept == 0.0f)
        cover("sink_alone");
    else
        cover("sink");
#endif
#if LSE
    const gptr<float> to =
        gptr<float>(params.tail[LOGARITHMS_WORD]) + ((i64)(entry * group + member) * params.m + query);
    Vec<4> logarithm;
    logarithm.set(0, base + log_(total));
    store_global(to, logarithm, stores);
    if (base == minus_infinity())
        cover("lse_of_nothing");
    else
        cover("lse");
#endif
    return divisor;
}
#endif

// Ends the totals of the warp's rows; one lane per row stores the logarithm.
DEVICE void end_totals([[maybe_unused]] const Params &params, [[maybe_unused]] const Work &work,
                       [[maybe_unused]] int first_row, [[maybe_unused]] WarpMath &math) {
#if SINKS || LSE
    const int lane = thread_index() & 31;
    const i32 group = params.batch_inner[1];
    UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
        const i32 row = first_row + i * 16 + half * 8 + (lane >> 2);
        const i32 query = row / group + (RAGGED ? work.first_query : 0);
        const bool inside = within(row, work.end);
        float &total = math.total[i][half];
        total = end_total(params, work.entry, row % group, query, math.top[i][half], total, inside,
                          inside && (lane & 3) == 0);
    }
#endif
}

// Stores the outputs of one row of the block, or its partial sums.
template <int COUNT, class Placement>
DEVICE void finish_row(const Params &params, const Work &work, float (&values)[COUNT], Placement place, i32 row) {
#if SPLIT
    UNROLL for (int g = 0; g < COUNT / WIDTH; ++g) {
        const Place at = place(g);
        Vec<WIDTH * 4> packed = Vec<WIDTH * 4>::zero();
        UNROLL for (int i = 0; i < WIDTH; ++i) packed.set(i, values[g * WIDTH + i]);
        const bool inside = within(row, work.end) && within(at.column, params.n);
        store_global(workspace_sums(params, work.part, first_line(params, work) + row) + at.column, packed, inside);
    }
#else
    Batch batch = work.batch;
    batch.index[2] = row % params.batch_inner[1];
    finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, batch, values, place);
#endif
}

#if EPILOGUE_STAGED
DEVICE void store_sums(sptr<u8> slab, const WarpMath &math, int i) {
    ACC_TYPE fragments[FRAGMENTS_N][4];
    UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int v = 0; v < 4; ++v) fragments[j][v] = math.sum(i, j, v);
    store_slab(slab, fragments);
}

DEVICE void finish_warp(const Params &params, const Work &work, int first_row, const WarpMath &math) {
    const int lane = thread_index() & 31;
    const sptr<u8> slab = shared_base() + (SLABS + (thread_index() >> 5) * SLAB_BYTES);
    ROLLED for (int i = 0; i < FRAGMENTS_M; ++i) {
        UNROLL for (int f = 0; f < FRAGMENTS_M; ++f) // a constant index keeps the sums in registers
            if (f == i) store_sums(slab, math, f);
        warp_barrier();
        ROLLED for (int g = lane; g < SLAB_GROUPS; g += 32) {
            float values[WIDTH];
            load_slab_group(slab, g, values);
            const int row = first_row + i * 16 + g / ROW_GROUPS;
            const Place at = place_of(params, work, row, g % ROW_GROUPS * WIDTH);
            finish_row(params, work, values, OnePlace{at}, row);
        }
        warp_barrier();
    }
}
#else
// BATCH fragments of one of the two rows at a time.
DEVICE void finish_warp(const Params &params, const Work &work, int first_row, const WarpMath &math) {
    constexpr int BATCH = FRAGMENTS_N % 4 == 0 ? 4 : 2, BATCHES = FRAGMENTS_N / BATCH;
    const int lane = thread_index() & 31;
    ROLLED for (int u = 0; u < FRAGMENTS_M * 2 * BATCHES; ++u) {
        float values[BATCH * 2];
        UNROLL for (int f = 0; f < FRAGMENTS_M * 2 * BATCHES; ++f) {
            if (f == u) {
                UNROLL for (int v = 0; v < BATCH * 2; ++v) values[v] =
                    math.sum(f / (2 * BATCHES), f % BATCHES * BATCH + v / 2, f / BATCHES % 2 * 2 + v % 2);
            }
        }
        const int row = first_row + u / (2 * BATCHES) * 16 + u / BATCHES % 2 * 8 + (lane >> 2);
        const Place at = place_of(params, work, row, u % BATCHES * BATCH * 8 + (lane & 3) * 2);
        finish_row(params, work, values, PairPlacement{at}, row);
    }
}
#endif

#if SPLIT
// One lane per row stores the largest score and the total weight of this part.
DEVICE void store_totals(const Params &params, const Work &work, int first_row, const WarpMath &math) {
    const int lane = thread_index() & 31;
    UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
        const int row = first_row + i * 16 + half * 8 + (lane >> 2);
        Vec<8> both;
        both.set(0, math.top[i][half]);
        both.set(1, math.total[i][half]);
        const bool inside = within(row, work.end) && (lane & 3) == 0;
        store_global(workspace_totals(params, work.part, first_line(params, work) + row), both, inside);
    }
}

constexpr int COMBINE_THREADS = 256;
// Outputs per thread of the second launch: one store into C.
constexpr int COMBINE_WIDTH = C_UNIT ? C_VECTOR / (int)sizeof(OUT_TYPE) : 1;

// Adds the `share` of one more part to the `kept` share of adjacent sums.
DEVICE void add_share(float (&sum)[COMBINE_WIDTH], float kept, gptr<float> from, float share, bool inside) {
    constexpr int BYTES = minimum(16, COMBINE_WIDTH * 4), EACH = BYTES / 4;
    UNROLL for (int v = 0; v < COMBINE_WIDTH / EACH; ++v) {
        const Vec<BYTES> packed = load_finished<BYTES>(from + v * EACH, inside);
        UNROLL for (int i = 0; i < EACH; ++i) sum[v * EACH + i] =
            fma_(sum[v * EACH + i], kept, packed.template get<float>(i) * share);
    }
}

// Combines the parts in order (so that every run gives the same bits), divides, and applies the epilogue.
// Grid: ceil(batch * m * ceil(n / COMBINE_WIDTH) / 256) blocks of 256 threads, no shared memory.
KERNEL(attention_combine, Params, COMBINE_THREADS, 0) {
    grid_dependency_wait();
    const i32 group = params.batch_inner[1], rows = params.m * group, columns = divide_up(params.n, COMBINE_WIDTH);
    const i64 index = (i64)block_index() * COMBINE_THREADS + thread_index();
    const bool inside = within(index / columns, (i64)params.batch * params.m);
    const i64 line = inside ? index / columns : 0; // entry * rows + row
    const i32 entry = (i32)(line / rows), row = (i32)(line % rows), column = (i32)(index % columns) * COMBINE_WIDTH;
    const float unit = score_unit(params);
    float largest = minus_infinity(), total = 0, sum[COMBINE_WIDTH] = {};
    UNROLL_BY_4 for (i32 part = 0; within(part, params.split); ++part) {
        const Vec<8> both = load_finished<8>(workspace_totals(params, part, line), inside);
        const float before = largest;
        largest = maximum_(largest, both.get<float>(0));
        const float base = largest == minus_infinity() ? 0.0f : largest; // as in WarpMath::weigh
        const float kept = weight_of(before, base, unit), share = weight_of(both.get<float>(0), base, unit);
        total = fma_(total, kept, both.get<float>(1) * share);
        add_share(sum, kept, workspace_sums(params, part, line) + column, share, inside);
    }
    cover("split_reduce");
#if SINKS || LSE // the sink is no part of any part
    total = end_total(params, entry, row % group, row / group, largest, total, inside, inside && column == 0);
#endif
    const float whole = total == 0.0f ? 0.0f : 1.0f / total;
    UNROLL for (int i = 0; i < COMBINE_WIDTH; ++i) sum[i] *= whole;
    const Batch batch = {{entry / params.batch_inner[0], entry % params.batch_inner[0], row % group}};
    finish_outputs<OUT_TYPE, COMBINE_WIDTH, C_UNIT>(params, batch, sum, OnePlace{Place{row / group, column, inside}});
}
#endif
