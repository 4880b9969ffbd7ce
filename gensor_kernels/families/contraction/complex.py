"""Complex multiply-adds made of real multiply-adds, and their cost (product_forms.cuh)."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Columns, Coordinate
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.workload import Workload

from .problem import Extents, extents

NAME = "form"
#: Complex numbers as they are; Gauss's formula.
PLAIN, GAUSS = 4, 3
#: The instruction that multiplies, by accumulator.
RATES = {"float32": "fma_f32", "float64": "fma_f64", "int32": "imad", "complex64": "fma_f32", "complex128": "fma_f64"}


def forms(workload: Workload) -> tuple[int, ...]:
    """Real products a multiply-add may be made of: 1 for real types, 4 for complex ones, 3 where that is allowed."""
    if not extents(workload).is_complex:
        return (1,)
    return (GAUSS, PLAIN) if workload.math == "3m" else (PLAIN,)


def form(workload: Workload) -> Coordinate:
    """Return the choice among them."""
    return Coordinate(NAME, forms(workload), 1, "instruction", "real products of a multiply-add: 1, 3 or 4")


def products(program: Program) -> int:
    """Real products of a Program's multiply-add."""
    return program.get(NAME, 1)


def constants(program: Program, e: Extents) -> dict[str, int | str]:
    """Return the macro bindings of a Program's form, and of conjugated operands."""
    if NAME not in program.by_name:
        return {}
    return {"FORM": program[NAME], **{f"{x.upper()}_CONJUGATE": int(e.conjugated[x]) for x in "ab"}}


def sum_words(columns: Columns, words: int) -> Numbers:
    """Return the words a tensor core sums an output in, of an accumulator of ``words``."""
    form = columns.get(NAME, np.ones_like(columns["block_m"]))
    return np.where(form == GAUSS, words // 2 * 3, words)


def planes(form: Numbers) -> Numbers:
    """Planes of a shared tile (product_forms.cuh)."""
    return np.where(form == GAUSS, 3, 1)


def word_bytes(form: Numbers, accumulator: int) -> Numbers:
    """Return the bytes of a word of a shared tile: an accumulator, or one part of it."""
    return np.where(form == GAUSS, accumulator // 2, accumulator)


def sum_bytes(form: Numbers, accumulator: int) -> Numbers:
    """Return the bytes a thread sums an output in: an accumulator, or three parts."""
    return planes(form) * word_bytes(form, accumulator)
