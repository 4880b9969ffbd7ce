// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on Hopper's warpgroup products (contraction_wgmma.cu) where
// tensor copies cannot read an operand as it lies: its rows are not a multiple of 16 bytes apart, no axis of it is
// contiguous, or not the one that its type is multiplied along. Such operands are copied first, by a launch of their
// own: contraction_align.
//
// That launch writes A, then B, into the workspace behind the partial sums of a split: [batch entry][line][element],
// lines of whole 16 bytes, along k where A_LAYOUT (B_LAYOUT) is 0. Batch axes that are broadcast have one entry. It
// moves the operand once more each way, which a small product does not repay: the potential says when.
//
// Legal Programs: those of contraction_wgmma.cu, where A_LAYOUT and B_LAYOUT are those of the copies. A_PIECE and
// B_PIECE, of which one is not 0, divide an operand's address, its strides across lines and their length; TURNED: one
// element.
//
// Global accesses of contraction_align: loads of A_PIECE or B_PIECE bytes, stores of 16. No shared memory.
#ifndef A_PIECE
#define A_PIECE 0 // bytes of a load of A's copy; 0: A is read where it is
#endif
#ifndef B_PIECE
#define B_PIECE 0 // the same for B
#endif
#ifndef A_TURNED
#define A_TURNED 0 // 1: neighbours in a line of the copy are none in A
#endif
#ifndef B_TURNED
#define B_TURNED 0 // the same for B
#endif

#define BEHIND_ANOTHER // launch, for which the main one waits
#include "contraction_wgmma.cu"
#include "dependent.cuh"

static_assert(A_PIECE || B_PIECE, "An operand is copied.");
static_assert(A_WINDOW == 0 && B_WINDOW == 0, "Images are read by copies of their own.");

constexpr u32 ALIGN_THREADS = 256, ALIGN_ITEMS = 4; // of a block, of a thread
constexpr i32 CHUNK = 16 / ELEMENT;                 // elements of a store

// One batch entry of an operand: `count` lines of `length` elements, which lie `step` and `across` apart.
struct Lines {
    i64 step, across;
    i32 length, count;

    MEMBER i64 pitch() const { return ((i64)length + CHUNK - 1) / CHUNK * CHUNK; }
    MEMBER u32 chunks() const { return (u32)(pitch() / CHUNK); }
    MEMBER u32 blocks() const {
        constexpr u32 OF_BLOCK = ALIGN_THREADS * ALIGN_ITEMS;
        return (chunks() * (u32)count + OF_BLOCK - 1) / OF_BLOCK;
    }
    MEMBER i64 elements() const { return pitch() * count; }
};

DEVICE Lines lines_of_a(const Params &params) {
    return A_LAYOUT ? Lines{params.a_m, params.a_k, params.m, params.k}
                    : Lines{params.a_k, params.a_m, params.k, params.m};
}
DEVICE Lines lines_of_b(const Params &params) {
    return B_LAYOUT ? Lines{params.b_n, params.b_k, params.n, params.k}
                    : Lines{params.b_k, params.b_n, params.k, params.n};
}

// Where the copies begin.
DEVICE gptr<u8> copies(const Params &params) {
    const i64 lines = SPLIT ? (i64)params.split * params.batch * params.m : 0;
    return (gptr<ACC_TYPE>(params.workspace) + lines * workspace_columns(params.n)).as<u8>();
}

// One chunk of a line. Neighbouring threads take what lies side by side in the source.
template <int PIECE, bool TURNED, class T>
DEVICE void copy_chunk(const Lines &lines, gptr<T> from, gptr<T> to, u32 item) {
    constexpr i32 EACH = PIECE / ELEMENT;
    const u32 inner = TURNED ? (u32)lines.count : lines.chunks();
    const u32 line = TURNED ? item % inner : item / inner, chunk = TURNED ? item / inner : item % inner;
    const bool mine = within(item, lines.chunks() * (u32)lines.count);
    const i32 first = (i32)chunk * CHUNK;
    const gptr<T> source = from + (line * lines.across + first * (TURNED ? lines.step : 1));
    Vec<16> elements = Vec<16>::zero();
    UNROLL for (i32 i = 0; i < CHUNK; i += EACH) {
        const bool inside = mine && within(first + i, lines.length);
        const Vec<PIECE> piece = load_global<PIECE>(source + i * (TURNED ? lines.step : 1), inside);
        UNROLL for (i32 j = 0; j < EACH; ++j) elements.set(i + j, piece.template get<T>(j));
    }
    store_global(to + (line * lines.pitch() + first), elements, mine);
}

// A block's share of an operand. Entries that repeat another one, along an axis of stride 0, are not copied again.
template <int PIECE, bool TURNED, class T>
DEVICE void copy_block(const Params &params, const Lines &lines, gptr<T> from, gptr<T> to, const i64 (&stride)[3],
                       u32 block) {
    const Batch batch = split_batch(params, (i32)(block / lines.blocks()));
    i64 number = 0;
    UNROLL for (int axis = 0; axis < 3; ++axis) {
        if (stride[axis] != 0)
            number = number * (axis ? params.batch_inner[axis - 1] : 1) + batch.index[axis];
        else if (batch.index[axis] > 0) {
            cover("repeated");
            return;
        }
    }
    UNROLL for (u32 i = 0; i < ALIGN_ITEMS; ++i)
        copy_chunk<PIECE, TURNED>(lines, from + batch_offset(stride, batch), to + number * lines.elements(),
                                  ((block % lines.blocks()) * ALIGN_ITEMS + i) * ALIGN_THREADS + (u32)thread_index());
}

// Grid: blocks of 256 threads with four chunks each: ceil(chunks of a batch entry / 1024) per entry of A, then of B.
KERNEL(contraction_align, Params, ALIGN_THREADS, 0) {
    launch_dependents();
    if (params.k == 0) {
        cover("nothing_to_align");
        return;
    }
    [[maybe_unused]] u32 block = (u32)block_index();
    [[maybe_unused]] gptr<u8> to = copies(params);
#if A_PIECE
    const Lines a = lines_of_a(params);
    const u32 of_a = (u32)params.batch * a.blocks();
    if (within(block, of_a)) {
        cover("aligned_a");
        copy_block<A_PIECE, A_TURNED>(params, a, gptr<A_STORED>(params.a), to.as<A_STORED>(), params.a_batch, block);
        return;
    }
    block -= of_a, to = to + params.batch * a.elements() * ELEMENT;
#endif
#if B_PIECE
    cover("aligned_b");
    copy_block<B_PIECE, B_TURNED>(params, lines_of_b(params), gptr<B_STORED>(params.b), to.as<B_STORED>(),
                                  params.b_batch, block);
#endif
}

WGMMA_KERNEL(contraction_aligned) {
    grid_dependency_wait();
    compute_tiles(params);
}
