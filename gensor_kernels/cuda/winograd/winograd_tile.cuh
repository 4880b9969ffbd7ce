// A block's share of the work, and one operand's share of a step: from global memory through registers, in which it is
// transformed, into a shared tile [component][channel][ROW].
#pragma once
#include "contraction.cuh"

constexpr int COMPONENTS = 16;
constexpr int LANES_M = BLOCK_M / THREAD_M, LANES_N = BLOCK_N / THREAD_N, LANES = LANES_M * LANES_N;
constexpr int THREADS = COMPONENTS / HELD * LANES;

DEVICE constexpr int greatest_common_divisor(int a, int b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
}

// Tiles of 2 x 2 outputs, counted over all images.
struct Positions {
    i32 high, wide;   // an image's outputs
    i32 down, across; // its positions
    i32 count;

    struct Corner { // first output of a position
        i32 image, row, column;
    };

    MEMBER explicit Positions(const Params &params) {
        high = params.window.rows[0], wide = params.window.rows[1];
        down = (high + 1) / 2, across = (wide + 1) / 2;
        const u32 images = CHANNELS_LAST ? (u32)params.m / (u32)(high * wide) : (u32)params.batch;
        count = (i32)images * down * across;
    }
    MEMBER Corner corner(i32 position) const {
        const u32 line = (u32)position / (u32)across;
        return Corner{(i32)(line / (u32)down), (i32)(line % (u32)down) * 2, (i32)((u32)position % (u32)across) * 2};
    }
};

// Block number -> tile, as contraction.cuh's decode_tile does: of positions and filters, its k channels.
DEVICE Tile tile_of(const Params &params, const Positions &positions) {
    const i32 rows = CHANNELS_LAST ? positions.count : params.m, columns = CHANNELS_LAST ? params.n : positions.count;
    const u32 tiles_m = ((u32)rows + BLOCK_M - 1) / BLOCK_M, tiles_n = ((u32)columns + BLOCK_N - 1) / BLOCK_N;
    const u32 block = (u32)block_index(), inner = block % (tiles_m * tiles_n);
    const u32 group_tiles = (u32)params.raster * tiles_n;
    const u32 first_row = inner / group_tiles * (u32)params.raster, in_group = inner % group_tiles;
    const u32 high = minimum((u32)params.raster, tiles_m - first_row);
    if (high < (u32)params.raster)
        cover("raster_tail");
    Tile tile = {};
    tile.part = (i32)(block / (tiles_m * tiles_n));
    tile.row = (i32)(first_row + in_group % high) * BLOCK_M;
    tile.column = (i32)(in_group / high) * BLOCK_N;
    tile.k_begin = tile.part * params.k_per_split;
    tile.k_end = tile.k_begin + minimum(params.k_per_split, params.k / 9 - tile.k_begin);

    const bool edge_m = tile.row + BLOCK_M > rows, edge_n = tile.column + BLOCK_N > columns;
    if (edge_m)
        cover("edge_m");
    if (edge_n)
        cover("edge_n");
    if (!edge_m && !edge_n)
        cover("full_tile");
    if (tile.k_end > tile.k_begin && (tile.k_end - tile.k_begin) % BLOCK_K != 0)
        cover("edge_k");
    return tile;
}

// ---- the transforms, one dimension at a time. Elements lie STEP apart.

// B^T d
template <int STEP>
DEVICE void transform_image(float *d) {
    const float d0 = d[0], d1 = d[STEP], d2 = d[2 * STEP], d3 = d[3 * STEP];
    d[0] = d0 - d2, d[STEP] = d1 + d2, d[2 * STEP] = d2 - d1, d[3 * STEP] = d1 - d3;
}
// G g, of three elements
template <int STEP>
DEVICE void transform_filter(float *g) {
    const float g0 = g[0], g1 = g[STEP], g2 = g[2 * STEP], even = g0 + g2;
    g[STEP] = 0.5f * (even + g1), g[2 * STEP] = 0.5f * (even - g1), g[3 * STEP] = g2;
}

// The components of SIDE x SIDE elements.
template <int SIDE>
DEVICE void transform(const Vec<4> (&loaded)[SIDE * SIDE], float (&v)[COMPONENTS]) {
    UNROLL for (int i = 0; i < SIDE * SIDE; ++i) v[i / SIDE * 4 + i % SIDE] = loaded[i].template get<float>(0);
    UNROLL for (int i = 0; i < SIDE; ++i) SIDE == 4 ? transform_image<4>(v + i) : transform_filter<4>(v + i);
    UNROLL for (int i = 0; i < 4; ++i) SIDE == 4 ? transform_image<1>(v + 4 * i) : transform_filter<1>(v + 4 * i);
}

// Which pairs of entry (position or filter) and channel a thread loads, and where they lie in the shared tile.
template <int EXTENT_, bool BY_CHANNEL>
struct Spread {
    static constexpr int EXTENT = EXTENT_;
    // Threads side by side along channels where these lie side by side in memory, else along entries.
    static constexpr int SIDE_BY_SIDE =
        BY_CHANNEL ? (BLOCK_K < 8 ? BLOCK_K : 8) : greatest_common_divisor(EXTENT, THREADS);
    static constexpr int LINES = THREADS / SIDE_BY_SIDE;
    static constexpr int ENTRY_PACE = BY_CHANNEL ? LINES : SIDE_BY_SIDE;
    static constexpr int CHANNEL_PACE = BY_CHANNEL ? SIDE_BY_SIDE : LINES;
    static constexpr int ENTRIES = (EXTENT + ENTRY_PACE - 1) / ENTRY_PACE;
    static constexpr int CHANNELS = (BLOCK_K + CHANNEL_PACE - 1) / CHANNEL_PACE;
    static constexpr int PAIRS = ENTRIES * CHANNELS; // of a thread
    static constexpr int ROW = EXTENT + (BY_CHANNEL ? 32 / SIDE_BY_SIDE : 0);
    static constexpr int PLANE = BLOCK_K * ROW, WORDS = COMPONENTS * PLANE;

    static MEMBER int entry() { return BY_CHANNEL ? thread_index() / SIDE_BY_SIDE : thread_index() % SIDE_BY_SIDE; }
    static MEMBER int channel() { return BY_CHANNEL ? thread_index() % SIDE_BY_SIDE : thread_index() / SIDE_BY_SIDE; }
    // Whether a thread's pair lies in the tile (as opposed to in the operand).
    static MEMBER bool in_tile(int e, int c) {
        return (EXTENT % ENTRY_PACE == 0 || within(entry() + e * ENTRY_PACE, EXTENT)) &&
               (BLOCK_K % CHANNEL_PACE == 0 || within(channel() + c * CHANNEL_PACE, BLOCK_K));
    }
};

using RowTile = Spread<BLOCK_M, CHANNELS_LAST || !(FILTERS_LAST || PREPARED)>;
using ColumnTile = Spread<BLOCK_N, CHANNELS_LAST && !FILTERS_LAST && !PREPARED>;
template <bool FIRST, class A, class B>
struct Either {
    using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
    using Type = B;
};
using Image = Either<CHANNELS_LAST, RowTile, ColumnTile>::Type;
using Filters = Either<CHANNELS_LAST, ColumnTile, RowTile>::Type;
constexpr int TILE_WORDS = RowTile::WORDS + ColumnTile::WORDS; // of one shared buffer: rows, then columns
constexpr int IMAGE_AT = CHANNELS_LAST ? 0 : RowTile::WORDS, FILTERS_AT = CHANNELS_LAST ? RowTile::WORDS : 0;

// A thread's part of loading an operand: SIDE x SIDE elements of each of its pairs.
template <class Shape, int SIDE>
struct Loader {
    static constexpr int TAPS = SIDE * SIDE;
    gptr<float> from[Shape::ENTRIES]; // first element of each entry, in the thread's first channel of the next step
    u32 inside[Shape::ENTRIES];       // bit per element: not past the operand's edge
    i64 down, right, channel;         // strides
    i32 left;                         // channels of the tile from that channel on
    Vec<4> staged[Shape::PAIRS][TAPS];

    // Issues the loads of the next step and moves on. What lies past an edge reads as zero.
    MEMBER void load_step(sptr<float> = sptr<float>()) {
        UNROLL for (int pair = 0; pair < Shape::PAIRS; ++pair) {
            const int e = pair / Shape::CHANNELS, c = pair % Shape::CHANNELS;
            const bool there = Shape::in_tile(e, c) && within(c * Shape::CHANNEL_PACE, left);
            const gptr<float> first = from[e] + c * Shape::CHANNEL_PACE * channel;
            UNROLL for (int i = 0; i < TAPS; ++i) staged[pair][i] =
                load_global<4>(first + (i / SIDE * down + i % SIDE * right), there && (inside[e] >> i & 1));
        }
        UNROLL for (int e = 0; e < Shape::ENTRIES; ++e) from[e] = from[e] + BLOCK_K * channel;
        left -= BLOCK_K;
    }

    // Transforms what load_step brought and stores the components.
    MEMBER void store_step(sptr<float> tile) const {
        UNROLL for (int pair = 0; pair < Shape::PAIRS; ++pair) {
            const int e = pair / Shape::CHANNELS, c = pair % Shape::CHANNELS;
            if (!Shape::in_tile(e, c))
                continue;
            float components[COMPONENTS];
            transform<SIDE>(staged[pair], components);
            const sptr<float> to = tile + ((Shape::channel() + c * Shape::CHANNEL_PACE) * Shape::ROW + Shape::entry() +
                                           e * Shape::ENTRY_PACE);
            UNROLL for (int i = 0; i < COMPONENTS; ++i) {
                Vec<4> word;
                word.set(0, components[i]);
                store_shared(to + i * Shape::PLANE, word);
            }
        }
    }
};

DEVICE Loader<Image, 4> image_loader(const Params &params, const Positions &positions, const Tile &tile) {
    const Window &window = params.window;
    Loader<Image, 4> loader;
    loader.down = window.row_stride[1], loader.right = window.row_stride[2];
    loader.channel = CHANNELS_LAST ? 1 : window.k_stride[0];
    const int channel = tile.k_begin + Image::channel();
    loader.left = tile.k_end - channel;
    const gptr<float> x = gptr<float>(CHANNELS_LAST ? params.a : params.b) + channel * loader.channel;
    UNROLL for (int e = 0; e < Image::ENTRIES; ++e) {
        const i32 position = (CHANNELS_LAST ? tile.row : tile.column) + Image::entry() + e * Image::ENTRY_PACE;
        const Positions::Corner at = positions.corner(position);
        const i32 row = at.row - window.pad[0], column = at.column - window.pad[1];
        loader.from[e] = x + (at.image * window.row_stride[0] + row * loader.down + column * loader.right);
        u32 there = 0;
        UNROLL for (int i = 0; i < 16; ++i) {
            // An index in front of the image is a large number when unsigned.
            const bool in_image = within((u32)(row + i / 4), (u32)window.extent[0]) &&
                                  within((u32)(column + i % 4), (u32)window.extent[1]);
            there |= (u32)in_image << i;
        }
        loader.inside[e] = within(position, positions.count) ? there : 0;
        if (position < positions.count && there != 0xffff)
            cover("padding");
    }
    return loader;
}

// Where filters lie; their taps are evenly spaced, and either they or their channels (or taps) are innermost.
struct FilterStrides {
    i64 filter, channel, tap;
    MEMBER explicit FilterStrides(const Params &params) {
        const i64 depth = FILTERS_LAST ? params.b_k : 1;
        filter = FILTERS_LAST ? 1 : CHANNELS_LAST ? params.b_n : params.a_m;
        // k is (tap, channel), or (channel, tap).
        channel = CHANNELS_LAST ? depth : 9 * depth;
        tap = CHANNELS_LAST ? params.k / 9 * depth : depth;
    }
};

#if PREPARED
#include "winograd_filters.cuh"
#else
DEVICE Loader<Filters, 3> filter_loader(const Params &params, const Tile &tile) {
    const FilterStrides strides(params);
    Loader<Filters, 3> loader;
    loader.channel = strides.channel, loader.right = strides.tap, loader.down = 3 * strides.tap;
    const int channel = tile.k_begin + Filters::channel();
    loader.left = tile.k_end - channel;
    const gptr<float> w = gptr<float>(CHANNELS_LAST ? params.b : params.a) + channel * loader.channel;
    UNROLL for (int e = 0; e < Filters::ENTRIES; ++e) {
        const i32 filter = (CHANNELS_LAST ? tile.column : tile.row) + Filters::entry() + e * Filters::ENTRY_PACE;
        loader.from[e] = w + filter * strides.filter;
        loader.inside[e] = within(filter, CHANNELS_LAST ? params.n : params.m) ? 0x1ff : 0;
    }
    return loader;
}
#endif
