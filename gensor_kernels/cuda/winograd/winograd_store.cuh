// The hot loop of one step, and from a thread's sums to y: the components of an output meet in shared memory.
#pragma once
#include "winograd_tile.cuh"

constexpr int GROUP_M = THREAD_M < 4 ? THREAD_M : 4, GROUP_N = 4; // adjacent rows and columns of a thread
constexpr int SUMS = THREAD_M * HELD * THREAD_N;                  // [row][component][column]

struct ThreadPlace {
    int component, row, column; // the first one; row and column count lanes
};
DEVICE ThreadPlace thread_place() {
    const u32 lane = (u32)thread_index() % LANES;
    return ThreadPlace{(int)((u32)thread_index() / LANES) * HELD, (int)(lane / LANES_N), (int)(lane % LANES_N)};
}

// A thread's COUNT entries of a row of a tile, in groups of GROUP.
template <int COUNT, int GROUP, int APART>
DEVICE void read_fragment(float (&values)[COUNT], sptr<float> from) {
    UNROLL for (int e = 0; e < COUNT; e += GROUP) {
        const auto words = load_shared<GROUP * 4>(from + e * APART);
        UNROLL for (int i = 0; i < GROUP; ++i) values[e + i] = words.template get<float>(i);
    }
}

DEVICE void multiply_step(float (&sums)[SUMS], sptr<float> tile, const ThreadPlace &place) {
    const sptr<float> rows = tile + (place.component * RowTile::PLANE + place.row * GROUP_M);
    const sptr<float> columns = tile + (RowTile::WORDS + place.component * ColumnTile::PLANE + place.column * GROUP_N);
    UNROLL for (int k = 0; k < BLOCK_K; ++k) {
        UNROLL for (int p = 0; p < HELD; ++p) {
            float a[THREAD_M], b[THREAD_N];
            read_fragment<THREAD_M, GROUP_M, LANES_M>(a, rows + (p * RowTile::PLANE + k * RowTile::ROW));
            read_fragment<THREAD_N, GROUP_N, LANES_N>(b, columns + (p * ColumnTile::PLANE + k * ColumnTile::ROW));
            UNROLL for (int i = 0; i < THREAD_M; ++i) {
                UNROLL for (int j = 0; j < THREAD_N; ++j) {
                    float &sum = sums[(i * HELD + p) * THREAD_N + j];
                    sum = sum + a[i] * b[j];
                }
            }
        }
    }
}

// ---- slabs: all components of STORE_ROWS rows of each thread, an output position (2 x 2 outputs) per thread.

constexpr int STORE_ROWS = minimum(THREAD_M, 16 / (THREAD_N * HELD));
constexpr int SLAB_LINES = STORE_ROWS * LANES_M, SLAB_ITEMS = SLAB_LINES * BLOCK_N;
// Lanes that write 16 bytes each lie side by side, modulo the 128 of a wavefront.
constexpr int SLAB_ROW = BLOCK_N + ((LANES_N - BLOCK_N / 4) % 8 + 8) % 8 * 4;
constexpr int SLAB_PLANE = SLAB_LINES * SLAB_ROW, SLAB_WORDS = COMPONENTS * SLAB_PLANE;
constexpr int WIDTH = CHANNELS_LAST ? 1 : C_VECTOR / (int)sizeof(OUT_TYPE); // adjacent outputs of a store
static_assert(SLAB_ITEMS <= THREADS, "A thread finishes one position of a slab.");
static_assert(WIDTH == 1 || WIDTH == 2, "A position has two columns.");

DEVICE void write_slab(sptr<float> slab, const ThreadPlace &place, const float (&sums)[SUMS]) {
    UNROLL for (int i = 0; i < STORE_ROWS * HELD * THREAD_N; i += GROUP_N) {
        Vec<16> words;
        UNROLL for (int w = 0; w < 4; ++w) words.set(w, sums[i + w]);
        const int row = i / (HELD * THREAD_N), p = i / THREAD_N % HELD, column = i % THREAD_N;
        store_shared(slab + ((place.component + p) * SLAB_PLANE + (row * LANES_M + place.row) * SLAB_ROW +
                             column * LANES_N + place.column * GROUP_N),
                     words);
    }
}

// A^T m A of the components at `from`: outputs (0, 0), (0, 1), (1, 0), (1, 1).
DEVICE void read_outputs(sptr<float> from, float (&y)[4]) {
    float upper[4], lower[4];
    UNROLL for (int j = 0; j < 4; ++j) {
        float m[4];
        UNROLL for (int i = 0; i < 4; ++i) m[i] =
            load_shared<4>(from + (4 * i + j) * SLAB_PLANE).template get<float>(0);
        upper[j] = m[0] + m[1] + m[2];
        lower[j] = m[1] - m[2] - m[3];
    }
    y[0] = upper[0] + upper[1] + upper[2], y[1] = upper[1] - upper[2] - upper[3];
    y[2] = lower[0] + lower[1] + lower[2], y[3] = lower[1] - lower[2] - lower[3];
}

// Where a position's outputs lie in C, in groups of WIDTH columns of an image.
struct OutputPlaces {
    Positions::Corner at;
    i32 filter, high, wide;
    bool valid;
    MEMBER Place operator()(int group) const {
        const i32 row = at.row + group * WIDTH / 2, column = at.column + group * WIDTH % 2;
        const bool inside = valid && within(row, high) && within(column, wide);
        const i32 pixel = row * wide + column;
        return CHANNELS_LAST ? Place{at.image * high * wide + pixel, filter, inside} : Place{filter, pixel, inside};
    }
};

// The position and filter in this row and column of C, whose components begin at `from`.
DEVICE void finish_position(const Params &params, const Positions &positions, const Tile &tile, i32 row, i32 column,
                            sptr<float> from) {
    const i32 position = CHANNELS_LAST ? row : column, filter = CHANNELS_LAST ? column : row;
    const Positions::Corner corner = positions.corner(position);
    const bool valid = within(position, positions.count);
    const OutputPlaces at = {corner, filter, positions.high, positions.wide, valid};
    if (position < positions.count && (corner.row + 1 == positions.high || corner.column + 1 == positions.wide))
        cover("cut");
    float y[4];
    read_outputs(from, y);
#if SPLIT
    Tile part = tile;
    part.entry = CHANNELS_LAST ? 0 : corner.image;
    store_partials<WIDTH>(params, part, y, at);
#else
    finish_outputs<OUT_TYPE, WIDTH, true>(params, Batch{{0, CHANNELS_LAST ? 0 : corner.image, 0}}, y, at);
#endif
}

// Two slabs take turns, so that one barrier per slab also keeps it until everybody has read it; they lie over the
// tiles, behind the main loop's last barrier. The loop over rows is rolled: rotating the sums keeps their register
// numbers constant.
DEVICE void store(const Params &params, const Positions &positions, const Tile &tile, const ThreadPlace &place,
                  float (&sums)[SUMS]) {
    sptr<float> slab = shared_base().as<float>(), other = slab + SLAB_WORDS;
    const int line = thread_index() / BLOCK_N, column = thread_index() % BLOCK_N;
    ROLLED for (int first = 0; first < THREAD_M; first += STORE_ROWS) {
        write_slab(slab, place, sums);
        barrier();
        const int i = first + line / LANES_M;
        const i32 row = (i / GROUP_M * LANES_M + line % LANES_M) * GROUP_M + i % GROUP_M;
        if (SLAB_ITEMS == THREADS || within(thread_index(), SLAB_ITEMS))
            finish_position(params, positions, tile, tile.row + row, tile.column + column,
                            slab + (line * SLAB_ROW + column));
        rotate<STORE_ROWS * HELD * THREAD_N>(sums);
        const sptr<float> read = slab;
        slab = other;
        other = read;
    }
}
