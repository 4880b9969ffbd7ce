"""How contraction_simt makes a multiply-add of real ones, and what that takes (cuda/simt_forms.cuh)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .extents import extents

if TYPE_CHECKING:
    from ..operators.workload import Workload

#: The instruction that multiplies, by accumulator.
RATES = {
    "float32": "fma_f32",
    "float64": "fma_f64",
    "int32": "imad",
    "complex64": "fma_f32",
    "complex128": "fma_f64",
}


def forms(workload: Workload) -> tuple[int, ...]:
    """Real products a multiply-add may be made of: 1 for real types, 4 for complex ones, 3 where that is allowed."""
    if not extents(workload).is_complex:
        return (1,)
    return (3, 4) if workload.math == "3m" else (4,)


def planes(form: Any) -> Any:
    """Planes of a shared tile (simt_forms.cuh)."""
    return np.where(form == 3, 3, 1)


def word_bytes(form: Any, accumulator: int) -> Any:
    """Bytes of a word of a shared tile: an accumulator, or one part of it."""
    return np.where(form == 3, accumulator // 2, accumulator)


def sum_bytes(form: Any, accumulator: int) -> Any:
    """Bytes a thread sums an output in: an accumulator, or three parts."""
    return planes(form) * word_bytes(form, accumulator)
