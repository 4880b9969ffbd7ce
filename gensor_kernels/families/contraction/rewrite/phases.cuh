// A transposed convolution by phases. A phase is all outputs whose coordinates have the same remainders modulo the
// strides. They use the same taps of the filter: a phase is an ordinary convolution of the image with these taps, of
// stride 1. Taps that meet no pixel are not multiplied.
//
// Along an axis, output o meets tap r at pixel (o + pad - r * dilation) / stride if the division is exact. Taps of a
// phase are `tap_step` apart, their pixels `pixel_step`; phase j < tap_step begins with tap j. If stride and dilation
// have a common divisor, or if there are fewer taps than phases, some outputs meet no tap.
//
// The filters are read in place. The k of a phase is (tap, channel), the last tap first, so that pixels ascend. A step
// of BLOCK_K is part of one tap; between taps the filters' addresses jump. The workspace contains a region of equal
// size for every phase, with sums ordered as those of a split product (contraction.cuh).
#pragma once
#include "contraction.cuh"

struct PhasedAxis {
    i32 stride, dilation, pad, taps, outputs;
    i32 tap_step, pixel_step; // see above
    i32 phases;               // with taps

    MEMBER PhasedAxis(const Window &window, int axis, i32 of_filter)
        : stride(window.divisor[axis]), dilation(-window.dilation[axis]), pad(-window.pad[axis]), taps(of_filter),
          outputs(window.rows[axis]) {
        i32 common = stride, rest = dilation % stride;
        while (rest != 0) {
            const i32 next = common % rest;
            common = rest, rest = next;
        }
        tap_step = stride / common, pixel_step = dilation / common;
        phases = tap_step < taps ? tap_step : taps;
    }
    MEMBER i32 taps_of(i32 phase) const { return (taps - phase + tap_step - 1) / tap_step; }
    // value modulo the stride, 0 or more.
    MEMBER i32 remainder(i32 value) const { return (value % stride + stride) % stride; }
    MEMBER i32 first_output(i32 phase) const { return remainder(phase * (dilation % stride) - pad); }
    // Outputs of a phase, which are a stride apart, and their maximum over all phases.
    MEMBER i32 outputs_of(i32 phase) const {
        return (i32)((u32)(outputs + stride - 1 - first_output(phase)) / (u32)stride);
    }
    MEMBER i32 max_outputs() const { return (outputs + stride - 1) / stride; }
    // The pixel that the first output of a phase meets under the last of its taps.
    MEMBER i32 first_pixel(i32 phase) const {
        return (first_output(phase) + pad - phase * dilation) / stride - (taps_of(phase) - 1) * pixel_step;
    }
    // The phase of an output; `phases` where it meets no tap.
    MEMBER i32 phase_of(i32 output) const {
        const i32 wanted = remainder(output + pad), step = dilation % stride;
        i32 phase = 0, found = 0;
        while (found != wanted && phase != phases) {
            ++phase, found += step;
            found -= found >= stride ? stride : 0;
        }
        return phase;
    }
};

struct Phases {
    i32 channels; // of a group
    PhasedAxis vertical, horizontal;
    i32 images;

    // Without channels window.ks[1] is 1 and k is 0: no phase has taps.
    MEMBER explicit Phases(const Params &params)
        : channels(params.window.ks[1]),
          vertical(params.window, 0, params.k / (params.window.ks[0] * params.window.ks[1])),
          horizontal(params.window, 1, params.window.ks[0]),
          images(params.m / (params.window.rows[0] * params.window.rows[1])) {}
    MEMBER i32 count() const { return vertical.phases * horizontal.phases; }
    MEMBER i32 max_rows() const { return images * vertical.max_outputs() * horizontal.max_outputs(); }
    // The first sum of a phase.
    MEMBER gptr<ACC_TYPE> sums(const Params &params, i32 h, i32 w) const {
        const i64 rows = (i64)params.split * params.batch * max_rows() * (h * horizontal.phases + w);
        return gptr<ACC_TYPE>(params.workspace) + rows * workspace_columns(params.n);
    }
};

// A block's walk through the taps of a filter, whose address advances evenly within a tap.
struct TapWalk {
    i32 channels, columns;           // per tap, per row of the phase's taps
    i32 channels_left, columns_left; // of them, before the next jump
    i64 first_jump;                  // before the first step, in elements
    i64 next_tap, next_row;          // jumps

    MEMBER TapWalk(const Params &params, const Phases &phases, i32 h, i32 w, i32 k) : channels(phases.channels) {
        const PhasedAxis &vertical = phases.vertical, &horizontal = phases.horizontal;
        columns = horizontal.taps_of(w);
        const i64 tap = phases.channels * params.b_k;
        const i32 index = k / channels, row = index / columns, column = index % columns;
        channels_left = channels - k % channels, columns_left = columns - column;
        const i32 r = h + (vertical.taps_of(h) - 1 - row) * vertical.tap_step,
                  s = w + (columns_left - 1) * horizontal.tap_step;
        first_jump = (r * horizontal.taps + s - index) * tap;
        next_tap = -(horizontal.tap_step + 1) * tap;
        next_row = ((columns - 1) * horizontal.tap_step - vertical.tap_step * horizontal.taps - 1) * tap;
    }
    // The jump after a step.
    MEMBER i64 step() {
        channels_left -= BLOCK_K;
        if (channels_left > 0)
            return 0;
        channels_left = channels;
        if (--columns_left > 0)
            return next_tap;
        cover("next_line");
        columns_left = columns;
        return next_row;
    }
};

// The parameters of one phase's product: its pixels, its taps, its sums.
DEVICE Params params_of_phase(const Params &params, const Phases &phases, i32 h, i32 w) {
    Params phase_params = params;
    phase_params.m = phases.images, phase_params.window.shift = 0;
    UNROLL for (int i = 0; i < 2; ++i) {
        const PhasedAxis &axis = i == 0 ? phases.vertical : phases.horizontal;
        const i32 phase = i == 0 ? h : w, outputs = axis.outputs_of(phase);
        const i64 stride = params.window.row_stride[1 + i];
        phase_params.m *= outputs;
        phase_params.window.rows[i] = outputs > 0 ? outputs : 1; // a divisor
        phase_params.window.divisor[i] = 1;
        phase_params.window.dilation[i] = axis.pixel_step, phase_params.window.pad[i] = -axis.first_pixel(phase);
        phase_params.window.k_stride[i] = axis.pixel_step * stride;
        phase_params.window.shift += phase_params.window.pad[i] * stride;
    }
    phase_params.window.ks[0] = phases.horizontal.taps_of(w);
    phase_params.k = phases.vertical.taps_of(h) * phase_params.window.ks[0] * phases.channels;
    const u32 steps = (u32)(phase_params.k + BLOCK_K - 1) / BLOCK_K, split = (u32)params.split;
    phase_params.k_per_split = (i32)((steps + split - 1) / split) * BLOCK_K;
    phase_params.workspace = phases.sums(params, h, w).address;
    return phase_params;
}

// The phase of a block, and the block's number within the phase. Grid: phases outermost, then as in contraction.cuh,
// with tiles_m rows of tiles for the largest phase.
struct PhaseOfBlock {
    i32 phase, h, w;
    u32 block;

    MEMBER PhaseOfBlock(const Params &params, const Phases &phases) {
        const u32 blocks = tile_count(params);
        phase = (i32)((u32)block_index() / blocks), block = (u32)block_index() % blocks;
        const i32 columns = phases.horizontal.phases > 0 ? phases.horizontal.phases : 1;
        h = phase / columns, w = phase % columns;
    }
};

// The walk through the taps of the block's range of k.
DEVICE TapWalk taps_of_block(const Params &params, const Tile &tile) {
    const Phases phases(params);
    const PhaseOfBlock at(params, phases);
    return TapWalk(params, phases, at.h, at.w, tile.k_begin);
}

// Calls compute(params, tile) for the block's tile, with the parameters of its phase.
template <class Compute>
DEVICE void compute_block(const Params &params, const Compute &compute) {
    const Phases phases(params);
    const PhaseOfBlock at(params, phases);
    if (phases.count() == 0) {
        cover("no_channels");
        return;
    }
    Params phase_params = params_of_phase(params, phases, at.h, at.w);
    Tile tile = decode_tile<BLOCK_M, BLOCK_N>(phase_params, BLOCK_K, at.block);
    if (!within(tile.row, phase_params.m)) {
        cover("past_phase");
        return;
    }
    if (tile.k_end < tile.k_begin) { // a phase with fewer steps than parts of k
        cover("empty_part");
        tile.k_end = tile.k_begin;
    }
    phase_params.b = (gptr<IN_TYPE>(params.b) + taps_of_block(params, tile).first_jump).address;
    compute(phase_params, tile);
}

// The last launch: adds the parts of every sum in order (the same bits on every run), then applies the epilogue.
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
    const i32 h = phases.vertical.phase_of(pixel.middle), w = phases.horizontal.phase_of(pixel.inner);
    ACC_TYPE sum[REDUCE_WIDTH] = {};
    if (within(h, phases.vertical.phases) && within(w, phases.horizontal.phases)) {
        cover("interleave");
        const i32 rows = phases.vertical.outputs_of(h), columns = phases.horizontal.outputs_of(w);
        const i32 row = (pixel.outer * rows + pixel.middle / phases.vertical.stride) * columns +
                        pixel.inner / phases.horizontal.stride;
        const i64 pitch = workspace_columns(params.n), lines = (i64)phases.images * rows * columns;
        gptr<ACC_TYPE> from = phases.sums(params, h, w) + ((entry * lines + row) * pitch + at.column);
        UNROLL_BY_4 for (i32 part = 0; within(part, params.split); ++part) {
            add_partials(sum, from, inside);
            from = from + params.batch * lines * pitch;
        }
    } else {
        cover("no_taps");
    }
    finish_outputs<OUT_TYPE, REDUCE_WIDTH, C_UNIT>(params, split_batch(params, entry), sum, OnePlace{at});
}
