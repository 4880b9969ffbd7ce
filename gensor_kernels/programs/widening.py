"""Operands that are stored narrower than they are multiplied (cuda/widen.cuh): what lies where, and what it costs.

The tensor-core family widens them on their way into shared memory (copy 0), once per block, or on their way from there
into fragments (copy 1), once per warp that reads them, with less shared memory and its traffic. Which is better
depends on the tile: it is a coordinate of the Program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..machine.arch import Arch
from .extents import Extents, extents

if TYPE_CHECKING:
    from ..operators.workload import Workload

#: Issue slots of widening four bytes into two pairs: SASS instructions, those of the integer pipe and conversions
#: counted twice, because these run at half the rate of others.
WORD_ISSUE = {
    ("float8_e4m3fn", "float16"): 26.0,
    ("float8_e5m2", "float16"): 4.0,
    ("int8", "float16"): 8.0,
    ("float8_e4m3fn", "bfloat16"): 38.0,
    ("float8_e5m2", "bfloat16"): 16.0,
    ("int8", "bfloat16"): 18.0,
}
#: The same where an instruction converts two e4m3 numbers (sm_89).
CONVERTED_ISSUE = {("float8_e4m3fn", "float16"): 5.0, ("float8_e4m3fn", "bfloat16"): 17.0}
#: Instructions of converting one element to the accumulator's type, on the CUDA cores.
ELEMENT_ISSUE = {"float8_e4m3fn": 8, "float8_e5m2": 3, "int8": 2}


def stored(e: Extents, operand: str) -> int:
    """Bytes of an element of operand "a" or "b" in global memory."""
    return e.bytes_a if operand == "a" else e.bytes_b


def other(operand: str) -> str:
    """The operand that "a" or "b" is multiplied by."""
    return "b" if operand == "a" else "a"


def held(e: Extents, operand: str, copy: Any) -> Any:
    """Bytes of an element in shared memory, by how it gets there."""
    own = stored(e, operand)
    return own if own == e.element else np.where(copy == 1, own, e.element)


def by_fragment(workload: Workload) -> bool:
    """Whether copy 1 can serve: nothing is widened, or both operands are K-contiguous."""
    e = extents(workload)
    return not e.is_widened or e.unit["a"] == e.unit["b"] == "k"


def word_issue(workload: Workload, operand: str, arch: Arch) -> float:
    """Issue slots of widening four bytes of an operand; 0 where it is not."""
    e = extents(workload)
    types = e.dtype[operand], e.multiplied
    if stored(e, operand) == e.element:
        return 0.0
    return CONVERTED_ISSUE.get(types, WORD_ISSUE[types]) if arch.capability >= (8, 9) else WORD_ISSUE[types]


def spread(e: Extents, operand: str, copy: Any) -> Any:
    """1 where an operand is read in the order of k of one that is widened from fragments (SPREAD), else 0."""
    wide = e.is_widened and stored(e, operand) == e.element
    return np.where(copy == 1, 1, 0) if wide else 0
