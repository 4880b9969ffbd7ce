// Products whose rows are normalised: C = after(norm(before(A * B))). The first `params.normed.before` operations of
// the epilogue (a bias, a residual) come before the norm, and the others (a weight, a bias) after it.
//
// A warp normalises a row, 32 * NORM_VALUES columns at a time. Its sums come from (EPILOGUE_STAGED):
//   2     shared memory: the block computes all columns of its rows and stores its sums there as a tile
//   0, 1  the workspace: sums of all parts of k, even of a single one, and a second launch normalises the rows
// If a row has no more columns than that, registers hold it; a longer one is read again for mean, variance and result.
//
// Include this header after the family's parameters: it uses NORM, BLOCK_M, BLOCK_N and THREADS.
#pragma once
#include "contraction.cuh"

#if NORM
static_assert(!same_type<ACC_TYPE, i32> && !is_complex<ACC_TYPE>, "Rows of real numbers are normalised.");
static_assert(!EPILOGUE_CODES, "Which operations come before the norm is known at run time only.");
static_assert(!A_WINDOW && !B_WINDOW && !GATE && !RAGGED_ROWS, "A norm has the bytes of Params that these have.");

constexpr int NORM_WORD = (int)sizeof(ACC_TYPE);
constexpr int NORM_WIDTH = C_UNIT ? C_VECTOR / (int)sizeof(OUT_TYPE) : 1; // columns per store to C
constexpr int NORM_GROUPS = NORM_WIDTH < 8 ? 8 / NORM_WIDTH : 1;
constexpr int NORM_VALUES = NORM_GROUPS * NORM_WIDTH, NORM_SPAN = 32 * NORM_WIDTH, NORM_CHUNK = 32 * NORM_VALUES;

// A lane's columns of a row: NORM_GROUPS groups, NORM_SPAN apart.
struct NormPlacement {
    i32 row, column;
    MEMBER Place operator()(int group) const { return Place{row, column + group * NORM_SPAN, true}; }
};

DEVICE ACC_TYPE warp_sum(ACC_TYPE value) {
    UNROLL for (int step = 1; step < 32; step *= 2) value = value + shuffle_xor(value, step);
    return value;
}

// Applies operations [from, to) of the epilogue.
DEVICE void apply_steps(const Params &params, i32 from, i32 to, const Batch &batch, ACC_TYPE (&v)[NORM_VALUES],
                        const NormPlacement &place) {
    ROLLED for (i32 s = from; within(s, to); ++s) run_step<0, OUT_TYPE, NORM_WIDTH>(params, s, batch, v, place);
}

// Normalises and stores a row; source(column, values) loads its sums. All lanes of a warp call this function. Pass 0
// computes the mean (NORM 1), pass 1 the variance or the mean square (NORM 2), and pass 2 stores.
template <class Source>
DEVICE void finish_row(const Params &params, const Batch &batch, i32 row, const Source &source) {
    constexpr int FIRST = NORM == 1 ? 0 : 1;
    const i32 before = minimum(params.normed.before, params.steps);
    const bool held = params.n <= NORM_CHUNK;
    const ACC_TYPE count = (ACC_TYPE)params.n;
    ACC_TYPE v[NORM_VALUES] = {}, mean = 0, scale = 0;
    cover("norm");
    ROLLED for (int pass = FIRST; pass < 3; ++pass) {
        ACC_TYPE sum = 0;
        ROLLED for (i32 first = 0; within(first, params.n); first += NORM_CHUNK) {
            const NormPlacement place = {row, first + (thread_index() & 31) * NORM_WIDTH};
            if (pass == FIRST || !held) {
                UNROLL for (int g = 0; g < NORM_GROUPS; ++g) source(place(g).column, v + g * NORM_WIDTH);
                apply_steps(params, 0, before, batch, v, place);
            }
            UNROLL for (int i = 0; i < NORM_VALUES; ++i) {
                const ACC_TYPE centred = v[i] - mean, term = pass == 0 ? v[i] : centred * centred;
                if (pass == 2)
                    v[i] = centred * scale;
                else if (within(place(i / NORM_WIDTH).column + i % NORM_WIDTH, params.n))
                    sum = sum + term;
            }
            if (pass == 2) {
                apply_steps(params, before, params.steps, batch, v, place);
                store_outputs<OUT_TYPE, NORM_WIDTH, C_UNIT>(params, batch, v, place);
            }
        }
        sum = warp_sum(sum) / count;
        if (pass == 0)
            mean = sum;
        else
            scale = ACC_TYPE(1) / sqrt_(sum + (ACC_TYPE)params.normed.eps);
    }
}

#if SPLIT
// Loads the sums of a row from the workspace, part by part.
struct PartsOfRow {
    const Params &params;
    i32 entry, row;
    MEMBER void operator()(i32 column, ACC_TYPE *values) const {
        ACC_TYPE sum[NORM_WIDTH] = {};
        add_parts(params, sum, workspace_row(params, 0, entry, row) + column, within(column, params.n));
        UNROLL for (int i = 0; i < NORM_WIDTH; ++i) values[i] = sum[i];
    }
};

// The second launch. Grid: ceil(batch * m / 8) blocks of 256 threads, no shared memory.
KERNEL(contraction_normalise, Params, REDUCE_THREADS, 0) {
    grid_dependency_wait();
    const i64 line = (i64)block_index() * (REDUCE_THREADS / 32) + thread_index() / 32;
    if (!within(line, (i64)params.batch * params.m))
        return;
    const i32 entry = (i32)(line / params.m), row = (i32)(line % params.m);
    cover("split_reduce");
    finish_row(params, split_batch(params, entry), row, PartsOfRow{params, entry, row});
}
#else
// The tile replaces the operand tiles. A row is padded to whole 16-byte chunks and another 8 words, so that the rows of
// accumulators of mma.sync start at different banks.
constexpr int NORM_ROW = (BLOCK_N * NORM_WORD + 15) / 16 * 16 / NORM_WORD + 8;

struct RowOfTile {
    sptr<ACC_TYPE> from;
    MEMBER void operator()(i32 column, ACC_TYPE *values) const {
        constexpr int BYTES = minimum(16, NORM_WIDTH * NORM_WORD), EACH = BYTES / NORM_WORD;
        const bool inside = within(column, BLOCK_N);
        UNROLL for (int i = 0; i < NORM_WIDTH; ++i) values[i] = 0;
        if (inside) {
            UNROLL for (int i = 0; i < NORM_WIDTH; ++i) values[i] =
                load_shared<BYTES>(from + (column + i / EACH * EACH)).template get<ACC_TYPE>(i % EACH);
        }
    }
};

// Normalises the rows of the tile, which are distributed to the warps. A barrier must precede this call.
DEVICE void finish_tile(const Params &params, const Tile &tile) {
    const sptr<ACC_TYPE> sums = shared_base().as<ACC_TYPE>();
    ROLLED for (i32 row = thread_index() / 32; within(row, BLOCK_M); row += THREADS / 32) {
        if (within(tile.row + row, params.m))
            finish_row(params, tile.batch, tile.row + row, RowOfTile{sums + row * NORM_ROW});
    }
}
#endif
#endif
