"""From the first call of a kind to its Plan: choose what serves it, stage its arrays, launch the kernel."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import LARGEST_EXTENT, Problem
from gensor_kernels.dispatch.functions.matmul import WRAPS, exact
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.dispatch.selection.tiers import Choice, Request
from gensor_kernels.dispatch.tuning import comparison, copy_race, race
from gensor_kernels.dispatch.tuning.background import improve
from gensor_kernels.errors import BuildError, UnsupportedError

from . import unfused
from .launch import LaunchPlan, launch
from .plan import Call, LibraryPlan, Plan, Standby, idle_plan
from .stage import Lowered, StagedPlan, stage
from .trial import Trial


def make(call: Call, operands: Operands) -> tuple[Plan, bool]:
    """Return (Plan, whether it holds for later calls too)."""
    call.function.check(call.result, operands.out, operands.steps)
    idle = idle_plan(call, operands)
    if idle is not None:
        return idle, True
    capturing = call.device.capturing()
    try:
        plan = plan_of(call, operands, capturing)
    except Exception as error:
        if call.device.emulated or call.runtime.pins is not None:
            raise
        # Whatever went wrong in choosing or loading, the library would have worked.
        config.logger().warning("no kernel could be prepared: %s", error, exc_info=True)
        plan = LibraryPlan(call, f"no kernel could be prepared: {error}")
    return plan, not capturing


def plan_of(call: Call, operands: Operands, capturing: bool = False) -> Plan:
    """Return the Plan of a call whose result has elements: on trial, where its kind is to race."""
    emulated, refused = call.device.emulated, dict[str, str]()
    while True:
        choice, lowered = choose(call, operands, capturing, improving=True, refused=refused)
        if choice.kernel is None and refused:
            choice = replace(choice, reason=next(iter(refused.values())))
        plan = _plan(call, choice, lowered, operands)
        if choice.kernel is None or not isinstance(plan, LibraryPlan) or not emulated:
            break
        # No library steps in for a kernel that cannot be loaded: another one may.
        refused[choice.kernel.stored] = plan.reason
    if lowered is None:
        return plan
    wide = exact(lowered.problem.workload)
    if wide is not None and call.runtime.library.record(wide) is not None:
        config.warn_once(f"a kernel is stored for the int32 result of this product, but {WRAPS}")
    if not (emulated and choice.kernel is None):
        _pin(call, None if isinstance(plan, LibraryPlan) else choice.kernel, lowered, capturing, operands)
    return plan if capturing or emulated else _on_trial(call, choice, lowered, plan, operands)


def choose(
    call: Call,
    operands: Operands,
    capturing: bool,
    *,
    improving: bool = False,
    captured: bool = False,
    refused: Collection[str] = (),
) -> tuple[Choice, Lowered | None]:
    """Return the tier that serves a call, and the call as kernels see it (None where none could).

    `improving` lets the call tier up, which may tune; without it nothing but memory is read. `captured`: choose
    as for a graph, in which the library's call cannot be recorded. `refused`: kernels that are passed over.
    """
    runtime, device = call.runtime, call.device
    if config.disabled() and not device.emulated:
        return Choice(4, "GENSOR_DISABLE is set"), None
    if device.arch is None:
        return Choice(4, device.unsupported), None
    if not all(device.is_local(array) for array in operands.arrays()):
        return Choice(4, "an operand is in the memory of another device"), None
    try:
        lowered = stage(call, operands)
        problem = lowered.problem
        if max(*problem.geometry.sizes, *problem.geometry.batch) > LARGEST_EXTENT:
            raise UnsupportedError("an extent of 2^31 or more")
    except UnsupportedError as error:
        return Choice(4, error.reason), None
    request = replace(
        request_of(call, problem, operands),
        captured=capturing or captured,
        loaded=runtime.loaded if capturing and not config.deterministic() else None,
        refused=refused,
        unfused=lambda: unfused.predict_substitute(call, operands),
    )
    if runtime.refuted and not request.captured and problem.workload.key() in runtime.refuted:
        return Choice(4, runtime.refuted[problem.workload.key()], standby=True), lowered
    choice = tiers.choose(request, runtime.library)
    if improving and config.tune_mode() == "now":
        choice = improve(runtime, request, choice)
    if lowered.staged and not request.captured:
        kind = copy_race.kind(runtime, problem, operands.arrays())
        choice = copy_race.choose(runtime, kind, request.one_call, choice)
    if runtime.pins is not None:
        choice = runtime.pins.choose(request, choice, bool(lowered.staged), runtime.library)
    if capturing and choice.kernel is not None and choice.kernel.stored not in runtime.loaded:
        choice = Choice(4, "the kernel of this call is not loaded: make the call once outside of the capture")
    return choice, lowered


def request_of(call: Call, problem: Problem, operands: Operands) -> Request:
    """Return what the tiers need to know of a call."""
    arch = call.device.arch
    assert arch is not None
    return Request(problem, arch, call.device.emulated, call.one_call(operands.steps))


def _plan(call: Call, choice: Choice, lowered: Lowered | None, operands: Operands) -> Plan:
    """Return the Plan of a choice; the library's where the kernel cannot be loaded."""
    reason = choice.reason
    if choice.kernel is not None and lowered is not None:
        try:
            return launch(call, choice.tier, choice.kernel, lowered, operands)
        except (BuildError, UnsupportedError) as error:
            reason = f"kernel {choice.kernel.stored[:12]} cannot be used here: {error}"
            config.logger().warning("%s", reason)
    return LibraryPlan(call, reason, _standby(call) if choice.standby else None)


def _standby(call: Call) -> Standby:
    """Return the function that makes the Plan of a call inside graph capture; outside of one its kernel is loaded."""

    def standby(operands: Operands, capturing: bool) -> Plan | None:
        try:
            choice, lowered = choose(call, operands, capturing, captured=True)
            if choice.kernel is None or lowered is None:
                return None
            plan = launch(call, choice.tier, choice.kernel, lowered, operands)
            _pin(call, choice.kernel, lowered, True, operands)
            return plan
        except Exception as error:
            config.logger().info("nothing stands by for graph capture: %s", error)
            return None

    return standby


def _pin(call: Call, kernel: Kernel | None, lowered: Lowered, captured: bool, operands: Operands) -> None:
    """Pin what serves a call, where the block has a list of kernels."""
    if call.runtime.pins is not None:
        request = replace(request_of(call, lowered.problem, operands), captured=captured)
        call.runtime.pins.note(request, kernel, bool(lowered.staged))


def _on_trial(call: Call, choice: Choice, lowered: Lowered, plan: Plan, operands: Operands) -> Plan:
    """Return a Trial of the Plan where its kind of call is to race or its kernel to be compared, else the Plan."""
    runtime, request = call.runtime, request_of(call, lowered.problem, operands)
    if not lowered.staged:
        workload = lowered.problem.workload
        races = race.may(runtime, workload)
        kernel = plan.kernel if isinstance(plan, LaunchPlan) else None
        due = races or comparison.is_due(runtime, kernel, workload, call.result.dtype)
        return Trial(plan, request, plan_of, races=races) if due else plan
    kind = copy_race.kind(runtime, lowered.problem, operands.arrays())
    if not copy_race.may(runtime, kind, copy_race.is_hopeful(choice)):
        return plan
    return Trial(plan, request, plan_of, (kind, StagedPlan(call, choice.tier, lowered, switched=False)))
