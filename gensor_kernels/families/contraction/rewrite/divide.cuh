// The launch before products of floats in parts: contraction_divide writes both operands, of any layout, along k into
// the workspace (operand_copies.cuh), every element * 2^16 as three bfloat16 numbers with this sum (float_parts.cuh).
// With A_WINDOW 1 A is an image with adjacent channels and any layout of pixels; with B_WINDOW 1 B is an image of any
// layout, and the columns of C are pixels (divided_image.cuh).
//
// It loads A_PIECE or B_PIECE bytes and stores 16. Shared bytes: 0, or 32 KiB where an operand is TURNED. No bank
// conflicts.
#pragma once
#include "operand_copies.cuh"

// Stores elements as PARTS numbers.
struct PartsWriter {
    static MEMBER void write(gptr<bfloat16_t> to, const float (&elements)[CHUNK], i64 part_stride, bool inside) {
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
            store_global(to + part * part_stride, packed, inside);
        }
    }
};

KERNEL(contraction_divide, Params, COPY_THREADS, 0) {
    launch_dependents();
    copy_operands<PartsWriter, float, float>(params);
}
