// The contraction families share this header: the tile that a block computes, and the second launch of split-K.
// Include it after the family's parameters: it uses IN_TYPE, OUT_TYPE, ACC_TYPE, C_UNIT, C_VECTOR, SPLIT, GATE,
// GATE_BIAS, RAGGED_ROWS, NORM, PACKED and STREAM.
#pragma once
// Defaults of families without these options.
#pragma parameter GATE 0
#pragma parameter GATE_BIAS 0
#pragma parameter RAGGED_ROWS 0
#pragma parameter NORM 0
#pragma parameter PACKED 0
#pragma parameter STREAM 0
#include "dependent.cuh"
#include "gate.cuh"
#include "packed.cuh"
#include "ragged.cuh"

static_assert(!RAGGED_ROWS || !SPLIT, "Groups of different rows are not split along k.");
static_assert(!RAGGED_ROWS || !GATE_BIAS, "The ends of groups and a gate's bias are the same operand.");

// The part of the product that one block computes.
struct Tile {
    i32 row, column;    // first row and column in C
    i32 end;            // end of its rows: m, or the end of its group
    i32 k_begin, k_end; // range of k: one part of the split
    i32 part;           // number of that part
    i32 entry;          // batch entry
    Batch batch;        // index of that entry along the three batch axes
};

// Returns the index of a batch entry along the three batch axes.
DEVICE Batch decode_batch(const Params &params, u32 entry) {
    const Divided outer = divided(entry, params.by.inner), outermost = divided(outer.quotient, params.by.middle);
    return Batch{{(i32)outermost.quotient, (i32)outermost.rest, (i32)outer.rest}};
}

// Returns the tile of a block. Blocks are numbered by batch entry, then part of the split, then tile of C. Tiles are
// numbered in groups of `raster` tile rows, column by column, so that concurrent blocks share columns of B and rows of
// A in the L2 cache.
template <int BLOCK_ROWS, int BLOCK_COLUMNS>
DEVICE Tile decode_tile(const Params &params, int depth, u32 block = (u32)block_index()) {
    const TileDivisors &by = params.by;
    const Divided in_entry = divided(block, by.tiles);
    const Divided part = STREAM ? Divided{in_entry.quotient, 0} : divided(in_entry.quotient, by.parts);
    Tile tile;
    tile.entry = (i32)part.quotient;
    tile.part = (i32)part.rest;
    tile.batch = decode_batch(params, part.quotient);

    const Divided group = divided(in_entry.rest, by.group);
    const u32 raster = (u32)params.raster, first_row = group.quotient * raster;
    const u32 rows = minimum(raster, (u32)params.tiles_m - first_row);
    const u32 column = group.rest / rows, row = first_row + (group.rest - column * rows);
    if (rows < raster)
        cover("raster_tail");
    GroupRows own = {0, (i32)row * BLOCK_ROWS, params.m};
    if constexpr (RAGGED_ROWS) {
        own = find_group(params.batch, params.m, BLOCK_ROWS, (i32)row, [&](i32 group) {
            return minimum(rows_before(gptr<i32>(params.d), params.d_n, params.batch, group), params.m);
        });
        tile.batch.index[2] = own.group;
    }
    tile.row = own.row;
    tile.end = own.end;
    tile.column = (i32)column * BLOCK_COLUMNS;

    const Depth k = depth_of(params);
    tile.k_begin = STREAM ? 0 : tile.part * k.part;
    tile.k_end = STREAM ? k.all : tile.k_begin + minimum(k.part, k.all - tile.k_begin);

    if constexpr (RAGGED_ROWS) {
        if (own.row == own.end) {
            cover("spare");
            return tile;
        }
        if (own.group == params.batch) {
            cover("rest");
            tile.k_end = tile.k_begin;
        }
    }

    const bool edge_m = tile.row + BLOCK_ROWS > tile.end, edge_n = tile.column + BLOCK_COLUMNS > params.n;
    if (edge_m)
        cover("edge_m");
    if (edge_n)
        cover("edge_n");
    if (!edge_m && !edge_n)
        cover("full_tile");
    if (tile.k_end > tile.k_begin && (tile.k_end - tile.k_begin) % depth != 0)
        cover("edge_k");
    return tile;
}

DEVICE u32 tile_count(const Params &params) {
    return (u32)params.tiles_m * (u32)params.tiles_n * (u32)params.split * (u32)params.batch;
}

// Returns the places of a tile's outputs, with rows of other groups marked as invalid.
template <class Placement>
DEVICE auto in_rows(const Tile &tile, const Placement &place) {
    if constexpr (RAGGED_ROWS)
        return RowsOfGroup<Placement>{place, tile.end};
    else
        return place;
}

// ---- split-K. The workspace stores partial sums as [split, batch, m, workspace_columns(n)] of ACC_TYPE, followed by
// those of the matrix that a gate multiplies. Rows are padded to a multiple of four columns, so that every family can
// store four partial sums at once for any n.

DEVICE i64 workspace_columns(i32 n) {
    return ((i64)n + 3) / 4 * 4;
}

DEVICE gptr<ACC_TYPE> workspace_row(const Params &params, i32 part, i32 entry, i32 row) {
    const i64 line = ((i64)part * params.batch + entry) * params.m + row;
    return gptr<ACC_TYPE>(params.workspace) + line * workspace_columns(params.n);
}

// Stores groups of WIDTH adjacent partial sums (1, 2 or 4: WIDTH * sizeof(ACC_TYPE) <= 16 bytes).
template <int WIDTH, int COUNT, class Placement>
DEVICE void store_partials(const Params &params, const Tile &tile, const ACC_TYPE (&values)[COUNT],
                           const Placement &place) {
    constexpr int BYTES = WIDTH * (int)sizeof(ACC_TYPE);
    UNROLL for (int g = 0; g < COUNT / WIDTH; ++g) {
        const Place at = place(g);
        Vec<BYTES> packed = Vec<BYTES>::zero();
        UNROLL for (int i = 0; i < WIDTH; ++i) packed.set(i, values[g * WIDTH + i]);
        const bool inside = at.valid && within(at.row, params.m) && within(at.column, params.n);
        store_global(workspace_row(params, tile.part, tile.entry, at.row) + at.column, packed, inside);
    }
}

#if SPLIT
constexpr int REDUCE_THREADS = 256;
// Outputs per thread of the second launch: those of one store to C.
constexpr int REDUCE_WIDTH = C_UNIT ? C_VECTOR / (int)sizeof(OUT_TYPE) : 1;

// Adds WIDTH adjacent partial sums of one part to `sum`.
template <int WIDTH>
DEVICE void add_partials(ACC_TYPE (&sum)[WIDTH], gptr<ACC_TYPE> from, bool inside) {
    constexpr int BYTES = minimum(16, WIDTH * (int)sizeof(ACC_TYPE)), EACH = BYTES / (int)sizeof(ACC_TYPE);
    UNROLL for (int v = 0; v < WIDTH / EACH; ++v) {
        const Vec<BYTES> packed = load_finished<BYTES>(from + v * EACH, inside);
        UNROLL for (int i = 0; i < EACH; ++i) sum[v * EACH + i] = sum[v * EACH + i] + packed.template get<ACC_TYPE>(i);
    }
}

// Adds all parts of one matrix to `sum`, in order. Returns the address of the parts of the next matrix.
template <int WIDTH>
DEVICE gptr<ACC_TYPE> add_parts(const Params &params, ACC_TYPE (&sum)[WIDTH], gptr<ACC_TYPE> from, bool inside) {
    const i64 part_size = (i64)params.batch * params.m * workspace_columns(params.n);
    UNROLL_BY_4 for (i32 part = 0; within(part, params.split); ++part) {
        add_partials(sum, from, inside);
        from = from + part_size;
    }
    return from;
}

#if !NORM
struct OnePlace {
    Place at;
    MEMBER Place operator()(int) const { return at; }
};

// The second launch of split-K adds the parts in order (the same bits on every run) and applies the epilogue.
// Grid: ceil(batch * m * ceil(n / REDUCE_WIDTH) / 256) blocks of 256 threads, no shared memory.
KERNEL(contraction_reduce, Params, REDUCE_THREADS, 0) {
    grid_dependency_wait();
    const i64 groups = ((i64)params.n + REDUCE_WIDTH - 1) / REDUCE_WIDTH;
    const i64 group = (i64)block_index() * REDUCE_THREADS + thread_index();
    const i64 line = group / groups; // batch entry * m + row
    const bool inside = within(line, (i64)params.batch * params.m);
    const i32 entry = inside ? (i32)(line / params.m) : 0;
    const Place at = {inside ? (i32)(line % params.m) : 0, (i32)(group % groups) * REDUCE_WIDTH, inside};
    ACC_TYPE sum[REDUCE_WIDTH] = {};
    [[maybe_unused]] const gptr<ACC_TYPE> other_parts =
        add_parts(params, sum, workspace_row(params, 0, entry, at.row) + at.column, inside);
    cover("split_reduce");
#if GATE
    ACC_TYPE other[REDUCE_WIDTH] = {};
    add_parts(params, other, other_parts, inside);
    apply_gate(params, sum, other, [&](int i) { return at.column + i; });
#endif
    finish_outputs<OUT_TYPE, REDUCE_WIDTH, C_UNIT>(params, split_batch(params, entry), sum, OnePlace{at});
}
#endif
#endif
