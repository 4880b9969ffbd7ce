// The tile of a block, where its operands are in memory, and the loads of a step.
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
// Words per shared access: of a thread's entries of the long axis, and of its adjacent k.
constexpr int PIECE = minimum(ELEMENTS, WORDS_AT_ONCE), PIECES = ELEMENTS / PIECE;
constexpr int X_PIECE = minimum(RUN, WORDS_AT_ONCE), X_PARTS = RUN / X_PIECE;

// A thread's place in the block, and the entries of the small and the long axis from its first one to the end.
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

// The entries of each axis that are left in this step.
struct Remaining {
    i32 k, small_axis, long_axis;
};

// Addresses of this thread's weights and the block's x at the step's first k, and the strides of both.
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

// Calls visit(load, address, predicate) for a thread's weights of a step: ITEMS loads of each of its rows, or of ITEMS
// adjacent k.
template <class Visit>
DEVICE void each_load(const Source &source, const Spot &spot, const Remaining &left, const Visit &visit) {
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        const int k = W_COLUMNS ? i : i * THREADS_K * ELEMENTS;
        const bool inside = within(spot.lane * RUN + k, left.k);
        UNROLL for (int r = 0; r < ROWS; ++r) visit(i * ROWS + r, source.weights + (r * source.w_long + k * source.w_k),
                                                    inside && within(r, left.long_axis));
    }
}
DEVICE void load_weights(const Source &source, const Spot &spot, const Remaining &left, Vec<W_VECTOR> (&w)[LOADS]) {
    each_load(source, spot, left,
              [&](int load, gptr<IN_TYPE> from, bool inside) { w[load] = load_global<W_VECTOR>(from, inside); });
}
// Fetches a thread's weights of the first step into the L2.
DEVICE void fetch_weights(const Source &source, const Spot &spot, const Tile &tile) {
    const Remaining left = {tile.k_end - tile.k_begin, spot.small_left, spot.long_left};
    each_load(source, spot, left, [](int, gptr<IN_TYPE> from, bool inside) { prefetch_line<2>(from, inside); });
}

// Element i of a load, converted and conjugated.
template <bool CONJUGATE, class T = ACC_TYPE, int BYTES>
DEVICE T element_of(const Vec<BYTES> &raw, int i) {
    T value = convert<T>(raw.template get<IN_TYPE>(i));
    if constexpr (CONJUGATE)
        value.im = -value.im;
    return value;
}

// ---- x through shared memory: [small][step]. The k of a step have the order in which threads read them, so the lanes
// of a warp read adjacent words at once.

// Index of element k of a step in its row.
DEVICE int input_word(int k) {
    if (W_COLUMNS)
        return k;
    const int item = k / (THREADS_K * ELEMENTS), lane = k / ELEMENTS % THREADS_K, e = k % ELEMENTS;
    return ((item * X_PARTS + e / X_PIECE) * THREADS_K + lane) * X_PIECE + e % X_PIECE;
}

constexpr int X_LINE = STEP / X_ELEMENTS; // loads of a row of x
constexpr int X_LOADS = (SMALL * X_LINE + THREADS - 1) / THREADS;

// The prologue of A, where A is x. Each load is one run of its vectors.
using PreparingX = Preparing<INLINED_A, X_LOADS, false, X_LOADS, X_ELEMENTS, true>;

// Copies x of a step to shared memory.
DEVICE void stage_input(const Source &source, const Remaining &left, i32 k_end, PreparingX &preparing,
                        sptr<ACC_TYPE> buffer) {
    constexpr int EACH = minimum(X_ELEMENTS, W_COLUMNS ? WORDS_AT_ONCE : X_PIECE);
    Vec<X_VECTOR> raw[X_LOADS];
    UNROLL for (int p = 0; p < X_LOADS; ++p) {
        const int piece = thread_index() + p * THREADS, row = piece / X_LINE, k = piece % X_LINE * X_ELEMENTS;
        const bool inside = within(row, minimum(left.small_axis, SMALL)) && within(k, left.k);
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
