"""The path of every call of a Function: its Plan, or, the first time, which tier makes one."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operation, kind
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.observe.dry_run import Question, asking
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.dispatch.tuning import copy_race
from gensor_kernels.dispatch.tuning.background import improve
from gensor_kernels.dispatch.tuning.race import may
from gensor_kernels.errors import BuildError, UnsupportedError

from . import recorded as plans_recorded
from . import unfused
from .call_plans import Base, CopyPlan, KernelPlan, LibraryPlan, NothingPlan, TemporaryPlan, ZeroPlan
from .copy_trial import CopiedCall
from .failures import instead
from .function import Function
from .key import about, places
from .lowering import Studied, study
from .problem import LARGEST_EXTENT, Problem
from .runtime import Runtime
from .trial import TrialCall


def call(
    runtime: Runtime,
    function: Function,
    inputs: tuple[Any, ...],
    parameters: Hashable,
    out: Any = None,
    steps: tuple[Operation, ...] = (),
    precision: str | None = None,
) -> Any:
    """`function` of arrays of this runtime's device, into `out` or a new array."""
    if asking.get():
        check(runtime, inputs, out, steps)
        result = function.result(inputs, parameters)
        raise Question(
            "function", Base(runtime, function, parameters, result, runtime.precision(precision)), inputs, out, steps
        )
    pointer = runtime.pointer
    try:
        arrays = [array for array in (*inputs, out) if array is not None]
        laid = tuple(None if x is None else (x.shape, x.strides, x.dtype, pointer(x) & 15) for x in (*inputs, out))
        math = runtime.precision(precision)
        key: tuple[Any, ...] = (function.name, parameters, math, laid, about(steps, pointer))
        if runtime.where is not None:
            key += places((*arrays, *(step.operand for step in steps)), runtime.where)
        plan: Any = runtime.find(key)
    except (AttributeError, TypeError):
        check(runtime, inputs, out, steps)
        raise
    first = plan is None
    plan = plan or _first(runtime, key, (function, parameters, math), inputs, out, steps)
    try:
        return plans_recorded.serve(plan, inputs, out, steps) if first else plan.serve(inputs, out, steps)
    except runtime.troubles as error:
        plan = instead(runtime, key, plan, error, partial(LibraryPlan, plan.base))
    return plans_recorded.serve(plan, inputs, out, steps) if first else plan.serve(inputs, out, steps)


def _first(
    runtime: Runtime, key: tuple[Any, ...], asked: tuple[Function, Any, str], inputs: Any, out: Any, steps: Any
) -> Any:
    """The Plan of the first call of its kind, or of any while calls are recorded."""
    function, parameters, math = asked
    plan: Any = runtime.plans.get(key)
    if plan is not None:
        counters.seen(plan)
        return plan
    check(runtime, inputs, out, steps)
    with runtime.lock:
        plan = runtime.plans.get(key)
        if plan is None:
            counters.misses.add()
            result = function.result(inputs, parameters)
            plan, keep = make(Base(runtime, function, parameters, result, math), inputs, out, steps)
            if keep:
                runtime.keep(key, plan)
    return plan


def check(runtime: Runtime, inputs: Sequence[Any], out: Any, steps: Sequence[Operation]) -> None:
    """TypeError for what is no array of this device."""
    for value in (*inputs, out, *(step.operand for step in steps)):
        if value is not None and not runtime.device.is_array(value):
            raise TypeError(f"expected a {runtime.device.xp.__name__} array, not {kind(value)}")


def make(
    base: Base, inputs: Any, out: Any, steps: Any, refused: Mapping[str, str] = MappingProxyType({})
) -> tuple[Any, bool]:
    """(Plan, whether it holds for later calls too); without the kernels in `refused`, whose values say why."""
    device, result, name = base.runtime.device, base.result, base.function.name
    capturing = device.capturing()
    if out is not None:
        if tuple(out.shape) != result.shape:
            raise ValueError(f"{name}: out has shape {tuple(out.shape)}, the result {result.shape}")
        if not np.can_cast(result.dtype, out.dtype, "same_kind"):
            raise TypeError(f"{name}: the result's {result.dtype} cannot be cast to {out.dtype}")
    idle = idle_plan(base, inputs, steps)
    if idle is not None:
        return idle, True
    plan: Any = None
    choice: tiers.Choice | None = None
    try:
        choice, studied = choose(base, inputs, out, steps, capturing, improving=True, refused=refused)
        reason = choice.reason
        staged = None if studied is None else _staged(base, studied, choice.tier)
        if choice.kernel is not None and studied is not None:
            plan = staged or KernelPlan(base, choice.kernel, studied.problem, inputs, out, steps, choice.tier)
        plan = plan or LibraryPlan(base, next(iter(refused.values()), reason), choice.standby)
        if studied is None or capturing:
            return plan, not capturing
        request = _request(base, studied.problem, steps)
        if staged is not None:
            kind = copy_race.kind(base.runtime, studied.problem, _arrays(inputs, out, steps))
            if copy_race.may(base.runtime, kind, copy_race.is_hopeful(choice)):
                plan = CopiedCall(base, request, kind, plan, staged)
        elif may(base.runtime, studied.problem.workload):
            plan = TrialCall(base, request, plan)
        return plan, True
    except (UnsupportedError, BuildError) as error:
        if device.emulated and choice is not None and choice.kernel is not None:
            # No library steps in for a kernel that cannot be loaded: another one may.
            config.logger().warning("kernel %s cannot be used here: %s", choice.kernel.digest[:12], error)
            return make(base, inputs, out, steps, {**refused, choice.kernel.digest: str(error)})
        reason = str(error)
    except Exception as error:
        if device.emulated:
            raise
        config.logger().warning("no kernel could be prepared: %s", error, exc_info=True)
        reason = f"no kernel could be prepared: {error}"
    return LibraryPlan(base, reason), not capturing


def _staged(base: Base, studied: Studied, tier: int) -> CopyPlan | TemporaryPlan | None:
    """The Plan of a call that copies; None of one that does not."""
    if studied.copied:
        return CopyPlan(base, studied.copies, studied.spread, tier)
    return TemporaryPlan(base, tier) if studied.temporary else None


def _arrays(inputs: Any, out: Any, steps: Any) -> list[Any]:
    return [array for array in (*inputs, out, *(step.operand for step in steps)) if array is not None]


def _request(base: Base, problem: Problem, steps: Any, capturing: bool = False) -> tiers.Request:
    runtime = base.runtime
    assert runtime.device.arch is not None
    return tiers.Request(
        problem=problem,
        arch=runtime.device.arch,
        emulated=runtime.device.emulated,
        one_call=base.function.one_call and not steps,
        captured=capturing,
        loaded=runtime.loaded if capturing else None,
    )


def idle_plan(base: Base, inputs: Any, steps: Any) -> NothingPlan | ZeroPlan | None:
    """The Plan of a call that has nothing to compute, or nothing but its epilogue."""
    if 0 in base.result.shape:
        return NothingPlan(base, "the result has no elements")
    value = base.function.nothing(inputs, base.parameters)
    if value is None:
        return None
    return ZeroPlan(base) if steps else NothingPlan(base, ZeroPlan.reason, value)


def standby(base: Base, inputs: Any, out: Any, steps: Any, capturing: bool) -> Any:
    """The Plan for this call inside graph capture; outside of one its kernel is loaded. None: there is none."""
    try:
        choice, studied = choose(base, inputs, out, steps, capturing, captured=True)
        if choice.kernel is None or studied is None:
            return None
        plan = KernelPlan(base, choice.kernel, studied.problem, inputs, out, steps, choice.tier)
        return _staged(base, studied, choice.tier) or plan
    except Exception as error:
        config.logger().info("nothing stands by for graph capture: %s", error)
        return None


def choose(
    base: Base,
    inputs: Any,
    out: Any,
    steps: Any,
    capturing: bool,
    *,
    improving: bool = False,
    captured: bool = False,
    refused: Collection[str] = (),
) -> tuple[tiers.Choice, Studied | None]:
    """Which tier serves a call, and what kernels compute for it; see planning.choose."""
    runtime, device = base.runtime, base.runtime.device
    if config.disabled() and not device.emulated:
        return tiers.Choice(4, "GENSOR_DISABLE is set"), None
    if device.arch is None:
        return tiers.Choice(4, device.unsupported), None
    if not all(device.is_local(array) for array in _arrays(inputs, out, steps)):
        return tiers.Choice(4, "an operand is in the memory of another device"), None
    try:
        studied = study(base, inputs, out, steps)
        problem = studied.problem
    except UnsupportedError as error:
        return tiers.Choice(4, error.reason), None
    if max(*problem.geometry.sizes, *problem.geometry.batch) > LARGEST_EXTENT:
        return tiers.Choice(4, "an extent of 2^31 or more"), None
    request = _request(base, problem, steps, capturing)
    request = replace(
        request,
        captured=capturing or captured,
        refused=refused,
        unfused=lambda: unfused.of_function(base, inputs, out, steps),
    )
    choice = tiers.choose(request, runtime.library)
    if improving:
        choice = improve(request, choice, runtime.library, runtime.tuned, runtime.notes, device.number)
    if studied.staged and not request.captured:
        kind = copy_race.kind(runtime, problem, _arrays(inputs, out, steps))
        choice = copy_race.weighed(runtime, kind, request.one_call, choice)
    return choice, studied
