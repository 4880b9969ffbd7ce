// The tile of x under a block in shared memory, with CHANNELS_LAST 0: [plane][row][TILE_PITCH] of IN_TYPE, padding
// included. Each thread copies elements of the plane that it uses afterwards.
#pragma once
#include "window_plane.cuh"

constexpr int ELEMENT = (int)sizeof(IN_TYPE);
constexpr int TILE_ROWS = (BLOCK_H - 1) * STEP_H + WINDOW_R, TILE_COLUMNS = (BLOCK_W - 1) * STEP_W + WINDOW_S;
constexpr int TILE_PITCH = (TILE_COLUMNS + 16 / ELEMENT - 1) / (16 / ELEMENT) * (16 / ELEMENT);
constexpr int PLANE_THREADS = COLUMN_THREADS * ROW_THREADS;
// Elements per read, which are adjacent and aligned for every thread; columns up to the end of the last read.
constexpr int READ_ELEMENTS = minimum((THREAD_W * STEP_W) & -(THREAD_W * STEP_W), 16 / ELEMENT);
constexpr int TILE_READ = (TILE_COLUMNS + READ_ELEMENTS - 1) / READ_ELEMENTS * READ_ELEMENTS;
// The threads of a plane copy COPY_ROWS rows of COPY_COLUMNS elements at once.
constexpr int COPY_COLUMNS = minimum(TILE_READ, PLANE_THREADS), COPY_ROWS = PLANE_THREADS / COPY_COLUMNS;

DEVICE sptr<IN_TYPE> staged_plane(int place) {
    return shared_base().as<IN_TYPE>() + place / PLANE_THREADS * (TILE_ROWS * TILE_PITCH);
}

// Copies x to shared memory. `corner` is that of the block's first outputs.
DEVICE void stage(const Params &params, const Spot &spot, int place, const Corner &corner) {
    const Sliding &sliding = params.sliding;
    const Plane plane(params, spot);
    const sptr<IN_TYPE> to = staged_plane(place);
    const int thread = place % PLANE_THREADS, first = thread / COPY_COLUMNS;
    UNROLL for (int c = 0; c < TILE_READ; c += COPY_COLUMNS) {
        const int column = c + thread % COPY_COLUMNS;
        const bool mine = within(column, TILE_READ) && within(first, COPY_ROWS);
        const i32 from_column = corner.column + column;
        const bool inside = spot.inside && within((u32)from_column, (u32)sliding.extent[1]);
        UNROLL_BY_4 for (int r = mine ? first : TILE_ROWS; within(r, TILE_ROWS); r += COPY_ROWS) {
            const i32 from_row = corner.row + r;
            const bool valid = inside && within((u32)from_row, (u32)sliding.extent[0]);
            if (spot.inside && !valid)
                cover("padding");
            store_shared(to + (r * TILE_PITCH + column),
                         plane.prepared(plane.load(from_row * sliding.row + from_column, valid), valid));
        }
    }
    barrier();
}

// Reads COUNT columns of a row of the tile from column `first`.
template <int COUNT>
DEVICE void read_row(Cell (&row)[COUNT], sptr<IN_TYPE> plane, int index, int first) {
    UNROLL for (int i = 0; i < COUNT; i += READ_ELEMENTS) {
        const auto piece = load_shared<READ_ELEMENTS * ELEMENT>(plane + (index * TILE_PITCH + first + i));
        UNROLL for (int j = 0; j < READ_ELEMENTS && i + j < COUNT; ++j) row[i + j].set(0,
                                                                                       piece.template get<IN_TYPE>(j));
    }
}
