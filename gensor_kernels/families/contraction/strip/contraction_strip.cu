// A convolution of few channels, on the tensor cores (mma.sync), as it lies in memory: C[pixel, filter] (PIXEL_ROWS 1)
// or C[filter, pixel] = epilogue(sum over k of image under the window * filters).
//
// A block computes tiles of up to BLOCK_P outputs, whole rows of the output or a run of one row, by BLOCK_F filters;
// blocks walk from tile to tile. What a tile reads of the image lies in shared memory as in the image, line by line: a
// line is a row of the image, or of one of its PLANES channels where these come first. An output reads LINES segments,
// one of each line of its window, which lie side by side in memory; k is ordered by line and place in the segment. A
// segment takes OCTETS times 8 places. Where it begins at an odd element it has a place in front, which is masked like
// those behind it: their pixels are others', and may hold anything. Pairs of neighbouring places are one word of a
// fragment. Filters are arranged in that order once, and stay. While a tile is computed, the next one's lines come.
// Columns of C are dealt to the columns of fragments such that a lane's are those of whole stores (column_of); where
// outputs are columns of C and stored one by one, they are the fragments' rows, since 8 of those lie side by side.
//
// Legal Programs (O = bytes of OUT_TYPE, WARPS = BLOCK_M / WARP_M * (BLOCK_N / WARP_N)):
//   IN_TYPE half_t or bfloat16_t; sm_80 and later
//   WARP_M % 16 == 0, WARP_N % 16 == 0, WARP_M * WARP_N <= 5120; BLOCK_M % WARP_M == 0, BLOCK_N % WARP_N == 0,
//     1 <= WARPS <= 32; threads = 32 * WARPS
//   LINES * OCTETS <= 64; LINES % PLANES == 0
//   O <= C_VECTOR <= 16, WARP_N % (4 * C_VECTOR / O) == 0; where PIXEL_ROWS is 0, C_VECTOR divides the bytes of the
//     outputs of a tile, and where a row of the output is longer than BLOCK_P, those of a row too
//   outputs that are neighbours along a row are an even number of elements of a line apart
//
// Shared bytes = K_STEPS * 2 * (BLOCK_F * 16 + 16) + 2 * lines of a tile * pitch, where K_STEPS = ceil(LINES * OCTETS /
// 2), and pitch is of whole 16 bytes: 7 elements, those between a row's outputs, a segment.
//
// Bank conflicts: none for filters and copies, nor where neighbours are 2 or 6 elements apart in one row.
//
// Global accesses: of the image 16, 8 or 4 bytes, as its address, strides and rows allow, or single elements; single
// elements of filters; C_VECTOR bytes of C.

#pragma parameter IN_TYPE half_t   // elements of the image and of filters: half_t, bfloat16_t
#pragma parameter OUT_TYPE half_t  // elements of C: half_t, bfloat16_t, float
#pragma parameter ACC_TYPE float   // accumulators
#pragma parameter C_UNIT 1         // 1: columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16      // bytes per global access of C
#pragma parameter CHANNELS_LAST 1  // innermost axis of the image in memory: 1 = channels, 0 = columns
#pragma parameter PIXEL_ROWS 1     // 1: rows of C are outputs, its columns filters; 0: the other way round
#pragma parameter BLOCK_M 64       // rows of C per block, of outputs at most
#pragma parameter BLOCK_N 64       // columns of C per block, of outputs at most
#pragma parameter WARP_M 32        // rows of C per warp
#pragma parameter WARP_N 32        // columns of C per warp
#pragma parameter LINES 7          // lines that an output reads
#pragma parameter OCTETS 3         // eights of places that a segment takes
#pragma parameter PLANES 1         // lines of a row of the image: channels, where these come first
#pragma parameter EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1     // blocks per SM, as the launch has them

#define SPLIT 0
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, WARPS = WARPS_M * WARPS_N, THREADS = 32 * WARPS;

#include "strip_filters.cuh"
#include "strip_image.cuh"
#include "strip_store.cuh"

static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "Warp tiles are whole pairs of fragments of 16 x 8 outputs.");
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "A block tile is whole warp tiles.");
static_assert(WARP_M * WARP_N <= 5120, "The accumulators of a larger warp tile do not fit the registers.");
static_assert(THREADS >= 32 && THREADS <= 1024, "A block has 1 to 32 warps.");
static_assert(WARP_N % (8 * TOGETHER) == 0, "A warp's row of outputs must be whole stores of four lanes.");
static_assert(LINES * OCTETS <= 64, "The steps of a longer k are too much code.");
static_assert(LINES % PLANES == 0 && (!CHANNELS_LAST || PLANES == 1), "A row of the image is whole lines.");
static_assert(same_type<IN_TYPE, half_t> || same_type<IN_TYPE, bfloat16_t>, "Pairs of elements are words.");
static_assert(same_type<ACC_TYPE, float>, "Products are summed in float.");

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
    i32 number = block_index(), held = -1; // of the tile, and of the first filter that is arranged
    int stage = 0;                         // byte offset of the tile's lines
    StripTile own = strip_tile(params, strip, number), coming = own;
    copy_lines(params, strip, own, stages);
    copy_async_commit();
    ROLLED for (; within(number, strip.tiles); number += grid_size()) {
        if (own.filter != held) {
            if (held >= 0)
                cover("other_filters");
            barrier(); // those that are there have been read
            arrange_filters(params, strip, own.filter, arranged);
            held = own.filter;
        }
        copy_async_wait<0>();
        barrier();
        const i32 next = number + grid_size();
        if (within(next, strip.tiles)) {
            cover("next_tile");
            coming = strip_tile(params, strip, next);
            copy_lines(params, strip, coming, stages + (strip.bytes() - stage));
        }
        copy_async_commit();
        Accumulators sums = {};
        multiply_tile(sums, image, filters, stages + (stage + own.slack));
        store_tile(params, own, row, column, sums);
        own = coming, stage = strip.bytes() - stage;
    }
}
