// The operand A of a contraction: in place, or with MATERIALISED prepared by a first launch, which stores it in the
// workspace after the partial sums of a split. Its layout is [batch][m][pitch] if it is K-contiguous, else
// [batch][k][pitch], with rows of whole vectors.
#pragma once
#include "packed_operands.cuh"
#include "prologue.cuh"

struct FirstOperand {
    gptr<A_STORED> entry; // element (0, 0) of a batch entry
    i64 m, k;             // strides
};

#if MATERIALISED
static_assert(PROLOGUE && !PROLOGUE_OF_B && !A_WINDOW && !GATE && !RAGGED_ROWS && !NORM,
              "Only A as a matrix is prepared before a product.");
static_assert(same_type<A_STORED, IN_TYPE>, "What is prepared is multiplied as it is stored.");

constexpr int PREPARE_THREADS = 256;
// Elements that a thread of the first launch prepares: one access.
constexpr int PREPARE_WIDTH = A_UNIT ? A_VECTOR / (int)sizeof(IN_TYPE) : 1;

DEVICE i64 prepared_pitch(const Params &params) {
    constexpr int VECTOR = 16 / (int)sizeof(IN_TYPE);
    return ((i64)(A_LAYOUT ? params.m : params.k) + VECTOR - 1) / VECTOR * VECTOR;
}
// The start of a line: one index of m (or k) of one batch entry.
DEVICE gptr<IN_TYPE> prepared_line(const Params &params, i64 line) {
    gptr<u8> from = gptr<u8>(params.workspace);
    if constexpr (SPLIT)
        from = from + (i64)params.split * params.batch * params.m * workspace_columns(params.n) * (i64)sizeof(ACC_TYPE);
    return from.as<IN_TYPE>() + line * prepared_pitch(params);
}

DEVICE FirstOperand first_operand(const Params &params, const Tile &tile) {
    const i64 pitch = prepared_pitch(params);
    const gptr<IN_TYPE> entry = prepared_line(params, (i64)tile.entry * (A_LAYOUT ? params.k : params.m));
    return A_LAYOUT ? FirstOperand{entry, 1, pitch} : FirstOperand{entry, pitch, 1};
}

// The first launch. Grid: ceil(batch * lines * ceil(length / PREPARE_WIDTH) / 256) blocks of 256 threads.
KERNEL(contraction_prepare, Params, PREPARE_THREADS, 0) {
    launch_dependents();
    const i32 lines = A_LAYOUT ? params.k : params.m, length = A_LAYOUT ? params.m : params.k;
    const i64 groups = ((i64)length + PREPARE_WIDTH - 1) / PREPARE_WIDTH;
    const i64 group = (i64)block_index() * PREPARE_THREADS + thread_index();
    const i64 line = groups ? group / groups : 0; // batch entry * lines + line
    const i32 column = groups ? (i32)(group % groups) * PREPARE_WIDTH : 0;
    const bool inside = within(line, (i64)params.batch * lines) && within(column, length);
    const i32 entry = inside ? (i32)(line / lines) : 0, index = inside ? (i32)(line % lines) : 0;
    const Batch batch = split_batch(params, entry);
    const i64 m = A_LAYOUT ? column : index, k = A_LAYOUT ? index : column;
    const gptr<IN_TYPE> from =
        gptr<IN_TYPE>(params.a) + (batch_offset(params.a_batch, batch) + m * params.a_m + k * params.a_k);
    constexpr int BYTES = PREPARE_WIDTH * (int)sizeof(IN_TYPE);
    PrologueRuns<1, A_LAYOUT ? 1 : PREPARE_WIDTH> runs(params, batch);
    runs.load(0, (i32)k, inside);
    const Vec<BYTES> prepared = runs.template prepare<!A_LAYOUT>(0, load_global<BYTES>(from, inside), true);
    cover("materialise");
    store_global(prepared_line(params, line) + column, prepared, inside);
}
#else
DEVICE FirstOperand first_operand(const Params &params, const Tile &tile) {
    return FirstOperand{entry_of_a(params, tile), A_UNIT && A_LAYOUT ? 1 : stride_of_a(params),
                        A_UNIT && !A_LAYOUT ? 1 : params.a_k};
}
#endif
