// Steps of a recurrent layer: products with h, gates and states.
#pragma once
#include "params.cuh"
#include "intrinsics.cuh"

constexpr int GATES = CELL < 2 ? 4 : CELL == 2 ? 3 : 1;
constexpr bool HAS_CELL = CELL < 2;
constexpr int THREADS = LANES * GROUPS, ELEMENTS = VECTOR / (int)sizeof(IN_TYPE), STEP = LANES * ELEMENTS;
constexpr int WORD = (int)sizeof(ACC_TYPE);
// Bytes of one load of h, and of these loads for a vector of R.
constexpr int H_VECTOR = minimum(ELEMENTS * WORD, 16), H_LOADS = ELEMENTS * WORD / H_VECTOR;

// Sizes of a layer, and the entries and the direction of a block.
struct Layer {
    i32 hidden, pitch, steps, first, way;
    bool backward;
    ACC_TYPE clip;

    MEMBER explicit Layer(const Params &params) {
        const i32 directions = params.batch_inner[1];
        hidden = params.n, pitch = (hidden + STEP - 1) / STEP * STEP, steps = params.batch_inner[0];
        first = block_index() / directions * BATCH, way = block_index() % directions;
        backward = way > 0 || (i32)(u32)params.tail[7] != 0;
        clip = (ACC_TYPE)bit_cast<double>(params.tail[4]);
    }
};

// The shared memory of a block: h of the last step and of this one, c, and R.
struct Shared {
    sptr<ACC_TYPE> h, next, c;
    sptr<IN_TYPE> weights;

    MEMBER explicit Shared(const Layer &layer) {
        const i32 state = BATCH * layer.pitch;
        h = shared_base().as<ACC_TYPE>(), next = h + state, c = next + state;
        weights = (c + (HAS_CELL ? state : 0)).template as<IN_TYPE>();
    }
    MEMBER void swap() {
        const sptr<ACC_TYPE> used = h;
        h = next, next = used;
    }
};

// A step, an entry of the block, and a unit.
struct Place {
    i32 t, j, unit;
};

// Returns the first row of a gate in R, and in what is added to its products.
DEVICE i32 row_of(const Params &params, int gate) {
    return (i32)(u32)(params.tail[5 + gate / 2] >> (32 * (gate % 2)));
}

DEVICE ACC_TYPE load_word(u64 address, i64 at) {
    return load_global<WORD>(gptr<ACC_TYPE>(address) + at, true).template get<ACC_TYPE>(0);
}

DEVICE ACC_TYPE load_state(sptr<ACC_TYPE> from, i32 at) {
    return load_shared<WORD>(from + at).template get<ACC_TYPE>(0);
}

DEVICE void store_state(sptr<ACC_TYPE> to, i32 at, ACC_TYPE value) {
    Vec<WORD> word;
    word.set(0, value);
    store_shared(to + at, word);
}

// Copies the initial states to shared memory. After a row's units there are zeros, in both buffers of h.
DEVICE void begin_states(const Params &params, const Layer &layer, const Shared &shared) {
    for (i32 i = thread_index(); within(i, BATCH * layer.pitch); i += THREADS) {
        const i32 j = i / layer.pitch, unit = i % layer.pitch;
        ACC_TYPE state[2] = {ACC_TYPE(0), ACC_TYPE(0)};
        if (within(unit, layer.hidden) && within(layer.first + j, params.m)) {
            const i64 at = layer.way * params.d_batch[2] + (layer.first + j) * params.d_m + unit;
            state[0] = load_word(params.d, at);
            if constexpr (HAS_CELL)
                state[1] = load_word(params.d, at + params.d_batch[0]);
        } else {
            cover("padding");
        }
        store_state(shared.h, i, state[0]);
        store_state(shared.next, i, ACC_TYPE(0));
        if constexpr (HAS_CELL)
            store_state(shared.c, i, state[1]);
    }
}

DEVICE void store_states(const Params &params, const Layer &layer, const Shared &shared) {
    // The last states are contiguous: (cells, directions, batch, hidden).
    const i64 cell = (i64)params.batch_inner[1] * params.m * layer.hidden;
    for (i32 i = thread_index(); within(i, BATCH * layer.pitch); i += THREADS) {
        const i32 j = i / layer.pitch, unit = i % layer.pitch;
        if (!within(unit, layer.hidden) || !within(layer.first + j, params.m))
            continue;
        const i64 at = ((i64)layer.way * params.m + layer.first + j) * layer.hidden + unit;
        Vec<WORD> word;
        word.set(0, load_state(shared.h, i));
        store_global(gptr<ACC_TYPE>(params.tail[2]) + at, word, true);
        if constexpr (HAS_CELL) {
            word.set(0, load_state(shared.c, i));
            store_global(gptr<ACC_TYPE>(params.tail[2]) + (cell + at), word, true);
        }
    }
}

// Copies the rows of all gates to shared memory, gate by gate in the order of `row_of`.
DEVICE void hold_weights(const Params &params, const Layer &layer, const Shared &shared) {
    const i32 vectors = layer.hidden / ELEMENTS;
    const gptr<IN_TYPE> r = gptr<IN_TYPE>(params.b) + layer.way * params.b_batch[2];
    for (i32 i = thread_index(); within(i, GATES * layer.hidden * vectors); i += THREADS) {
        const i32 row = i / vectors, k = i % vectors * ELEMENTS, gate = row / layer.hidden;
        const gptr<IN_TYPE> from = r + ((row_of(params, gate) + row % layer.hidden) * params.b_n + k);
        store_shared(shared.weights + (row * layer.hidden + k), load_global<VECTOR>(from, true));
    }
}

// Adds the lane's part of the products of a unit's rows of R by h of every entry.
DEVICE void multiply(const Params &params, const Layer &layer, const Shared &shared, i32 unit,
                     ACC_TYPE (&sums)[GATES][BATCH]) {
    const gptr<IN_TYPE> r = gptr<IN_TYPE>(params.b) + layer.way * params.b_batch[2];
    const bool has_unit = within(unit, layer.hidden);
    if (!has_unit) {
        cover("no_unit");
    }
    for (i32 k = thread_index() % LANES * ELEMENTS; within(k, layer.pitch); k += STEP) {
        const bool inside = within(k, layer.hidden) && has_unit;
        Vec<VECTOR> rows[GATES];
        UNROLL for (int g = 0; g < GATES; ++g) {
            if constexpr (HELD)
                rows[g] = inside ? load_shared<VECTOR>(shared.weights + ((g * layer.hidden + unit) * layer.hidden + k))
                                 : Vec<VECTOR>::zero();
            else
                rows[g] = load_global<VECTOR>(r + ((row_of(params, g) + unit) * params.b_n + k), inside);
        }
        UNROLL for (int j = 0; j < BATCH; ++j) {
            UNROLL for (int part = 0; part < H_LOADS; ++part) {
                constexpr int EACH = H_VECTOR / WORD;
                const Vec<H_VECTOR> h = load_shared<H_VECTOR>(shared.h + (j * layer.pitch + k + part * EACH));
                UNROLL for (int i = 0; i < EACH; ++i) {
                    UNROLL for (int g = 0; g < GATES; ++g) sums[g][j] =
                        fma_(convert<ACC_TYPE>(rows[g].template get<IN_TYPE>(part * EACH + i)),
                             h.template get<ACC_TYPE>(i), sums[g][j]);
                }
            }
        }
    }
}

// Adds the sums of the lanes of a unit, in all of them.
DEVICE void join_lanes(ACC_TYPE (&sums)[GATES][BATCH]) {
    UNROLL for (int mask = LANES / 2; mask > 0; mask /= 2) {
        UNROLL for (int g = 0; g < GATES; ++g) {
            UNROLL for (int j = 0; j < BATCH; ++j) sums[g][j] = sums[g][j] + shuffle_xor(sums[g][j], mask);
        }
    }
}

DEVICE ACC_TYPE clipped(const Layer &layer, ACC_TYPE x) {
    return max_(min_(x, layer.clip), -layer.clip);
}

DEVICE ACC_TYPE sigmoid(ACC_TYPE x) {
    return ACC_TYPE(1) / (ACC_TYPE(1) + exp_(-x));
}

// Returns h of a unit after the step, where `sums` are R h of its gates, and replaces c.
DEVICE ACC_TYPE next_state(const Params &params, const Layer &layer, const Place &place, ACC_TYPE h, ACC_TYPE &c,
                           const ACC_TYPE (&sums)[GATES]) {
    const i64 at =
        place.t * params.a_batch[1] + layer.way * params.a_batch[2] + (layer.first + place.j) * params.a_m + place.unit;
    ACC_TYPE inputs[GATES];
    UNROLL for (int g = 0; g < GATES; ++g) inputs[g] = load_word(params.a, at + row_of(params, g));
    const i64 vector = layer.way * (i64)params.tail[3] + place.unit;
    if constexpr (HAS_CELL) {
        ACC_TYPE peephole[3] = {};
        if constexpr (CELL == 1)
            UNROLL for (int g = 0; g < 3; ++g) peephole[g] = load_word(params.tail[1], vector + g * layer.hidden);
        const auto gate = [&](int g, ACC_TYPE seen) {
            const ACC_TYPE x = inputs[g] + sums[g];
            return clipped(layer, CELL == 1 ? fma_(peephole[g < 2 ? g : 2], seen, x) : x);
        };
        const ACC_TYPE entered = sigmoid(gate(0, c)), kept = sigmoid(gate(1, c));
        c = fma_(kept, c, entered * tanh_(clipped(layer, inputs[2] + sums[2])));
        return sigmoid(gate(3, c)) * tanh_(c);
    } else if constexpr (CELL == 2) {
        const ACC_TYPE reset = sigmoid(clipped(layer, inputs[0] + sums[0]));
        const ACC_TYPE update = sigmoid(clipped(layer, inputs[1] + sums[1]));
        const ACC_TYPE inner = sums[2] + load_word(params.tail[1], vector);
        const ACC_TYPE fresh = tanh_(clipped(layer, fma_(reset, inner, inputs[2])));
        return fma_(update, h, (ACC_TYPE(1) - update) * fresh);
    } else {
        return tanh_(clipped(layer, inputs[0] + sums[0]));
    }
}

// Computes the states and y of a unit after a step; past the end of a sequence its states stay, and y is 0.
DEVICE void finish(const Params &params, const Layer &layer, const Shared &shared, const Place &place,
                   const ACC_TYPE (&sums)[GATES]) {
    const i32 at = place.j * layer.pitch + place.unit, entry = layer.first + place.j;
    const i32 length = load_global<4>(gptr<i32>(params.tail[0]) + entry, true).template get<i32>(0);
    ACC_TYPE h = load_state(shared.h, at);
    IN_TYPE y = convert<IN_TYPE>(ACC_TYPE(0));
    if (within(place.t, length)) {
        ACC_TYPE c = HAS_CELL ? load_state(shared.c, at) : ACC_TYPE(0);
        y = convert<IN_TYPE>(next_state(params, layer, place, h, c, sums));
        h = convert<ACC_TYPE>(y);
        if constexpr (HAS_CELL)
            store_state(shared.c, at, c);
    } else {
        cover("past_end");
    }
    store_state(shared.next, at, h);
    Vec<sizeof(IN_TYPE)> word = Vec<sizeof(IN_TYPE)>::zero();
    word.set(0, y);
    const i64 to = place.t * params.c_batch[1] + layer.way * params.c_batch[2] + entry * params.c_m;
    store_global(gptr<IN_TYPE>(params.c) + (to + place.unit * params.c_n), word, true);
}
