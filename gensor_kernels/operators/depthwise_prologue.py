"""Depthwise convolutions behind a prologue: y = sum of f(x) w, where f(x) is 0 beside the image (prologue.py).

The declaration is that of the convolution; its vectors are operands d and e (channels,).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import depthwise, prologue
from .declaration import Operand
from .dtypes import decode
from .epilogue import MAX_VECTORS, Step
from .geometry import Geometry, Strides
from .sliding import Sliding
from .workload import View, Workload, contiguous

if TYPE_CHECKING:
    import numpy as np

    from .tolerance import Expected


@dataclass(frozen=True)
class PreparedDepthwise(Sliding):
    """A depthwise convolution behind a prologue with so many vectors, as tuner and dispatch know it."""

    vectors: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """x, w, the vectors, y."""
        return prologue.names_of(self.vectors, "x", "w", "y")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Those of the convolution, and vectors without gaps."""
        x, w, y = super().operands(workload)
        return (x, w, *prologue.vector_operands(self, workload, x.shape[-1:]), y)

    def geometry(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        scale: float = prologue.VERIFIED_SCALE,
    ) -> Geometry:
        """That of the convolution, and the number of the scale."""
        return told(super().geometry(workload, strides), workload, scale)

    def expect(
        self,
        workload: Workload,
        arrays: Mapping[str, np.ndarray],
        steps: Sequence[Step] = (),
        *,
        structured: bool = False,
        integer_steps: int = 0,
        scale: float = prologue.VERIFIED_SCALE,
    ) -> Expected:
        """The convolution of the prepared image; kernels may have rounded some of its elements otherwise."""
        from . import tolerance_prologue
        from .sliding_reference import expect

        listed = prologue.steps_of(workload.prologue, prologue.arrays_of(workload, arrays), scale)
        x, w = (decode(workload.dtype[name], arrays[name]) for name in "xw")
        x, away = tolerance_prologue.prepared(workload, x, listed)
        return expect(self, workload, {"x": x, "w": w}, steps, structured=structured, away=away)

    def bytes_moved(self, workload: Workload) -> int:
        """Those of the convolution and of the vectors."""
        return super().bytes_moved(workload) + prologue.vector_bytes(self, workload)


def _made(vectors: int) -> PreparedDepthwise:
    plain = depthwise.OPERATOR
    name = plain.name + prologue.suffix_of(vectors)
    return PreparedDepthwise(name, plain.declare, plain.parameters, plain.smallest, kind=plain.kind, vectors=vectors)


OPERATORS = {each.name: each for each in map(_made, range(MAX_VECTORS + 1))}


def told(geometry: Geometry, workload: Workload, scale: float) -> Geometry:
    """The geometry of a convolution whose vectors lie without gaps."""
    tail = prologue.told(geometry.tail, scale)
    return replace(geometry, d=Strides(column=1), tail=tail, fourth=prologue.SECOND)


def workload(names: Iterable[str], convolution: Workload, dtype: str | None = None) -> Workload:
    """A depthwise convolution's Workload behind a prologue of contiguous vectors of ``dtype`` (by default x's own) at
    16-byte aligned addresses."""
    listed = tuple(names)
    vector = contiguous((convolution.size["c"],), dtype or convolution.dtype["x"])
    return from_views(listed, convolution, [vector] * prologue.vectors_of(listed))


def from_views(names: Sequence[str], convolution: Workload, vectors: Sequence[View]) -> Workload:
    """The Workload of a depthwise convolution behind a prologue with these vectors, (channels,) each."""
    return prologue.with_prologue(convolution, names, vectors)
