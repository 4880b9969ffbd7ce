"""References of contractions by NumPy in float64, and calls of einsum drawn by hypothesis."""

import math

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, encode

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def expected(text, operands, result, product=None):
    """The result of a contraction, with the project's bound for sums of that many terms."""
    exact = [each.astype(np.float64) for each in operands]
    if product is None:
        product = np.einsum(text, *exact)
    summed = math.prod(math.prod(each.shape) for each in operands) // max(product.size, 1)
    with np.errstate(all="ignore"):
        total = np.einsum(text, *map(np.abs, exact))
        norm = np.sqrt(np.einsum(text, *(each * each for each in exact)))
    dtype = operands[0].dtype.name
    bound = tolerance_base.accumulation_bound(
        product, tolerance_base.Magnitude(total, norm), max(summed, 1), dtype=dtype, accumulator=ACCUMULATORS[dtype]
    )
    return tolerance_base.expect(product, bound, accumulator=ACCUMULATORS[dtype], output=result)


def agrees(found, text, operands, result=None):
    """The verdict of the project's tolerance on a result."""
    found = np.asarray(found)
    stored = encode("bfloat16", found.astype(np.float64)) if found.dtype == BFLOAT16 else found
    return tolerance_base.check(stored, expected(text, operands, result or found.dtype.name))


def pick(rng, choices):
    """One of `choices`, uniformly."""
    return choices[int(rng.integers(len(choices)))]


@st.composite
def written_calls(draw):
    """(subscripts, operands) with ellipses, axes of one element and mistakes."""
    rng = np.random.default_rng([draw(st.integers(0, 2**64 - 1)), 9])
    sizes = {letter: int(rng.integers(1, 5)) for letter in "abcXY"}

    def operand():
        part = [pick(rng, "abcXY") for _ in range(rng.integers(0, 5))]
        shape = [sizes[letter] if rng.integers(10) else 1 for letter in part]
        if rng.integers(3) == 0:
            where = int(rng.integers(len(part) + 1))
            shape[where:where] = [pick(rng, [1, extent]) for extent in (2, 3)[int(rng.integers(3)) :]]
            part.insert(where, "...")
        return "".join(part), np.asarray(rng.standard_normal(shape))

    parts, arrays = zip(*(operand() for _ in range(pick(rng, [1, 2, 2, 2, 3, 3, 4]))), strict=True)
    text = ",".join(parts)
    if rng.integers(4):
        letters = list(rng.permutation(sorted({*text} - {*".,"})))[: int(rng.integers(6))]
        if "..." in text and rng.integers(10):
            letters.insert(int(rng.integers(len(letters) + 1)), "...")
        text += "->" + "".join(letters)
    return text, arrays
