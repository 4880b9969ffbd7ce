"""References of contractions by NumPy in float64, and drawn contractions."""

import math

import ml_dtypes
import numpy as np

from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, encode
from tests.public_cases.drawing import FORMS, Draw

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


def written_call(seed):
    """(subscripts, operands) with ellipses, axes of one element and mistakes."""
    draw = Draw(seed)
    sizes = {letter: draw.pick([1, 2, 3, 4]) for letter in "abcXY"}

    def operand():
        part = [draw.pick("abcXY") for _ in range(draw.pick(range(5)))]
        shape = [sizes[letter] if draw.often(0.9) else 1 for letter in part]
        if draw.often(1 / 3):
            where = draw.pick(range(len(part) + 1))
            shape[where:where] = [draw.pick([1, extent]) for extent in (2, 3)[draw.pick(range(3)) :]]
            part.insert(where, "...")
        form = draw.pick([form for form in FORMS if form != "broadcast"])
        return "".join(part), draw.lay_out(np.asarray(draw.rng.standard_normal(shape)), form)

    parts, arrays = zip(*(operand() for _ in range(draw.pick([1, 2, 2, 2, 3, 3, 4]))), strict=True)
    text = ",".join(parts)
    if draw.often(3 / 4):
        letters = list(draw.rng.permutation(sorted({*text} - {*".,"})))[: draw.pick(range(6))]
        if "..." in text and draw.often(0.9):
            letters.insert(draw.pick(range(len(letters) + 1)), "...")
        text += "->" + "".join(letters)
    return text, arrays
