// Joins states across the threads of a row, and across the blocks of a split.
#pragma once
#include "dependent.cuh"
#include "rows_accumulate.cuh"

// Joins a lane's state with that of lane (own lane ^ mask). Both lanes get the same bits: joining single words is
// commutative, and for other states the one of the lower lane comes first.
template <int FOLD>
DEVICE State<FOLD> join_with_lane(State<FOLD> mine, int mask) {
    State<FOLD> other;
    UNROLL for (int w = 0; w < State<FOLD>::WORDS; ++w) other.word[w] = shuffle_xor(mine.word[w], mask);
    if (State<FOLD>::WORDS == 1)
        return join(mine, other);
    return thread_index() & mask ? join(other, mine) : join(mine, other);
}

// Joins the states of LANES neighbouring lanes, a power of two. All of them get the result.
template <int LANES, int FOLD>
DEVICE State<FOLD> join_lanes(State<FOLD> state) {
    if constexpr (LANES > 1) {
        state = join_lanes<LANES / 2>(state);
        state = join_with_lane(state, LANES / 2);
    }
    return state;
}

template <int FOLD>
DEVICE void store_state(sptr<ACC_TYPE> at, int pitch, const State<FOLD> &state) {
    UNROLL for (int w = 0; w < State<FOLD>::WORDS; ++w) {
        Vec<WORD> word = Vec<WORD>::zero();
        word.set(0, state.word[w]);
        store_shared(at + w * pitch, word);
    }
}
template <int FOLD>
DEVICE State<FOLD> load_state(sptr<ACC_TYPE> at, int pitch) {
    State<FOLD> state;
    UNROLL for (int w = 0; w < State<FOLD>::WORDS; ++w) state.word[w] =
        load_shared<WORD>(at + w * pitch).template get<ACC_TYPE>(0);
    return state;
}

// Joins a row's states: lanes by shuffles, then warps through shared memory, where each writes one state and reads all.
template <int FOLD>
DEVICE void join_row(State<FOLD> &state, sptr<ACC_TYPE> scratch) {
    state = join_lanes<minimum(THREADS_K, 32)>(state);
    if constexpr (THREADS_K > 32) {
        constexpr int WARPS = THREADS_K / 32, PITCH = THREADS / 32;
        const int warp = thread_index() / 32, first = warp / WARPS * WARPS;
        if (within(thread_index() % 32, 1))
            store_state(scratch + warp, PITCH, state);
        barrier();
        state = join_lanes<WARPS>(load_state<FOLD>(scratch + (first + thread_index() % WARPS), PITCH));
    }
}

// Joins a column's states in a tree over shared memory: the lower half of its lanes joins the states of the upper half,
// until lane 0 has the result. Each word of a state is stored as [column][thread]: no bank conflicts.
template <int FOLD>
DEVICE void join_columns(State<FOLD> (&states)[WIDTH], const Spot &spot, sptr<ACC_TYPE> scratch) {
    if constexpr (THREADS_K > 1) {
        const sptr<ACC_TYPE> mine = scratch + thread_index();
        constexpr int PITCH = THREADS * WIDTH;
        UNROLL for (int c = 0; c < WIDTH; ++c) store_state(mine + c * THREADS, PITCH, states[c]);
        ROLLED for (int half = THREADS_K / 2; half > 0; half /= 2) {
            barrier();
            if (within(spot.lane, half)) {
                UNROLL for (int c = 0; c < WIDTH; ++c) {
                    const sptr<ACC_TYPE> other = mine + (c * THREADS + half * THREADS_M);
                    states[c] = join(states[c], load_state<FOLD>(other, PITCH));
                    store_state(mine + c * THREADS, PITCH, states[c]);
                }
            }
        }
        if constexpr (MAPS || TWO_PASSES) {
            barrier();
            UNROLL for (int c = 0; c < WIDTH; ++c) states[c] =
                load_state<FOLD>(mine + (c * THREADS - spot.lane * THREADS_M), PITCH);
        }
    }
}

// Joins the threads' states into their rows' states: in all threads for maps and second passes, else in lane 0.
template <int FOLD>
DEVICE void join_threads(State<FOLD> (&states)[WIDTH], const Spot &spot, int scratch) {
    const sptr<ACC_TYPE> base = (shared_base() + scratch).as<ACC_TYPE>();
    if constexpr (COLUMNS)
        join_columns(states, spot, base);
    else
        join_row(states[0], base);
}

// ---- split. The workspace contains the parts' states as [word][part][row][column] of ACC_TYPE.

template <int FOLD>
DEVICE gptr<ACC_TYPE> part_state(const Params &params, const Spot &spot, i32 part, int word, int column) {
    const i64 lines = (i64)params.batch * entry_rows(params), columns = COLUMNS ? params.n : 1;
    const i64 line = ((i64)word * params.split + part) * lines + spot.line;
    return gptr<ACC_TYPE>(params.workspace) + (line * columns + spot.column + column);
}

template <int FOLD>
DEVICE void store_parts(const Params &params, const Spot &spot, const State<FOLD> (&states)[WIDTH]) {
    const bool mine = spot.inside && within(spot.lane, 1);
    UNROLL for (int c = 0; c < WIDTH; ++c) {
        UNROLL for (int w = 0; w < State<FOLD>::WORDS; ++w) {
            Vec<WORD> word = Vec<WORD>::zero();
            word.set(0, states[c].word[w]);
            store_global(part_state<FOLD>(params, spot, spot.part, w, c), word, mine);
        }
    }
}

// Each lane joins every THREADS_K-th part, in order; of a scan, of the parts before its own.
template <int FOLD>
DEVICE void load_parts(const Params &params, const Spot &spot, State<FOLD> (&states)[WIDTH]) {
    ROLLED for (i32 part = spot.lane; within(part, SCANS ? spot.part : params.split); part += THREADS_K) {
        UNROLL for (int c = 0; c < WIDTH; ++c) {
            State<FOLD> state;
            UNROLL for (int w = 0; w < State<FOLD>::WORDS; ++w) state.word[w] =
                load_finished<WORD>(part_state<FOLD>(params, spot, part, w, c), spot.inside).template get<ACC_TYPE>(0);
            states[c] = join(states[c], state);
        }
    }
}
