// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]), for small products with any strides. A block computes BLOCK_M x
// BLOCK_N outputs, one per thread; each thread reads its row of A and its column of B from global memory.
#include "product_options.cuh"
#pragma parameter IN_TYPE float  // elements of A and B
#pragma parameter OUT_TYPE float // elements of C
#pragma parameter ACC_TYPE float // sums
#pragma parameter BLOCK_M 8      // rows of C per block
#pragma parameter BLOCK_N 32     // columns of C per block

#include "contraction.cuh"
#include "epilogue.cuh"

static_assert(BLOCK_M * BLOCK_N % 32 == 0 && BLOCK_M * BLOCK_N <= 1024, "A block must have 1 to 32 whole warps.");

DEVICE ACC_TYPE read_element(gptr<IN_TYPE> from, bool inside) {
    return convert<ACC_TYPE>(load_global<(int)sizeof(IN_TYPE)>(from, inside).template get<IN_TYPE>(0));
}

KERNEL(contraction_plain, Params, BLOCK_M *BLOCK_N, 1) {
    const Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, 1);
    const i32 row = tile.row + thread_index() / BLOCK_N, column = tile.column + thread_index() % BLOCK_N;
    const bool in_a = within(row, params.m), in_b = within(column, params.n);
    gptr<IN_TYPE> a = gptr<IN_TYPE>(params.a) + (batch_offset(params.a_batch, tile.batch) + row * params.a_m);
    gptr<IN_TYPE> b = gptr<IN_TYPE>(params.b) + (batch_offset(params.b_batch, tile.batch) + column * params.b_n);
    ACC_TYPE sum[1] = {};
    for (i32 k = tile.k_begin; within(k, tile.k_end); ++k) {
        sum[0] = sum[0] + read_element(a, in_a) * read_element(b, in_b);
        a = a + params.a_k;
        b = b + params.b_k;
    }
    finish_outputs<OUT_TYPE, 1, C_UNIT>(params, tile.batch, sum,
                                        [&](int /* group */) { return Place{row, column, true}; });
}
