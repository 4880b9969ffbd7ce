"""What convolutions behind a prologue share: vectors along channels, an image that is prepared before it is summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.declaration.operator import Operator
from gensor_kernels.operators.types.dtypes import decode
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

if TYPE_CHECKING:
    import numpy as np

    from gensor_kernels.operators.tolerance.base import Expected


@dataclass(frozen=True)
class PreparedImage(Operator):
    """In front of an operator of x, w and y: the same behind a prologue with so many vectors."""

    vectors: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """x, w, the vectors, y."""
        return prologue.names_of(self.vectors, "x", "w", "y")

    def told(self, geometry: Geometry, workload: Workload, scale: float) -> Geometry:
        """The geometry of the convolution with its vectors, which lie without gaps, and the number of the scale."""
        raise NotImplementedError

    def summed(
        self,
        workload: Workload,
        x: np.ndarray,
        w: np.ndarray,
        steps: Sequence[Step],
        structured: bool,
        away: np.ndarray | None,
    ) -> Expected:
        """The convolution of a prepared image, of which elements may be ``away`` by so much."""
        raise NotImplementedError

    def geometry(
        self,
        workload: Workload,
        strides: Mapping[str, tuple[int, ...]],
        scale: float = prologue.VERIFIED_SCALE,
    ) -> Geometry:
        """That of the convolution, and what `told` adds."""
        return self.told(super().geometry(workload, strides), workload, scale)

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
        from gensor_kernels.operators.tolerance import prologue as tolerance_prologue

        listed = prologue.steps_of(workload.prologue, prologue.arrays_of(workload, arrays), scale)
        x, w = (decode(workload.dtype[name], arrays[name]) for name in "xw")
        x, away = tolerance_prologue.prepared(x, listed, workload.dtype["x"], workload.accumulator)
        return self.summed(workload, x, w, steps, structured, away)

    def bytes_moved(self, workload: Workload) -> int:
        """Those of the convolution and of the vectors."""
        return super().bytes_moved(workload) + prologue.vector_bytes(self, workload)
