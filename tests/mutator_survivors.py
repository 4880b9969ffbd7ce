"""Mutants that no test can catch, and why: each behaves like the original."""

_EXTRA_STEP = (
    "Where the range of k is whole steps, the loop runs once more. Every step asks for the step behind it, also the "
    "last one, and loads and copies past the end of k give zeros: the extra step adds products of zeros, and what it "
    "asks for in turn is zeros again. No address outside an operand is read, C is the same, only time is lost."
)

_NO_STEP = (
    "Behind the last step of a run-time list lie zeros: code 0 is no operation and takes no operand. Only int32 "
    "accumulators would turn into floats there, and the int8 Programs of the contraction families catch that; rows "
    "folds integers without an epilogue."
)

#: name of the mutant -> why it cannot matter
EQUIVALENT = {
    "contraction_simt.cu within(k, tile.k_end) -> bound + 1": _EXTRA_STEP,
    "contraction_mma.cu within(step, steps) -> bound + 1": _EXTRA_STEP,
    "epilogue.cuh within(s, params.steps) -> bound + 1": _NO_STEP,
}
