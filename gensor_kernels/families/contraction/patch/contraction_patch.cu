// A convolution with channels first on the tensor cores (mma.sync), in the image's own layout: C[filter, pixel] =
// epilogue(sum over k of A[filter, k] * B[k, pixel]). A are the filters (k = channel, row, column), and B is the image
// under the window. Every pair of image and group is a batch entry.
//
// A block computes BLOCK_M filters for a tile of up to BLOCK_N outputs: whole rows of the output, a run of one row, or
// with RUN as many rows of RUN outputs as BLOCK_N holds, so that neighbouring rows share more of the pixels they read.
// Each step of the main loop loads BLOCK_K channels of the patch that those outputs read into shared memory, once for
// all taps, and the filters' taps of these channels. The image is transposed on its way into shared memory: 16 bytes of
// channels of a pixel are adjacent, so a tap is an offset into the patch, and ldmatrix reads the image. Filters are
// copied in their own layout and then arranged by tap in shared memory. No launch rearranges operands beforehand.
//
// A group of few channels and filters fills only part of a fragment. With MERGED, that many groups are computed as one:
// C and the image are those of a single group, and shared memory holds the filters as a block-diagonal matrix. Params
// count filters, k and groups accordingly.
//
// Shared bytes = max(BLOCK_M * (2 * BLOCK_K * E * taps + 16) + (steps > 1 ? 2 : 1) * BLOCK_K * E * pixels of the patch,
//   WARPS * 16 * WARP_N * 4), where E is the size of IN_TYPE and a block has `steps` steps. Arranging filters is free
//   of bank conflicts for an odd number of taps, and reading the image where the window moves by odd numbers of
//   columns.
// The image is read from global memory in single elements.
#pragma parameter IN_TYPE half_t   // elements of A and B: half_t, bfloat16_t, i8
#pragma parameter OUT_TYPE half_t  // elements of C: half_t, bfloat16_t, float, i32, i8
#pragma parameter ACC_TYPE float   // accumulators: float; i32 for i8 operands
#pragma parameter C_UNIT 1         // 1: columns of C are adjacent; 0: their stride is in Params
#pragma parameter A_VECTOR 16      // bytes per global access of the filters
#pragma parameter C_VECTOR 16      // bytes per global access of C
#pragma parameter BLOCK_M 64       // filters per block
#pragma parameter BLOCK_N 64       // most outputs per block
#pragma parameter BLOCK_K 16       // channels per step of the main loop
#pragma parameter WARP_M 32        // filters per warp
#pragma parameter WARP_N 32        // outputs per warp
#pragma parameter COPIES 2         // pieces of the patch that a thread loads while a step is computed
#pragma parameter TAPS 0           // taps of a filter, known when compiled; 0: any number
#pragma parameter RUN 0            // outputs of a row in a tile; 0: whole rows, or BLOCK_N outputs of a longer row
#pragma parameter MERGED 0         // groups of the convolution that are computed as one; 0: groups are not merged
#pragma parameter SPLIT 0          // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#pragma parameter STREAM 0         // 1: blocks share the steps of k of all tiles (stream_k.cuh) and are all resident
#pragma parameter EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 0     // blocks per SM promised to the compiler; 0 = none

#define EPILOGUE_STAGED 1
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, THREADS = 32 * WARPS_M * WARPS_N;
constexpr int FRAGMENTS_M = WARP_M / 16, FRAGMENTS_N = WARP_N / 8;

#include "patch_filters.cuh"
#include "patch_image.cuh"
#include "stream_k.cuh"
#include "warp_outputs.cuh"

using Accumulators = ACC_TYPE[FRAGMENTS_M][FRAGMENTS_N][4];

template <class T, class Sum>
DEVICE void multiply(Sum (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (same_type<T, i8>)
        mma_m16n8k32_s8(d, a, b);
    else
        mma_m16n8k16(d, a, b, T{});
}

// Multiplies a step's channels for every tap.
DEVICE void multiply_step(Accumulators &sums, const Patch &patch, const FilterFragments &filters,
                          const ImageFragments &image, sptr<u8> arranged, sptr<u8> stage) {
    i32 column = 0, position = 0; // of the tap: its column in the filter, and its position in the patch
    ROLLED for (i32 tap = 0; within(tap, patch.taps); ++tap) {
        UNROLL for (int k = 0; k < BLOCK_K * ELEMENT / 32; ++k) {
            u32 b[FRAGMENTS_N][2];
            image.load(b, stage + position * 16, k);
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) {
                u32 a[4];
                filters.load(a, arranged, i, k);
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) multiply<IN_TYPE>(sums[i][j], a, b[j]);
            }
        }
        arranged = arranged + PLANES * BLOCK_M * 16;
        ++column, position += patch.apart[1];
        if (!within(column, patch.across)) {
            column = 0;
            position += patch.apart[0] * patch.extent[1] - patch.across * patch.apart[1];
        }
    }
}

// Places in C of a tile's outputs, which `place` numbers from the tile's first output. Outputs of other tiles are
// invalid.
template <class Placement>
struct ColumnsOfTile {
    const Placement &place;
    const PatchTile &own;
    MEMBER Place operator()(int group) const {
        Place at = place(group);
        if constexpr (RUN > 0) {
            const i32 row = at.column / RUN, column = at.column % RUN;
            at.valid = at.valid && within(row, own.tall) && within(column, own.wide);
            at.column = row * own.row + column;
        } else {
            at.valid = at.valid && within(at.column, own.tall * own.wide);
        }
        at.column += own.tile.column;
        return at;
    }
};

DEVICE void store_tile(const Params &params, const PatchTile &own, int row, int column, const Accumulators &sums) {
    const sptr<u8> slab = shared_base() + (thread_index() >> 5) * SLAB_BYTES;
    ROLLED for (int i = 0; i < FRAGMENTS_M; ++i) {
        UNROLL for (int f = 0; f < FRAGMENTS_M; ++f) // a constant index keeps the accumulators in registers
            if (f == i) store_slab(slab, sums[f]);
        warp_barrier();
        ROLLED for (int g = 0; g < LANE_GROUPS; g += BATCH_GROUPS) {
            const StagedPlacement place = {own.tile.row + row + i * 16, column, (thread_index() & 31) + 32 * g};
            ACC_TYPE values[BATCH_GROUPS * WIDTH] = {};
            UNROLL for (int b = 0; b < BATCH_GROUPS; ++b) if (place.valid(b))
                load_slab_group(slab, place.group + 32 * b, values + b * WIDTH);
            finish_batch(params, own.tile, values, ColumnsOfTile<StagedPlacement>{place, own});
        }
        warp_barrier();
    }
}

// While a step is multiplied, the filters of the next step are copied and its patch is loaded.
DEVICE void compute_tile(const Params &params, const Patch &patch, const PatchTile &own, const TileShare &share) {
    const int depth = BLOCK_K * patch.taps, steps = divide_up(own.tile.k_end - own.tile.k_begin, depth);
    const int warp = thread_index() >> 5, row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    const FilterFragments filter_fragments(row);
    const ImageFragments image_fragments(patch, column);
    const Diagonal diagonal(params, patch, own.tile);
    FilterCopy filters(params, patch, own.tile);
    ImageCopy image(params, patch, own);
    Accumulators sums = {};
    const sptr<u8> copied = shared_base(), arranged = copied + patch.copied_bytes();
    const sptr<u8> stages = copied + patch.filter_bytes();
    int stage = 0; // byte offset of the next step's stage
    ROLLED for (int step = -1; within(step + 1, steps + 1); ++step) {
        const bool more = step + 1 < steps;
        if (step >= 0) {
            arrange_filters(patch, diagonal, copied, arranged);
            barrier();
        }
        if (more) {
            filters.copy(copied);
            image.load();
        }
        copy_async_commit();
        if (step >= 0) {
            if (more)
                cover("steady");
            else
                cover("drain");
            multiply_step(sums, patch, filter_fragments, image_fragments, arranged,
                          stages + (patch.image_bytes() - stage));
        }
        if (more)
            image.store(stages + stage);
        stage = patch.image_bytes() - stage;
        copy_async_wait<0>();
        barrier();
    }
    constexpr int ROW = FRAGMENTS_N * 4;
    if (joined<FRAGMENTS_M * ROW, THREADS>(params, share,
                                           [&](int i) -> ACC_TYPE & { return sums[i / ROW][i % ROW / 4][i % 4]; }))
        store_tile(params, own, row, column, sums);
}

KERNEL(contraction_patch, Params, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    const Patch patch(params);
    each_tile(
        params,
        [&](const Tile &tile, const TileShare &share) {
            compute_tile(params, patch, patch_tile(params, patch, tile), share);
            if constexpr (STREAM)
                barrier(); // the next tile's filters overwrite this tile's sums
        },
        BLOCK_K * patch.taps);
}
