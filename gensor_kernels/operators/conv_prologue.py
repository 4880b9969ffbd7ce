"""Convolutions behind a prologue: y = sum of f(x) w, where f(x) is 0 beside the image (prologue.py).

The declaration is that of the convolution; its vectors are operands d and e (groups, channels of a group).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from . import prologue
from .conv import OPERATORS as CONVOLUTIONS
from .conv_product import Convolution
from .declaration import Operand
from .dtypes import decode
from .epilogue import MAX_VECTORS, Step
from .geometry import Geometry, Strides
from .lowered import Product
from .workload import View, Workload, contiguous

if TYPE_CHECKING:
    from .tolerance import Expected


@dataclass(frozen=True)
class PreparedConvolution(Convolution):
    """A convolution behind a prologue with so many vectors, as tuner and dispatch know it."""

    vectors: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """x, w, the vectors, y."""
        return prologue.names_of(self.vectors, "x", "w", "y")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Those of a convolution, and vectors without gaps."""
        x, w, y = self.plain_operands(workload)
        return (x, w, *prologue.vector_operands(self, workload, x.shape[-2:]), y)

    def geometry(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        scale: float = prologue.VERIFIED_SCALE,
    ) -> Geometry:
        """That of the convolution, the number of the scale, and how far a group's channels lie apart."""
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
        from .conv_reference import expected

        listed = prologue.steps_of(workload.prologue, prologue.arrays_of(workload, arrays), scale)
        x, w = (decode(workload.dtype[name], arrays[name]) for name in "xw")
        x, away = tolerance_prologue.prepared(workload, x, listed)
        return expected(self, workload, x, w, steps, structured=structured, away=away)

    def product(self, workload: Workload) -> Product:
        """That of the convolution."""
        return replace(super().product(workload), prologue=prologue.described(workload))

    def bytes_moved(self, workload: Workload) -> int:
        """Those of the convolution and of the vectors."""
        return super().bytes_moved(workload) + prologue.vector_bytes(self, workload)


def _made(plain: Convolution, vectors: int) -> PreparedConvolution:
    name = plain.name + prologue.suffix_of(vectors)
    return PreparedConvolution(name, plain.declare, plain.parameters, plain.smallest, vectors=vectors)


OPERATORS = {
    each.name: each for each in (_made(x, count) for x in CONVOLUTIONS.values() for count in range(MAX_VECTORS + 1))
}


def told(geometry: Geometry, workload: Workload, scale: float) -> Geometry:
    """The geometry of a convolution whose vectors lie without gaps."""
    channels = workload.size["c"] // workload.size["groups"]
    vectors = Strides((0, 0, channels), column=1)
    return replace(geometry, d=vectors, tail=prologue.told(geometry.tail, scale), fourth=prologue.SECOND)


def workload(names: Iterable[str], convolution: Workload, dtype: str | None = None) -> Workload:
    """A convolution's Workload behind a prologue of contiguous vectors of ``dtype`` (by default x's own) at 16-byte
    aligned addresses."""
    listed = tuple(names)
    vector = contiguous((convolution.size["c"],), dtype or convolution.dtype["x"])
    return from_views(listed, convolution, [vector] * prologue.vectors_of(listed))


def from_views(names: Sequence[str], convolution: Workload, vectors: Sequence[View]) -> Workload:
    """The Workload of a convolution behind a prologue with these vectors, (channels,) each; products are formed as they
    are, whatever ways the convolution allows."""
    groups = convolution.size["groups"]
    vectors = [_grouped(view, groups) for view in vectors]
    math = "ieee" if convolution.math == "winograd" else convolution.math
    return prologue.with_prologue(replace(convolution, math=math), names, vectors)


def _grouped(view: View, groups: int) -> View:
    """A vector of channels, by group."""
    each = view.shape[0] // groups
    return View((groups, each), (each, 1), view.dtype, view.alignment)
