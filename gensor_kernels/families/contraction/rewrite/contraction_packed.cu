// A convolution on the tensor cores whose image cannot be read 16 bytes at a time along its channels: they are no
// neighbours in memory, or not a multiple of such an access. C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) is
// contraction_mma.cu; both operands are rewritten first, by a launch of their own: contraction_pack.
//
// That launch writes the image with its channels innermost, and the filters with k in the order of the image's, into
// the workspace (packed.cuh, packed_operands.cuh). Channels of a group are padded with zeros to whole accesses, so that
// both operands of the product are K-contiguous and aligned whatever x and w were. It moves the image once more each
// way, which few taps and filters do not repay: the potential says when. With FILTERS_ALIGNED, filters of one tap and
// of whole accesses of channels are not rewritten: they are read where they are.
//
// Legal Programs: those of contraction_mma.cu with IN_TYPE for A_STORED and B_STORED, A_LAYOUT 0, B_LAYOUT 0, A_UNIT 1,
// B_UNIT 1 and without GATE, RAGGED_ROWS, NORM and SCALED, where either A_WINDOW or B_WINDOW is 1 (3 for a transposed
// convolution) and A_VECTOR and B_VECTOR divide the bytes of a group's padded channels: 4 or 8 where the channels fit
// these, else a multiple of 16. k_per_split of Params is not read.
// Shared bytes, bank conflicts: as there. contraction_pack has none.
//
// Global accesses: contraction_pack reads elements and stores the vectors of either operand; the rest as there.

#pragma parameter PACKED 2 // layout of x: 1 channels last, 2 channels first; 3, 4 the same, of a transposed convolution
#pragma parameter FILTERS_LAST 0 // innermost axis of w in memory: 1 = filters, 0 = channels or taps

#pragma parameter FILTERS_ALIGNED 0 // 1: k is innermost in w, in whole accesses of B_VECTOR (A_VECTOR if w is A) bytes

#include "contraction_mma.cu"

static_assert((A_WINDOW == WINDOW_NONE) != (B_WINDOW == WINDOW_NONE), "One operand is an image.");
static_assert(A_LAYOUT == 0 && B_LAYOUT == 0 && A_UNIT && B_UNIT, "Packed operands are K-contiguous.");

KERNEL(contraction_packed, Params, THREADS, MIN_BLOCKS) {
    grid_dependency_wait();
    compute_tiles(params);
}
