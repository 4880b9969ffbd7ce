// The computation of one product of a warpgroup. Each warp computes 16 of the 64 rows.
#pragma once
#include "tensor.h"

namespace emulator {

// An operand in shared memory that a matrix descriptor describes. Only the 128-byte swizzle is modelled.
struct SharedOperand {
    u32 start, leading, stride;
    int element;
    bool transposed;

    SharedOperand(u64 descriptor, GroupElement type, bool transposed, Site site)
        : start((u32)(descriptor & 0x3fff) << 4), leading((u32)(descriptor >> 16 & 0x3fff) << 4),
          stride((u32)(descriptor >> 32 & 0x3fff) << 4), element(size_of(type)), transposed(transposed) {
        if (descriptor >> 62 != 1 || descriptor & 0x3fffc000c000c000ull || start & 0x380)
            invalid("a matrix descriptor that is none of a 128-byte swizzle", site);
    }
    // Address of 16 bytes: one row from `k` on or, transposed, 8 rows from `row` on.
    u32 chunk(int row, int k) const {
        const u32 at = transposed ? row / 64 * leading + row % 64 * 2 + k / 8 * stride + k % 8 * 128
                                  : row / 8 * stride + row % 8 * 128 + k * element;
        return swizzled(start + at);
    }
};

// Writes elements (row, k) of `rows` rows from `first` on to to[row * row_step + k * k_step].
static void read_operand(const Block &block, const SharedOperand &from, int first, int rows, GroupElement type,
                         float *to, int row_step, int k_step) {
    const int each = 16 / from.element;
    for (int row = 0; row < rows; row += from.transposed ? each : 1)
        for (int k = 0; k < 2 * each; k += from.transposed ? 1 : each) {
            unsigned char chunk[16];
            memcpy(chunk, block.shared + (from.chunk(first + row, k) - SHARED_BASE), 16);
            float *at = to + row * row_step + k * k_step;
            for (int i = 0; i < each; ++i)
                at[i * (from.transposed ? row_step : k_step)] = widened(chunk + i * from.element, type);
        }
}

// A in registers: of `each` elements in a word, register i of lane 4 * g + t holds k from each * (4 * (i / 2) + t) on,
// of row g + 8 * (i % 2).
static void read_held(const Product &product, GroupA &to) {
    const int element = size_of(product.shape.a), each = 4 / element;
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i) {
            unsigned char bytes[4]; // the order of bytes in memory does not depend on the host's
            for (int byte = 0; byte < 4; ++byte)
                bytes[byte] = (unsigned char)(product.held[lane][i] >> 8 * byte);
            for (int of = 0; of < each; ++of)
                to[lane / 4 + i % 2 * 8][each * (i / 2 * 4 + lane % 4) + of] =
                    widened(bytes + of * element, product.shape.a);
        }
}

WIDE_VECTORS void multiply_rows(GroupSums &sums, const GroupA &a, const GroupB &b, int n, int depth) {
    for (int i = 0; i < 16; ++i)
        for (int k = 0; k < depth; ++k)
            for (int j = 0; j < n; ++j)
                sums[i][j] += a[i][k] * b[k][j];
}

static u32 *sum_of(const Product &product, int row, int column) {
    return product.d[row % 8 * 4 + column % 8 / 2] + (column / 8 * 4 + row / 8 * 2 + column % 2);
}

static void execute(const Product &product) {
    static GroupA a;
    static GroupB b;
    static GroupSums sums;
    const GroupShape &shape = product.shape;
    const SharedOperand second(product.b, shape.b, shape.b_transposed, product.site);
    if (shape.held) {
        read_held(product, a);
    } else {
        const SharedOperand first(product.a, shape.a, shape.a_transposed, product.site);
        read_operand(*current->block, first, current->warp() % 4 * 16, 16, shape.a, &a[0][0], 32, 1);
    }
    read_operand(*current->block, second, 0, shape.n, shape.b, &b[0][0], 1, 256);
    const bool integers = shape.a == GROUP_INT8;
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < shape.n; ++j) {
            const u32 before = shape.kept && !integers ? *sum_of(product, i, j) : 0;
            memcpy(&sums[i][j], &before, 4);
        }
    if (shape.a >= GROUP_E4M3)
        multiply_cut_rows(sums, a, b, shape.n);
    else
        multiply_rows(sums, a, b, shape.n, 32 / size_of(shape.a));
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < shape.n; ++j) {
            u32 *const sum = sum_of(product, i, j), before = shape.kept ? *sum : 0;
            if (integers) // 32 products fit a float; int32 sums wrap around
                *sum = before + (u32)(int)sums[i][j];
            else
                memcpy(sum, &sums[i][j], 4);
        }
    ++count(GROUP_MULTIPLIES);
}

} // namespace emulator
