"""Depthwise convolutions after a prologue: y = sum of f(x) w, where f(x) is 0 in the padding
(declaration/prologue.py).

The declaration is that of the convolution; vectors are operands d and e (channels,).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.types.epilogue import MAX_VECTORS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from . import depthwise
from .sliding import Sliding


@dataclass(frozen=True)
class PreparedDepthwise(prologue.Prepared, Sliding):
    """A depthwise convolution after a prologue."""


def _make_operator(vectors: int) -> PreparedDepthwise:
    plain = depthwise.OPERATOR
    name = plain.name + prologue.suffix_of(vectors)
    return PreparedDepthwise(name, plain.declare, plain.parameters, plain.smallest, kind=plain.kind, vectors=vectors)


OPERATORS = {each.name: each for each in map(_make_operator, range(MAX_VECTORS + 1))}


def prologue_geometry(geometry: Geometry, workload: Workload, scale: float) -> Geometry:
    """Return the geometry of a convolution with vectors of its channels; see prologue.prologue_geometry."""
    return prologue.prologue_geometry(geometry, scale)


def workload(names: Iterable[str], convolution: Workload, dtype: str | None = None) -> Workload:
    """Return a depthwise convolution's Workload after a prologue of contiguous, 16-byte aligned vectors.

    ``dtype`` is the vectors' type, by default x's own.
    """
    listed = tuple(names)
    vector = contiguous((convolution.size["c"],), dtype or convolution.dtype["x"])
    return from_views(listed, convolution, [vector] * prologue.vectors_of(listed))


def from_views(names: Sequence[str], convolution: Workload, vectors: Sequence[View]) -> Workload:
    """Return the Workload of a depthwise convolution after a prologue with these vectors, (channels,) each."""
    return prologue.with_prologue(convolution, names, vectors)
