// A convolution with channels first on Hopper's warpgroup products (contraction_wgmma.cu). C[m, n] = epilogue(sum over
// k of A[m, k] * B[k, n]): rows are filters, columns the output pixels of one image. Tensor copies cannot walk such an
// image, so both operands are rewritten first, by the launch of contraction_packed.cu: contraction_pack.
//
// That launch writes the image with its channels innermost, and the filters with k in the order of the image's, into
// the workspace behind the partial sums of a split (packed.cuh, packed_operands.cuh). Channels of a group are padded
// with zeros to whole accesses of 16 bytes: what copies of pixels read.
//
// Legal Programs: those of contraction_wgmma.cu with A_LAYOUT 0, B_LAYOUT 0, A_WINDOW 0, B_WINDOW 1 and STREAM 0; a
// group's channels have more than 8 bytes. k_per_split of Params is not read.
// Shared bytes, bank conflicts: as there. contraction_pack has none.
//
// Global accesses: contraction_pack reads elements and stores 16 bytes; the rest as there.
#pragma parameter PACKED 2 // how x lies: channels first

#define FILTERS_LAST 0    // filters of such images have their taps innermost
#define FILTERS_ALIGNED 0 // the host names the filters in a tensor map: they are packed, however they lie
#define A_VECTOR 16
#define B_VECTOR 16
#define BEHIND_ANOTHER // launch, for which the main one waits

#include "contraction_wgmma.cu"
#include "packed_operands.cuh"

static_assert(PACKED == WINDOW_CHANNELS_FIRST && B_WINDOW != WINDOW_NONE, "Columns are pixels of packed images.");

WGMMA_KERNEL(contraction_packed_wgmma) {
    set_up(params);
    grid_dependency_wait();
    compute_tiles(params);
}
