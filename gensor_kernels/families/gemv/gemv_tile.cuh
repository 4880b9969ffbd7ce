// The tile of a block of gemv.cu, the places of its operands, and the loads of a step.
#pragma once
#include "prologue.cuh"
#include "product_forms.cuh"

DEVICE constexpr bool power_of_two(int value) {
    return value > 0 && (value & (value - 1)) == 0;
}

constexpr int THREADS = THREADS_K * THREADS_L;
constexpr int WORD = (int)sizeof(ACC_TYPE), WORDS_AT_ONCE = 16 / WORD;
constexpr int ELEMENTS = W_VECTOR / (int)sizeof(IN_TYPE);   // of the weights per load
constexpr int X_ELEMENTS = X_VECTOR / (int)sizeof(IN_TYPE); // of x per load
constexpr int ENTRIES = W_COLUMNS ? ELEMENTS : ROWS;        // of the long axis per thread
constexpr int COUNT = SMALL * ENTRIES;                      // sums of a thread: [small][entry]
constexpr int LONG = THREADS_L * ENTRIES;                   // entries of the long axis per block
constexpr int RUN = W_COLUMNS ? ITEMS : ELEMENTS;           // adjacent k of a thread
constexpr int STEP = THREADS_K * ITEMS * (W_COLUMNS ? 1 : ELEMENTS);
constexpr int LOADS = ROWS * ITEMS; // of the weights per thread and step
constexpr int BLOCK_M = WEIGHTS ? LONG : SMALL, BLOCK_N = WEIGHTS ? SMALL : LONG;
constexpr bool W_CONJUGATE = WEIGHTS ? A_CONJUGATE : B_CONJUGATE, X_CONJUGATE = WEIGHTS ? B_CONJUGATE : A_CONJUGATE;
// Words that one shared access moves: of a thread's entries of the long axis, and of its adjacent k.
constexpr int PIECE = minimum(ELEMENTS, WORDS_AT_ONCE), PIECES = ELEMENTS / PIECE;
constexpr int X_PIECE = minimum(RUN, WORDS_AT_ONCE), X_PARTS = RUN / X_PIECE;

// A thread's place in the block, and what lies behind its first entries of the small and the long axis.
struct Spot {
    i32 lane, group; // among the threads that share an output; along the long axis
    i32 small_left, long_left;
};

DEVICE Spot find_spot(const Params &params, const Tile &tile) {
    const u32 thread = (u32)thread_index();
    Spot spot;
    spot.lane = (i32)(W_COLUMNS ? thread / THREADS_L : thread % THREADS_K);
    spot.group = (i32)(W_COLUMNS ? thread % THREADS_L : thread / THREADS_K);
    spot.small_left = WEIGHTS ? params.n - tile.column : params.m - tile.row;
    spot.long_left = (WEIGHTS ? params.m - tile.row : params.n - tile.column) - spot.group * ENTRIES;
    return spot;
}

// The rest of each axis in this step.
struct Remaining {
    i32 k, small, wide;
};

// The block's x and this thread's weights at the step's first k, and the strides of both.
struct Source {
    gptr<IN_TYPE> weights, x;
    i64 w_long, w_k, x_small, x_k;
};

DEVICE Source begin_source(const Params &params, const Tile &tile, const Spot &spot) {
    const gptr<IN_TYPE> a = gptr<IN_TYPE>(params.a) + batch_offset(params.a_batch, tile.batch);
    const gptr<IN_TYPE> b = gptr<IN_TYPE>(params.b) + batch_offset(params.b_batch, tile.batch);
    Source source;
    source.w_long = W_COLUMNS ? 1 : WEIGHTS ? params.a_m : params.b_n;
    source.w_k = !W_COLUMNS && W_UNIT ? 1 : WEIGHTS ? params.a_k : params.b_k;
    source.x_small = WEIGHTS ? params.b_n : params.a_m;
    source.x_k = X_UNIT ? 1 : WEIGHTS ? params.b_k : params.a_k;
    const i64 first = (WEIGHTS ? tile.row : tile.column) + spot.group * ENTRIES, k = tile.k_begin;
    source.weights = (WEIGHTS ? a : b) + (first * source.w_long + (k + spot.lane * RUN) * source.w_k);
    source.x = (WEIGHTS ? b : a) + ((WEIGHTS ? tile.column : tile.row) * source.x_small + k * source.x_k);
    return source;
}

// A thread's weights of a step: ITEMS loads of each of its rows, or of ITEMS adjacent k.
DEVICE void load_weights(const Source &source, const Spot &spot, const Remaining &left, Vec<W_VECTOR> (&w)[LOADS]) {
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        const int k = W_COLUMNS ? i : i * THREADS_K * ELEMENTS;
        const bool inside = within(spot.lane * RUN + k, left.k);
        UNROLL for (int r = 0; r < ROWS; ++r) w[i * ROWS + r] = load_global<W_VECTOR>(
            source.weights + (r * source.w_long + k * source.w_k), inside && within(r, left.wide));
    }
}

// Element i of a load, as it is multiplied.
template <bool CONJUGATE, class T = ACC_TYPE, int BYTES>
DEVICE T element_of(const Vec<BYTES> &raw, int i) {
    T value = convert<T>(raw.template get<IN_TYPE>(i));
    if constexpr (CONJUGATE)
        value.im = -value.im;
    return value;
}

// ---- x through shared memory, [small][step] with the k of a step in the order in which threads read them: words that
// the lanes of a warp read at once lie side by side.

DEVICE int input_word(int k) {
    if (W_COLUMNS)
        return k;
    const int item = k / (THREADS_K * ELEMENTS), lane = k / ELEMENTS % THREADS_K, e = k % ELEMENTS;
    return ((item * X_PARTS + e / X_PIECE) * THREADS_K + lane) * X_PIECE + e % X_PIECE;
}

constexpr int X_LINE = STEP / X_ELEMENTS; // loads of a row of x
constexpr int X_LOADS = (SMALL * X_LINE + THREADS - 1) / THREADS;

// A's elements pass through a prologue where they are x; every load is a run of its own.
using PreparingX = Preparing<INLINED_A, X_LOADS, false, X_LOADS, X_ELEMENTS, true>;

DEVICE void stage_input(const Source &source, const Remaining &left, i32 k_end, PreparingX &preparing,
                        sptr<ACC_TYPE> buffer) {
    constexpr int EACH = minimum(X_ELEMENTS, W_COLUMNS ? WORDS_AT_ONCE : X_PIECE);
    Vec<X_VECTOR> raw[X_LOADS];
    UNROLL for (int p = 0; p < X_LOADS; ++p) {
        const int piece = thread_index() + p * THREADS, row = piece / X_LINE, k = piece % X_LINE * X_ELEMENTS;
        const bool inside = within(row, minimum(left.small, SMALL)) && within(k, left.k);
        raw[p] = load_global<X_VECTOR>(source.x + (row * source.x_small + k * source.x_k), inside);
        preparing.request(p, p, true, k_end - left.k + k, inside, true);
    }
    UNROLL for (int p = 0; p < X_LOADS; ++p) {
        const int piece = thread_index() + p * THREADS, row = piece / X_LINE, k = piece % X_LINE * X_ELEMENTS;
        if (SMALL * X_LINE % THREADS != 0 && !within(piece, SMALL * X_LINE))
            continue;
        const Vec<X_VECTOR> x = preparing.prepare(p, p, raw[p]);
        UNROLL for (int e = 0; e < X_ELEMENTS; e += EACH) {
            Vec<EACH * WORD> words = Vec<EACH * WORD>::zero();
            UNROLL for (int i = 0; i < EACH; ++i) words.set(i, element_of<X_CONJUGATE>(x, e + i));
            store_shared(buffer + (row * STEP + input_word(k + e)), words);
        }
    }
}

// ---- x straight into the registers of the thread that needs it

#if !X_SHARED
constexpr int X_PIECES = SMALL * ITEMS * ELEMENTS / X_ELEMENTS;

DEVICE void load_input(const Source &source, const Spot &spot, const Remaining &left, Vec<X_VECTOR> (&x)[X_PIECES]) {
    UNROLL for (int p = 0; p < X_PIECES; ++p) {
        constexpr int EACH = ELEMENTS / X_ELEMENTS;
        const int row = p / (ITEMS * EACH), item = p / EACH % ITEMS;
        const int k = spot.lane * RUN + item * THREADS_K * ELEMENTS + p % EACH * X_ELEMENTS;
        const bool inside = within(row, left.small) && within(k, left.k);
        x[p] = load_global<X_VECTOR>(source.x + (row * source.x_small + k * source.x_k), inside);
    }
}
#endif
