"""From the first call of a kind to its Plan: which tier serves it, what is copied first, and the kernel bound to it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gensor_kernels import config
from gensor_kernels.dispatch.calls.problem import LARGEST_EXTENT, Problem
from gensor_kernels.dispatch.functions.matmul import WRAPS, exact
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.dispatch.tuning import copy_race
from gensor_kernels.dispatch.tuning.background import improve
from gensor_kernels.dispatch.tuning.race import may
from gensor_kernels.errors import BuildError, UnsupportedError

from . import unfused
from .launch import launching, load
from .lowering import Lowered, lower
from .plan import (
    SUMS_OF_NOTHING,
    Call,
    CopyPlan,
    Inputs,
    LibraryPlan,
    NothingPlan,
    Plan,
    Steps,
    SwitchedPlan,
    TemporaryPlan,
    ZeroPlan,
)
from .trial import Trial

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray


def make(call: Call, inputs: Inputs, out: DeviceArray, steps: Steps) -> tuple[Plan, bool]:
    """Return (Plan, whether it holds for later calls too)."""
    call.function.check(call.result, out, steps)
    idle = idle_plan(call, inputs, steps)
    if idle is not None:
        return idle, True
    capturing = call.device.capturing()
    try:
        plan = plan_of(call, inputs, out, steps, capturing)
    except Exception as error:
        if call.device.emulated or call.runtime.pins is not None:
            raise
        # Whatever went wrong in choosing or loading, the library would have worked.
        config.logger().warning("no kernel could be prepared: %s", error, exc_info=True)
        plan = LibraryPlan(call, f"no kernel could be prepared: {error}")
    return plan, not capturing


def idle_plan(call: Call, inputs: Inputs, steps: Steps) -> Plan | None:
    """Return the Plan of a call that has nothing to compute, or nothing but its epilogue; else None."""
    if 0 in call.result.shape:
        return NothingPlan(call, "the result has no elements")
    value = call.function.nothing(inputs, call.parameters)
    if value is None:
        return None
    return ZeroPlan(call) if steps else NothingPlan(call, SUMS_OF_NOTHING, value)


def plan_of(call: Call, inputs: Inputs, out: DeviceArray, steps: Steps, capturing: bool) -> Plan:
    """Return the Plan of a call whose result has elements: on trial, where its kind is to race."""
    refused: dict[str, str] = {}
    while True:
        choice, lowered = choose(call, inputs, out, steps, capturing, improving=True, refused=refused)
        if choice.kernel is None and refused:
            choice = replace(choice, reason=next(iter(refused.values())))
        plan = _report(call, choice, lowered, inputs, out, steps)
        if choice.kernel is None or not isinstance(plan, LibraryPlan) or not call.device.emulated:
            break
        # No library steps in for a kernel that cannot be loaded: another one may.
        refused[choice.kernel.stored] = plan.reason
    if lowered is not None:
        _warn_of_wrapping(call, lowered)
    if lowered is not None and not (call.device.emulated and choice.kernel is None):
        _pin(call, None if isinstance(plan, LibraryPlan) else choice.kernel, lowered, capturing, steps)
    if lowered is None or capturing or call.device.emulated:
        return plan
    return _on_trial(call, choice, lowered, plan, (inputs, out, steps))


def _warn_of_wrapping(call: Call, lowered: Lowered) -> None:
    """Warn once of int8 products that wrap around where kernels were tuned for their exact sums."""
    wide = exact(lowered.problem.workload)
    if wide is not None and call.runtime.library.record(wide) is not None:
        config.warn_once(f"a kernel is stored for the int32 result of this product, but {WRAPS}")


def _pin(call: Call, kernel: Kernel | None, lowered: Lowered, captured: bool, steps: Steps) -> None:
    """Pin what serves a call, where the block has a list of kernels."""
    if call.runtime.pins is not None:
        request = replace(_request(call, lowered.problem, steps), captured=captured)
        call.runtime.pins.note(request, kernel, bool(lowered.staged))


def _report(
    call: Call, choice: tiers.Choice, lowered: Lowered | None, inputs: Inputs, out: DeviceArray, steps: Steps
) -> Plan:
    reason = choice.reason
    if choice.kernel is not None and lowered is not None:
        try:
            plan = _launching(call, choice.kernel, lowered, choice.tier, (inputs, out, steps))
            switched = call.precision is None and lowered.problem.workload.math == "tf32"
            return SwitchedPlan(plan) if switched else plan
        except (BuildError, UnsupportedError) as error:
            reason = f"kernel {choice.kernel.stored[:12]} cannot be used here: {error}"
            config.logger().warning("%s", reason)
    return LibraryPlan(call, reason, _standby(call) if choice.standby else None)


def _launching(call: Call, kernel: Kernel, lowered: Lowered, tier: int, arrays: tuple[Inputs, Any, Steps]) -> Plan:
    """Load a kernel and return the Plan that launches it, on copies where no kernel takes the arrays' layouts."""
    bound = load(call, kernel, lowered.problem)
    return _copy_plan(call, lowered, tier) or launching(call, tier, bound, *arrays)


def _copy_plan(call: Call, lowered: Lowered, tier: int) -> Plan | None:
    """Return the Plan of a call that copies, or None of one that does not."""
    if lowered.copied:
        return CopyPlan(call, tier, lowered.copies, lowered.spread, lowered.parameters, lowered.rounded)
    return TemporaryPlan(call, tier) if lowered.temporary else None


def _on_trial(
    call: Call, choice: tiers.Choice, lowered: Lowered, plan: Plan, arrays: tuple[Inputs, Any, Steps]
) -> Plan:
    """Return a Trial of the Plan where its kind of call is to race, else the Plan."""
    runtime, problem = call.runtime, lowered.problem
    request = _request(call, problem, arrays[2])

    def launch(kernel: Kernel, inputs: Inputs, out: DeviceArray, steps: Steps) -> Plan:
        return launching(call, 1, load(call, kernel, problem), inputs, out, steps)

    def again(inputs: Inputs, out: DeviceArray, steps: Steps) -> Plan:
        return plan_of(call, inputs, out, steps, False)

    staged = _copy_plan(call, lowered, choice.tier)
    if staged is None:
        return Trial(plan, request, launch, again) if may(runtime, problem.workload) else plan
    kind = copy_race.kind(runtime, problem, arrays_of(*arrays))
    if not copy_race.may(runtime, kind, copy_race.is_hopeful(choice)):
        return plan
    return Trial(plan, request, launch, again, (kind, staged))


def _standby(call: Call) -> Any:
    """Return the function that makes the Plan of a call inside graph capture; outside of one its kernel is loaded."""

    def standby(inputs: Inputs, out: DeviceArray, steps: Steps, capturing: bool) -> Plan | None:
        try:
            choice, lowered = choose(call, inputs, out, steps, capturing, captured=True)
            if choice.kernel is None or lowered is None:
                return None
            plan = _launching(call, choice.kernel, lowered, choice.tier, (inputs, out, steps))
            _pin(call, choice.kernel, lowered, True, steps)
            return plan
        except Exception as error:
            config.logger().info("nothing stands by for graph capture: %s", error)
            return None

    return standby


def choose(
    call: Call,
    inputs: Inputs,
    out: DeviceArray,
    steps: Steps,
    capturing: bool,
    *,
    improving: bool = False,
    captured: bool = False,
    refused: Collection[str] = (),
) -> tuple[tiers.Choice, Lowered | None]:
    """Return the tier that serves a call, and the call as kernels see it (None where none could).

    `improving` lets the call tier up, which may tune; without it nothing but memory is read. `captured`: choose
    as for a graph, in which the library's call cannot be recorded. `refused`: kernels that are passed over.
    """
    runtime, device = call.runtime, call.device
    if config.disabled() and not device.emulated:
        return tiers.Choice(4, "GENSOR_DISABLE is set"), None
    if device.arch is None:
        return tiers.Choice(4, device.unsupported), None
    arrays = arrays_of(inputs, out, steps)
    if not all(device.is_local(array) for array in arrays):
        return tiers.Choice(4, "an operand is in the memory of another device"), None
    try:
        lowered = lower(call, inputs, out, steps)
        problem = lowered.problem
        if max(*problem.geometry.sizes, *problem.geometry.batch) > LARGEST_EXTENT:
            raise UnsupportedError("an extent of 2^31 or more")
    except UnsupportedError as error:
        return tiers.Choice(4, error.reason), None
    request = replace(
        _request(call, problem, steps),
        captured=capturing or captured,
        loaded=runtime.loaded if capturing and not config.deterministic() else None,
        refused=refused,
        unfused=lambda: unfused.microseconds(call, inputs, out, steps),
    )
    choice = tiers.choose(request, runtime.library)
    if improving and config.tune_mode() == "now":
        refine = runtime.background.refine
        choice = improve(request, choice, runtime.library, runtime.tuned, runtime.notes, device.number, refine)
    if lowered.staged and not request.captured:
        kind = copy_race.kind(runtime, problem, arrays)
        choice = copy_race.choose(runtime, kind, request.one_call, choice)
    if runtime.pins is not None:
        choice = runtime.pins.choose(request, choice, bool(lowered.staged), runtime.library)
    if capturing and choice.kernel is not None and choice.kernel.stored not in runtime.loaded:
        choice = tiers.Choice(4, "the kernel of this call is not loaded: make the call once outside of the capture")
    return choice, lowered


def arrays_of(inputs: Inputs, out: DeviceArray, steps: Steps) -> list[Any]:
    """Return the arrays of a call, those of its epilogue included."""
    return [array for array in (*inputs, out, *(step.operand for step in steps)) if array is not None]


def _request(call: Call, problem: Problem, steps: Steps) -> tiers.Request:
    arch = call.device.arch
    assert arch is not None
    return tiers.Request(problem, arch, call.device.emulated, call.one_call(steps))
