// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) of floats, on Hopper's warpgroup products of bfloat16
// (contraction_wgmma.cu, PARTS 3), no less exact than by multiply-adds (wgmma_floats.cuh).
//
// Both operands are divided first, by a launch of their own: contraction_divide. It writes their elements into the
// workspace (operand_copies.cuh), * 2^16, as three bfloat16 numbers whose sum they are, along k, however A and B lie.
// With A_WINDOW 1 A is an image, however its pixels lie, whose channels are adjacent; with B_WINDOW 1 B is one whose
// channels lie however they do, and an output's columns are pixels (divided_image.cuh).
//
// Legal Programs: those of contraction_wgmma.cu with PARTS 3. A_PIECE and B_PIECE, at least 4, divide an operand's
// address, its strides across lines and their length (of an image also those of rows and columns); TURNED: one element.
// Shared bytes, bank conflicts: as there.
//
// Global accesses of contraction_divide: loads of A_PIECE or B_PIECE bytes, stores of 16. Shared bytes: 0, or 32 KiB
// where an operand is TURNED. No bank conflicts.
#pragma parameter A_PIECE 16 // bytes of a load of A
#pragma parameter B_PIECE 16 // the same for B
#pragma parameter A_TURNED 0 // 1: neighbours along k are none in A
#pragma parameter B_TURNED 0 // the same for B

#define PARTS 3
#define IN_TYPE bfloat16_t
#define OUT_TYPE float
#define A_LAYOUT 0
#define B_LAYOUT 0
#define BEHIND_ANOTHER // launch, for which the main one waits
#include "contraction_wgmma.cu"
#include "operand_copies.cuh"

struct InParts {
    static MEMBER void write(gptr<bfloat16_t> to, const float (&elements)[CHUNK], i64 apart, bool mine) {
        float rest[CHUNK];
        UNROLL for (i32 i = 0; i < CHUNK; ++i) rest[i] = elements[i] * LIFT;
        UNROLL for (int part = 0; part < PARTS; ++part) {
            Vec<16> packed = Vec<16>::zero();
            UNROLL for (i32 i = 0; i < CHUNK; i += 2) {
                const u32 pair = pack_pair(rest[i], rest[i + 1], bfloat16_t{});
                rest[i] = rest[i] - bit_cast<float>(pair << 16);
                rest[i + 1] = rest[i + 1] - bit_cast<float>(pair & 0xffff0000u);
                packed.set(i / 2, pair);
            }
            store_global(to + part * apart, packed, mine);
        }
    }
};

KERNEL(contraction_divide, Params, COPY_THREADS, 0) {
    launch_dependents();
    copy_operands<InParts, float, float>(params);
}

WGMMA_KERNEL(contraction_floats_wgmma) {
    set_up(params);
    grid_dependency_wait();
    compute_tiles(params);
}
