// Running sums and products: replaces each element by the fold of its row up to and including it.
//
// An element is joined in one fixed order: with those before it in its access, in lanes and warps before its own, in
// accesses before its own, then with the carry: the fold of all steps before, and of all parts where k is split.
// Elements past the end of a row come after all others, so that no result contains them.
#pragma once
#include "rows_finish.cuh"

// The fold of what comes before a thread's elements in a step, and that of the whole step.
template <int FOLD>
struct Prefix {
    State<FOLD> before, all;
};

// Computes the prefixes of LANES neighbouring lanes, a power of two, from the states of their elements.
template <int LANES, int FOLD>
DEVICE Prefix<FOLD> scan_lanes(State<FOLD> mine) {
    Prefix<FOLD> prefix = {neutral<FOLD>(), mine};
    UNROLL for (int mask = 1; mask < LANES; mask *= 2) {
        const State<FOLD> other = State<FOLD>{{shuffle_xor(prefix.all.word[0], mask)}};
        if (thread_index() & mask)
            prefix.before = join(other, prefix.before);
        prefix.all = join(prefix.all, other); // the same bits in both lanes: joining words is commutative
    }
    return prefix;
}

// Completes prefixes within a warp by those of the row's other warps: each warp writes its states, and reads all.
template <int FOLD>
DEVICE void scan_warps(Prefix<FOLD> (&prefix)[ITEMS], sptr<ACC_TYPE> scratch) {
    constexpr int WARPS = THREADS_K / 32, PITCH = THREADS / 32;
    const int warp = thread_index() / 32, first = warp / WARPS * WARPS, other = thread_index() % WARPS;
    if (within(thread_index() % 32, 1)) {
        UNROLL for (int i = 0; i < ITEMS; ++i) store_state(scratch + (i * PITCH + warp), 0, prefix[i].all);
    }
    barrier();
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        const State<FOLD> all = load_state<FOLD>(scratch + (i * PITCH + first + other), 0);
        const State<FOLD> earlier = within(other, warp - first) ? all : neutral<FOLD>();
        prefix[i].before = join(join_lanes<WARPS>(earlier), prefix[i].before);
        prefix[i].all = join_lanes<WARPS>(all);
    }
}

// Scans the accesses of a step of a row, one after the other.
template <int FOLD>
DEVICE void scan_row(Chunk &chunk, State<FOLD> &carry, int half) {
    Prefix<FOLD> prefix[ITEMS];
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        ACC_TYPE *v = &chunk.v[i * ELEMENTS];
        UNROLL for (int e = 1; e < ELEMENTS; ++e) v[e] = join_words<FOLD>(v[e - 1], v[e]);
        prefix[i] = scan_lanes<minimum(THREADS_K, 32)>(State<FOLD>{{v[ELEMENTS - 1]}});
    }
    if constexpr (THREADS_K > 32)
        scan_warps(prefix, shared_base().as<ACC_TYPE>() + half * (ITEMS * THREADS / 32));
    UNROLL for (int i = 0; i < ITEMS; ++i) {
        const State<FOLD> before = join(carry, prefix[i].before);
        UNROLL for (int e = 0; e < ELEMENTS; ++e) chunk.v[i * ELEMENTS + e] =
            join_words<FOLD>(before.word[0], chunk.v[i * ELEMENTS + e]);
        carry = join(carry, prefix[i].all);
    }
}

// Computes the prefix of each of a thread's columns. Every round doubles the number of lanes whose states a state
// contains, and moves them through that half of the scratch which all threads have finished reading.
template <int FOLD>
DEVICE void scan_column_lanes(Prefix<FOLD> (&prefix)[WIDTH], const Spot &spot, int &half) {
    constexpr int HALF = THREADS * WIDTH;
    const sptr<ACC_TYPE> mine = shared_base().as<ACC_TYPE>() + thread_index();
    ROLLED for (int reach = 1; reach <= THREADS_K; reach *= 2, half ^= 1) {
        const sptr<ACC_TYPE> states = mine + half * HALF;
        UNROLL for (int c = 0; c < WIDTH; ++c) store_state(states + c * THREADS, 0, prefix[c].all);
        barrier();
        const bool last = reach == THREADS_K;
        const int back = last ? 1 : reach;
        const bool first = within(spot.lane, back);
        UNROLL for (int c = 0; c < WIDTH; ++c) {
            State<FOLD> other = load_state<FOLD>(states + (c * THREADS - (first ? 0 : back) * THREADS_M), 0);
            if (first)
                other = neutral<FOLD>();
            if (last) {
                prefix[c].before = other;
                const int end = THREADS_K - 1 - spot.lane;
                prefix[c].all = load_state<FOLD>(states + (c * THREADS + end * THREADS_M), 0);
            } else {
                prefix[c].all = join(other, prefix[c].all);
            }
        }
    }
}

// Scans a step of a thread's columns, in each of which it has ITEMS adjacent elements.
template <int FOLD>
DEVICE void scan_columns(Chunk &chunk, const Spot &spot, State<FOLD> (&carry)[WIDTH], int &half) {
    Prefix<FOLD> prefix[WIDTH];
    UNROLL for (int c = 0; c < WIDTH; ++c) {
        UNROLL for (int i = 1; i < ITEMS; ++i) chunk.v[i * ELEMENTS + c] =
            join_words<FOLD>(chunk.v[(i - 1) * ELEMENTS + c], chunk.v[i * ELEMENTS + c]);
        prefix[c] = Prefix<FOLD>{neutral<FOLD>(), State<FOLD>{{chunk.v[(ITEMS - 1) * ELEMENTS + c]}}};
    }
    if constexpr (THREADS_K > 1)
        scan_column_lanes(prefix, spot, half);
    UNROLL for (int c = 0; c < WIDTH; ++c) {
        const State<FOLD> before = join(carry[c], prefix[c].before);
        UNROLL for (int i = 0; i < ITEMS; ++i) chunk.v[i * ELEMENTS + c] =
            join_words<FOLD>(before.word[0], chunk.v[i * ELEMENTS + c]);
        carry[c] = join(carry[c], prefix[c].all);
    }
}

// Scans and stores the thread's range of k, after what `carry` contains. The first half of the scratch may still be
// read by the join of parts before it.
template <int FOLD>
DEVICE void scan_rows(const Params &params, const Spot &spot, State<FOLD> (&carry)[WIDTH]) {
    Chunk chunk;
    int half = 1;
    bool carried = false;
    for_each_chunk<false>(params, spot, chunk, [&](Chunk &elements) {
        if (carried)
            cover("carried_step");
        carried = true;
        if constexpr (COLUMNS) {
            scan_columns(elements, spot, carry, half);
        } else {
            scan_row(elements, carry[0], half);
            half ^= 1;
        }
        store_mapped(params, spot, elements, Factors{});
    });
}

// The same where nothing comes before.
template <int FOLD>
DEVICE void scan_rows(const Params &params, const Spot &spot) {
    State<FOLD> carry[WIDTH];
    UNROLL for (int c = 0; c < WIDTH; ++c) carry[c] = neutral<FOLD>();
    scan_rows(params, spot, carry);
}
