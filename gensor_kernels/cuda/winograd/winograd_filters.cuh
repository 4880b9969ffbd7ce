// Filters transformed once, by a first launch, into the workspace: [channel][component][filter], the filters padded
// with zeros to whole blocks. They lie behind the partial sums of a split.
#pragma once

constexpr int PREPARE_THREADS = 256;
constexpr int BLOCK_FILTERS = CHANNELS_LAST ? BLOCK_N : BLOCK_M;

// Filters with their padding.
DEVICE i64 prepared_filters(const Params &params) {
    const u32 filters = (u32)(CHANNELS_LAST ? params.n : params.m);
    return (i64)((filters + BLOCK_FILTERS - 1) / BLOCK_FILTERS) * BLOCK_FILTERS;
}

DEVICE gptr<float> prepared_base(const Params &params) {
    const i64 partials = SPLIT ? (i64)params.split * params.batch * params.m * workspace_columns(params.n) : 0;
    return gptr<float>(params.workspace) + partials;
}

// Grid: ceil(channels * prepared_filters / 256) blocks of 256 threads, no shared memory.
KERNEL(winograd_filters, Params, PREPARE_THREADS, 0) {
    launch_dependents();
    const i64 padded = prepared_filters(params), item = (i64)block_index() * PREPARE_THREADS + thread_index();
    const i32 channel = (i32)(item / padded), filter = (i32)(item % padded), channels = params.k / 9;
    const FilterStrides strides(params);
    const gptr<float> from =
        gptr<float>(CHANNELS_LAST ? params.b : params.a) + (channel * strides.channel + filter * strides.filter);
    const bool mine = within(channel, channels);
    const bool there = mine && within(filter, CHANNELS_LAST ? params.n : params.m);
    Vec<4> loaded[9];
    UNROLL for (int i = 0; i < 9; ++i) loaded[i] = load_global<4>(from + i * strides.tap, there);
    float components[COMPONENTS];
    transform<3>(loaded, components);
    const gptr<float> to = prepared_base(params) + (channel * COMPONENTS * padded + filter);
    UNROLL for (int i = 0; i < COMPONENTS; ++i) {
        Vec<4> word;
        word.set(0, components[i]);
        store_global(to + i * padded, word, mine);
    }
    cover("prepared");
}

// A thread's part of copying prepared filters: 4 of some components of one channel of every step.
struct PreparedFilters {
    static constexpr int CHUNKS = BLOCK_FILTERS / 4, LINES = CHUNKS * BLOCK_K;
    static constexpr int PACE = THREADS / LINES, PASSES = COMPONENTS / PACE;
    static_assert(THREADS % LINES == 0 && COMPONENTS % PACE == 0, "Threads must share the components evenly.");
    gptr<float> from; // of the first component, in the next step
    i64 component, step;
    i32 left; // channels of the tile from the thread's on
    int to;

    MEMBER PreparedFilters(const Params &params, const Tile &tile) {
        const int chunk = thread_index() % CHUNKS, channel = thread_index() / CHUNKS % BLOCK_K;
        const int first = thread_index() / LINES;
        const i64 padded = prepared_filters(params);
        component = PACE * padded;
        step = BLOCK_K * COMPONENTS * padded;
        left = tile.k_end - tile.k_begin - channel;
        from = prepared_base(params) + (((tile.k_begin + channel) * COMPONENTS + first) * padded +
                                        (CHANNELS_LAST ? tile.column : tile.row) + chunk * 4);
        to = first * Filters::PLANE + channel * Filters::ROW + chunk * 4;
    }
    // Starts the copies of the next step. Channels past the end read as zero.
    MEMBER void load_step(sptr<float> tile) {
        const bool there = within(0, left);
        UNROLL for (int i = 0; i < PASSES; ++i)
            copy_async<16>(tile + (to + i * PACE * Filters::PLANE), from + i * component, there);
        copy_async_commit();
        from = from + step;
        left -= BLOCK_K;
    }
    MEMBER void store_step(sptr<float>) const { copy_async_wait<0>(); }
};
