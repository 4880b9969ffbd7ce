"""What a public function other than a matrix product says of itself, and what one call of it is.

A Function says what a call of it means (`understand`), and how the array library computes the same (`library`).
Everything else is in calls.py and call_plans.py: the dictionary of Plans, tiers, copies, launches, and the library
where no kernel serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.calls.fallback import apply_steps
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload


@dataclass(frozen=True)
class Result:
    """A call's result: its shape and dtype, and the axes from the outermost to the innermost of a new one."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: tuple[int, ...] | None = None

    def new(self, device: Any) -> Any:
        """A new array, not initialised."""
        if self.order is None:
            return device.empty(self.shape, self.dtype)
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return device.empty(tuple(self.shape[axis] for axis in self.order), self.dtype).transpose(inverse)

    def view(self) -> View:
        """What such an array is to a kernel."""
        strides, step = [0] * len(self.shape), 1
        for axis in reversed(self.order or range(len(self.shape))):
            strides[axis] = step
            step *= self.shape[axis]
        return View(self.shape, tuple(strides), self.dtype.name)


@dataclass(frozen=True)
class Asked:
    """One call, as far as its arrays are concerned: Views of inputs, of the output (a new one's where there is none)
    and of the epilogue's operands, broadcast to it."""

    inputs: tuple[View | None, ...]
    out: View
    parameters: Any
    steps: tuple[Operation, ...]
    operands: tuple[View | None, ...]
    result: Result
    math: str


@dataclass(frozen=True)
class Understood:
    """What kernels compute: a Workload, the strides of its operands, and what the strides of the result's axes (of an
    epilogue operand broadcast to it, too) are along the axes the operator declares; or where such operands lie."""

    workload: Workload
    geometry: Geometry
    declared: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda strides: strides
    operands: tuple[Strides | None, ...] | None = None


@dataclass(frozen=True)
class Copy:
    """An input no kernel takes as it lies: brought to a dtype and to these axes, the outermost first, in memory."""

    dtype: str
    order: tuple[int, ...]


@dataclass(frozen=True)
class Spread:
    """A copy of an epilogue's operand: axes of the result, the outermost first in memory, and which of them it has."""

    order: tuple[int, ...]
    own: tuple[bool, ...]

    def result(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Result:
        """The copy for a result of this shape."""
        extents = tuple(extent if own else 1 for extent, own in zip(shape, self.own, strict=True))
        return Result(extents, dtype, self.order)

    def view(self, view: View) -> View:
        """The copy of an operand that was broadcast to the result."""
        copy = self.result(view.shape, np.dtype(view.dtype)).view()
        strides = tuple(stride if own else 0 for stride, own in zip(copy.strides, self.own, strict=True))
        return View(view.shape, strides, view.dtype, copy.alignment)


class Staged(Exception):
    """Raised by `understand`: which inputs have to be copied before the call is made again."""

    def __init__(self, *copies: Copy | None):
        super().__init__("operands are copied")
        self.copies = copies


@dataclass(frozen=True)
class Called:
    """What a Function is called with, and how the axes of its result become those that the operator declares."""

    inputs: tuple[Any, ...]
    parameters: Any
    declared: Callable[[Any], Any] = lambda value: value


class Function:
    """One public function."""

    name: str
    #: whether the array library has it as one call of its own
    one_call = False
    #: whether the library's calls serve where a kernel is predicted to take longer (unfused.py)
    stands_in = True

    def result(self, inputs: Sequence[Any], parameters: Any) -> Result:
        """Shape, dtype and memory order of the result; ValueError and TypeError for arguments that do not fit."""
        raise NotImplementedError

    def op(self, parameters: Any) -> str:
        """The operator a call is of, as shapes files name it, whatever its arrays."""
        named = getattr(parameters, "operator", None)
        return named if isinstance(named, str) else self.name

    def understand(self, asked: Asked) -> Understood:
        """Raises Staged, or UnsupportedError for what no kernel takes."""
        raise NotImplementedError

    def finished(
        self, device: Any, value: Any, steps: tuple[Operation, ...], parameters: Any, dtype: np.dtype[Any]
    ) -> Any:
        """What `library` gave, behind the epilogue, in the result's dtype."""
        return apply_steps(device, value, steps, dtype, value.dtype)

    def nothing(self, inputs: Sequence[Any], parameters: Any) -> float | None:
        """What every element of the result is where there is nothing to compute it from; else None. A Function whose
        calls have an epilogue sums, and gives 0."""
        return None

    def called(self, workload: Workload, arrays: Mapping[str, Any]) -> Called:
        """The inverse of `understand`: the call that computes a Workload of arrays in their declared axes."""
        raise NotImplementedError

    def library(self, device: Any, inputs: Sequence[Any], parameters: Any, math: str | None) -> Any:
        """The result without an epilogue, in the dtype an epilogue is applied in."""
        raise NotImplementedError
