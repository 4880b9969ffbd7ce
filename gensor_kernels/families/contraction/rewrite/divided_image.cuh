// Lines of a convolution whose operands are divided (operand_copies.cuh): of the image the channels of a pixel, [image]
// [row][column], of the filters those of one tap, [tap][filter]. Along an axis with one tap the copy has the rows
// (columns) of the image that outputs read, and no others; those of the padding are zeros.
//
// Params are those of the convolution as it was called: with A_WINDOW its channels are last in k, with B_WINDOW first.
#pragma once
#include "wgmma_requests.cuh"

struct ImageLines : Lines {
    const Window &window;
    Window copied;
    i64 of_image, of_row, of_column; // strides

    MEMBER explicit ImageLines(const Params &params) : window(params.window), copied(copied_window(params)) {
        const i32 images = PIXELS_ARE_ROWS ? params.m / (window.rows[0] * window.rows[1]) : params.batch;
        of_image = PIXELS_ARE_ROWS ? window.row_stride[0] : params.b_batch[1];
        of_row = PIXELS_ARE_ROWS ? params.a_m : params.b_k, of_column = PIXELS_ARE_ROWS ? params.a_k : params.b_n;
        step = window.k_stride[PIXELS_ARE_ROWS ? 2 : 0], across = 0;
        length = copied.ks[1], count = images * copied.extent[0] * copied.extent[1];
    }
    // Where a row or column of the copy is in the image: that which an output reads, where there is one tap.
    MEMBER i32 source(int axis, i32 at) const {
        const bool same = copied.step[axis] == window.step[axis] && copied.pad[axis] == window.pad[axis];
        return same ? at : at * window.step[axis] - window.pad[axis];
    }
    MEMBER i64 begin(u32 line) const {
        const Digits at = Digits::of((i32)line, copied.extent);
        return at.outer * of_image + source(0, at.middle) * of_row + source(1, at.inner) * of_column;
    }
    // An index in front of the image is a large number when unsigned.
    MEMBER bool exists(u32 line) const {
        const Digits at = Digits::of((i32)line, copied.extent);
        return within((u32)source(0, at.middle), (u32)window.extent[0]) &&
               within((u32)source(1, at.inner), (u32)window.extent[1]);
    }
};

struct FilterLines : Lines {
    i32 filters;
    i64 of_tap; // stride

    MEMBER explicit FilterLines(const Params &params) {
        length = copied_window(params).ks[1];
        const i32 taps = params.k / length;
        const i64 k = PIXELS_ARE_ROWS ? params.b_k : params.a_k;
        step = PIXELS_ARE_ROWS ? k : taps * k, of_tap = PIXELS_ARE_ROWS ? length * k : k;
        across = PIXELS_ARE_ROWS ? params.b_n : params.a_m, filters = PIXELS_ARE_ROWS ? params.n : params.m;
        count = taps * filters;
    }
    MEMBER i64 begin(u32 line) const { return line % (u32)filters * across + line / (u32)filters * of_tap; }
};

DEVICE auto lines_of_a(const Params &params) {
    if constexpr (PIXELS_ARE_ROWS)
        return ImageLines(params);
    else
        return FilterLines(params);
}
DEVICE auto lines_of_b(const Params &params) {
    if constexpr (PIXELS_ARE_ROWS)
        return FilterLines(params);
    else
        return ImageLines(params);
}
