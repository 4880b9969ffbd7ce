// Lines of a convolution whose operands are divided (operand_copies.cuh): of the image the channels of a pixel, [image]
// [row][column], of the filters those of one tap, [tap][filter]. Along an axis with one tap the copy has the rows
// (columns) of the image that outputs read, and no others; those of the padding are zeros.
#pragma once
#include "wgmma_requests.cuh"

struct ImageLines : Lines {
    const Window &window;
    Window copied;
    i64 of_image, of_row, of_column; // strides

    MEMBER explicit ImageLines(const Params &params) : window(params.window), copied(copied_window(params)) {
        const i32 images = params.m / (window.rows[0] * window.rows[1]);
        of_image = window.row_stride[0], of_row = params.a_m, of_column = params.a_k;
        step = 1, across = 0, length = window.ks[1], count = images * copied.extent[0] * copied.extent[1];
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
    // What lies before the image is a large number when unsigned.
    MEMBER bool exists(u32 line) const {
        const Digits at = Digits::of((i32)line, copied.extent);
        return within((u32)source(0, at.middle), (u32)window.extent[0]) &&
               within((u32)source(1, at.inner), (u32)window.extent[1]);
    }
};

struct FilterLines : Lines {
    i32 filters;

    MEMBER i64 begin(u32 line) const {
        return line % (u32)filters * across + (i64)(line / (u32)filters) * (length * step);
    }
};

DEVICE ImageLines lines_of_a(const Params &params) {
    return ImageLines(params);
}
DEVICE FilterLines lines_of_b(const Params &params) {
    const i32 channels = params.window.ks[1];
    return FilterLines{{params.b_k, params.b_n, channels, params.k / channels * params.n}, params.n};
}
