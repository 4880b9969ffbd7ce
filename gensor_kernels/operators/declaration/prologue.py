"""Prologues: element-wise operations on the first operand of a product, applied as kernels read it.

C = f(A) B, where f is a list of the operations in epilogue.PROLOGUES.  f(a) is computed in the accumulator's type
(float32 or float64), rounded once to a's own dtype, then multiplied: the result is that of element-wise array
operations before the product.  bias and mul have a vector along k (the channels of a convolution): operands d and
e, in the order of the operations.  The number of a scale is a run-time argument and part of no Workload.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.dtypes import decode, encode, facts
from gensor_kernels.operators.types.epilogue import MAX_SCALES, MAX_STEPS, MAX_VECTORS, OPERATIONS, Step
from gensor_kernels.operators.types.geometry import TAIL_BYTES, Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class

from .lowered import Product, Prologue
from .operator import Arrays, Bounded, Conditions, Operand, Operator

VECTORS = ("d", "e")
#: The number that kernels with a scale are verified with.
VERIFIED_SCALE = 0.75
#: Number of the scale, and the address of e, which params.pack writes: the end of the tail, after a Window.
_TOLD = struct.Struct("<d Q")
SECOND, _PLACE = TAIL_BYTES - 8, TAIL_BYTES - _TOLD.size


def vectors_of(names: Iterable[str]) -> int:
    """Return the number of vectors that a prologue reads."""
    return sum(OPERATIONS[name].takes_operand for name in names)


def suffix(names: Sequence[str]) -> str:
    """Return the suffix of a product's name for this prologue; UnsupportedError if it is too long for kernels."""
    vectors, scales = vectors_of(names), list(names).count("scale")
    if not 0 < len(names) <= MAX_STEPS or vectors > MAX_VECTORS or scales > MAX_SCALES:
        raise UnsupportedError(
            f"a prologue of {len(names)} operations with {vectors} vectors and {scales} scales: kernels take "
            f"{MAX_STEPS}, {MAX_VECTORS} and {MAX_SCALES}"
        )
    return suffix_of(vectors)


def suffix_of(vectors: int) -> str:
    """Return the suffix of a product's name for this number of vectors."""
    return "_prologue" + (str(vectors) if vectors else "")


def prologue_of(workload: Workload) -> Prologue:
    """Return the families' view of a Workload's prologue."""
    names = VECTORS[: vectors_of(workload.prologue)]
    return Prologue(workload.prologue, tuple((workload.dtype[x], workload.align[x]) for x in names))


def params_tail(tail: bytes, scale: float = VERIFIED_SCALE) -> bytes:
    """Return the bytes of an operator's tail with the number of the scale, in place of a window's unused end."""
    return tail.ljust(_PLACE, b"\0")[:_PLACE] + _TOLD.pack(scale, 0)


def prologue_geometry(geometry: Geometry, scale: float, group: int = 0) -> Geometry:
    """Return the geometry of a product with the number of the scale and vectors without gaps.

    ``group`` is the number of a vector's elements per batch entry, 0 where all entries share them.
    """
    return replace(
        geometry, d=Strides((0, 0, group), column=1), tail=params_tail(geometry.tail, scale), others=(SECOND,)
    )


def steps_of(names: Sequence[str], vectors: Sequence[np.ndarray], scale: float = VERIFIED_SCALE) -> list[Step]:
    """Return the operations with their operands, each broadcastable to the first operand of the product."""
    left = iter(vectors)
    return [Step(name, next(left) if OPERATIONS[name].takes_operand else None, scale) for name in names]


def arrays_of(workload: Workload, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the vectors as float64."""
    return [decode(workload.dtype[x], arrays[x]) for x in VECTORS if x in arrays]


def with_prologue(base: Workload, names: Sequence[str], vectors: Sequence[View]) -> Workload:
    """Return the Workload of a product (matmul, conv2d) after a prologue with vectors (k,) or (groups, channels).

    UnsupportedError for types without such functions.
    """
    own, other = (base.dtype[name] for name in sides(base))
    if not base.is_real or any(base.conjugated.values()):
        raise UnsupportedError(f"a prologue of {own}: its operations are those of real numbers")
    if own != other or facts(own).itemsize < 2:
        raise UnsupportedError(f"a prologue of {own} with {other}: kernels take one dtype")
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
    """Return the names of a product's operands: a and b, or a convolution's x and w."""
    return ("x", "w") if "x" in workload.dtype else ("a", "b")


def vector_types(own: str) -> tuple[str, ...]:
    """Return the types of vectors that kernels read with a first operand of type ``own``, the widest last."""
    return tuple(dict.fromkeys((own, "float64" if own == "float64" else "float32")))


@dataclass(frozen=True)
class Prepared(Operator):
    """Mixin before a product's class: the product after a prologue with ``vectors`` vectors.

    The declaration is that of the product.  A vector runs along the last ``columns`` axes of the first operand.
    """

    vectors: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Operands: both factors, the vectors, the output."""
        first, second, output = super().names
        return (first, second, *VECTORS[: self.vectors], output)

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the product's operands and, before the output, the vectors, which have no gaps."""
        first, second, output = super().operands(workload)
        names = VECTORS[: vectors_of(workload.prologue)]
        if workload.operator != self.name or set(workload.dtype) != set(self.names) or not workload.prologue:
            raise ValueError(f"{workload.operator} with the prologue {', '.join(workload.prologue)}")
        if any(workload.layouts[name] != "k" for name in names):
            raise ValueError("'layout' of a prologue's vector is k")
        shape = first.shape[-self.columns :]
        vectors = (Operand(name, shape, tuple(range(len(shape))), len(shape)) for name in names)
        return (first, second, *vectors, output)

    def product(self, workload: Workload) -> Product | None:
        """Return the product with its prologue, if it is one."""
        product = super().product(workload)
        return product and replace(product, prologue=prologue_of(workload))

    def prologue_geometry(self, geometry: Geometry, workload: Workload, scale: float) -> Geometry:
        """Return the product's geometry with the place of the vectors and the number of the scale."""
        return prologue_geometry(geometry, scale)

    def geometry(
        self, workload: Workload, strides: Mapping[str, tuple[int, ...]], scale: float = VERIFIED_SCALE
    ) -> Geometry:
        """Return the product's geometry with the place of the vectors and the number of the scale."""
        return self.prologue_geometry(super().geometry(workload, strides), workload, scale)

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product with the prepared first operand in float64; see Operator.

        Kernels may round some of the prepared elements to a neighbour.
        """
        from gensor_kernels.operators.tolerance.fused import apply_prologue

        first, dtype = self.names[0], workload.dtype[self.names[0]]
        listed = steps_of(workload.prologue, arrays_of(workload, arrays), VERIFIED_SCALE)
        values, away = apply_prologue(decode(dtype, arrays[first]), listed, dtype, workload.accumulator)
        return super().result_and_bound(
            workload, {**arrays, first: encode(dtype, values)}, conditions._replace(away=away)
        )

    def bytes_moved(self, workload: Workload) -> int:
        """Return the traffic of the product and of the vectors, in bytes."""
        found = (each for each in self.operands(workload) if each.name in VECTORS)
        vectors = sum(math.prod(each.shape) * facts(workload.dtype[each.name]).itemsize for each in found)
        return super().bytes_moved(workload) + vectors


def prepared(kind: type[Prepared], *plain: Operator) -> dict[str, Prepared]:
    """Return operators of a kind by name: each of ``plain`` after a prologue, one for each number of vectors."""
    found = {}
    for one in plain:
        own = {each.name: getattr(one, each.name) for each in fields(one)}
        for vectors in range(MAX_VECTORS + 1):
            name = one.name + suffix_of(vectors)
            found[name] = kind(**own | {"name": name, "vectors": vectors})
    return found
