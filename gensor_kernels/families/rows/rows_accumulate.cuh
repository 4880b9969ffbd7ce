// Accumulates a thread's elements of one step into the states of its rows.
#pragma once
#include "rows_source.cuh"

// The term that a fold adds for an element. Squares and exponentials are taken of x - center.
template <int FOLD, class T>
DEVICE T term(T x, T center) {
    if constexpr (FOLD == FOLD_SQUARES)
        return (x - center) * (x - center);
    else if constexpr (FOLD == FOLD_EXPONENTIALS)
        return exp_of_element(x - center);
    else
        return x;
}

// Folds the terms of the elements that are inside the row.
template <int FOLD, int COUNT>
DEVICE ACC_TYPE fold_terms(const ACC_TYPE (&v)[COUNT], const bool (&inside)[ITEMS], ACC_TYPE center) {
    ACC_TYPE t[COUNT];
    UNROLL for (int i = 0; i < COUNT; ++i) {
        t[i] = term<FOLD>(v[i], center);
        // Elements outside are already neutral for a sum (zeros, or deviations of zero) and for exponentials (-inf).
        if (FOLD != FOLD_SUM && !EXPONENTIAL && !HOLDS_TERMS && !(STAGED && FOLD == FIRST_FOLD && !MOMENTS))
            t[i] = inside[i / (COUNT / ITEMS)] ? t[i] : neutral<FOLD>().word[0];
    }
    return join_pairs<FOLD, COUNT>(t);
}

// The moments of the elements that are inside, as a state.
template <int FOLD, int COUNT>
DEVICE State<FOLD> moments_of(const ACC_TYPE (&v)[COUNT], const bool (&inside)[ITEMS]) {
    int items = 0;
    UNROLL for (int i = 0; i < ITEMS; ++i) items += inside[i];
    const ACC_TYPE count = ACC_TYPE(items * (COUNT / ITEMS));
    const ACC_TYPE mean = items ? fold_terms<FOLD_SUM>(v, inside, ACC_TYPE(0)) / count : ACC_TYPE(0);
    return State<FOLD>{{count, mean, fold_terms<FOLD_SQUARES>(v, inside, mean)}};
}

// Accumulates elements v[i], at positions first + i / PER * PACE + i % PER of the row.
template <int FOLD, int COUNT>
DEVICE void accumulate(State<FOLD> &state, const ACC_TYPE (&v)[COUNT], const bool (&inside)[ITEMS], i32 first,
                       ACC_TYPE center) {
    constexpr int PER = COUNT / ITEMS;
    if constexpr (FOLD == FOLD_ARGMAX || FOLD == FOLD_ARGMIN) {
        UNROLL for (int i = 0; i < COUNT; ++i) {
            const State<FOLD> one = {{v[i], index_to_word(first + i / PER * PACE + i % PER)}};
            if constexpr (STAGED)
                state = is_better<FOLD>(state.word[0], v[i]) ? one : state;
            else if (inside[i / PER])
                state = join(state, one);
        }
    } else if constexpr (FOLD == FOLD_MOMENTS) {
        state = join(state, moments_of<FOLD>(v, inside));
    } else if constexpr (FOLD == FOLD_SOFTMAX) {
        const ACC_TYPE maximum = larger(state.word[0], fold_terms<FOLD_MAX>(v, inside, ACC_TYPE(0)));
        const ACC_TYPE sum = fold_terms<FOLD_EXPONENTIALS>(v, inside, shift_of(maximum));
        state = State<FOLD>{{maximum, state.word[1] * rescale_factor(state.word[0], maximum) + sum}};
    } else {
        state.word[0] = join_words<FOLD>(state.word[0], fold_terms<FOLD>(v, inside, center));
    }
}

// Replaces the elements by exp(x - center) or x - center, and by zeros outside.
DEVICE void hold_terms(Chunk &chunk, const ACC_TYPE (&center)[WIDTH]) {
    UNROLL for (int i = 0; i < COUNT; ++i) {
        const ACC_TYPE middle = center[COLUMNS ? i % ELEMENTS : 0];
        if constexpr (EXPONENTIAL)
            chunk.v[i] = exp_of_element(chunk.v[i] - middle);
        else
            chunk.v[i] = chunk.v[i] - (chunk.inside[i / ELEMENTS] ? middle : ACC_TYPE(0));
    }
}

// Accumulates one step of a pass into the states of the thread's rows.
template <int FOLD>
DEVICE void accumulate_chunk(State<FOLD> (&states)[WIDTH], const Chunk &chunk, const ACC_TYPE (&center)[WIDTH]) {
    if constexpr (COLUMNS) {
        UNROLL for (int column = 0; column < WIDTH; ++column) {
            ACC_TYPE v[ITEMS];
            UNROLL for (int i = 0; i < ITEMS; ++i) v[i] = chunk.v[i * ELEMENTS + column];
            accumulate(states[column], v, chunk.inside, chunk.first, center[column]);
        }
    } else {
        accumulate(states[0], chunk.v, chunk.inside, chunk.first, center[0]);
    }
}
