"""Plans: what a call does once everything about it but its addresses and scalars is known.

A call is served by a launch (launch.py), by the array library, by another call after its arrays were copied (stage.py),
or, while its kind is on trial, by several of these in turn (trial.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.devices import originals
from gensor_kernels.devices.device import Device, Launcher
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import clearance
from gensor_kernels.dispatch.functions.base import SUMS_OF_NOTHING, Function, Steps
from gensor_kernels.dispatch.functions.contraction import CONTRACTION
from gensor_kernels.dispatch.functions.matmul import MATMUL
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.tuning.tuned_calls import TunedCalls
from gensor_kernels.errors import UnsupportedError

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

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


@dataclass(frozen=True)
class Call:
    """A kind of call: everything that its Plans share.

    `precision` is the caller's, `math` the mode it stood for when the call was planned.
    """

    runtime: TunedCalls
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

    def by_library(self, operands: Operands) -> DeviceArray:
        """Compute the call by the array library; `out` shares no memory with what is read."""
        by_library = self.function.by_library
        if originals.kept:  # methods of arrays are ours too inside `accelerate`, unlike the functions of `device.xp`
            by_library = partial(originals.call, by_library)
        return by_library(self.device, operands, self.parameters, self.result, self.precision)

    def again(self, operands: Operands, parameters: Any = None, math: str | None = None) -> DeviceArray:
        """Make the call again with other arrays, which has another key and another Plan."""
        inputs, out, steps = operands
        given, math = self.parameters if parameters is None else parameters, math or self.math
        if self.function is MATMUL:
            a, b = inputs
            return self.runtime.call(a, b, out, steps, given, math)
        if self.function is CONTRACTION:
            a, b = inputs
            return self.runtime.contract(given.form, a, b, out, given.dtype, steps, math)
        return self.runtime.serve(self.function, tuple(inputs), given, out, steps, math)

    def through_temporary(self, operands: Operands) -> DeviceArray:
        """Compute a new result and copy it to `out`; inside graph capture it lasts as long as the graph."""
        with self.device.lasting():
            operands.out[...] = self.again(operands._replace(out=None))
        return operands.out


class Plan:
    """Serves calls of one kind; `tier` is the one that serves them, 0 where there is nothing to compute.

    matmul's short way (dispatch/key.py) reads `placed`, the launch that a call at the addresses named in it comes to,
    `launches`, whether addresses are all that it takes (`at`), and `allocates`, whether a call may allocate more than
    its result.
    """

    placed: Placed = NOWHERE
    launches = False
    allocates = True
    tier: int = 4
    #: why no kernel serves, or what is done to the arrays first
    reason: str = ""
    #: Whether it forms TF32 products because the library's switch allowed them: the switch is asked again at every run.
    #: The other way round nothing is asked: products that are more precise than allowed are never wrong.
    switched = False
    #: Bytes of memory that it takes with its key, as tracemalloc counts them, the most among eleven public functions
    #: (tests/dispatch/test_plans.py). A Plan alone has 1,000; a launch 9,000, of which Params are 1,800; a Trial
    #: 5,000 more, its Workload; a kernel that may stand by 7,000.
    nbytes = 2 * 1024

    def __init__(self, call: Call):
        self.call = call

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> DeviceArray:
        """Compute the result: `out` where there is one."""
        raise NotImplementedError

    def run(
        self, a: DeviceArray, b: DeviceArray, out: DeviceArray, steps: Steps, pa: int, pb: int, pc: int
    ) -> DeviceArray:
        """Do the same for two inputs whose addresses are known, or for one: then `b` is None.

        `pc` is the address of `out`, 0 without one.
        """
        return self.serve((a,) if b is None else (a, b), out, steps)

    def leaves(self) -> bool:
        """Return whether the array library serves this call and all others outside of graph capture; then count it."""
        return False

    def at(self, out: DeviceArray, pa: int, pb: int, pc: int, *others: int) -> DeviceArray:
        """Launch on arrays at these addresses: of two inputs, of `out` (0 without one), of any other inputs that the
        call has, and of the arrays of its epilogue.

        None, with nothing done, where `out` overlaps an operand, or the library's TF32 switch was turned off.
        """
        raise NotImplementedError

    def bound(self, operands: Operands) -> tuple[DeviceArray, Launched | None]:
        """Serve a call, and return its result and the launch that computes it, or None if more than a kernel did.

        Inputs, the result and the workspace are the launch's own for good: it is made again without dispatch.
        """
        return self.serve(*operands), None


class NothingPlan(Plan):
    """A result without elements, or sums without terms: `value` everywhere, then the epilogue."""

    tier = 0

    def __init__(self, call: Call, reason: str, value: float | None = None):
        super().__init__(call)
        self.reason, self.value = reason, value

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> DeviceArray:
        """Return `out`, or a new array."""
        found = self.call.result.new(self.call.device) if out is None else out
        if self.value is not None and steps:
            self._multiply_nothing(found, steps)
        elif self.value is not None:
            found[...] = self.value
            self.call.function.fill(inputs, self.call.parameters)
        return found

    def _multiply_nothing(self, out: DeviceArray, steps: Steps) -> None:
        """Compute a matrix product without terms and its epilogue, for every Function."""
        runtime, result, shape = self.call.runtime, self.call.result, self.call.result.shape
        # No kernel takes int32 operands; int8 ones have its sums.
        dtype = np.dtype(np.int8) if result.dtype == np.int32 else result.dtype
        rows, columns = (*shape[:-1], 0), (*shape[:-2], 0, *shape[-1:])
        a, b = (runtime.device.empty(each, dtype) for each in (rows, columns))
        runtime.call(a, b, out, steps, result.dtype, "ieee")


def idle_plan(call: Call, operands: Operands) -> NothingPlan | None:
    """Return the Plan of a call that has nothing to compute, or nothing but its epilogue; else None."""
    if 0 in call.result.shape:
        return NothingPlan(call, "the result has no elements")
    value = call.function.nothing(operands.inputs, call.parameters)
    return None if value is None else NothingPlan(call, SUMS_OF_NOTHING, value)


_new = tuple.__new__
Standby = Callable[[Operands, bool], "Plan | None"]


class LibraryPlan(Plan):
    """Tier 4: the array library.

    With `standby`, a kernel serves inside graph capture, where the library's call cannot be recorded. Its Plan is made
    at the second run: that costs milliseconds and loads a kernel, for which shapes that never come back must not pay.
    Inside a capture only kernels that are loaded already can stand by. `standby` gets whether there is one.
    """

    def __init__(self, call: Call, reason: str, standby: Standby | None = None):
        super().__init__(call)
        self.reason, self._standby = reason, standby  # no function once it was called for good
        self.nbytes += 0 if standby is None else 7 * 1024
        self._has_run, self._turn = False, threading.Lock()
        self._standing: Plan | None = None
        self._parts = call.function.by_library, call.device, call.parameters, call.result, call.precision
        #: exclusive bounds of `out` minus each array that is read, where they overlap
        self._near: tuple[tuple[int, int], ...] | None = None

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> DeviceArray:
        """Compute by the library, or by the kernel that stands by."""
        by_library, device, parameters, result, precision = self._parts
        if device.emulated:
            raise UnsupportedError(f"no kernel serves this call: {self.reason}")
        operands = _new(Operands, (inputs, out, steps))
        if self._standing is not None or self._standby is not None:
            standing = self._standing_by(operands)
            if standing is not None:
                return standing.serve(inputs, out, steps)
        counters.fallbacks.add()
        if originals.kept:  # methods of arrays are ours too inside `accelerate`, unlike the functions of `device.xp`
            by_library = partial(originals.call, by_library)
        if out is not None and self._overlaps(operands):
            return operands.give(by_library(device, operands._replace(out=None), parameters, result, precision))
        return by_library(device, operands, parameters, result, precision)

    def leaves(self) -> bool:
        """Return whether it is known what stands by for graph capture; then count the call."""
        if self._standby is not None or self.call.device.emulated:
            return False
        counters.fallbacks.add()
        return True

    def _overlaps(self, operands: Operands) -> bool:
        """Return whether `out` shares memory with what is read, which the library's reductions do not notice."""
        pointer, (inputs, out, steps) = self.call.runtime.pointer, operands
        read = inputs if not steps else (*inputs, *[step.operand for step in steps])
        if self._near is None:
            self._near = tuple([clearance(array, out) for array in read])
        at = pointer(out)
        for array, (low, high) in zip(read, self._near, strict=True):
            if array is not None and low < at - pointer(array) < high:
                return True
        return False

    def _standing_by(self, operands: Operands) -> Plan | None:
        """Return the Plan of this run, None outside of a capture."""
        if not self._has_run:
            self._has_run = True
            return None
        capturing = self.call.device.capturing()
        if self._standby is not None and self._turn.acquire(blocking=capturing):
            try:
                if self._standby is not None:  # no other thread has done it meanwhile
                    self._standing = self._standby(operands, capturing)
                    if self._standing is not None or not capturing:
                        self._standby = None
            finally:
                self._turn.release()
        return self._standing if capturing else None
