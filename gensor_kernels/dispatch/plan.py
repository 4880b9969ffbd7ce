"""Plans: what a call does once everything about it but its addresses and scalars is known.

The warm path of a call is a dictionary lookup and `LaunchPlan.run`, which copies 592 bytes, writes addresses
and scalars into them, and launches.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import UnsupportedError
from ..programs.params import HEAD_BYTES, STEP_BYTES, STEP_DTYPES, WORKSPACE_OFFSET, write_operands, write_pointer
from .arguments import Call, Operation
from .fallback import evaluate

if TYPE_CHECKING:
    from .runtime import Runtime

SCALAR_OFFSET = 48  # of EpilogueStep.scalar in its step
_write_scalar = struct.Struct("<d").pack_into
Steps = tuple[Operation, ...]


class Plan(Protocol):
    """Runs one call; `pa`, `pb` and `pc` are the addresses of a, b and out (0 without one)."""

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """The result: `out` where there is one."""


class EmptyPlan:
    """A result without elements."""

    def __init__(self, runtime: Runtime, call: Call):
        self.device, self.call = runtime.device, call

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """`out`, or a new array."""
        return self.device.empty(self.call.shape, self.call.dtype) if out is None else out


class FallbackPlan:
    """Tier 4. Inside graph capture `standby`, a plan that launches kernels, takes its place."""

    def __init__(self, runtime: Runtime, call: Call, reason: str, standby: Plan | None = None):
        self.device, self.call, self.reason, self.standby = runtime.device, call, reason, standby

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Computes, and copies into `out` where there is one."""
        device, call = self.device, self.call
        if device.emulated:
            raise UnsupportedError(f"no kernel serves this call: {self.reason}")
        if self.standby is not None and device.capturing():
            return self.standby.run(a, b, out, steps, pa, pb, pc)
        if call.plain:
            return device.product(a, b, call.math, out)
        value = evaluate(device, replace(call, operations=steps), a, b)
        if out is None:
            return value
        out[...] = value
        return out


@dataclass(frozen=True)
class Staging:
    """What must be done to a call's arrays before kernels can take them.

    `compact`: broadcast and copy all of them, so that every batch axis can be merged; `temporary`: compute into
    a new array and copy it to `out`. Conversion to the dtype of the call is always part of it.
    """

    compact: bool = False
    temporary: bool = False


class StagedPlan:
    """Operands that kernels cannot take as they lie: converted or compacted, then the call is made again."""

    def __init__(self, runtime: Runtime, call: Call, staging: Staging):
        self.runtime, self.call, self.staging = runtime, call, staging

    def _stage(self, array: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
        if not self.staging.compact:
            return array.astype(dtype, copy=False)
        xp = self.runtime.device.xp
        return xp.array(xp.broadcast_to(array, shape), dtype=dtype, order="C", copy=True)

    def _matrix(self, array: Any) -> Any:
        lead = self.call.batch if array.ndim > 1 else ()
        return self._stage(array, self.call.inputs, (*lead, *array.shape[-2:]))

    def _operand(self, step: Operation) -> Operation:
        if step.operand is None:
            return step
        staged = self._stage(step.operand, operand_dtype(step.operand.dtype), self.call.shape)
        return step._replace(operand=staged)

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Stages, calls again, and copies into `out` where that could not be written directly."""
        call = self.call
        target = None if self.staging.temporary else out
        staged = tuple(self._operand(step) for step in steps)
        result = self.runtime.call(self._matrix(a), self._matrix(b), target, staged, call.dtype, call.math)
        if out is None or target is not None:
            return result
        out[...] = result
        return out


def operand_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype an epilogue operand is brought to: its own where kernels read it, else a float that holds it."""
    if dtype.name in STEP_DTYPES:
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def byte_range(array: Any) -> tuple[int, int]:
    """(first, past the last) byte of an array's elements, relative to the address of element 0."""
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return low, high + array.dtype.itemsize


def repeats_itself(array: Any) -> bool:
    """Whether two elements of an array may share memory."""
    reach = array.dtype.itemsize
    axes = sorted((abs(s), e) for s, e in zip(array.strides, array.shape, strict=True) if e > 1)
    for stride, extent in axes:
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False


@dataclass(frozen=True)
class Bound:
    """A kernel bound to sizes: packed Params without addresses, what the device loaded, the workspace it needs."""

    template: bytes
    loaded: Any
    swapped: bool
    workspace: tuple[int, bool]


class LaunchPlan:
    """A kernel bound to one set of shapes, strides and dtypes."""

    def __init__(self, runtime: Runtime, call: Call, bound: Bound, a: Any, b: Any, out: Any):
        self.runtime, self.device, self.call = runtime, runtime.device, call
        self.template, self.loaded, self.swapped = bound.template, bound.loaded, bound.swapped
        self.workspace = bound.workspace if bound.workspace[0] else None
        steps = call.operations
        self.offsets = tuple(HEAD_BYTES + STEP_BYTES * index for index in range(len(steps)))
        # out overlaps an operand at address p when low < out - p < high; (0, 0) never is.
        self.clear_a = _clearance(a, out)
        self.clear_b = _clearance(b, out)
        self.clear_steps = tuple(_clearance(step.operand, out) for step in steps)

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Writes this call's addresses and scalars into Params, and launches."""
        device = self.device
        if out is None:
            result = device.empty(self.call.shape, self.call.dtype)
            pc = device.pointer(result)
        elif self.clear_a[0] < pc - pa < self.clear_a[1] or self.clear_b[0] < pc - pb < self.clear_b[1]:
            return self._through_temporary(a, b, out, steps)
        else:
            result = out
        local = device.local
        buffer = local.buffer
        buffer[:] = self.template
        if self.swapped:
            write_operands(buffer, 0, pb, pa, pc)
        else:
            write_operands(buffer, 0, pa, pb, pc)
        if steps and self._write_steps(buffer, steps, pc):
            return self._through_temporary(a, b, out, steps)
        owner = None
        if self.workspace is not None:
            owner, address = device.workspace(*self.workspace)
            write_pointer(buffer, WORKSPACE_OFFSET, address)
        device.launch(self.loaded, local, (result, a, b, *[s[1] for s in steps if s[1] is not None]), owner)
        return result

    def _write_steps(self, buffer: bytearray, steps: Steps, pc: int) -> bool:
        """Writes addresses and scalars of the epilogue; True when `out` overlaps an operand of it."""
        pointer = self.device.pointer
        for offset, clear, (_, operand, scalar) in zip(self.offsets, self.clear_steps, steps):  # noqa: B905
            if operand is not None:
                address = pointer(operand)
                if clear[0] < pc - address < clear[1]:
                    return True
                write_pointer(buffer, offset, address)
            _write_scalar(buffer, offset + SCALAR_OFFSET, scalar)
        return False

    def _through_temporary(self, a: Any, b: Any, out: Any, steps: Steps) -> Any:
        out[...] = self.runtime.call(a, b, None, steps, self.call.dtype, self.call.math)
        return out


def _clearance(array: Any, out: Any) -> tuple[int, int]:
    """How far from an array `out` may begin, in bytes, exclusive, and still overlap it."""
    if array is None or out is None:
        return 0, 0
    (low, high), (begin, end) = byte_range(array), byte_range(out)
    return low - end, high - begin
