// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on Hopper's warpgroup products (contraction_wgmma.cu) where
// tensor copies cannot read an operand as it lies: its rows are not a multiple of 16 bytes apart, no axis of it is
// contiguous, or not the one that its type is multiplied along; or where it is stored in a narrower type than the other
// one. Such operands are copied first, by a launch of their own: contraction_align.
//
// That launch writes them into the workspace (operand_copies.cuh). It moves the operand once more each way, which a
// small product does not repay: the potential says when.
//
// Legal Programs: those of contraction_wgmma.cu, where A_LAYOUT and B_LAYOUT are those of the copies. A_PIECE and
// B_PIECE, of which one is not 0, divide an operand's address, its strides across lines and their length; TURNED: one
// element.
//
// Global accesses of contraction_align: loads of A_PIECE or B_PIECE bytes, stores of 16. Shared bytes: 0, or, where an
// operand is TURNED, 1024 * (16 / size of A_STORED) * size of A_SOURCE (B likewise; the larger one). No bank conflicts.
#pragma parameter A_PIECE 0  // bytes of a load of A's copy; 0: A is read where it is
#pragma parameter B_PIECE 0  // the same for B
#pragma parameter A_TURNED 0 // 1: neighbours in a line of the copy are none in A
#pragma parameter B_TURNED 0 // the same for B

#pragma parameter A_SOURCE A_STORED // elements of A itself: i8, e4m3_t, e5m2_t where those of the copy are half_t or
                                    // bfloat16_t
#pragma parameter B_SOURCE B_STORED // the same for B

#define BEHIND_ANOTHER // launch, for which the main one waits
#include "contraction_wgmma.cu"
#include "operand_copies.cuh"

static_assert(A_PIECE || B_PIECE, "An operand is copied.");
static_assert(A_WINDOW == 0 && B_WINDOW == 0, "Images are read by copies of their own.");

// Copies numbers in the type that is multiplied.
struct Widened {
    template <class T, class To>
    static MEMBER void write(gptr<To> to, const T (&elements)[CHUNK], i64, bool mine) {
        constexpr int BYTES = CHUNK * (int)sizeof(T);
        Vec<BYTES> packed = Vec<BYTES>::zero();
        UNROLL for (i32 i = 0; i < CHUNK; ++i) packed.set(i, elements[i]);
        if constexpr (same_type<T, To>)
            store_global(to, packed, mine);
        else
            store_global(to, widened<16, T, To>(packed, 0), mine);
    }
};

KERNEL(contraction_align, Params, COPY_THREADS, 0) {
    launch_dependents();
    copy_operands<Widened, A_SOURCE, B_SOURCE>(params);
}

WGMMA_KERNEL(contraction_aligned) {
    set_up(params);
    grid_dependency_wait();
    compute_tiles(params);
}
