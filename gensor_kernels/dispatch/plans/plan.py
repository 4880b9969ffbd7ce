"""Plans: what a call does once everything about it but its addresses and scalars is known (launches: launch.py)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gensor_kernels.devices.device import Device, Launcher
from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.functions.base import SUMS_OF_NOTHING, Copying, Function, Spread
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.tuning.background import Background
from gensor_kernels.dispatch.tuning.runtime import Tuned
from gensor_kernels.errors import UnsupportedError

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.selection.pins import Pins

Steps = tuple[Operation, ...]
Inputs = Sequence[Any]
#: A launch with everything known: the addresses of a, b and out that it is for, a function and its four arguments, and
#: the owner of the memory of these.
Placed = tuple[int, int, int, Any, Any, Any, Any, int, Any]
NOWHERE: Placed = (-1, -1, -1, None, None, None, None, 0, None)


class Launched(NamedTuple):
    """A launch that was made: a Launcher with its arguments, and (address, bytes, zeroed) of its workspace."""

    launch: Launcher
    arguments: tuple[bytearray, Any]
    arrays: Sequence[Any]
    steps: Steps
    workspace: tuple[int, int, bool] | None


class Caller(Tuned, Protocol):
    """A Runtime as Plans see it."""

    loaded: set[str]
    background: Background
    pins: Pins | None

    def call(
        self, a: DeviceArray, b: DeviceArray, out: DeviceArray, steps: Steps, dtype: Any, precision: str | None
    ) -> Any:
        """Compute a matrix product."""

    def serve(
        self,
        function: Function,
        inputs: tuple[DeviceArray, ...],
        parameters: Hashable,
        out: DeviceArray = None,
        steps: Steps = (),
        precision: str | None = None,
    ) -> Any:
        """Compute a call of any Function."""

    def settle(self, trial: Any) -> None:
        """Put the Plan of a trial that is over into its place."""


@dataclass(frozen=True)
class Call:
    """A kind of call: everything that its Plans share.

    `precision` is the caller's, `math` the mode it stood for when the call was planned.
    """

    runtime: Caller
    function: Function
    parameters: Any
    result: Any
    precision: str | None
    math: str

    @property
    def device(self) -> Device:
        """The device the call is for."""
        return self.runtime.device

    def one_call(self, steps: Steps) -> bool:
        """Return whether the array library needs a single call."""
        return self.function.is_one_call(self.result, steps)

    def again(
        self, inputs: Inputs, out: DeviceArray, steps: Steps, parameters: Any = None, math: str | None = None
    ) -> Any:
        """Make the call again with other arrays, which has another key and another Plan."""
        given = self.parameters if parameters is None else parameters
        return self.runtime.serve(self.function, tuple(inputs), given, out, steps, math or self.math)


class Plan:
    """Serves calls of one kind; `tier` is the one that serves them, 0 where there is nothing to compute.

    matmul's short way (api/matmul.py) reads `placed`, the launch that a call at the addresses named in it comes to, and
    `allocates`, whether a call may allocate more than its result.
    """

    placed: Placed = NOWHERE
    allocates = True
    tier: int = 4
    #: why no kernel serves, or what is done to the arrays first
    reason: str = ""

    def __init__(self, call: Call):
        self.call = call

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Compute the result: `out` where there is one."""
        raise NotImplementedError

    def run(self, a: DeviceArray, b: DeviceArray, out: DeviceArray, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Do the same for two inputs whose addresses are known, or for one: then `b` is None.

        `pc` is the address of `out`, 0 without one.
        """
        return self.serve((a,) if b is None else (a, b), out, steps)

    def bound(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> tuple[Any, Launched | None]:
        """Serve a call, and return its result and the launch that computes it, or None if more than a kernel did.

        `inputs`, the result and the workspace are the launch's own for good: it is made again without dispatch.
        """
        return self.serve(inputs, out, steps), None


class NothingPlan(Plan):
    """A result without elements, or sums without terms: `value` everywhere."""

    tier = 0

    def __init__(self, call: Call, reason: str, value: float | None = None):
        super().__init__(call)
        self.reason, self.value = reason, value

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Return `out`, or a new array."""
        found = self.call.result.new(self.call.device) if out is None else out
        if self.value is not None:
            found[...] = self.value
        return found


class ZeroPlan(Plan):
    """Sums without terms, with an epilogue: computed as a matrix product without terms, for every Function."""

    tier, reason = 0, SUMS_OF_NOTHING

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Return `out`, or a new array."""
        runtime, result = self.call.runtime, self.call.result
        found, shape = result.new(runtime.device) if out is None else out, result.shape
        # No kernel takes int32 operands; int8 ones have its sums.
        dtype = np.dtype(np.int8) if result.dtype == np.int32 else result.dtype
        rows, columns = (*shape[:-1], 0), (*shape[:-2], 0, *shape[-1:])
        a, b = (runtime.device.empty(each, dtype) for each in (rows, columns))
        runtime.call(a, b, found, steps, result.dtype, "ieee")
        return found


Standby = Callable[[Inputs, Any, Steps, bool], "Plan | None"]


class LibraryPlan(Plan):
    """Tier 4: the array library.

    With `standby`, a kernel serves inside graph capture, where the library's call cannot be recorded. Its Plan is made
    at the second run: that costs milliseconds and loads a kernel, for which shapes that never come back must not pay.
    Inside a capture only kernels that are loaded already can stand by. `standby` gets whether there is one.
    """

    def __init__(self, call: Call, reason: str, standby: Standby | None = None):
        super().__init__(call)
        self.reason, self._standby = reason, standby  # no function once it was called for good
        self._has_run, self._turn = False, threading.Lock()
        self._standing: Plan | None = None

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Compute by the library, or by the kernel that stands by."""
        call = self.call
        if call.device.emulated:
            raise UnsupportedError(f"no kernel serves this call: {self.reason}")
        standing = self._standing_by(inputs, out, steps)
        if standing is not None:
            return standing.serve(inputs, out, steps)
        if self.reason:  # the library's runs in races have none
            counters.fallbacks.add()
        return call.function.by_library(call.device, inputs, out, steps, call.parameters, call.result, call.precision)

    def _standing_by(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Plan | None:
        """Return the Plan of this run, None outside of a capture."""
        if self._standing is None and self._standby is None:
            return None
        if not self._has_run:
            self._has_run = True
            return None
        capturing = self.call.device.capturing()
        if self._standby is not None and self._turn.acquire(blocking=capturing):
            try:
                if self._standby is not None:  # no other thread has done it meanwhile
                    self._standing = self._standby(inputs, out, steps, capturing)
                    if self._standing is not None or not capturing:
                        self._standby = None
            finally:
                self._turn.release()
        return self._standing if capturing else None


class CopyPlan(Plan):
    """Copies inputs and epilogue operands whose layouts no kernel takes, then makes the call again.

    `parameters` are those of the call that is made again; `rounded`: its result is wider, and rounded to this call's.
    """

    def __init__(
        self,
        call: Call,
        tier: int,
        copies: Sequence[Copying | None],
        spread: Sequence[Spread | None],
        parameters: Any = None,
        rounded: bool = False,
    ):
        super().__init__(call)
        self.tier, self.copies, self.spread = tier, copies, spread
        self.parameters, self.rounded, self.reason = parameters, rounded, "operands are copied"

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Copy, call, and round."""
        call, device = self.call, self.call.device
        copies = self.copies or (None,) * len(inputs)
        arrays = [self._copy(array, copy) for array, copy in zip(inputs, copies, strict=True)]
        steps = tuple(
            step if spread is None else step._replace(operand=spread.make(device, step.operand, call.result.shape))
            for step, spread in zip(steps, self.spread, strict=True)
        )
        if not self.rounded:
            return call.again(arrays, out, steps, self.parameters)
        found = call.again(arrays, None, steps, self.parameters).astype(call.result.dtype, copy=False)
        if out is None:
            return found
        out[...] = found
        return out

    def _copy(self, array: DeviceArray, copy: Copying | None) -> Any:
        return array if array is None or copy is None else copy.make(self.call.device, array)


class TemporaryPlan(Plan):
    """Computes a new result and copies it to an `out` whose layout no kernel writes, or that overlaps an input."""

    def __init__(self, call: Call, tier: int):
        super().__init__(call)
        self.tier, self.reason = tier, "the result goes through a temporary"

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Call and copy; inside graph capture the temporary lasts as long as the graph."""
        with self.call.device.lasting():
            out[...] = self.call.again(inputs, None, steps)
        return out


class SwitchedPlan(Plan):
    """A plan with TF32 products because the library's switch allowed them: the switch is asked again at every run.

    The other way round nothing is asked: products that are more precise than allowed are never wrong.
    """

    def __init__(self, plan: Plan):
        super().__init__(plan.call)
        self.plan, self.tier, self.reason, self._tf32 = plan, plan.tier, plan.reason, plan.call.device.tf32

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Serve by the plan while the switch is on."""
        if self._tf32():
            return self.plan.serve(inputs, out, steps)
        return self.call.again(inputs, out, steps, math="ieee")

    def run(self, a: DeviceArray, b: DeviceArray, out: DeviceArray, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Do the same."""
        if self._tf32():
            return self.plan.run(a, b, out, steps, pa, pb, pc)
        return self.call.again((a,) if b is None else (a, b), out, steps, math="ieee")

    def bound(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> tuple[Any, Launched | None]:
        """Bind the plan while the switch is on."""
        return self.plan.bound(inputs, out, steps) if self._tf32() else (self.serve(inputs, out, steps), None)
