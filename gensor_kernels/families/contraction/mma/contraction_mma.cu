// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on the tensor cores (mma.sync), batched.
//
// A block computes BLOCK_M x BLOCK_N outputs with (BLOCK_M / WARP_M) x (BLOCK_N / WARP_N) warps. Steps of BLOCK_K
// travel through STAGES shared buffers: by cp.async (ASYNC 1) or through registers, loaded before and stored after
// the math of a step (ASYNC 0: sm_75, and accesses narrower than 4 bytes). Shared tiles keep the operand's own
// orientation, are swizzled by 16-byte chunks, and are read with ldmatrix (mma_tiles.cuh, mma_fragments.cuh).
//
// Legal Programs (E = bytes of IN_TYPE, O = bytes of OUT_TYPE, WARPS = BLOCK_M / WARP_M * (BLOCK_N / WARP_N)):
//   IN_TYPE, ACC_TYPE, INSTRUCTION: half_t, float, 0 or 1; bfloat16_t, float, 0; float (MATH_TF32 1), float, 2;
//     i8, i32, 3 or 4; float (MATH_TF32 0), float, 5 (mma_floats.cuh); half_t of 8-bit floats with ASYNC 1, float, 9
//     (mma_eight_bit.cuh, sm_89); double, double and c128, c128 (mma_complex.cuh), 6 to 8. OUT_TYPE: half_t,
//     bfloat16_t, float; for i8 also i32, i8; for double and c128 the same. 6, 7 need sm_90; 0, 2, 3, 5, 8, ASYNC 1
//     need sm_80. FORM 1, for c128 3 or 4.
//   X_STORED: IN_TYPE; where that is half_t or bfloat16_t also e4m3_t, e5m2_t, i8, and for B u4x2_t (which needs
//   B_LAYOUT
//     0 and B_UNIT 1). ASYNC 1 with one of these needs A_LAYOUT 0, B_LAYOUT 0, A_UNIT 1 and B_UNIT 1.
//     H = bits of an element in shared memory: of X_STORED with ASYNC 1, of IN_TYPE with ASYNC 0; N = the smaller H
//     (c128: half of it)
//   PROLOGUE without MATERIALISED: ASYNC 0; MATERIALISED: PROLOGUE, PROLOGUE_OF_B 0, A_WINDOW 0
//   SCALED 1 or 2: GROUP 0, or a multiple of 32 that divides BLOCK_K or is a multiple of it, WARP_M * WARP_N <= 2560,
//     and no GATE
//   WARP_M % 16 == 0, WARP_N % 8 == 0, MATRICES * WARP_M * WARP_N <= 5120 (INSTRUCTION 9: 2560; double: 2048; c128:
//     1152, with FORM 3 768; spills beyond), MATRICES = 2 with GATE, else 1
//   BLOCK_M % WARP_M == 0, BLOCK_N % WARP_N == 0, 1 <= WARPS <= 32; threads = 32 * WARPS
//   BLOCK_K * N % 256 == 0, with INSTRUCTION 5 and 7 % 512, 6 % 1024; B_LAYOUT 1: BLOCK_N * E % 16 == 0
//   X_VECTOR in 1, 2, 4, 8, 16 and >= size of X_STORED; X_UNIT 0 needs X_VECTOR == that size and X_LAYOUT 0
//   ASYNC 1: 2 <= STAGES <= 6, A_VECTOR and B_VECTOR >= 4; ASYNC 0: STAGES == 2
//   copies of a thread per operand and step (mma_tiles.cuh: PASSES * COLUMNS) <= 64, along M or N <= 32; that is, with
//     P = row elements / elements of X_VECTOR, LANES = largest power of two dividing both P and 32 * WARPS, LINES = 32
//     * WARPS / LANES: PASSES = ceil(rows / LINES), COLUMNS = P / LANES, where X_LAYOUT 0 has rows of BLOCK_K elements
//     (BLOCK_M or BLOCK_N of them) and X_LAYOUT 1 has BLOCK_K rows of BLOCK_M or BLOCK_N elements; X_LAYOUT 0: PASSES
//     <= 32; X_LAYOUT 1: COLUMNS <= 32
//   O <= C_VECTOR <= 16; C_UNIT 0 needs C_VECTOR == O; EPILOGUE_STAGED 1: WARP_N % (C_VECTOR / O) == 0
//   EPILOGUE_STAGED 0 stores at most two adjacent outputs at a time, whatever C_VECTOR
//   k_per_split % BLOCK_K == 0
//   MASKED 1: A_WINDOW or B_WINDOW is 1 or 2, and rows and columns of the filter are 31 or fewer together
//
// Shared bytes = max(STAGES * (BLOCK_M * H of A + MATRICES * BLOCK_N * H of B) * BLOCK_K / 8 + (STREAM ? 32 : 0),
//   EPILOGUE_STAGED ? WARPS * 16 * WARP_N * size of ACC_TYPE : 0)
//
// Bank conflicts: none at any legal tile size for 16-bit operands of either layout, for K-contiguous operands of
// every type, for the copies and for the epilogue. M- or N-contiguous float (tf32) and double are conflict-free too,
// though read with plain loads; M- or N-contiguous i8 is where its rows hold a multiple of 64 bytes, two-way otherwise.
// Pieces that are widened to more than 16 bytes on their way in are stored two-way (four-way) where a row has more than
// 128 bytes. SWIZZLE 0 conflicts unless the rows are an odd number of chunks (16 bytes).
//
// Global accesses: A and B move X_VECTOR bytes at a time, C moves C_VECTOR and partial sums of a split 16 (with
// EPILOGUE_STAGED 0 at most two outputs). The only others are operands of the epilogue: vectors where adjacent and
// aligned, else element by element; EPILOGUE_CODES 31 compiles none of them in.

#include "mma_options.cuh"

constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, THREADS = 32 * WARPS_M * WARPS_N;

#include "mma_floats.cuh"
#include "mma_epilogue.cuh"
#include "stream_k.cuh"

static_assert(WARP_M % 16 == 0 && WARP_N % 8 == 0, "Warp tiles are whole fragments of 16 x 8 outputs.");
static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "A block tile is whole warp tiles.");
static_assert(MATRICES * WARP_M * WARP_N <= (DOUBLES ? MOST_DOUBLES : 5120),
              "The accumulators do not fit the registers.");
static_assert(THREADS >= 32 && THREADS <= 1024, "A block has 1 to 32 warps.");
static_assert(BLOCK_K * NARROW % 256 == 0, "A step of k is whole fragments of 32 bytes.");
static_assert(NARROW == 8 * ELEMENT || (TileA::K_CONTIGUOUS && TileB::K_CONTIGUOUS && A_UNIT && B_UNIT),
              "Fragments are widened only where both operands are K-contiguous.");
static_assert(ASYNC ? STAGES >= 2 && STAGES <= 6 : STAGES == 2, "cp.async takes 2 to 6 stages, registers take 2.");
static_assert(!ASYNC || (A_VECTOR >= 4 && B_VECTOR >= 4), "cp.async copies 4, 8 or 16 bytes; narrower needs ASYNC 0.");
static_assert(C_UNIT || C_VECTOR == sizeof(OUT_TYPE), "Columns of C that are not adjacent are stored one by one.");
static_assert(same_type<IN_TYPE, half_t>       ? INSTRUCTION == 0 || INSTRUCTION == 1 || INSTRUCTION == 9
              : same_type<IN_TYPE, bfloat16_t> ? INSTRUCTION == 0
              : same_type<IN_TYPE, float>      ? INSTRUCTION == (MATH_TF32 ? 2 : 5)
              : DOUBLES                        ? INSTRUCTION >= 6 && INSTRUCTION <= 8
                                               : INSTRUCTION == 3 || INSTRUCTION == 4,
              "This instruction does not multiply this type.");
static_assert(same_type<ACC_TYPE, i32> == same_type<IN_TYPE, i8> && same_type<ACC_TYPE, IN_TYPE> == (ELEMENT >= 4),
              "Integers accumulate in i32, doubles and complex numbers as they are, the others in float.");

DEVICE void compute_tile(const Params &params, const Tile &tile, const TileShare &share) {
#if RAGGED_ROWS
    if (tile.row == tile.end)
        return;
#endif
    const int warp = thread_index() >> 5, row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    Pipeline pipeline(params, tile);
    Math math(params, tile, row, column);
    const sptr<u8> behind_ring = shared_base() + STAGES * STAGE_BYTES;
    keep_tile(behind_ring, tile);
    ROLLED for (int s = 0; s < AHEAD; ++s) pipeline.request(params);
    pipeline.receive();
    math.begin();
    // Without any k, a step of zeros is multiplied: with a way around the loop, the compiler copies all accumulators
    // behind it.
    int left = divide_up(tile.k_end - tile.k_begin, BLOCK_K);
    do {
        if (left > AHEAD)
            cover("steady");
        else
            cover("drain");
        math.compute(pipeline, [&]() { pipeline.request(params); });
    } while (within(0, --left));
    math.finish(params, kept_tile(params, behind_ring, tile));
    constexpr int ROW = FRAGMENTS_N * 4;
    if (!joined<FRAGMENTS_M * ROW, THREADS>(
            params, share, [&](int i) -> ACC_TYPE & { return math.accumulators[0][i / ROW][i % ROW / 4][i % 4]; }))
        return;
    const Tile &place = kept_tile(params, behind_ring, tile);
#if EPILOGUE_STAGED // the slabs lie where the tiles were
    Pipeline::finish();
#endif
#if GATE && !SPLIT
    gate_warp(params, place.column + column, math.accumulators);
#endif
#if NORM && !SPLIT
    keep_sums(row, column, math.accumulators[0]);
    barrier();
    finish_tile(params, place);
#else
    finish_warp(params, place, place.row + row, place.column + column, math.accumulators[0]);
#endif
#if GATE && SPLIT
    Tile other = place;
    other.part += params.split;
    finish_warp(params, other, other.row + row, other.column + column, math.accumulators[1]);
#endif
}

DEVICE void compute_tiles(const Params &params) {
    if constexpr (SPLIT)
        launch_dependents();
    each_tile(params, [&](const Tile &tile, const TileShare &share) {
        compute_tile(params, tile, share);
        if constexpr (STREAM)
            Pipeline::finish(); // the next tile's copies go where this one's sums were
    });
}

#if !PACKED
KERNEL(contraction_mma, Params, THREADS, MIN_BLOCKS) {
#if MATERIALISED
    grid_dependency_wait();
#endif
    compute_tiles(params);
}
#endif
