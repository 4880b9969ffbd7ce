// Operands of the epilogue on their way before they are needed: those of a warp's rows of a tile come to the L2 while
// the tile is multiplied, those of the next batch to the L1 while a batch is worked on.
#pragma once
#include "epilogue.cuh"

// The code of operation number s; past the last one EPILOGUE_NONE.
DEVICE i32 operation(const Params &params, int s) {
    if constexpr (EPILOGUE_CODES)
        return (i32)((u32)(EPILOGUE_CODES) >> (5 * s) & 31);
    else
        return s < params.steps ? params.step[s].code : (i32)EPILOGUE_NONE;
}

// A warp fetches the lines of `COLUMNS_AHEAD` columns, 16 of every 64 rows, of the operands whose rows lie in adjacent
// elements, or are one element. A line that begins before the first column is fetched by the columns in front.
template <int LEVEL, int TILES, int COLUMNS_AHEAD>
DEVICE void prefetch_operands(const Params &params, const Tile &tile, int row, int column) {
    const int lane = thread_index() & 31;
    ROLLED for (int s = 0; s < MAX_EPILOGUE_STEPS; ++s) {
        const i32 code = operation(params, s);
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
                prefetch_line<LEVEL>(base + (at * step.m_stride * bytes + of * step.n_stride), inside);
            }
        }
    }
}
