"""From a call to a Plan: which tier serves it, what happens to its arrays first, and the kernel bound to its sizes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Call, resolve
from gensor_kernels.dispatch.calls.fallback import integer_steps
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.dispatch.tuning import copy_race
from gensor_kernels.dispatch.tuning.background import improve
from gensor_kernels.dispatch.tuning.race import may
from gensor_kernels.errors import BuildError, UnsupportedError
from gensor_kernels.operators.types.geometry import Strides
from gensor_kernels.programs.core import params
from gensor_kernels.programs.registry import FAMILIES

from . import unfused
from .copy_trial import CopiedProduct
from .launch import Bound, launching
from .plan import EmptyPlan, FallbackPlan, Plan, StagedPlan, SwitchedPlan
from .problem import LARGEST_EXTENT, Problem
from .staging import Staging, problem_of
from .trial import TrialPlan

if TYPE_CHECKING:
    from gensor_kernels.dispatch.contractions.lowering import Study

    from .runtime import Runtime


def plan(
    runtime: Runtime,
    a: Any,
    b: Any,
    out: Any,
    steps: Any,
    dtype: Any,
    precision: str | None,
    study: Study | None = None,
) -> tuple[Plan, bool]:
    """(Plan, whether it holds for later calls too); `study` is of the contraction whose product this is."""
    call = resolve(a, b, out, steps, dtype, runtime.precision(precision))
    if study is not None:
        call = study.call(call)
    if 0 in call.shape:
        return EmptyPlan(runtime, call), True
    capturing = runtime.device.capturing()
    try:
        made = plan_of(runtime, call, a, b, out, precision, capturing, racing=study is None)
    except Exception as error:
        if runtime.device.emulated:
            raise
        # Whatever went wrong in choosing or loading, the library would have worked.
        config.logger().warning("no kernel could be prepared: %s", error, exc_info=True)
        made = FallbackPlan(runtime, call, f"no kernel could be prepared: {error}", precision)
    return made, not capturing


def plan_of(
    runtime: Runtime,
    call: Call,
    a: Any,
    b: Any,
    out: Any,
    precision: str | None,
    capturing: bool,
    *,
    racing: bool = True,
) -> Plan:
    """The Plan of a call whose result has elements; with `racing` on trial, where its kind is to race."""
    refused: dict[str, str] = {}
    while True:
        choice, problem, staging = choose(runtime, call, a, b, out, capturing, improving=True, refused=refused)
        if choice.kernel is None and refused:
            choice = replace(choice, reason=next(iter(refused.values())))
        made = _chosen(runtime, choice, problem, staging, call, (a, b, out), precision)
        if choice.kernel is None or not isinstance(made, FallbackPlan) or not runtime.device.emulated:
            break
        # No library steps in for a kernel that cannot be loaded: another one may.
        refused[choice.kernel.digest] = made.reason
    if not racing or problem is None or capturing:
        return made
    assert runtime.device.arch is not None
    request = tiers.Request(problem, runtime.device.arch, False, call.one_call)
    if staging is not None:
        kind = copy_race.kind(runtime, problem, arrays_of(call, a, b, out))
        if not copy_race.may(runtime, kind, copy_race.is_hopeful(choice)):
            return made
        return CopiedProduct(runtime, call, precision, staging, request, kind, made)
    return TrialPlan(runtime, call, precision, request, made) if may(runtime, problem.workload) else made


def _chosen(
    runtime: Runtime,
    choice: tiers.Choice,
    problem: Problem | None,
    staging: Staging | None,
    call: Call,
    arrays: tuple[Any, Any, Any],
    precision: str | None,
) -> Plan:
    reason = choice.reason
    if choice.kernel is not None and problem is not None:
        try:
            made = bind(runtime, choice.kernel, problem, call, staging, arrays)
            made.tier = choice.tier
            return SwitchedPlan(runtime, call, made) if precision is None and call.math == "tf32" else made
        except BuildError as error:
            reason = f"kernel {choice.kernel.digest[:12]} cannot be used here: {error}"
            config.logger().warning("%s", reason)
    return FallbackPlan(runtime, call, reason, precision, choice.standby)


def standby(runtime: Runtime, call: Call, a: Any, b: Any, out: Any, capturing: bool) -> Plan | None:
    """The Plan for this call inside graph capture; outside of one its kernel is loaded. None: there is none."""
    try:
        choice, problem, staging = choose(runtime, call, a, b, out, capturing, captured=True)
        if choice.kernel is None or problem is None:
            return None
        return bind(runtime, choice.kernel, problem, call, staging, (a, b, out))
    except Exception as error:
        config.logger().info("nothing stands by for graph capture: %s", error)
        return None


def choose(
    runtime: Runtime,
    call: Call,
    a: Any,
    b: Any,
    out: Any,
    capturing: bool,
    *,
    improving: bool = False,
    captured: bool = False,
    refused: Collection[str] = (),
) -> tuple[tiers.Choice, Problem | None, Staging | None]:
    """Which tier serves a call, the contraction it is, and what must be done to its arrays first.

    `improving` lets the call tier up, which may tune; without it nothing but memory is read. `captured`: choose
    as for a graph, in which the library's call cannot be recorded. `refused`: kernels that are passed over.
    """
    device, arch = runtime.device, runtime.device.arch
    if config.disabled() and not device.emulated:
        return tiers.Choice(4, "GENSOR_DISABLE is set"), None, None
    if arch is None:
        return tiers.Choice(4, device.unsupported), None, None
    if not all(device.is_local(array) for array in arrays_of(call, a, b, out)):
        return tiers.Choice(4, "an operand is in the memory of another device"), None, None
    try:
        problem, staging = problem_of(call, a, b, out, runtime.pointer)
    except UnsupportedError as error:
        return tiers.Choice(4, error.reason), None, None
    request = tiers.Request(
        problem=problem,
        arch=arch,
        emulated=device.emulated,
        one_call=call.one_call,
        captured=capturing or captured,
        loaded=runtime.loaded if capturing else None,
        refused=refused,
        unfused=lambda: unfused.of_call(arch, call, a, b, out),
    )
    choice = tiers.choose(request, runtime.library)
    if improving:
        choice = improve(request, choice, runtime.library, runtime.tuned, runtime.notes, device.number)
    if staging is not None and not request.captured:
        kind = copy_race.kind(runtime, problem, arrays_of(call, a, b, out))
        choice = copy_race.weighed(runtime, kind, call.one_call, choice)
    return choice, problem, staging


def arrays_of(call: Call, *arrays: Any) -> list[Any]:
    """The arrays of a call, those of its epilogue included."""
    return [array for array in (*arrays, *(step.operand for step in call.operations)) if array is not None]


def bind(runtime: Runtime, kernel: Kernel, problem: Problem, call: Call, staging: Staging | None, arrays: Any) -> Plan:
    """A Plan that launches `kernel`, which is loaded if it is not yet."""
    family, workload = FAMILIES[kernel.program.family], problem.workload
    launches = family.launches(kernel.program, workload)
    if max(each.grid for each in launches) > LARGEST_EXTENT:
        raise BuildError("its grid would have 2^31 blocks or more")
    launch = runtime.device.load(kernel.code, launches)
    runtime.loaded.add(kernel.digest)
    if staging is not None:
        return StagedPlan(runtime, call, staging)
    template = params.pack(
        problem.geometry,
        family.tiling(kernel.program, problem.geometry),
        steps=_steps(call, problem),
        integer_steps=integer_steps(call),
    )
    bound = Bound(template, launch, problem.swapped, family.workspace(kernel.program, workload))
    return launching(runtime, call, bound, *arrays)


def _steps(call: Call, problem: Problem) -> list[params.Step]:
    steps = []
    for step, strides in zip(call.operations, problem.operands, strict=True):
        dtype = "float32" if step.operand is None else step.operand.dtype.name
        steps.append(params.Step(tiers.code_of(step.name), step.scalar, dtype, strides or Strides()))
    return steps
