// A convolution on the tensor cores whose channels cannot be read 16 bytes at a time: they are not adjacent in memory,
// or not a whole number of such accesses. C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) is that of
// contraction_mma.cu.
//
// A first launch, contraction_pack, writes the image with its channels innermost, and the filters with their k in the
// order of the image's, into the workspace (packed.cuh, packed_operands.cuh). It pads the channels of a group with
// zeros to whole accesses: both operands of the product are K-contiguous and aligned, whatever x and w were. The image
// is read and written once more, which costs more than it saves with few taps and filters: the cost model decides. With
// FILTERS_ALIGNED, filters with one tap and whole accesses of channels are read in place.

#pragma parameter PACKED 2 // layout of x: 1 channels last, 2 channels first; 3, 4 the same, of a transposed convolution
#pragma parameter FILTERS_LAST 0 // innermost axis of w in memory: 1 = filters, 0 = channels or taps

#pragma parameter FILTERS_ALIGNED 0 // 1: k is innermost in w, in whole accesses of B_VECTOR (A_VECTOR if w is A) bytes

#define ALL_IMAGES (A_WINDOW == 0) // where pixels are columns

#include "contraction_mma.cu"

static_assert(A_LAYOUT == 0 && B_LAYOUT == 0 && A_UNIT && B_UNIT, "Packed operands are K-contiguous.");

KERNEL(contraction_packed, Params, THREADS, MIN_BLOCKS) {
    grid_dependency_wait();
    compute_tiles(params);
}
