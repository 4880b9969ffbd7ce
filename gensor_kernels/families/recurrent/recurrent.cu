// The recurrence of a layer (operators/recurrent/recurrent.py): all steps of BATCH entries of the batch, in one
// direction, by one block. No block waits for another one.
//
// LANES neighbouring threads compute a unit: all of its gates, for all entries of the block; GROUPS units are computed
// at once. A lane multiplies every LANES-th vector of the gates' rows of R by h, which is in shared memory in ACC_TYPE;
// shuffles add the sums of the lanes, and lane j finishes the entries j, j + LANES, ...: gates, c and h. h of a step is
// stored to a second buffer, and one barrier ends the step. R stays in shared memory (HELD), or comes from the L2 (and
// the L1) at every step.
//
// Shared bytes = (2 + (CELL < 2)) * BATCH * pitch * WORD + HELD * GATES * hidden * hidden * sizeof(IN_TYPE), where
// pitch is hidden, rounded up to STEP.

#pragma parameter IN_TYPE float    // elements of R and y: half_t, bfloat16_t, float, double
#pragma parameter ACC_TYPE float   // gates, states, and what is added to gates: float, double
#pragma parameter CELL 0           // 0: LSTM, 1: LSTM with peepholes, 2: GRU, 3: RNN
#pragma parameter LANES 32         // threads of a unit
#pragma parameter GROUPS 8         // units that are computed at once
#pragma parameter BATCH 1          // entries of a block
#pragma parameter VECTOR 16        // bytes per load of R
#pragma parameter HELD 0           // 1: R stays in shared memory
#pragma parameter EPILOGUE_CODES 0 // there is no epilogue
#pragma parameter MIN_BLOCKS 0     // blocks per SM promised to the compiler; 0 = none

#include "recurrent_cell.cuh"

KERNEL(recurrent, Params, THREADS, MIN_BLOCKS) {
    const Layer layer(params);
    Shared shared(layer);
    begin_states(params, layer, shared);
    if constexpr (HELD)
        hold_weights(params, layer, shared);
    barrier();
    for (i32 s = 0; within(s, layer.steps); ++s) {
        const i32 t = layer.backward ? layer.steps - 1 - s : s;
        // Groups of a warp take part in shuffles, also those that have no unit.
        for (i32 base = 0; within(base, layer.hidden); base += GROUPS) {
            const i32 unit = base + thread_index() / LANES;
            ACC_TYPE sums[GATES][BATCH] = {};
            multiply(params, layer, shared, unit, sums);
            join_lanes(sums);
            UNROLL for (int j = 0; j < BATCH; ++j) {
                if (j % LANES == thread_index() % LANES && within(unit, layer.hidden) &&
                    within(layer.first + j, params.m)) {
                    ACC_TYPE own[GATES];
                    UNROLL for (int g = 0; g < GATES; ++g) own[g] = sums[g][j];
                    finish(params, layer, shared, Place{t, j, unit}, own);
                }
            }
        }
        barrier(); // h of this step is there, and nobody reads that of the step before
        shared.swap();
    }
    store_states(params, layer, shared);
}
