// A convolution with channels first by Blackwell's products in tensor memory (contraction_tcgen05.cu). C[m, n] =
// epilogue(sum over k of A[m, k] * B[k, n]): rows are filters, columns the output pixels of all images.
//
// Tensor copies (TMA) cannot walk such an image. A first launch, contraction_pack, therefore writes the image with its
// channels innermost, and the filters with their k in the order of the image's, into the workspace (packed.cuh,
// packed_operands.cuh). It pads the channels of a group with zeros to whole accesses of 16 bytes.
#pragma parameter PACKED 2 // layout of x: channels first

#define FILTERS_LAST 0    // the taps of a filter are innermost
#define FILTERS_ALIGNED 0 // the host describes the filters in a tensor map: they are always packed
#define A_VECTOR 16
#define B_VECTOR 16
#define ALL_IMAGES 1
#define AFTER_ANOTHER contraction_packed_tcgen05

#include "contraction_tcgen05.cu"
#include "packed_operands.cuh"

static_assert(PACKED == WINDOW_CHANNELS_FIRST && B_WINDOW != WINDOW_NONE, "Columns are pixels of packed images.");
static_assert(!STORE_COPIES, "The boxes of copies would span images.");
