// The launch before products whose operands tensor copies (TMA) cannot read: rows are not a multiple of 16 bytes apart,
// no axis is contiguous or not the one that products of this type need, or the type in memory is narrower than the one
// that is multiplied. contraction_align copies these operands into the workspace (operand_copies.cuh). Each one is read
// and written once more, which costs a small product more than it saves: the cost model decides. A_LAYOUT and B_LAYOUT
// are the layouts of the copies.
//
// It loads A_PIECE or B_PIECE bytes and stores 16. Shared bytes: 0, or, where an operand is TURNED, 1024 * (16 / size
// of A_STORED) * size of A_SOURCE (or of B's types, if that is larger). No bank conflicts.
#pragma once
#include "operand_copies.cuh"

static_assert(A_PIECE || B_PIECE, "An operand is copied.");
static_assert(A_WINDOW == 0 && B_WINDOW == 0, "Images are read by copies of their own.");

// Stores elements in the type that is multiplied.
struct WideningWriter {
    template <class T, class To>
    static MEMBER void write(gptr<To> to, const T (&elements)[CHUNK], i64, bool inside) {
        constexpr int BYTES = CHUNK * (int)sizeof(T);
        Vec<BYTES> packed = Vec<BYTES>::zero();
        UNROLL for (i32 i = 0; i < CHUNK; ++i) packed.set(i, elements[i]);
        if constexpr (same_type<T, To>)
            store_global(to, packed, inside);
        else
            store_global(to, widened<16, T, To>(packed, 0), inside);
    }
};

KERNEL(contraction_align, Params, COPY_THREADS, 0) {
    launch_dependents();
    copy_operands<WideningWriter, A_SOURCE, B_SOURCE>(params);
}
