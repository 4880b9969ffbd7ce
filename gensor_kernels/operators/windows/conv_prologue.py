"""Convolutions after a prologue: y = sum of f(x) w, where f(x) is 0 in the padding (declaration/prologue.py).

The declaration is that of the convolution; vectors are operands d and e (groups, channels of a group), of a depthwise
convolution (channels,).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from .conv import OPERATORS as CONVOLUTIONS
from .conv_product import Convolution


@dataclass(frozen=True)
class PreparedConvolution(prologue.Prepared, Convolution):  # type: ignore[misc]  # its product may be None, but is not
    """A convolution after a prologue."""

    def prologue_geometry(self, geometry: Geometry, workload: Workload, scale: float) -> Geometry:
        """Return the geometry with vectors of each group's channels; see Prepared."""
        return prologue_geometry(geometry, workload, scale)


OPERATORS = prologue.prepared(PreparedConvolution, *CONVOLUTIONS.values())


def prologue_geometry(geometry: Geometry, workload: Workload, scale: float) -> Geometry:
    """Return the geometry of a convolution with vectors of each group's channels; see prologue.prologue_geometry."""
    groups = workload.size.get("groups")
    return prologue.prologue_geometry(geometry, scale, workload.size["c"] // groups if groups else 0)


def workload(names: Iterable[str], convolution: Workload, dtype: str | None = None) -> Workload:
    """Return a convolution's Workload after a prologue of contiguous, 16-byte aligned vectors.

    ``dtype`` is the vectors' type, by default x's own.
    """
    listed = tuple(names)
    vector = contiguous((convolution.size["c"],), dtype or convolution.dtype["x"])
    return from_views(listed, convolution, [vector] * prologue.vectors_of(listed))


def from_views(names: Sequence[str], convolution: Workload, vectors: Sequence[View]) -> Workload:
    """Return the Workload of a convolution after a prologue with these vectors, (channels,) each."""
    groups = convolution.size.get("groups")
    if groups:
        vectors = [_by_group(view, groups) for view in vectors]
    return prologue.with_prologue(convolution, names, vectors)


def _by_group(view: View, groups: int) -> View:
    """Return a vector of channels, by group."""
    each = view.shape[0] // groups
    return View((groups, each), (each, 1), view.dtype, view.alignment)
