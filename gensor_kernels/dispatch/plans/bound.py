"""Calls whose launches are kept, so that they are made again on the same memory without dispatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.devices.device import Device, OneLaunch, reach
from gensor_kernels.dispatch.calls.arguments import Operands

from .plan import Launched, Plan
from .trial import Trial

Repeat = Callable[[], None]


class Binder:
    """Serves the calls of one piece of work after another, and keeps their launches.

    A piece is made of launches alone where each of its calls is one launch that reads what the piece was given or what
    a launch before it wrote; its results must also be among these. The caller does not change results in place.

    Attributes
    ----------
    settled : bool
        Whether every call so far was served as it will be from now on: none was still to race.
    switched : bool
        Whether a call depends on the array library's TF32 switch.
    trials : list of Trial
        Kinds of calls that a certain number of calls makes worth tuning.
    """

    def __init__(self, device: Device):
        self.device, self.settled, self.switched = device, True, False
        self.trials: list[Trial] = []
        self.begin(())

    def begin(self, given: Sequence[DeviceArray], out: DeviceArray = None) -> None:
        """Begin a piece of work on these arrays; where there is `out`, calls may also write that."""
        self.launches: list[Launched] = []
        self._out = [] if out is None else [self._extent(out)]
        self._given = [self._extent(array) for array in given]
        self._written: list[tuple[int, int]] = []
        self._only = True

    def note(self, array: DeviceArray) -> None:
        """Count an array among those that the piece was given."""
        self._given.append(self._extent(array))

    def knows(self, array: DeviceArray) -> bool:
        """Return whether an array is in memory of the piece: given to it, or written by its launches."""
        return self.is_given(array) or self._is_within(array, self._written)

    def is_given(self, array: DeviceArray) -> bool:
        """Return whether an array is in memory that the piece was given."""
        return self._is_within(array, self._given)

    def _is_within(self, array: DeviceArray, extents: list[tuple[int, int]]) -> bool:
        first, end = self._extent(array)
        return first == end or any(low <= first and end <= high for low, high in extents)

    def is_launches(self, results: Sequence[DeviceArray]) -> bool:
        """Return whether the launches of the piece alone compute its results."""
        return self._only and all(self.knows(array) for array in results)

    def writes(self, array: DeviceArray) -> bool:
        """Return whether one of the launches writes an array, from its first element to its last."""
        return self._extent(array) in self._written

    def serve(self, plan: Plan, operands: Operands) -> DeviceArray:
        """Serve a call of the piece."""
        inner = plan
        while isinstance(inner, Trial):
            self.settled &= inner.raced
            self.trials.append(inner)
            inner = inner.plan
        self.switched |= inner.switched
        own = all(self.knows(array) for array in operands._replace(out=None).arrays())
        before = len(self.launches)
        result, launched = plan.bound(operands)
        if launched is None or not own or not (operands.out is None or self._is_within(operands.out, self._out)):
            self._only = False
            del self.launches[before:]
        else:
            self.launches.append(launched)
            self._written.append(self._extent(result))
        return result

    def _extent(self, array: DeviceArray) -> tuple[int, int]:
        before, size = reach(tuple(array.shape), tuple(array.strides), array.dtype.itemsize)
        first = self.device.pointer(array) - before
        return first, first + size


#: The Binder of this thread or task.
binding: ContextVar[Binder | None] = ContextVar("gensor_kernels_binding", default=None)


def repeat(device: Device, launched: Launched, fixed: Callable[[Any], Any]) -> list[Repeat]:
    """Return the functions that make a launch again; `fixed(array)` is the array on memory that stays."""
    launch, arguments, made = launched.launch, launched.arguments, []
    workspace = None
    if launched.workspace is not None:
        address, nbytes, zeroed = launched.workspace
        workspace = device.borrow(address, (nbytes,), (1,), np.uint8, None, device.number)
        made += [partial(device.clear, workspace)] if zeroed else []
    if isinstance(launch, OneLaunch):
        once = partial(launch.function, launch.grid, launch.block, arguments[1], launch.shared_bytes)
        once.arguments = arguments  # type: ignore[attr-defined]  # the handle does not keep them
        return [*made, once]
    arrays = tuple(fixed(array) for array in launched.arrays)
    steps = tuple(
        step if step.operand is None else step._replace(operand=fixed(step.operand)) for step in launched.steps
    )
    return [*made, partial(launch, arguments, arrays, steps, workspace)]
