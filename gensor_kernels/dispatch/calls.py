"""The path of every call of a Function: its Plan, or, the first time, which tier makes one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import config
from ..errors import BuildError, UnsupportedError
from ..operators import operator
from ..operators.workload import View
from . import counting, tiers
from .arguments import Operation, kind
from .asking import Question, asking
from .call_plans import Base, CopyPlan, KernelPlan, LibraryPlan, NothingPlan, TemporaryPlan
from .function import Asked, Copy, Function, Result, Staged
from .problem import LARGEST_EXTENT, Problem, broadcast, view_of
from .racing import may
from .runtime import Runtime, about, places
from .staging import operand_dtype, repeats_itself
from .tierup import improve
from .trials import TrialCall


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
    if plan is None:
        plan = _first(runtime, key, (function, parameters, math), inputs, out, steps)
        return counting.serve(plan, inputs, out, steps)
    return plan.serve(inputs, out, steps)


def _first(
    runtime: Runtime, key: tuple[Any, ...], asked: tuple[Function, Any, str], inputs: Any, out: Any, steps: Any
) -> Any:
    """The Plan of the first call of its kind, or of any while calls are recorded."""
    function, parameters, math = asked
    plan: Any = runtime.plans.get(key)
    if plan is not None:
        return plan
    check(runtime, inputs, out, steps)
    with runtime.lock:
        plan = runtime.plans.get(key)
        if plan is None:
            result = function.result(inputs, parameters)
            plan, keep = make(Base(runtime, function, parameters, result, math), inputs, out, steps)
            if keep:
                runtime.plans[key] = plan
    return plan


def check(runtime: Runtime, inputs: Sequence[Any], out: Any, steps: Sequence[Operation]) -> None:
    """TypeError for what is no array of this device."""
    for value in (*inputs, out, *(step.operand for step in steps)):
        if value is not None and not runtime.device.is_array(value):
            raise TypeError(f"expected a {runtime.device.xp.__name__} array, not {kind(value)}")


def make(base: Base, inputs: Any, out: Any, steps: Any) -> tuple[Any, bool]:
    """(Plan, whether it holds for later calls too)."""
    device, result, name = base.runtime.device, base.result, base.function.name
    capturing = device.capturing()
    if out is not None:
        if tuple(out.shape) != result.shape:
            raise ValueError(f"{name}: out has shape {tuple(out.shape)}, the result {result.shape}")
        if not np.can_cast(result.dtype, out.dtype, "same_kind"):
            raise TypeError(f"{name}: the result's {result.dtype} cannot be cast to {out.dtype}")
    if 0 in result.shape:
        return NothingPlan(base), True
    plan: Any = None
    try:
        choice, problem, copies = choose(base, inputs, out, steps, capturing, improving=True)
        reason = choice.reason
        direct = copies is None and (out is None or not _needs_temporary(base, out))
        if choice.kernel is not None and problem is not None:
            if copies is not None:
                plan = CopyPlan(base, copies, choice.tier)
            elif not direct:
                plan = TemporaryPlan(base, choice.tier)
            else:
                plan = KernelPlan(base, choice.kernel, problem, inputs, out, steps, choice.tier)
        plan = plan or LibraryPlan(base, reason)
        if direct and problem is not None and not capturing and may(base.runtime, problem.workload):
            plan = TrialCall(base, _request(base, problem, steps), plan)
        return plan, not capturing
    except (UnsupportedError, BuildError) as error:
        reason = str(error)
    except Exception as error:
        if device.emulated:
            raise
        config.logger().warning("no kernel could be prepared: %s", error, exc_info=True)
        reason = f"no kernel could be prepared: {error}"
    return LibraryPlan(base, reason), not capturing


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


def choose(
    base: Base, inputs: Any, out: Any, steps: Any, capturing: bool, *, improving: bool = False
) -> tuple[tiers.Choice, Problem | None, tuple[Copy | None, ...] | None]:
    """Which tier serves a call, what kernels compute for it, and which inputs are copied first."""
    runtime, device = base.runtime, base.runtime.device
    if config.disabled() and not device.emulated:
        return tiers.Choice(4, "GENSOR_DISABLE is set"), None, None
    if device.arch is None:
        return tiers.Choice(4, device.unsupported), None, None
    arrays = [array for array in (*inputs, out, *(step.operand for step in steps)) if array is not None]
    if not all(device.is_local(array) for array in arrays):
        return tiers.Choice(4, "an operand is in the memory of another device"), None, None
    try:
        problem, copies = study(base, inputs, out, steps)
    except UnsupportedError as error:
        return tiers.Choice(4, error.reason), None, None
    if max(*problem.geometry.sizes, *problem.geometry.batch) > LARGEST_EXTENT:
        return tiers.Choice(4, "an extent of 2^31 or more"), None, None
    request = _request(base, problem, steps, capturing)
    choice = tiers.choose(request, runtime.library)
    if improving:
        choice = improve(request, choice, runtime.library, runtime.tuned, runtime.notes)
    return choice, problem, copies


def study(base: Base, inputs: Any, out: Any, steps: Any) -> tuple[Problem, tuple[Copy | None, ...] | None]:
    """The problem a call is to kernels; with copies, the problem it is once they are made."""
    pointer, result = base.runtime.pointer, base.result
    fresh = out is None or _needs_temporary(base, out)
    views = tuple(None if array is None else view_of(array, pointer(array)) for array in inputs)
    target = result.view() if fresh else view_of(out, pointer(out))
    over = tuple(None if step.operand is None else _broadcast(base, step.operand) for step in steps)
    asked = Asked(views, target, base.parameters, steps, over, result, base.math)
    copies: tuple[Copy | None, ...] | None = None
    try:
        understood = base.function.understand(asked)
    except Staged as needed:
        copies = needed.copies
        staged = tuple(_copied(view, copy) for view, copy in zip(views, copies, strict=True))
        understood = base.function.understand(replace(asked, inputs=staged))
    operands = understood.operands
    if operands is None:
        declared, workload = operator(understood.workload.operator), understood.workload
        operands = tuple(
            None if view is None else declared.output(workload, understood.declared(view.strides)) for view in over
        )
    return Problem(understood.workload, False, understood.geometry, operands), copies


def _broadcast(base: Base, operand: Any) -> View:
    """An epilogue's operand as the result's shape sees it."""
    if operand.dtype != operand_dtype(operand.dtype):
        raise UnsupportedError(f"an epilogue operand of dtype {operand.dtype.name}")
    return broadcast(view_of(operand, base.runtime.pointer(operand)), base.result.shape)


def _needs_temporary(base: Base, out: Any) -> bool:
    """Whether no kernel writes `out` as it lies."""
    strides = (base.runtime.pointer(out), *out.strides)
    return out.dtype != base.result.dtype or repeats_itself(out) or any(s % out.dtype.itemsize for s in strides)


def _copied(view: View | None, copy: Copy | None) -> View | None:
    if view is None or copy is None:
        return view
    return Result(view.shape, np.dtype(copy.dtype), copy.order).view()
