// A transposed convolution by phases: outputs whose places leave the same remainders by the strides meet the same taps
// of the filter, and are an ordinary convolution of the image with these, of stride 1. Taps that meet no pixel are not
// multiplied.
//
// Along an axis, output o meets tap r at pixel (o + pad - r * dilation) / stride where that leaves no remainder. Taps
// of a phase are `pace` apart, the pixels that they meet `reach`; phase number j < pace begins with tap j. Where stride
// and dilation have a common divisor, or there are fewer taps than phases, some outputs meet none.
//
// The filters stay where they are: k of a phase is (tap, channel) as of any convolution, the last tap first, so that
// pixels follow each other; a step of BLOCK_K is of one tap, and between taps the filters' addresses jump. The sums of
// every phase lie in the workspace, each where a split product's would (contraction.cuh), in regions of equal size.
#pragma once
#include "contraction.cuh"

struct PhasedAxis {
    i32 stride, dilation, pad, taps, outputs;
    i32 pace, reach; // see above
    i32 phases;      // that have taps

    MEMBER PhasedAxis(const Window &window, int axis, i32 of_filter)
        : stride(window.divisor[axis]), dilation(-window.dilation[axis]), pad(-window.pad[axis]), taps(of_filter),
          outputs(window.rows[axis]) {
        i32 common = stride, rest = dilation % stride;
        while (rest != 0) {
            const i32 next = common % rest;
            common = rest, rest = next;
        }
        pace = stride / common, reach = dilation / common;
        phases = pace < taps ? pace : taps;
    }
    MEMBER i32 taps_of(i32 phase) const { return (taps - phase + pace - 1) / pace; }
    // The remainder of a number by the stride, 0 or more.
    MEMBER i32 left_of(i32 value) const { return (value % stride + stride) % stride; }
    MEMBER i32 first_output(i32 phase) const { return left_of(phase * (dilation % stride) - pad); }
    // Outputs of a phase, which are a stride apart; the most that one has.
    MEMBER i32 outputs_of(i32 phase) const {
        return (i32)((u32)(outputs + stride - 1 - first_output(phase)) / (u32)stride);
    }
    MEMBER i32 most_outputs() const { return (outputs + stride - 1) / stride; }
    // The pixel that the first output of a phase meets under the last of its taps.
    MEMBER i32 first_pixel(i32 phase) const {
        return (first_output(phase) + pad - phase * dilation) / stride - (taps_of(phase) - 1) * reach;
    }
    // The phase of an output; `phases` where it meets no tap.
    MEMBER i32 phase_of(i32 output) const {
        const i32 wanted = left_of(output + pad), step = dilation % stride;
        i32 phase = 0, left = 0;
        while (left != wanted && phase != phases) {
            ++phase, left += step;
            left -= left >= stride ? stride : 0;
        }
        return phase;
    }
};

struct Phases {
    i32 channels; // of a group
    PhasedAxis down, across;
    i32 images;

    // Without channels the digit that counts them is 1, and no phase has taps.
    MEMBER explicit Phases(const Params &params)
        : channels(params.window.ks[1]), down(params.window, 0, params.k / (params.window.ks[0] * params.window.ks[1])),
          across(params.window, 1, params.window.ks[0]),
          images(params.m / (params.window.rows[0] * params.window.rows[1])) {}
    MEMBER i32 count() const { return down.phases * across.phases; }
    MEMBER i32 most_rows() const { return images * down.most_outputs() * across.most_outputs(); }
    // Where the sums of a phase begin.
    MEMBER gptr<ACC_TYPE> sums(const Params &params, i32 h, i32 w) const {
        const i64 rows = (i64)params.split * params.batch * most_rows() * (h * across.phases + w);
        return gptr<ACC_TYPE>(params.workspace) + rows * workspace_columns(params.n);
    }
};

// Where a block is in the filter, whose address moves on evenly within a tap.
struct TapWalk {
    i32 channels, columns;   // of a tap, of a row of the phase's taps
    i32 left, right;         // of these, before the next jump
    i64 first;               // jump in front of the first step, in elements
    i64 next_tap, next_line; // jumps

    MEMBER TapWalk(const Params &params, const Phases &phases, i32 h, i32 w, i32 k) : channels(phases.channels) {
        const PhasedAxis &down = phases.down, &across = phases.across;
        columns = across.taps_of(w);
        const i64 tap = phases.channels * params.b_k;
        const i32 number = k / channels, row = number / columns, column = number % columns;
        left = channels - k % channels, right = columns - column;
        const i32 r = h + (down.taps_of(h) - 1 - row) * down.pace, s = w + (right - 1) * across.pace;
        first = (r * across.taps + s - number) * tap;
        next_tap = -(across.pace + 1) * tap;
        next_line = ((columns - 1) * across.pace - down.pace * across.taps - 1) * tap;
    }
    // The jump behind a step.
    MEMBER i64 step() {
        left -= BLOCK_K;
        if (left > 0)
            return 0;
        left = channels;
        if (--right > 0)
            return next_tap;
        cover("next_line");
        right = columns;
        return next_line;
    }
};

// The product of a phase: its pixels, its taps, its sums, as if there were no others.
DEVICE Params params_of_phase(const Params &params, const Phases &phases, i32 h, i32 w) {
    Params own = params;
    own.m = phases.images, own.window.shift = 0;
    UNROLL for (int i = 0; i < 2; ++i) {
        const PhasedAxis &axis = i == 0 ? phases.down : phases.across;
        const i32 phase = i == 0 ? h : w, outputs = axis.outputs_of(phase);
        const i64 stride = params.window.row_stride[1 + i];
        own.m *= outputs;
        own.window.rows[i] = outputs > 0 ? outputs : 1; // kernels divide by it
        own.window.divisor[i] = 1;
        own.window.dilation[i] = axis.reach, own.window.pad[i] = -axis.first_pixel(phase);
        own.window.k_stride[i] = axis.reach * stride;
        own.window.shift += own.window.pad[i] * stride;
    }
    own.window.ks[0] = phases.across.taps_of(w);
    own.k = phases.down.taps_of(h) * own.window.ks[0] * phases.channels;
    const u32 steps = (u32)(own.k + BLOCK_K - 1) / BLOCK_K, split = (u32)params.split;
    own.k_per_split = (i32)((steps + split - 1) / split) * BLOCK_K;
    own.workspace = phases.sums(params, h, w).address;
    return own;
}

// The phase of a block, and its number among the blocks of that. Grid: phases outermost, then as contraction.cuh has
// it, with tiles_m rows of tiles for the largest phase.
struct PhaseOfBlock {
    i32 phase, h, w;
    u32 block;

    MEMBER PhaseOfBlock(const Params &params, const Phases &phases) {
        const u32 each = tile_count(params);
        phase = (i32)((u32)block_index() / each), block = (u32)block_index() % each;
        const i32 columns = phases.across.phases > 0 ? phases.across.phases : 1;
        h = phase / columns, w = phase % columns;
    }
};

// Where the block's range of k begins in the filter.
DEVICE TapWalk taps_of_block(const Params &params, const Tile &tile) {
    const Phases phases(params);
    const PhaseOfBlock own(params, phases);
    return TapWalk(params, phases, own.h, own.w, tile.k_begin);
}

// compute(params, tile) for the block's tile, with the parameters of its phase.
template <class Compute>
DEVICE void tile_of_phase(const Params &params, const Compute &compute) {
    const Phases phases(params);
    const PhaseOfBlock at(params, phases);
    if (phases.count() == 0) {
        cover("no_channels");
        return;
    }
    Params own = params_of_phase(params, phases, at.h, at.w);
    Tile tile = decode_tile<BLOCK_M, BLOCK_N>(own, BLOCK_K, at.block);
    if (!within(tile.row, own.m)) {
        cover("past_phase");
        return;
    }
    if (tile.k_end < tile.k_begin) { // a phase with fewer steps than k has parts
        cover("empty_part");
        tile.k_end = tile.k_begin;
    }
    own.b = (gptr<IN_TYPE>(params.b) + taps_of_block(params, tile).first).address;
    compute(own, tile);
}

// The last launch: adds the parts of every output's sum in order (the same bits on every run), then the epilogue.
// Grid: ceil(batch * m * ceil(n / REDUCE_WIDTH) / 256) blocks of 256 threads.
KERNEL(contraction_interleave, Params, REDUCE_THREADS, 0) {
    grid_dependency_wait();
    const Phases phases(params);
    const i64 groups = ((i64)params.n + REDUCE_WIDTH - 1) / REDUCE_WIDTH;
    const i64 group = (i64)block_index() * REDUCE_THREADS + thread_index();
    const i64 line = group / groups; // batch entry * m + row
    const bool inside = within(line, (i64)params.batch * params.m);
    const i32 entry = inside ? (i32)(line / params.m) : 0;
    const Place at = {inside ? (i32)(line % params.m) : 0, (i32)(group % groups) * REDUCE_WIDTH, inside};
    const Digits pixel = Digits::of(at.row, params.window.rows);
    const i32 h = phases.down.phase_of(pixel.middle), w = phases.across.phase_of(pixel.inner);
    ACC_TYPE sum[REDUCE_WIDTH] = {};
    if (within(h, phases.down.phases) && within(w, phases.across.phases)) {
        cover("interleave");
        const i32 rows = phases.down.outputs_of(h), columns = phases.across.outputs_of(w);
        const i32 row =
            (pixel.outer * rows + pixel.middle / phases.down.stride) * columns + pixel.inner / phases.across.stride;
        const i64 wide = workspace_columns(params.n), lines = (i64)phases.images * rows * columns;
        gptr<ACC_TYPE> from = phases.sums(params, h, w) + ((entry * lines + row) * wide + at.column);
        UNROLL_BY_4 for (i32 part = 0; within(part, params.split); ++part) {
            add_partials(sum, from, inside);
            from = from + params.batch * lines * wide;
        }
    } else {
        cover("no_taps");
    }
    finish_outputs<OUT_TYPE, REDUCE_WIDTH, C_UNIT>(params, split_batch(params, entry), sum, OnePlace{at});
}
