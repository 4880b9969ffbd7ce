// A convolution with few channels on the tensor cores (mma.sync), in the image's own layout: C[pixel, filter]
// (PIXEL_ROWS 1) or C[filter, pixel] = epilogue(sum over k of image under the window * filters).
//
// A block computes tiles of BLOCK_F filters by up to BLOCK_P outputs, which are whole rows of the output or a run of
// one row; blocks walk from tile to tile. Shared memory holds the lines of the image that a tile reads, in the layout
// of the image: a line is a row of the image, or of one of its PLANES channels where channels come first. An output
// reads LINES segments, one from each line of its window, each contiguous in memory; k is ordered by line and position
// in the segment. A segment takes OCTETS times 8 positions. A segment that begins at an odd element has one more
// position before it. Masks clear this position and those after the segment, which hold pixels of other outputs or
// anything else. Two neighbouring positions are one word of a fragment. Filters are arranged in the order of k once and
// stay in shared memory. While a tile is computed, the lines of the next tile are copied. Columns of C are assigned to
// the columns of fragments such that a lane holds whole stores (column_of). Where outputs are columns of C and are
// stored one by one, they are the rows of fragments instead, since 8 rows are adjacent in a store.
//
// Shared bytes = K_STEPS * 2 * (BLOCK_F * 16 + 16) + 2 * lines of a tile * pitch, where K_STEPS = ceil(LINES * OCTETS /
// 2), and pitch, rounded up to 16 bytes, is of 7 elements, those between a row's outputs, and a segment. Fragments of
// the image are read without bank conflicts where neighbours of a row are 2 or 6 elements apart.
#pragma parameter IN_TYPE half_t   // elements of the image and of filters: half_t, bfloat16_t
#pragma parameter OUT_TYPE half_t  // elements of C: half_t, bfloat16_t, float
#pragma parameter ACC_TYPE float   // accumulators
#pragma parameter C_UNIT 1         // 1: columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16      // bytes per global access of C
#pragma parameter CHANNELS_LAST 1  // innermost axis of the image in memory: 1 = channels, 0 = columns
#pragma parameter PIXEL_ROWS 1     // 1: rows of C are outputs and its columns are filters; 0: the reverse
#pragma parameter BLOCK_M 64       // rows of C per block; at most, where they are outputs
#pragma parameter BLOCK_N 64       // columns of C per block; at most, where they are outputs
#pragma parameter WARP_M 32        // rows of C per warp
#pragma parameter WARP_N 32        // columns of C per warp
#pragma parameter LINES 7          // lines that an output reads
#pragma parameter OCTETS 3         // groups of 8 positions that a segment takes
#pragma parameter PLANES 1         // lines of a row of the image: its channels, where channels come first
#pragma parameter EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1     // blocks per SM, as in the launch

#define SPLIT 0
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, WARPS = WARPS_M * WARPS_N, THREADS = 32 * WARPS;

#include "strip_filters.cuh"
#include "strip_image.cuh"
#include "strip_store.cuh"

DEVICE void multiply_tile(Accumulators &sums, const ImageFragments &image, const FilterFragments &filters,
                          sptr<u8> lines) {
    unrolled<K_STEPS>([&](int step) {
        u32 pixels[WARP_P / 16][4], taps[WARP_F / 16][4];
        image.load(pixels, lines, step);
        filters.load(taps, step);
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) {
            UNROLL for (int j = 0; j < FRAGMENTS_N / 2; ++j) {
                const u32(&row)[4] = OUTPUTS_DOWN ? pixels[i % (WARP_P / 16)] : taps[i % (WARP_F / 16)];
                const u32(&pair)[4] = OUTPUTS_DOWN ? taps[j % (WARP_F / 16)] : pixels[j % (WARP_P / 16)];
                const u32 first[2] = {pair[0], pair[1]}, second[2] = {pair[2], pair[3]};
                mma_m16n8k16(sums[i][2 * j], row, first, IN_TYPE{});
                mma_m16n8k16(sums[i][2 * j + 1], row, second, IN_TYPE{});
            }
        }
    });
}

KERNEL(contraction_strip, Params, THREADS, MIN_BLOCKS) {
    const Strip strip(params);
    const sptr<u8> arranged = shared_base(), stages = arranged + FILTER_BYTES;
    const int warp = thread_index() >> 5, row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    const ImageFragments image(strip, PIXEL_ROWS ? row : column);
    const FilterFragments filters(arranged, PIXEL_ROWS ? column : row);
    i32 number = block_index(), arranged_filter = -1; // the tile; the first filter in `arranged`
    int stage = 0;                                    // byte offset of the tile's lines
    StripTile own = strip_tile(params, strip, number), following = own;
    copy_lines(params, strip, own, stages);
    copy_async_commit();
    ROLLED for (; within(number, strip.tiles); number += grid_size()) {
        if (own.filter != arranged_filter) {
            if (arranged_filter >= 0)
                cover("other_filters");
            barrier(); // all warps have read the previous filters
            arrange_filters(params, strip, own.filter, arranged);
            arranged_filter = own.filter;
        }
        copy_async_wait<0>();
        barrier();
        const i32 next = number + grid_size();
        if (within(next, strip.tiles)) {
            cover("next_tile");
            following = strip_tile(params, strip, next);
            copy_lines(params, strip, following, stages + (strip.bytes() - stage));
        }
        copy_async_commit();
        Accumulators sums = {};
        multiply_tile(sums, image, filters, stages + (stage + own.slack));
        store_tile(params, own, row, column, sums);
        own = following, stage = strip.bytes() - stage;
    }
}
