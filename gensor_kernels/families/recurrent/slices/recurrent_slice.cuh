// Slices of a recurrent layer: the units of a block, and states that blocks of a team exchange.
#pragma once
#include "recurrent_cell.cuh"

// The units [first, end) of a block, of `each` but for the last one, and its place among the `count` blocks of a team.
struct Slice {
    i32 teams, count, team, index, each, first, end;

    MEMBER Slice(const Params &params, const Layer &layer) {
        teams = params.batch_inner[1] * ((params.m + BATCH - 1) / BATCH), count = grid_size() / teams;
        team = block_index() % teams, index = block_index() / teams;
        each = (layer.hidden + count - 1) / count;
        first = index * each, end = minimum(first + each, layer.hidden);
    }
};

// ---- rows of R

// Copies the rows of the slice's units to shared memory, gate by gate.
DEVICE void hold_slice(const Params &params, const Layer &layer, const Slice &slice, const Shared &shared) {
    const i32 vectors = layer.hidden / ELEMENTS, units = slice.end - slice.first;
    const gptr<IN_TYPE> r = gptr<IN_TYPE>(params.b) + layer.way * params.b_batch[2];
    for (i32 i = thread_index(); within(i, GATES * units * vectors); i += THREADS) {
        const i32 row = i / vectors, k = i % vectors * ELEMENTS, gate = row / units, unit = row % units;
        const gptr<IN_TYPE> from = r + ((row_of(params, gate) + slice.first + unit) * params.b_n + k);
        store_shared(shared.weights + ((gate * slice.each + unit) * layer.hidden + k), load_global<VECTOR>(from, true));
    }
}

// As `multiply`, of rows that `hold_slice` copied.
DEVICE void multiply_held(const Layer &layer, const Slice &slice, const Shared &shared, i32 unit,
                          ACC_TYPE (&sums)[GATES][BATCH]) {
    const bool has_unit = within(unit, slice.end);
    if (!has_unit) {
        cover("no_unit");
    }
    for (i32 k = thread_index() % LANES * ELEMENTS; within(k, layer.pitch); k += STEP) {
        const bool inside = within(k, layer.hidden) && has_unit;
        UNROLL for (int g = 0; g < GATES; ++g) {
            const i32 at = (g * slice.each + unit - slice.first) * layer.hidden + k;
            const Vec<VECTOR> row = inside ? load_shared<VECTOR>(shared.weights + at) : Vec<VECTOR>::zero();
            UNROLL for (int j = 0; j < BATCH; ++j) {
                UNROLL for (int part = 0; part < H_LOADS; ++part) {
                    constexpr int EACH = H_VECTOR / WORD;
                    const Vec<H_VECTOR> h = load_shared<H_VECTOR>(shared.h + (j * layer.pitch + k + part * EACH));
                    UNROLL for (int i = 0; i < EACH; ++i) sums[g][j] =
                        fma_(convert<ACC_TYPE>(row.template get<IN_TYPE>(part * EACH + i)), h.template get<ACC_TYPE>(i),
                             sums[g][j]);
                }
            }
        }
    }
}

// ---- states of other blocks

// Returns the address of the flag by which one block of the team lets another one continue after a step.
DEVICE gptr<u64> flag_of(const Params &params, const Slice &slice, i32 s, i32 from, i32 to) {
    const i64 team = s % 2 * slice.teams + slice.team;
    return gptr<u64>(params.workspace) + ((team * slice.count + from) * slice.count + to);
}

// Returns the address of h of an entry of the team, and of a unit, after step `s`.
DEVICE gptr<ACC_TYPE> state_of(const Params &params, const Layer &layer, const Slice &slice, i32 s, i32 j, i32 unit) {
    const i64 flags = (i64)2 * slice.teams * slice.count * slice.count;
    const gptr<ACC_TYPE> states = (gptr<u64>(params.workspace) + flags).as<ACC_TYPE>();
    return states + ((((i64)s * slice.teams + slice.team) * BATCH + j) * layer.hidden + unit);
}

// Stores h of a unit, which this thread has computed, for the other blocks.
DEVICE void give_state(const Params &params, const Layer &layer, const Slice &slice, const Shared &shared, i32 s, i32 j,
                       i32 unit) {
    Vec<WORD> word;
    word.set(0, load_state(shared.next, j * layer.pitch + unit));
    store_global(state_of(params, layer, slice, s, j, unit), word, true);
}

// Waits until all blocks of the team have given their states.
DEVICE void exchange(const Params &params, const Slice &slice, i32 s) {
    const u64 mark = (u64)(u32)params.split << 32 | (u32)params.k_per_split;
    for (i32 to = thread_index(); within(to, slice.count); to += THREADS)
        give_flag(flag_of(params, slice, s, slice.index, to), mark);
    for (i32 from = thread_index(); within(from, slice.count); from += THREADS)
        take_flag(flag_of(params, slice, s, from, slice.index), mark);
    barrier();
}

// Loads h of all units.
DEVICE void take_states(const Params &params, const Layer &layer, const Slice &slice, const Shared &shared, i32 s) {
    for (i32 i = thread_index(); within(i, BATCH * layer.hidden); i += THREADS) {
        const i32 j = i / layer.hidden, unit = i % layer.hidden;
        if (within(layer.first + j, params.m)) {
            const gptr<ACC_TYPE> from = state_of(params, layer, slice, s, j, unit);
            store_state(shared.next, j * layer.pitch + unit, load_written<WORD>(from).template get<ACC_TYPE>(0));
        }
    }
    barrier();
}

// Stores the last states of the slice's units, which are contiguous: (cells, directions, batch, hidden).
DEVICE void store_slice(const Params &params, const Layer &layer, const Slice &slice, const Shared &shared) {
    const i64 cell = (i64)params.batch_inner[1] * params.m * layer.hidden;
    for (i32 i = thread_index(); within(i, BATCH * slice.each); i += THREADS) {
        const i32 j = i / slice.each, unit = slice.first + i % slice.each;
        if (!within(unit, slice.end) || !within(layer.first + j, params.m))
            continue;
        const i64 at = ((i64)layer.way * params.m + layer.first + j) * layer.hidden + unit;
        Vec<WORD> word;
        word.set(0, load_state(shared.h, j * layer.pitch + unit));
        store_global(gptr<ACC_TYPE>(params.tail[2]) + at, word, true);
        if constexpr (HAS_CELL) {
            word.set(0, load_state(shared.c, j * layer.pitch + unit));
            store_global(gptr<ACC_TYPE>(params.tail[2]) + (cell + at), word, true);
        }
    }
}

// ---- states in 8 bits

// h as products read it, and the least and the largest element that each warp found, after the other states.
struct Rounded {
    sptr<ACC_TYPE> h, least, largest;
    sptr<IN_TYPE> end;

    MEMBER Rounded(const Layer &layer, const Shared &shared) {
        h = shared.weights.template as<ACC_TYPE>(), least = h + BATCH * layer.pitch, largest = least + 32;
        end = (largest + 32).template as<IN_TYPE>();
    }
};

// Returns a number below 2^22 rounded to a whole one, to the even one of two.
DEVICE ACC_TYPE whole(ACC_TYPE x) {
    const ACC_TYPE large = ACC_TYPE(3 << 22);
    return (x + large) - large;
}

// Rounds h to 8 bits. Zeros after the units count as h: 0 is in the range in any case.
DEVICE void round_states(const Layer &layer, const Shared &shared, const Rounded &rounded) {
    ACC_TYPE low = ACC_TYPE(0), high = ACC_TYPE(0);
    for (i32 i = thread_index(); within(i, BATCH * layer.pitch); i += THREADS) {
        const ACC_TYPE h = load_state(shared.h, i);
        low = min_(low, h), high = max_(high, h);
    }
    UNROLL for (int mask = 16; mask > 0; mask /= 2) {
        low = min_(low, shuffle_xor(low, mask)), high = max_(high, shuffle_xor(high, mask));
    }
    if (thread_index() % 32 == 0) {
        store_state(rounded.least, thread_index() / 32, low);
        store_state(rounded.largest, thread_index() / 32, high);
    }
    barrier();
    for (i32 warp = 0; warp < THREADS / 32; ++warp)
        low = min_(low, load_state(rounded.least, warp)), high = max_(high, load_state(rounded.largest, warp));
    ACC_TYPE scale = (high - low) / ACC_TYPE(255);
    scale = scale == ACC_TYPE(0) ? ACC_TYPE(1) : scale;
    const ACC_TYPE zero = max_(min_(whole(-low / scale), ACC_TYPE(255)), ACC_TYPE(0));
    for (i32 i = thread_index(); within(i, BATCH * layer.pitch); i += THREADS) {
        const ACC_TYPE number = whole(load_state(shared.h, i) / scale) + zero;
        store_state(rounded.h, i, (max_(min_(number, ACC_TYPE(255)), ACC_TYPE(0)) - zero) * scale);
    }
    barrier();
}
