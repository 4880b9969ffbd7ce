// Finished sums of float products by parts (float_parts.cuh): finite sums are divided by 2^32. Where a sum of a warp
// is not finite, the warp computes all its sums again by multiply-adds of the operands themselves, in the order of k.
#pragma once
#include "tma_requests.cuh"

// A thread's rows of A: two in each tile of sums.
struct ThreadRows {
    gptr<float> from[TILES_M][2]; // at k_begin
    bool inside[TILES_M][2];
    i64 step; // from k to k + 1

    // Adds the terms from k_begin to k_end to the thread's sums.
    MEMBER void add(const Params &params, const Tile &tile, i32 k_begin, i32 k_end, Sums &sums) const {
        const int left = tile.column + (thread_index() & 3) * 2;
        const gptr<float> b = gptr<float>(params.b) + batch_offset(params.b_batch, tile.batch);
        ROLLED for (i32 k = k_begin; within(k, k_end); ++k) {
            float of_a[TILES_M][2];
            UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) of_a[i][half] =
                load_global<4>(from[i][half] + (k - k_begin) * step, inside[i][half]).template get<float>(0);
            UNROLL for (int v = 0; v < BLOCK_N / 2; v += 4) UNROLL for (int c = 0; c < 2; ++c) {
                const i32 at = left + v * 2 + c;
                const float of_b =
                    load_global<4>(b + (at * params.b_n + k * params.b_k), within(at, params.n)).template get<float>(0);
                UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half)
                    sums[i][v + 2 * half + c] = fma_(of_a[i][half], of_b, sums[i][v + 2 * half + c]);
            }
        }
    }
};

#if A_WINDOW || B_WINDOW
// Returns whether output `out` along an axis has a pixel of the image, not padding, under tap `tap`.
DEVICE bool is_in_image(const Window &window, int axis, i32 out, i32 tap) {
    const i32 at = out * window.step[axis] + tap * window.dilation[axis] - window.pad[axis];
    return within((u32)at, (u32)window.extent[axis]); // an index before the image is large when unsigned
}

// The tap of a filter that a step multiplies, and the step's channels.
struct StepTap {
    i32 row, column, tap, channel, channels;

    MEMBER StepTap(const Window &copied, i32 step)
        : tap(step / steps_per_tap(copied)), channel(step % steps_per_tap(copied) * BLOCK_K) {
        row = tap / copied.ks[0], column = tap % copied.ks[0];
        channels = minimum(BLOCK_K, copied.ks[1] - channel);
    }
};

// Tap by tap: a thread's rows are pixels, its columns are filters.
DEVICE void sum_rows_of_pixels(const Params &params, const Tile &tile, int top, Sums &sums) {
    const Window &window = params.window;
    const gptr<float> a = gptr<float>(params.a) + batch_offset(params.a_batch, tile.batch);
    const Steps steps = steps_of(params, tile);
    ThreadRows rows;
    rows.step = window.k_stride[2];
    ROLLED for (i32 step = 0; within(step, steps.count); ++step) {
        const StepTap at(copied_window(params), steps.first + step);
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            const i32 row = top + i * 64 + half * 8;
            const Digits out = Digits::of(row, window.rows);
            rows.from[i][half] = a + (out.outer * window.row_stride[0] + out.middle * window.row_stride[1] +
                                      out.inner * window.row_stride[2] + at.row * window.k_stride[0] +
                                      at.column * window.k_stride[1] + at.channel * window.k_stride[2] - window.shift);
            rows.inside[i][half] = within(row, params.m) && is_in_image(window, 0, out.middle, at.row) &&
                                   is_in_image(window, 1, out.inner, at.column);
        }
        const i32 k = at.tap * window.ks[1] + at.channel;
        rows.add(params, tile, k, k + at.channels, sums);
    }
}

// Column by column: a thread's columns are pixels of one image, its rows are filters, whose k is (channel, row,
// column). Columns after the last pixel repeat pixels of the image; they are not stored.
DEVICE void sum_columns_of_pixels(const Params &params, const Tile &tile, int top, Sums &sums) {
    const Window &window = params.window;
    const Window copied = copied_window(params);
    const gptr<float> a = gptr<float>(params.a) + batch_offset(params.a_batch, tile.batch);
    const gptr<float> b = gptr<float>(params.b) + (batch_offset(params.b_batch, tile.batch) - window.shift);
    const i64 of_channel = window.ks[0] * window.ks[1] * params.a_k;
    const Steps steps = steps_of(params, tile);
    ROLLED for (int column = 0; column < BLOCK_N / 4; ++column) {
        const i32 pixel = tile.column + column / 2 * 8 + (thread_index() & 3) * 2 + column % 2;
        const Digits out = Digits::of(pixel, window.rows);
        float sum[TILES_M][2] = {};
        ROLLED for (i32 step = 0; within(step, steps.count); ++step) {
            const StepTap at(copied, steps.first + step);
            const bool inside =
                is_in_image(window, 0, out.middle, at.row) && is_in_image(window, 1, out.inner, at.column);
            const gptr<float> from = b + (out.middle * window.row_stride[1] + out.inner * window.row_stride[2] +
                                          at.row * window.k_stride[1] + at.column * window.k_stride[2]);
            ROLLED for (i32 c = at.channel; within(c, at.channel + at.channels); ++c) {
                const float of_b = load_global<4>(from + c * window.k_stride[0], inside).template get<float>(0);
                UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
                    const i32 row = top + i * 64 + half * 8;
                    const gptr<float> filter = a + (row * params.a_m + at.tap * params.a_k + c * of_channel);
                    sum[i][half] =
                        fma_(load_global<4>(filter, within(row, params.m)).template get<float>(0), of_b, sum[i][half]);
                }
            }
        }
        UNROLL for (int v = 0; v < BLOCK_N / 2; v += 4) UNROLL for (int c = 0; c < 2; ++c) {
            UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
                if (v / 2 + c == column)
                    sums[i][v + 2 * half + c] = sum[i][half];
            }
        }
    }
}

// Adds all terms to the thread's sums, whose first row in C is `top`.
DEVICE void sum_terms(const Params &params, const Tile &tile, int top, Sums &sums) {
    if constexpr (PIXELS_ARE_ROWS)
        sum_rows_of_pixels(params, tile, top, sums);
    else
        sum_columns_of_pixels(params, tile, top, sums);
}

#else
DEVICE void sum_terms(const Params &params, const Tile &tile, int top, Sums &sums) {
    const gptr<float> a = gptr<float>(params.a) + batch_offset(params.a_batch, tile.batch);
    ThreadRows rows;
    rows.step = params.a_k;
    UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
        const i32 row = top + i * 64 + half * 8;
        rows.from[i][half] = a + (row * params.a_m + tile.k_begin * params.a_k);
        rows.inside[i][half] = within(row, params.m);
    }
    rows.add(params, tile, tile.k_begin, tile.k_end, sums);
}
#endif

// Divides finite sums by 2^32, and computes others again.
DEVICE void finish_float_sums(const Params &params, const Tile &tile, int row, Sums &sums) {
    float traces[4] = {}; // zero times infinity or NaN is NaN; four traces shorten the chain of additions
    UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) traces[v % 4] =
        fma_(sums[i][v], 0.0f, traces[v % 4]);
    float trace = traces[0] + traces[1] + (traces[2] + traces[3]);
    UNROLL for (int mask = 1; mask < 32; mask *= 2) trace = trace + shuffle_xor(trace, mask);
    if (trace != 0.0f) {
        cover("again");
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) sums[i][v] = 0.0f;
        sum_terms(params, tile, tile.row + row + (thread_index() >> 5 & 3) * 16 + (thread_index() >> 2 & 7), sums);
    } else {
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) sums[i][v] =
            sums[i][v] * LOWER;
    }
}
