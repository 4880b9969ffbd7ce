// The filters of a block in shared memory: [tile][element][THREAD_C] of ACC_TYPE, zeros past the last filter of a
// group.
#pragma once
#include "groups_spot.cuh"

// Filters per read. Tiles are an odd number of reads apart, so that those of neighbouring lanes are in different banks.
constexpr int READ = minimum(THREAD_C & -THREAD_C, 16 / (int)sizeof(ACC_TYPE));
constexpr int WARPS = THREADS / 32;

DEVICE i32 tile_pitch(i32 depth) {
    return (depth * (THREAD_C / READ) | 1) * READ;
}

DEVICE sptr<ACC_TYPE> tile_filters(const Call &call, int lane) {
    return shared_base().as<ACC_TYPE>() + lane * tile_pitch(call.depth);
}

// Copies the block's filters, a tile per warp at a time.
DEVICE void copy_filters(const Call &call, const Spot &spot) {
    const int lane = thread_index() % 32;
    ROLLED for (int number = thread_index() / 32; within(number, FILTER_THREADS); number += WARPS) {
        const Tile tile(call, spot.first + number);
        const gptr<IN_TYPE> from = call.filter + (tile.group * call.group_stride + tile.filter * call.filter_stride);
        const i32 left = tile.inside ? call.filters - tile.filter : 0;
        if (tile.inside && left < THREAD_C)
            cover("last_filters");
        const sptr<ACC_TYPE> to = tile_filters(call, number);
        UNROLL_BY_4 for (i32 i = lane; within(i, call.depth * THREAD_C); i += 32) {
            const i32 element = i / THREAD_C, filter = i - element * THREAD_C;
            const auto loaded = load_global<sizeof(IN_TYPE)>(
                from + (filter * call.filter_stride + element * call.stride), within(filter, left));
            Vec<sizeof(ACC_TYPE)> word;
            word.set(0, convert<ACC_TYPE>(loaded.template get<IN_TYPE>(0)));
            store_shared(to + i, word);
        }
    }
}

// Reads one element of the filters of a thread's tile.
DEVICE void read_taps(ACC_TYPE (&taps)[THREAD_C], sptr<ACC_TYPE> from) {
    UNROLL for (int i = 0; i < THREAD_C; i += READ) {
        const auto piece = load_shared<READ * sizeof(ACC_TYPE)>(from + i);
        UNROLL for (int j = 0; j < READ; ++j) taps[i + j] = piece.template get<ACC_TYPE>(j);
    }
}
