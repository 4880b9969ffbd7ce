// The recurrence of a layer (operators/recurrent/recurrent.py): all steps of BATCH entries of the batch, in one
// direction, by a team of blocks. Each block computes the states of a slice of the units. All blocks of the grid are
// resident together: those of a team wait for one another at the end of every step.
//
// A block computes its units as recurrent.cu does, and has h of all units in shared memory. At the end of a step it
// stores h of its units to the workspace, and gives every block of its team a flag; it takes the flags of all, and
// loads h of all units. A pair of blocks has two flags, for even and for odd steps: a block gives a flag again two
// steps later, after it has taken one that the other gave after taking it.
//
// Workspace: flags [even or odd][team][block that gives][block that takes], 8 bytes each; then h in ACC_TYPE
// [step][team][entry of the team][unit]. A flag is set when it holds a number that the host draws (its
// place in Params is that of stream_k.cuh's). The block that waits for a flag clears it.
//
// QUANTISED: products read h rounded to 8 bits between its least and its largest element and 0, of all units and
// entries, as DynamicQuantizeLinear of ONNX rounds; a team has the whole batch.
//
// Shared bytes = (2 + (CELL < 2) + QUANTISED) * BATCH * pitch * WORD + QUANTISED * 256 + HELD * GATES * units * hidden
// * sizeof(IN_TYPE), where pitch is hidden, rounded up to STEP, and `units` are those of a slice.

#pragma parameter IN_TYPE float    // elements of R and y: half_t, bfloat16_t, float, double
#pragma parameter ACC_TYPE float   // gates, states, and what is added to gates: float, double
#pragma parameter CELL 0           // 0: LSTM, 1: LSTM with peepholes, 2: GRU, 3: RNN
#pragma parameter QUANTISED 0      // 1: products read h in 8 bits
#pragma parameter LANES 32         // threads of a unit
#pragma parameter GROUPS 8         // units that a block computes at once
#pragma parameter BATCH 1          // entries of a block
#pragma parameter VECTOR 16        // bytes per load of R
#pragma parameter HELD 0           // 1: the slice's rows of R stay in shared memory
#pragma parameter EPILOGUE_CODES 0 // there is no epilogue
#pragma parameter MIN_BLOCKS 0     // blocks per SM promised to the compiler; 0 = none

#include "recurrent_slice.cuh"

KERNEL(recurrent_slices, Params, THREADS, MIN_BLOCKS) {
    Layer layer(params);
    const Slice slice(params, layer);
    layer.first = slice.team / params.batch_inner[1] * BATCH;
    Shared shared(layer);
    const Rounded rounded(layer, shared);
    if constexpr (QUANTISED)
        shared.weights = rounded.end;
    begin_states(params, layer, shared);
    if constexpr (HELD)
        hold_slice(params, layer, slice, shared);
    barrier();
    for (i32 s = 0; within(s, layer.steps); ++s) {
        const i32 t = layer.backward ? layer.steps - 1 - s : s;
        Shared read = shared;
        if constexpr (QUANTISED) {
            round_states(layer, shared, rounded);
            read.h = rounded.h;
        }
        // Groups of a warp take part in shuffles, also those that have no unit.
        for (i32 base = slice.first; within(base, slice.end); base += GROUPS) {
            const i32 unit = base + thread_index() / LANES;
            ACC_TYPE sums[GATES][BATCH] = {};
            if constexpr (HELD)
                multiply_held(layer, slice, read, unit, sums);
            else
                multiply(params, layer, read, within(unit, slice.end) ? unit : layer.hidden, sums);
            join_lanes(sums);
            UNROLL for (int j = 0; j < BATCH; ++j) {
                if (j % LANES == thread_index() % LANES && within(unit, slice.end) &&
                    within(layer.first + j, params.m)) {
                    ACC_TYPE own[GATES];
                    UNROLL for (int g = 0; g < GATES; ++g) own[g] = sums[g][j];
                    finish(params, layer, shared, Place{t, j, unit}, own);
                    if (within(1, slice.count))
                        give_state(params, layer, slice, shared, s, j, unit);
                }
            }
        }
        barrier(); // h of this step is there, and nobody reads that of the step before
        if (within(1, slice.count) && within(s + 1, layer.steps)) {
            cover("exchange");
            exchange(params, slice, s);
            take_states(params, layer, slice, shared, s);
        }
        shared.swap();
    }
    store_slice(params, layer, slice, shared);
}
