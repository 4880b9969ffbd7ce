"""Depthwise convolutions behind a prologue: y = sum of f(x) w, where f(x) is 0 beside the image
(declaration/prologue.py).

The declaration is that of the convolution; its vectors are operands d and e (channels,).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.declaration.operator import Operand
from gensor_kernels.operators.types.epilogue import MAX_VECTORS, Step
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from . import depthwise
from .prepared_image import PreparedImage
from .sliding import Sliding

if TYPE_CHECKING:
    import numpy as np

    from gensor_kernels.operators.tolerance.base import Expected


@dataclass(frozen=True)
class PreparedDepthwise(PreparedImage, Sliding):
    """A depthwise convolution behind a prologue with so many vectors, as tuner and dispatch know it."""

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Those of the convolution, and vectors without gaps."""
        x, w, y = super().operands(workload)
        return (x, w, *prologue.vector_operands(self, workload, x.shape[-1:]), y)

    def told(self, geometry: Geometry, workload: Workload, scale: float) -> Geometry:
        """See PreparedImage."""
        return told(geometry, workload, scale)

    def summed(
        self,
        workload: Workload,
        x: np.ndarray,
        w: np.ndarray,
        steps: Sequence[Step],
        structured: bool,
        away: np.ndarray | None,
    ) -> Expected:
        """See PreparedImage."""
        from .sliding_reference import expect

        return expect(self, workload, {"x": x, "w": w}, steps, structured=structured, away=away)


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
