// Sums of products of float parts (wgmma_floats.cuh) as they are meant: lowered, or where one of a warp's is not
// finite, formed again by multiply-adds of the operands themselves, in the order of k.
#pragma once
#include "wgmma_requests.cuh"

// A thread's rows of A (wgmma_boxes.cuh), at some k, and the way from there to the next one.
struct OwnRows {
    gptr<float> from[TILES_M][2];
    bool inside[TILES_M][2];
    i64 step;

    // Terms k_begin to k_end of the thread's sums.
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

#if A_WINDOW
// Whether output `out` of an axis is an image's pixel under tap `tap`, and not padding.
DEVICE bool meets(const Window &window, int axis, i32 out, i32 tap) {
    const i32 at = out * window.step[axis] + tap * window.dilation[axis] - window.pad[axis];
    return within((u32)at, (u32)window.extent[axis]); // what lies before the image is a large number when unsigned
}

DEVICE void sum_terms(const Params &params, const Tile &tile, int top, Sums &sums) {
    const Window &window = params.window;
    const gptr<float> a = gptr<float>(params.a) + batch_offset(params.a_batch, tile.batch);
    const Steps steps = steps_of(params, tile);
    OwnRows rows;
    rows.step = window.k_stride[2];
    ROLLED for (i32 step = 0; within(step, steps.count); ++step) {
        const i32 tap = (steps.first + step) / steps_per_tap(window);
        const i32 channel = (steps.first + step) % steps_per_tap(window) * BLOCK_K;
        const i32 h = tap / window.ks[0], w = tap % window.ks[0];
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            const i32 row = top + i * 64 + half * 8;
            const Digits at = Digits::of(row, window.rows);
            rows.from[i][half] = a + (at.outer * window.row_stride[0] + at.middle * window.row_stride[1] +
                                      at.inner * window.row_stride[2] + h * window.k_stride[0] +
                                      w * window.k_stride[1] + channel * window.k_stride[2] - window.shift);
            rows.inside[i][half] =
                within(row, params.m) && meets(window, 0, at.middle, h) && meets(window, 1, at.inner, w);
        }
        const i32 k = tap * window.ks[1] + channel;
        rows.add(params, tile, k, k + minimum(BLOCK_K, window.ks[1] - channel), sums);
    }
}
#else
DEVICE void sum_terms(const Params &params, const Tile &tile, int top, Sums &sums) {
    const gptr<float> a = gptr<float>(params.a) + batch_offset(params.a_batch, tile.batch);
    OwnRows rows;
    rows.step = params.a_k;
    UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
        const i32 row = top + i * 64 + half * 8;
        rows.from[i][half] = a + (row * params.a_m + tile.k_begin * params.a_k);
        rows.inside[i][half] = within(row, params.m);
    }
    rows.add(params, tile, tile.k_begin, tile.k_end, sums);
}
#endif

// Finite sums are lowered, others formed again.
DEVICE void settle_parts(const Params &params, const Tile &tile, int row, Sums &sums) {
    float trace = 0.0f; // zero times what is not finite is NaN
    UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) trace =
        fma_(sums[i][v], 0.0f, trace);
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
