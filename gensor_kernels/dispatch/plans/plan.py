"""Plans: what a call does once everything about it but its addresses and scalars is known (launches: launch.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from gensor_kernels.dispatch.calls.arguments import Call, Operation
from gensor_kernels.dispatch.calls.fallback import conjugated, evaluate
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.errors import UnsupportedError

from .staging import Staging, operand_dtype
from .standby import Standby

if TYPE_CHECKING:
    from .runtime import Runtime

Steps = tuple[Operation, ...]
#: A launch with everything known: the addresses of a, b and out that it is for, a function and its four arguments, and
#: what holds the memory of these.
Placed = tuple[int, int, int, Any, Any, Any, Any, int, Any]
NOWHERE: Placed = (-1, -1, -1, None, None, None, None, 0, None)


class Plan(Protocol):
    """Runs one call; `pa`, `pb` and `pc` are the addresses of a, b and out (0 without one).

    `tier` is the one that serves it, 0 where there is nothing to compute. Plans of products also have `placed`: what a
    call at the addresses it names comes to, NOWHERE where that is not known, and `allocates`: whether they may allocate
    more than a result.
    """

    call: Call
    tier: int

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """The result: `out` where there is one."""


class EmptyPlan:
    """A result without elements."""

    placed, allocates = NOWHERE, True
    tier = 0

    def __init__(self, runtime: Runtime, call: Call):
        self.device, self.call = runtime.device, call.without_arrays()

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """`out`, or a new array."""
        return self.device.empty(self.call.shape, self.call.dtype) if out is None else out


class FallbackPlan:
    """Tier 4. With `standby`, a call that comes back gets a plan that launches kernels, for inside graph capture."""

    placed, allocates = NOWHERE, True
    tier = 4

    def __init__(self, runtime: Runtime, call: Call, reason: str, precision: str | None, standby: bool = False):
        self.runtime, self.device, self.reason = runtime, runtime.device, reason
        self.call = call.without_arrays()
        self.library_call = replace(self.call, math=precision)
        self.standby = Standby(runtime.device, standby)

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Computes, and copies into `out` where there is one."""
        device, call = self.device, self.call
        if device.emulated:
            raise UnsupportedError(f"no kernel serves this call: {self.reason}")

        def standby(capturing: bool) -> Plan | None:
            from .make import standby as made

            return made(self.runtime, replace(call, operations=steps), a, b, out, capturing)

        standing = self.standby.now(standby)
        if standing is not None:
            return standing.run(a, b, out, steps, pa, pb, pc)
        if self.reason:  # races have none
            counters.fallbacks.add()
        if call.plain:
            return device.product(a, b, self.library_call.math, out)
        value = evaluate(device, replace(self.library_call, operations=steps), a, b)
        if out is None:
            return value
        out[...] = value
        return out


class SwitchedPlan:
    """A plan with TF32 products because the library's switch allowed them: asked again at every run.

    The other way round nothing is asked: products that are more precise than allowed are never wrong.
    """

    placed, allocates = NOWHERE, True

    def __init__(self, runtime: Runtime, call: Call, plan: Plan):
        self.runtime, self.call, self.plan, self.tier = runtime, call.without_arrays(), plan, plan.tier

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """Runs the plan while the switch is on."""
        if self.runtime.device.tf32():
            return self.plan.run(a, b, out, steps, pa, pb, pc)
        return self.runtime.call(a, b, out, steps, self.call.dtype, "ieee")


class StagedPlan:
    """Operands that kernels cannot take as they lie: converted or compacted, then the call is made again."""

    placed, allocates = NOWHERE, True
    tier = 3  # at worst, as for every kernel; whoever chose it says so

    def __init__(self, runtime: Runtime, call: Call, staging: Staging):
        self.runtime, self.call, self.staging = runtime, call.without_arrays(), staging

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
        first, second = conjugated(call, self._matrix(a), self._matrix(b))
        result = self.runtime.call(first, second, target, staged, call.dtype, call.math)
        if out is None or target is not None:
            return result
        out[...] = result
        return out
