// Lines of a convolution whose operands are divided (operand_copies.cuh). A line of the image is the channels of a
// pixel, ordered [image][row][column]; a line of the filters is the channels of one tap, ordered [tap][filter]. Along
// an axis with one tap, the copy contains only the rows (columns) of the image that outputs read; those of the padding
// are zeros.
//
// Params describe the operands before the copy: channels are last in k with A_WINDOW, first with B_WINDOW.
#pragma once
#include "tma_requests.cuh"

struct ImageLines : Lines {
    const Window &window;
    Window copied;
    i64 image_stride, row_stride, column_stride;

    MEMBER explicit ImageLines(const Params &params) : window(params.window), copied(copied_window(params)) {
        const i32 images = PIXELS_ARE_ROWS ? params.m / (window.rows[0] * window.rows[1]) : params.batch;
        image_stride = PIXELS_ARE_ROWS ? window.row_stride[0] : params.b_batch[1];
        row_stride = PIXELS_ARE_ROWS ? params.a_m : params.b_k;
        column_stride = PIXELS_ARE_ROWS ? params.a_k : params.b_n;
        element_stride = window.k_stride[PIXELS_ARE_ROWS ? 2 : 0], line_stride = 0;
        length = copied.ks[1], count = images * copied.extent[0] * copied.extent[1];
    }
    // The row or column of the image for one of the copy; with one tap the copy has one per output.
    MEMBER i32 source(int axis, i32 at) const {
        const bool same = copied.step[axis] == window.step[axis] && copied.pad[axis] == window.pad[axis];
        return same ? at : at * window.step[axis] - window.pad[axis];
    }
    MEMBER i64 begin(u32 line) const {
        const Digits at = Digits::of((i32)line, copied.extent);
        return at.outer * image_stride + source(0, at.middle) * row_stride + source(1, at.inner) * column_stride;
    }
    // An index before the image is a large number when unsigned.
    MEMBER bool exists(u32 line) const {
        const Digits at = Digits::of((i32)line, copied.extent);
        return within((u32)source(0, at.middle), (u32)window.extent[0]) &&
               within((u32)source(1, at.inner), (u32)window.extent[1]);
    }
};

struct FilterLines : Lines {
    i32 filters;
    i64 tap_stride;

    MEMBER explicit FilterLines(const Params &params) {
        length = copied_window(params).ks[1];
        const i32 taps = params.k / length;
        const i64 k = PIXELS_ARE_ROWS ? params.b_k : params.a_k;
        element_stride = PIXELS_ARE_ROWS ? k : taps * k, tap_stride = PIXELS_ARE_ROWS ? length * k : k;
        line_stride = PIXELS_ARE_ROWS ? params.b_n : params.a_m, filters = PIXELS_ARE_ROWS ? params.n : params.m;
        count = taps * filters;
    }
    MEMBER i64 begin(u32 line) const { return line % (u32)filters * line_stride + line / (u32)filters * tap_stride; }
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
