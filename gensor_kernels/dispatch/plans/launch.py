"""Plans that launch a kernel: the warm path of a call is a dictionary lookup and one of these.

Each writes addresses and scalars into Params and launches: the shortest into its own, others into a copy. `at` is all
that a launch takes, addresses alone: public functions call it directly once a kind of call is known (ways.py).
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.devices.device import Launcher, OneLaunch
from gensor_kernels.dispatch.calls.arguments import Operands, Operation
from gensor_kernels.dispatch.calls.fallback import whole_steps
from gensor_kernels.dispatch.calls.problem import LARGEST_EXTENT, Problem, clearance
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core import params
from gensor_kernels.families.core.params import (
    D_OFFSET,
    OPERAND_BYTES,
    SCALAR_OFFSET,
    WORKSPACE_OFFSET,
    other_offsets,
    step_offset,
    write_call,
    write_pointer,
    write_scalar,
)
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.geometry import Strides

from .plan import Call, Inputs, Launched, Placed, Plan, Steps
from .stage import Lowered, StagedPlan

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: Bytes of a word of Params.
WORD_BYTES = 8


@dataclass(frozen=True)
class Bound:
    """A kernel bound to sizes and loaded: what the device launches, and the workspace that takes (bytes, zeroed)."""

    kernel: Kernel
    problem: Problem
    launch: Launcher
    workspace: tuple[int, bool] | None


def launch(call: Call, tier: int, kernel: Kernel, lowered: Lowered, operands: Operands) -> Plan:
    """Load a kernel and return the Plan that launches it, or the Plan of a call whose arrays are copied first.

    BuildError where the device refuses the kernel.
    """
    switched = call.precision is None and lowered.problem.workload.math == "tf32"
    if lowered.staged:
        _load(call, kernel, lowered.problem)
        return StagedPlan(call, tier, lowered, switched)
    return bind(call, tier, kernel, lowered.problem, operands, switched)


def bind(
    call: Call, tier: int, kernel: Kernel, problem: Problem, operands: Operands, switched: bool = False
) -> LaunchPlan:
    """Load a kernel and return the Plan that launches it on arrays as they are."""
    bound = _load(call, kernel, problem)
    plain = bound.workspace is None and isinstance(bound.launch, OneLaunch)
    has_scalars = any(OPERATIONS[step.name].takes_scalar for step in operands.steps)
    kind = PlainLaunchPlan if plain and not has_scalars else LaunchPlan
    return kind(call, tier, bound, operands, switched)


def _load(call: Call, kernel: Kernel, problem: Problem) -> Bound:
    """Bind a kernel to sizes and load it if it is not yet."""
    launches = kernel.launches(problem.workload)
    if max(each.grid for each in launches) > LARGEST_EXTENT:
        raise BuildError("its grid would have 2^31 blocks or more")
    launcher = call.device.load(kernel.code, launches)
    call.runtime.loaded.add(kernel.stored)
    workspace = kernel.workspace(problem.workload)
    return Bound(kernel, problem, launcher, workspace if workspace[0] else None)


class LaunchPlan(Plan):
    """A kernel bound to one set of shapes, strides and dtypes."""

    nbytes = 9 * 1024
    launches = True

    def __init__(self, call: Call, tier: int, bound: Bound, operands: Operands, switched: bool):
        super().__init__(call)
        inputs, out, steps = operands
        self.tier, self.switched, self.device, result = tier, switched, call.device, call.result
        self.local, self.pointer = self.device.local, call.runtime.pointer
        self.kernel, self.launch, self.workspace = bound.kernel, bound.launch, bound.workspace
        geometry = bound.problem.geometry
        self.template = _template(bound, inputs, steps)
        self.rest, self.swapped = self.template[OPERAND_BYTES:], geometry.swapped
        self.allocated, self.dtype, self.transposition = result.allocated, result.dtype, result.transposition
        self.empty = self.device.array or self.device.empty
        # out overlaps an operand at address p when low < out - p < high; 0 < ... < 0 never holds.
        (self.low_a, self.high_a), (self.low_b, self.high_b) = (
            clearance(x, out) for x in (inputs[0], inputs[1] if len(inputs) > 1 else None)
        )
        slots = (D_OFFSET, *other_offsets(geometry))
        places = [*zip(slots, inputs[2:]), *((step_offset(i), step.operand) for i, step in enumerate(steps))]  # noqa: B905 - there may be fewer inputs
        #: Where the addresses of other arrays are written: (offset, low, high).
        self.others = tuple((offset, *clearance(x, out)) for offset, x in places if x is not None)
        self.scalars = tuple(
            (index, step_offset(index), result.dtype.kind == "c" and step.operand is None)
            for index, step in enumerate(steps)
            if OPERATIONS[step.name].takes_scalar
        )

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> DeviceArray:
        """Launch on any number of inputs."""
        pointer = self.pointer
        a, b, more = inputs[0], inputs[1] if len(inputs) > 1 else None, inputs[2:]
        pa, pb, pc = (0 if array is None else pointer(array) for array in (a, b, out))
        return self.run(a, b, out, steps, pa, pb, pc, more)

    def run(
        self,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        steps: Steps,
        pa: int,
        pb: int,
        pc: int,
        more: Inputs = (),
    ) -> DeviceArray:
        """Launch, or make the call again where `at` does not; `more` are inputs after the second."""
        others: list[int] = []
        if self.others:
            pointer = self.pointer
            for array in (*more, *(step.operand for step in steps)):
                if array is not None:
                    others.append(pointer(array))
        result = self.at(out, pa, pb, pc, *others, steps=steps, arrays=(a, b, *more))
        if result is not None:
            return result
        operands = Operands((a, b, *more) if b is not None or more else (a,), out, steps)
        if self.switched and not self.device.tf32():
            return self.call.again(operands, math="ieee")
        return self.call.through_temporary(operands)

    def at(
        self, out: DeviceArray, pa: int, pb: int, pc: int, *others: int, steps: Steps = (), arrays: Inputs = ()
    ) -> DeviceArray:
        """See Plan.at. `arrays` are the inputs and `steps` the epilogue, for its scalars and for the emulator."""
        if self.switched and not self.device.tf32():
            return None
        result = out
        if out is None:
            result = self.empty(self.allocated, self.dtype)
            pc = self.pointer(result)
        elif self.low_a < pc - pa < self.high_a or self.low_b < pc - pb < self.high_b:
            return None
        else:
            for (_, low, high), address in zip(self.others, others, strict=True):
                if low < pc - address < high:
                    return None
        owner = None
        if self.workspace is not None:
            owner, where = self.device.workspace(*self.workspace)
        arguments = self.local.arguments
        buffer = arguments[0]
        if self.swapped:
            write_call(buffer, 0, pb, pa, pc, self.rest)
        else:
            write_call(buffer, 0, pa, pb, pc, self.rest)
        for (offset, _, _), address in zip(self.others, others, strict=True):
            write_pointer(buffer, offset, address)
        for index, offset, is_complex in self.scalars if steps else ():
            scalar = steps[index].scalar
            write_scalar(buffer, offset + SCALAR_OFFSET, scalar.real)
            if is_complex:
                write_scalar(buffer, offset, scalar.imag)
        if owner is not None:
            write_pointer(buffer, WORKSPACE_OFFSET, where)
        self.launch(arguments, (result, *_present(arrays)), steps, owner)
        return result if self.transposition is None or out is not None else result.transpose(self.transposition)

    def reshaped(self, shape: tuple[int, ...]) -> LaunchPlan:
        """Return a Plan that allocates its result, which is contiguous, in another shape."""
        twin = copy(self)
        twin.allocated, twin.transposition = shape, None
        return twin

    def bound(self, operands: Operands) -> tuple[DeviceArray, Launched | None]:
        """See Plan.bound: the launch has its own Params."""
        made: list[Launched] = []
        own = self.device.parameters()

        def launch(arguments: Any, arrays: Any, epilogue: Steps, workspace: Any) -> None:
            self.launch(arguments, arrays, epilogue, workspace)
            space = None
            if self.workspace is not None:
                address = int.from_bytes(own[0][WORKSPACE_OFFSET : WORKSPACE_OFFSET + 8], "little")
                space = (address, *self.workspace)
            made.append(Launched(self.launch, own, arrays, epilogue, space))

        twin: Any = LaunchPlan.__new__(LaunchPlan)  # whose `at` launches from `local`
        vars(twin).update(vars(self), local=SimpleNamespace(arguments=own), launch=launch)
        result = twin.serve(*operands)
        return result, made[0] if made else None


def _present(arrays: Inputs) -> list[DeviceArray]:
    return [array for array in arrays if array is not None]


def _template(bound: Bound, inputs: Inputs, steps: Steps) -> bytes:
    """Pack the Params of a kernel without addresses."""
    family, geometry = FAMILIES[bound.kernel.program.family], bound.problem.geometry
    return params.pack(
        geometry,
        family.tiling(bound.kernel.program, geometry),
        steps=[_pack(step, where) for step, where in zip(steps, bound.problem.operands, strict=True)],
        integer_steps=whole_steps(np.dtype(inputs[0].dtype), steps) if steps else 0,
    )


def _pack(step: Operation, where: Strides | None) -> params.Step:
    dtype = "float32" if step.operand is None else step.operand.dtype.name
    return params.Step(OPERATIONS[step.name].code, step.scalar, dtype, where or Strides())


class PlainLaunchPlan(LaunchPlan):
    """One launch without workspace, and nothing in Params to write but addresses: the shortest way.

    Params are the Plan's own: each call takes one of `ready`, or makes another while other threads have them. A product
    into `out` at the addresses of the one before is likely to come back, as buffers that are reused do: its Params are
    not written again, and the launch is `placed`, for matmul's short way (dispatch/key.py).
    """

    allocates = False

    def __init__(self, call: Call, tier: int, bound: Bound, operands: Operands, switched: bool):
        super().__init__(call, tier, bound, operands, switched)
        launch = bound.launch
        assert isinstance(launch, OneLaunch)
        self.last = (0, 0, 0)
        first, second = (1, 0) if self.swapped else (0, 1)
        ready: list[tuple[Any, Any]] = []
        # One tuple, so that a call reads its Plan from one place in memory.
        self.parts = (
            *(switched, self.low_a, self.high_a, self.low_b, self.high_b, ready, first, second),
            tuple(offset // WORD_BYTES for offset, _, _ in self.others),
            *(launch.function, launch.grid, launch.block, launch.shared_bytes),
        )
        self.placed: Placed = Plan.placed

    def at(
        self, out: DeviceArray, pa: int, pb: int, pc: int, *others: int, steps: Steps = (), arrays: Inputs = ()
    ) -> DeviceArray:
        """See Plan.at."""
        switched, low_a, high_a, low_b, high_b, ready, first, second, places, function, grid, block, shared = self.parts
        if switched and not self.device.tf32():
            return None
        if out is None:
            result = self.empty(self.allocated, self.dtype)
            pc = self.pointer(result)
        elif low_a < pc - pa < high_a or low_b < pc - pb < high_b:
            return None
        else:
            if places:
                for (_, low, high), address in zip(self.others, others):  # noqa: B905 - strict takes time, here and below
                    if low < pc - address < high:
                        return None
            result = out
        try:
            words, handle = own = ready.pop()
        except IndexError:
            words, handle = own = self.device.ready(self.template)
        words[first] = pa
        words[second] = pb
        words[2] = pc
        if places:
            for place, address in zip(places, others):  # noqa: B905
                words[place] = address
        function(grid, block, handle, shared)
        if out is not None:
            if not places:
                known = pa, pb, pc
                if known == self.last and not switched:
                    self.placed = pa, pb, pc, function, grid, block, handle, shared, words
                    return out
                self.last = known
            ready.append(own)
            return out
        ready.append(own)
        return result if self.transposition is None else result.transpose(self.transposition)
