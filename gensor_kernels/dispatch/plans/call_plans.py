"""Plans of calls of a Function: what each does once everything about it but addresses and scalars is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.calls.fallback import whole_steps
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.errors import BuildError, UnsupportedError
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.geometry import Strides
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.params import (
    HEAD_BYTES,
    SCALAR_OFFSET,
    STEP_BYTES,
    WORKSPACE_OFFSET,
    write_pointer,
    write_scalar,
)
from gensor_kernels.programs.registry import FAMILIES

from .function import Copy, Function, Result, Spread
from .problem import LARGEST_EXTENT, Problem
from .staging import clearance
from .standby import Standby

if TYPE_CHECKING:
    from .runtime import Runtime

#: Offset in Params of the output's pointer.
OUTPUT = 16


@dataclass(frozen=True)
class Base:
    """What every Plan of a call has."""

    runtime: Runtime
    function: Function
    parameters: Any
    result: Result
    math: str


class NothingPlan:
    """A result without elements, or of rows without elements: `value` everywhere."""

    tier = 0

    def __init__(self, base: Base, reason: str, value: float | None = None):
        self.base, self.reason, self.value = base, reason, value

    def serve(self, inputs: Any, out: Any, steps: Any) -> Any:
        """`out`, or a new array."""
        found = self.base.result.new(self.base.runtime.device) if out is None else out
        if self.value is not None:
            found[...] = self.value
        return found


class ZeroPlan:
    """Sums without terms behind an epilogue: a matrix product without terms computes them, wherever they came from."""

    tier, reason = 0, "the sums have no terms"

    def __init__(self, base: Base):
        self.base = base

    def serve(self, inputs: Any, out: Any, steps: tuple[Operation, ...]) -> Any:
        """`out`, or a new array."""
        runtime, result = self.base.runtime, self.base.result
        found, shape = result.new(runtime.device) if out is None else out, result.shape
        # No kernel takes int32 operands; int8 ones have its sums.
        dtype = np.dtype(np.int8) if result.dtype == np.int32 else result.dtype
        a, b = (runtime.device.empty(each, dtype) for each in ((*shape[:-1], 0), (*shape[:-2], 0, shape[-1])))
        return runtime.call(a, b, found, steps, result.dtype, "ieee")


class LibraryPlan:
    """Tier 4: the array library. With `standby`, kernels serve inside graph capture, as for products."""

    tier = 4

    def __init__(self, base: Base, reason: str, standby: bool = False):
        self.base, self.reason = base, reason
        self.standby = Standby(base.runtime.device, standby)

    def serve(self, inputs: Any, out: Any, steps: tuple[Operation, ...]) -> Any:
        """Computes, and copies into `out` where there is one."""
        base, device = self.base, self.base.runtime.device
        if device.emulated:
            raise UnsupportedError(f"no kernel serves this call: {self.reason}")
        standing = self.standby.now(lambda capturing: self._standby(inputs, out, steps, capturing))
        if standing is not None:
            return standing.serve(inputs, out, steps)
        if self.reason:  # races have none
            counters.fallbacks.add()
        value = base.function.library(device, inputs, base.parameters, base.math)
        value = base.function.finished(device, value, steps, base.parameters, base.result.dtype)
        if out is None:
            return value
        out[...] = value
        return out

    def _standby(self, inputs: Any, out: Any, steps: tuple[Operation, ...], capturing: bool) -> Any:
        from .calls import standby

        return standby(self.base, inputs, out, steps, capturing)


class CopyPlan:
    """Inputs and operands that no kernel takes as they lie: copied, then the call is made again."""

    def __init__(self, base: Base, copies: Sequence[Copy | None], spread: Sequence[Spread | None], tier: int):
        self.base, self.copies, self.spread = base, copies, spread
        self.tier, self.reason = tier, "operands are copied"

    def serve(self, inputs: Any, out: Any, steps: tuple[Operation, ...]) -> Any:
        """Copies and calls."""
        from .calls import call

        base, xp = self.base, self.base.runtime.device.xp
        if self.copies:
            inputs = tuple(_copied(xp, array, copy) for array, copy in zip(inputs, self.copies, strict=True))
        steps = tuple(self._spread(step, spread) for step, spread in zip(steps, self.spread, strict=True))
        return call(base.runtime, base.function, inputs, base.parameters, out, steps, base.math)

    def _spread(self, step: Operation, spread: Spread | None) -> Operation:
        if spread is None:
            return step
        device, shape = self.base.runtime.device, self.base.result.shape
        operand = spread.result(shape, step.operand.dtype).new(device)
        cut = tuple(slice(None) if own else slice(1) for own in spread.own)
        operand[...] = device.xp.broadcast_to(step.operand, shape)[cut]
        return step._replace(operand=operand)


def _copied(xp: Any, array: Any, copy: Copy | None) -> Any:
    if array is None or copy is None:
        return array
    inverse = sorted(range(len(copy.order)), key=copy.order.__getitem__)
    return xp.ascontiguousarray(array.transpose(copy.order).astype(copy.dtype, copy=False)).transpose(inverse)


class TemporaryPlan:
    """An `out` that no kernel writes as it lies, or that overlaps what it reads: computed beside it, then copied."""

    def __init__(self, base: Base, tier: int):
        self.base, self.tier, self.reason = base, tier, "the result goes through a temporary"

    def serve(self, inputs: Any, out: Any, steps: tuple[Operation, ...]) -> Any:
        """Calls and copies."""
        from .calls import call

        base = self.base
        out[...] = call(base.runtime, base.function, inputs, base.parameters, None, steps, base.math)
        return out


class KernelPlan:
    """A kernel bound to one set of shapes, strides and dtypes."""

    def __init__(self, base: Base, kernel: Kernel, problem: Problem, inputs: Any, out: Any, steps: Any, tier: int):
        runtime, family = base.runtime, FAMILIES[kernel.program.family]
        launches = family.launches(kernel.program, problem.workload)
        if max(each.grid for each in launches) > LARGEST_EXTENT:
            raise BuildError("its grid would have 2^31 blocks or more")
        self.base, self.tier, self.reason, self.device = base, tier, "", runtime.device
        self.launch = runtime.device.load(kernel.code, launches)
        runtime.loaded.add(kernel.digest)
        geometry = problem.geometry
        self.template = params.pack(
            geometry,
            family.tiling(kernel.program, geometry),
            steps=[_packed(step, where) for step, where in zip(steps, problem.operands, strict=True)],
            integer_steps=whole_steps(np.dtype(inputs[0].dtype), steps),
        )
        workspace = family.workspace(kernel.program, problem.workload)
        self.workspace = workspace if workspace[0] else None
        # Pointers of inputs, in their order.
        sides = (8, 0) if geometry.swapped else (0, 8)
        self.slots = (*sides, params.D_OFFSET, params.fourth_offset(geometry))
        self.ranges = None if out is None else [clearance(x, out) for x in (*inputs, *(s.operand for s in steps))]
        self.scalars = tuple(OPERATIONS[step.name].takes_scalar for step in steps)

    def serve(self, inputs: Any, out: Any, steps: tuple[Operation, ...]) -> Any:
        """Writes this call's addresses and scalars into Params, and launches."""
        device = self.device
        pointer = device.pointer
        if out is not None and self._overlaps(inputs, out, steps):
            return TemporaryPlan(self.base, self.tier).serve(inputs, out, steps)
        result = self.base.result.new(device) if out is None else out
        owner, address = (None, 0) if self.workspace is None else device.workspace(*self.workspace)
        arguments = device.local.arguments
        buffer = arguments[0]
        buffer[:] = self.template
        for slot, array in zip(self.slots, inputs):  # noqa: B905 - there may be fewer inputs
            if array is not None:
                write_pointer(buffer, slot, pointer(array))
        write_pointer(buffer, OUTPUT, pointer(result))
        if owner is not None:
            write_pointer(buffer, WORKSPACE_OFFSET, address)
        for index, step in enumerate(steps):
            if step.operand is not None:
                write_pointer(buffer, HEAD_BYTES + STEP_BYTES * index, pointer(step.operand))
            if self.scalars[index]:
                write_scalar(buffer, HEAD_BYTES + STEP_BYTES * index + SCALAR_OFFSET, step.scalar)
        self.launch(arguments, (result, *(x for x in inputs if x is not None)), steps, owner)
        return result

    def _overlaps(self, inputs: Any, out: Any, steps: tuple[Operation, ...]) -> bool:
        pointer = self.device.pointer
        arrays = (*inputs, *(step.operand for step in steps))
        return any(
            x is not None and low < pointer(out) - pointer(x) < high
            for x, (low, high) in zip(arrays, self.ranges or (), strict=True)
        )


def _packed(step: Operation, where: Strides | None) -> params.Step:
    dtype = "float32" if step.operand is None else step.operand.dtype.name
    return params.Step(OPERATIONS[step.name].code, step.scalar, dtype, where or Strides())
