"""Prologues: element-wise operations on the first operand of a product, applied as kernels read it.

C = (f(A)) B with f a list of the operations in epilogue.PROLOGUES: f(a) is computed in the accumulator's type
(float32, or float64) and rounded once to a's own dtype, then multiplied.  That is what a call of the array library in
front of the product would give it.  bias and mul have a vector along k (the channels of a convolution): operands d and
e, in the order of the operations; the number of a scale is told to kernels at run time, no Workload names it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.dtypes import decode, facts
from gensor_kernels.operators.types.epilogue import MAX_SCALES, MAX_STEPS, MAX_VECTORS, OPERATIONS, Step
from gensor_kernels.operators.types.geometry import TAIL_BYTES
from gensor_kernels.operators.types.workload import View, Workload, alignment_class

from .lowered import Prologue
from .operator import Operand

if TYPE_CHECKING:
    import numpy as np

    from .operator import Operator

VECTORS = ("d", "e")
#: The number that kernels with a scale are verified with.
VERIFIED_SCALE = 0.75
#: Number of the scale, and where params.pack puts e: the end of the tail, behind what a window is told.
_TOLD = struct.Struct("<d Q")
SECOND, _PLACE = TAIL_BYTES - 8, TAIL_BYTES - _TOLD.size


def vectors_of(names: Iterable[str]) -> int:
    """How many vectors a prologue reads."""
    return sum(OPERATIONS[name].takes_operand for name in names)


def suffix(names: Sequence[str]) -> str:
    """What is appended to a product's name for an operator with this prologue; UnsupportedError for too long a one."""
    vectors, scales = vectors_of(names), list(names).count("scale")
    if not 0 < len(names) <= MAX_STEPS or vectors > MAX_VECTORS or scales > MAX_SCALES:
        raise UnsupportedError(
            f"a prologue of {len(names)} operations with {vectors} vectors and {scales} scales: kernels take "
            f"{MAX_STEPS}, {MAX_VECTORS} and {MAX_SCALES}"
        )
    return suffix_of(vectors)


def suffix_of(vectors: int) -> str:
    """The same from the number of vectors."""
    return "_prologue" + (str(vectors) if vectors else "")


def names_of(vectors: int, a: str, b: str, c: str) -> tuple[str, ...]:
    """Operands of a product with so many vectors."""
    return (a, b, *VECTORS[:vectors], c)


def described(workload: Workload) -> Prologue:
    """What the families are told."""
    names = VECTORS[: vectors_of(workload.prologue)]
    return Prologue(workload.prologue, tuple((workload.dtype[x], workload.align[x]) for x in names))


def told(tail: bytes, scale: float = VERIFIED_SCALE) -> bytes:
    """The bytes of an operator's tail with the number of its scale, in place of a window's unused end."""
    return tail.ljust(_PLACE, b"\0")[:_PLACE] + _TOLD.pack(scale, 0)


def steps_of(names: Sequence[str], vectors: Sequence[np.ndarray], scale: float = VERIFIED_SCALE) -> list[Step]:
    """The operations with their operands, each broadcastable to the first operand of the product."""
    left = iter(vectors)
    return [Step(name, next(left) if OPERATIONS[name].takes_operand else None, scale) for name in names]


def arrays_of(workload: Workload, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The vectors, float64."""
    return [decode(workload.dtype[x], arrays[x]) for x in VECTORS if x in arrays]


def with_prologue(base: Workload, names: Sequence[str], vectors: Sequence[View]) -> Workload:
    """The Workload of a product (matmul, conv2d) behind a prologue with these vectors, (k,) or (groups, channels) each.

    UnsupportedError for types that have no such functions.
    """
    own, other = (base.dtype[name] for name in sides(base))
    kind = facts(base.accumulator)
    if kind.is_integer or kind.is_complex or any(base.conjugated.values()):
        raise UnsupportedError(f"a prologue of {own}: its operations are those of real numbers")
    if own != other or facts(own).itemsize < 2:
        raise UnsupportedError(f"a prologue of {own} beside {other}: kernels take one dtype")
    types, layouts, align = dict(base.dtypes), dict(base.layout), dict(base.alignment)
    for name, view in zip(VECTORS, vectors, strict=False):
        if view.dtype not in vector_types(own) or (view.shape[-1] > 1 and view.strides[-1] != 1):
            raise UnsupportedError(f"a vector of {view.dtype} along {own}, or with gaps")
        types[name], layouts[name], align[name] = view.dtype, "k", alignment_class(view, -1)
    return replace(
        base,
        operator=base.operator + suffix(names),
        dtypes=tuple(types.items()),
        layout=tuple(layouts.items()),
        alignment=tuple(align.items()),
        prologue=tuple(names),
    )


def sides(workload: Workload) -> tuple[str, str]:
    """The operands of a product by name: a and b, or a convolution's x and w."""
    return ("x", "w") if "x" in workload.dtype else ("a", "b")


def vector_types(own: str) -> tuple[str, ...]:
    """Types of vectors that kernels read beside a first operand of type ``own``; the last holds all the others."""
    return tuple(dict.fromkeys((own, "float64" if own == "float64" else "float32")))


def vector_operands(operator: Operator, workload: Workload, shape: tuple[int, ...]) -> tuple[Operand, ...]:
    """The vectors as operands; ValueError where they are not those of the Workload's prologue."""
    names = VECTORS[: vectors_of(workload.prologue)]
    if workload.operator != operator.name or set(workload.dtype) != set(operator.names) or not workload.prologue:
        raise ValueError(f"{workload.operator} with the prologue {', '.join(workload.prologue)}")
    if any(workload.layouts[name] != "k" for name in names):
        raise ValueError("'layout' of a prologue's vector is k")
    return tuple(Operand(name, shape, tuple(range(len(shape))), len(shape)) for name in names)


def vector_bytes(operator: Operator, workload: Workload) -> int:
    """Bytes of the vectors."""
    found = (each for each in operator.operands(workload) if each.name in VECTORS)
    return sum(math.prod(each.shape) * facts(workload.dtype[each.name]).itemsize for each in found)
