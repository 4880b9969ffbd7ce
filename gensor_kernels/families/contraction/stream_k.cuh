// Stream-K: the blocks of a grid share the steps of k of all tiles evenly (STREAM 1).
//
// This is the "two-tile" variant of Osama, Merrill, Cecka, Garland and Owens, "Stream-K", arXiv:2301.03598. A block
// computes whole tiles, wave by wave. The tiles of the last whole wave and of the partial wave after it are instead cut
// into steps: all their steps form a sequence, and each block computes an equal part of the sequence. If several blocks
// compute a tile, the block with its last step finishes it. The others store their sums to the workspace and set a
// flag. A block walks through its part backwards: first it computes the sums that another block needs, and it waits for
// sums of others at the end. It waits only for blocks of lower numbers, which a device starts first. Sums are added in
// a fixed order: the same bits on every run.
//
// Workspace: the operands of a packed convolution (packed_operands.cuh); 16 bytes per block of the grid, whose first 8
// are the block's flag; then the sums of one tile per block. A flag is set when it holds a number that the host draws
// for the launch (stream_mark). The block that waits for a flag clears it, so that no launch needs zeroed memory.
#pragma once
#include "contraction.cuh"

#if STREAM

// Returns the mark of this launch, a number that memory does not hold by chance (params.split and k_per_split).
DEVICE u64 stream_mark(const Params &params) {
    return (u64)(u32)params.split << 32 | (u32)params.k_per_split;
}

// The steps [first, last) of a tile.
struct Share {
    u32 tile, first, last;
};

// The turn of a block. With this bit, it is the number of one of its shares of the sequence, which come first; without
// it, the number of a whole tile, so that a main loop has to keep nothing else for a whole tile.
constexpr u32 OF_ROW = 1u << 31;

struct Stream {
    int depth;              // values of k in a step
    u32 steps;              // of one tile
    u32 whole;              // number of tiles that are computed whole
    u32 each, more, blocks; // of the sequence: steps per block, blocks with one step more, blocks with any step

    MEMBER Stream(const Params &params, int depth, u32 grid) : depth(depth) {
        const u32 tiles = unknown(params.by.tiles.number) * (u32)params.batch; // unknown: see `again`
        const u32 waves = tiles / grid;
        const u32 k = (u32)depth_of(params).all;
        steps = k > 0 ? (k + (u32)depth - 1) / (u32)depth : 1; // tiles are written even if k is empty
        whole = tiles == waves * grid ? tiles : waves > 1 ? (waves - 1) * grid : 0;
        const u32 rest = (tiles - whole) * steps;
        blocks = rest < grid ? rest : grid;
        each = blocks ? rest / blocks : 0, more = blocks ? rest % blocks : 0;
    }
    // Computes the stream again, from numbers unknown to the compiler: the main loop then needs no registers for it.
    MEMBER Stream again(const Params &params) const { return Stream(params, depth, unknown((u32)grid_size())); }
    // Returns the first step of a block's part of the sequence.
    MEMBER u32 begin(u32 block) const { return block * each + (block < more ? block : more); }
    MEMBER bool shares(u32 block) const { return within(block, blocks); }

    // Returns share `number` of a block's part, counted from its end. A share without steps means that there is none.
    MEMBER Share share(u32 block, u32 number) const {
        if (shares(block)) {
            const u32 from = begin(block), to = begin(block + 1), last = (to - 1) / steps;
            if (number <= last - from / steps) {
                const u32 tile = last - number, start = tile * steps;
                return Share{whole + tile, from > start ? from - start : 0, number > 0 ? steps : to - start};
            }
        }
        return Share{0, 0, 0};
    }
    MEMBER Share whole_tile(u32 tile) const {
        if (!within(tile, whole))
            return Share{tile, 0, 0};
        cover("whole_tile");
        return Share{tile, 0, steps};
    }
};

// Returns the address of the first flag.
DEVICE gptr<u8> stream_workspace(const Params &params) {
#if PACKED
    return after_operands(params);
#else
    return gptr<u8>(params.workspace);
#endif
}

// Returns the number of sums of a thread in one access: those of 16 bytes, or fewer if that does not divide `count`.
DEVICE constexpr int sums_per_access(int count) {
    int each = 16 / (int)sizeof(ACC_TYPE);
    while (count % each)
        each /= 2;
    return each;
}

// The sums of a block in the workspace: vectors of each thread, next to those of its neighbours.
template <int COUNT, int THREADS>
struct KeptSums {
    static constexpr int EACH = sums_per_access(COUNT);
    static constexpr int BYTES = EACH * (int)sizeof(ACC_TYPE), UNDER_WAY = 8;

    static MEMBER gptr<ACC_TYPE> of(const Params &params, u32 block) {
        const gptr<u8> first = stream_workspace(params) + (i64)grid_size() * 16;
        return first.as<ACC_TYPE>() + ((i64)block * COUNT * THREADS + thread_index() * EACH);
    }
    // sum(i) returns a reference to sum i of this thread.
    template <class Sum>
    static MEMBER void store(const Params &params, Sum sum) {
        const gptr<ACC_TYPE> to = of(params, (u32)block_index());
        UNROLL for (int i = 0; i < COUNT; i += EACH) {
            Vec<BYTES> kept = Vec<BYTES>::zero();
            UNROLL for (int v = 0; v < EACH; ++v) kept.set(v, sum(i + v));
            store_global(to + i * THREADS, kept, true);
        }
    }
    template <class Sum>
    static MEMBER void add(const Params &params, u32 block, Sum sum) {
        const gptr<ACC_TYPE> from = of(params, block);
        UNROLL for (int i = 0; i < COUNT; i += EACH) {
            // This limits the loads in flight: all at once would need as many registers as the sums.
            if (i > 0 && i % (UNDER_WAY * EACH) == 0)
                warp_barrier();
            const Vec<BYTES> kept = load_written<BYTES>(from + i * THREADS);
            UNROLL for (int v = 0; v < EACH; ++v) sum(i + v) = sum(i + v) + kept.template get<ACC_TYPE>(v);
        }
    }
};

DEVICE gptr<u64> flag_of(const Params &params, u32 block) {
    return stream_workspace(params).as<u64>() + (i64)block * 2;
}

// The share of a tile that a block computes.
struct TileShare {
    const Stream &stream;
    const Share &own;
    u32 turn;
};

// Returns whether this block finishes the tile. If so, the sums of the other blocks have been added to `sum`; if not,
// the sums are in the workspace.
template <int COUNT, int THREADS, class Sum>
DEVICE bool joined(const Params &params, const TileShare &share, Sum sum) {
    using Kept = KeptSums<COUNT, THREADS>;
    if (!(share.turn & OF_ROW))
        return true;
    const Stream stream = share.stream.again(params);
    const Share own = stream.share(unknown((u32)block_index()), share.turn ^ OF_ROW);
    if (own.last < stream.steps) {
        cover("stream_leave");
        Kept::store(params, sum);
        barrier();
        if (thread_index() == 0)
            give_flag(flag_of(params, (u32)block_index()), stream_mark(params));
        return false;
    }
    u32 block = (u32)block_index(), missing = own.first;
    while (within(0u, missing)) {
        cover("stream_join");
        const u32 had = stream.begin(block) - stream.begin(block - 1);
        --block;
        if (thread_index() == 0)
            take_flag(flag_of(params, block), stream_mark(params));
        barrier();
        Kept::add(params, block, sum);
        missing -= had < missing ? had : missing;
    }
    return true;
}

// PLACE_BYTES of shared memory at `place` store a tile during a main loop, which has no registers for it. There is a
// barrier between `save_tile` and `restore_tile`, and another one before the next tile is saved.
constexpr int PLACE_BYTES = 32;

DEVICE void save_tile(sptr<u8> place, const Tile &tile) {
    if (thread_index() == 0) {
        const i32 kept[PLACE_BYTES / 4] = {
            tile.row,   tile.column,         tile.k_begin,        tile.k_end,
            tile.entry, tile.batch.index[0], tile.batch.index[1], tile.batch.index[2],
        };
        UNROLL for (int first = 0; first < PLACE_BYTES / 4; first += 4) {
            Vec<16> words;
            UNROLL for (int i = 0; i < 4; ++i) words.set(i, kept[first + i]);
            store_shared(place + first * 4, words);
        }
    }
}

DEVICE Tile restore_tile(const Params &params, sptr<u8> place, const Tile &) {
    const Vec<16> low = load_shared<16>(place), high = load_shared<16>(place + 16);
    return Tile{low.get<i32>(0),  low.get<i32>(1),
                params.m,         low.get<i32>(2),
                low.get<i32>(3),  0,
                high.get<i32>(0), Batch{{high.get<i32>(1), high.get<i32>(2), high.get<i32>(3)}}};
}

// Calls compute(tile, share) for everything that this block computes: one tile; or with STREAM, whole tiles and shares
// of tiles, in steps of `depth` values of k. ANEW: the stream is computed again for each of them, so that it takes no
// registers between them.
template <bool ANEW = true, class Compute>
DEVICE void each_tile(const Params &params, const Compute &compute, int depth = BLOCK_K) {
    const Stream stream(params, depth, (u32)grid_size());
    for (u32 turn = OF_ROW;;) {
        const u32 block = (u32)block_index();
        Share share = {};
        if (turn & OF_ROW)
            share =
                ANEW ? stream.again(params).share(unknown(block), turn ^ OF_ROW) : stream.share(block, turn ^ OF_ROW);
        if (share.last == 0) {
            turn = turn & OF_ROW ? block : turn;
            share = ANEW ? stream.again(params).whole_tile(turn) : stream.whole_tile(turn);
        }
        if (share.last == 0)
            return;
        Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, depth, share.tile);
        tile.k_begin = (i32)share.first * depth;
        tile.k_end = minimum((i32)share.last * depth, depth_of(params).all);
        compute(tile, TileShare{stream, share, turn});
        turn += turn & OF_ROW ? 1 : (u32)grid_size();
    }
}
#else
struct TileShare {};

DEVICE void save_tile(sptr<u8>, const Tile &) {}

DEVICE const Tile &restore_tile(const Params &, sptr<u8>, const Tile &tile) {
    return tile;
}

template <int COUNT, int THREADS, class Sum>
DEVICE bool joined(const Params &, const TileShare &, const Sum &) {
    return true;
}

template <bool ANEW = true, class Compute>
DEVICE void each_tile(const Params &params, const Compute &compute, int depth = BLOCK_K) {
    compute(decode_tile<BLOCK_M, BLOCK_N>(params, depth), TileShare{});
}
#endif
