"""Plans that launch a kernel: the warm path of a call is a dictionary lookup and one of these.

Each writes addresses and scalars into Params and launches: the shortest into its own, others into a copy of 592 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gensor_kernels.devices.device import Launcher, OneLaunch
from gensor_kernels.dispatch.calls.arguments import Call
from gensor_kernels.dispatch.calls.fallback import conjugated
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.programs.core.params import (
    HEAD_BYTES,
    OPERAND_BYTES,
    SCALAR_OFFSET,
    STEP_BYTES,
    WORKSPACE_OFFSET,
    write_call,
    write_pointer,
    write_scalar,
)

from .plan import NOWHERE, Placed, Steps
from .staging import clearance

if TYPE_CHECKING:
    from .runtime import Runtime


@dataclass(frozen=True)
class Bound:
    """A kernel bound to sizes: packed Params without addresses, what the device loaded, the workspace it needs."""

    template: bytes
    launch: Launcher
    swapped: bool
    workspace: tuple[int, bool]


class LaunchPlan:
    """A kernel bound to one set of shapes, strides and dtypes."""

    tier = 3
    placed, allocates = NOWHERE, True

    def __init__(self, runtime: Runtime, call: Call, bound: Bound, a: Any, b: Any, out: Any):
        self.runtime, self.device, self.call = runtime, runtime.device, call.without_arrays()
        self.local, self.pointer = runtime.device.local, runtime.pointer
        self.rest, self.launch, self.swapped = bound.template[OPERAND_BYTES:], bound.launch, bound.swapped
        self.workspace = bound.workspace if bound.workspace[0] else None
        # out overlaps an operand at address p when low < out - p < high; 0 < ... < 0 never holds.
        self.low_a, self.high_a = clearance(a, out)
        self.low_b, self.high_b = clearance(b, out)
        self.written = tuple(
            (index, HEAD_BYTES + STEP_BYTES * index, *clearance(step.operand, out), OPERATIONS[step.name].takes_scalar)
            for index, step in enumerate(call.operations)
            if step.operand is not None or OPERATIONS[step.name].takes_scalar
        )
        self.is_complex = call.dtype.kind == "c"

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Writes this call's addresses and scalars into Params, and launches."""
        result = out
        if out is None:
            result = self.device.empty(self.call.shape, self.call.dtype)
            pc = self.pointer(result)
        elif self.low_a < pc - pa < self.high_a or self.low_b < pc - pb < self.high_b:
            return self._through_temporary(a, b, out, steps)
        owner = None
        if self.workspace is not None:
            owner, address = self.device.workspace(*self.workspace)
        arguments = self.local.arguments
        if self.swapped:
            write_call(arguments[0], 0, pb, pa, pc, self.rest)
        else:
            write_call(arguments[0], 0, pa, pb, pc, self.rest)
        if self.written and self._write_steps(arguments[0], steps, pc):
            return self._through_temporary(a, b, out, steps)
        if owner is not None:
            write_pointer(arguments[0], WORKSPACE_OFFSET, address)
        self.launch(arguments, (result, a, b), steps, owner)
        return result

    def _write_steps(self, buffer: bytearray, steps: Steps, pc: int) -> bool:
        """Writes addresses and scalars of the epilogue; True when `out` overlaps an operand of it."""
        for index, offset, low, high, takes_scalar in self.written:
            _, operand, scalar = steps[index]
            if operand is not None:
                address = self.pointer(operand)
                if low < pc - address < high:
                    return True
                write_pointer(buffer, offset, address)
            if takes_scalar:
                write_scalar(buffer, offset + SCALAR_OFFSET, scalar.real)
                if self.is_complex and operand is None:
                    write_scalar(buffer, offset, scalar.imag)
        return False

    def _through_temporary(self, a: Any, b: Any, out: Any, steps: Steps) -> Any:
        with self.device.lasting():
            a, b = conjugated(self.call, a, b)
            out[...] = self.runtime.call(a, b, None, steps, self.call.dtype, self.call.math)
        return out


class PlainPlan(LaunchPlan):
    """One launch without workspace, and nothing in Params to write but three addresses: the shortest way.

    Params are the Plan's own: each call takes one of `ready`, or makes another while other threads have them. A call
    into `out` at the addresses of the one before is likely to come back, as buffers that are reused do: its Params are
    not written again, and the launch is `placed`, for matmul's short way (api/matmul.py).
    """

    allocates = False

    def __init__(self, runtime: Runtime, call: Call, bound: Bound, a: Any, b: Any, out: Any):
        super().__init__(runtime, call, bound, a, b, out)
        launch = bound.launch
        assert isinstance(launch, OneLaunch)
        self.shape, self.dtype, self.empty = call.shape, call.dtype, runtime.device.empty
        self.template, self.last = bound.template, (0, 0, 0)
        first, second = (1, 0) if bound.swapped else (0, 1)
        ready: list[tuple[Any, Any]] = []
        # One tuple: what a call reads of its Plan lies together in memory.
        self.parts = (
            *(self.low_a, self.high_a, self.low_b, self.high_b, ready, first, second),
            *(launch.function, launch.grid, launch.block, launch.shared_bytes),
        )
        self.placed: Placed = NOWHERE

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Writes this call's addresses into Params, and launches."""
        low_a, high_a, low_b, high_b, ready, first, second, function, grid, block, shared = self.parts
        if out is None:
            result = self.empty(self.shape, self.dtype)
            pc = self.pointer(result)
        elif low_a < pc - pa < high_a or low_b < pc - pb < high_b:
            return self._through_temporary(a, b, out, steps)
        else:
            result = out
        try:
            params = ready.pop()
        except IndexError:
            params = self.device.ready(self.template)
        words, handle = params
        words[first] = pa
        words[second] = pb
        words[2] = pc
        function(grid, block, handle, shared)
        if out is not None:
            place = pa, pb, pc
            if place == self.last:
                self.placed = pa, pb, pc, function, grid, block, handle, shared, words
                return out
            self.last = place
        ready.append(params)
        return result


def launching(runtime: Runtime, call: Call, bound: Bound, a: Any, b: Any, out: Any) -> LaunchPlan:
    """The Plan that launches a bound kernel."""
    plan = LaunchPlan(runtime, call, bound, a, b, out)
    if plan.workspace is None and not plan.written and isinstance(bound.launch, OneLaunch):
        return PlainPlan(runtime, call, bound, a, b, out)
    return plan
