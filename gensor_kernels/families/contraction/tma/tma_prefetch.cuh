// Prefetches of the epilogue's operands: a warp fetches those of its rows of a tile into the L2 while the tile is
// multiplied, and those of the next batch of outputs into the L1 while it computes a batch.
#pragma once
#include "contraction.cuh"

// The code of operation s; after the last operation EPILOGUE_NONE.
DEVICE i32 operation_code(const Params &params, int s) {
    if constexpr (EPILOGUE_CODES)
        return (i32)((u32)(EPILOGUE_CODES) >> (5 * s) & 31);
    else
        return s < params.steps ? params.step[s].code : (i32)EPILOGUE_NONE;
}

// A warp fetches the lines of COLUMNS_AHEAD columns, for 16 of every 64 rows, of the operands whose rows are adjacent
// elements or one element. A line that begins before the first column is fetched with the columns before it.
template <int LEVEL, int TILES, int COLUMNS_AHEAD>
DEVICE void prefetch_operands(const Params &params, const Tile &tile, int row, int column) {
    const int lane = thread_index() & 31;
    ROLLED for (int s = 0; s < MAX_EPILOGUE_STEPS; ++s) {
        const i32 code = operation_code(params, s);
        if (code == 0 || code == EPILOGUE_NONE)
            break;
        const EpilogueStep &step = params.step[s];
        if (!takes_operand(code) || (u64)step.n_stride > 1)
            continue;
        const i64 bytes = operand_bytes<ACC_TYPE>(step.dtype), first = column * bytes, end = params.n * bytes;
        const gptr<u8> base = gptr<u8>(step.pointer) + batch_offset(step.batch_stride, tile.batch) * bytes;
        ROLLED for (int left = lane / 16 * 128; left < COLUMNS_AHEAD * (int)bytes; left += 256) {
            UNROLL for (int i = 0; i < TILES; ++i) {
                const i32 at = row + i * 64 + lane % 16;
                const i64 of = first + left;
                const bool inside = within(at, tile.end) && within(of, end);
                if constexpr (ALL_IMAGES) {
                    const i32 own = inside ? (i32)(of / bytes) : 0;
                    const i64 across = to_column(params, own, step.n_stride, step.batch_stride[1]);
                    prefetch_line<LEVEL>(base + (at * step.m_stride + across) * bytes, inside);
                } else {
                    prefetch_line<LEVEL>(base + (at * step.m_stride * bytes + of * step.n_stride), inside);
                }
            }
        }
    }
}
