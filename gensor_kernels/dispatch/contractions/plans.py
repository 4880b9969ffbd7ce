"""Plans of contractions: what later calls run.

A contraction is a product of windows on its operands (`contract`), which the runtime plans like any other. A Plan here
holds that Plan under a key of its own, so that a warm call looks up once, allocates and launches. Where the runtime
sends the product to the array library, the library's function of the same name gets the caller's operands instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import Call, resolve
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.plans import make as plans_make
from gensor_kernels.dispatch.plans.copy_trial import CopiedContraction
from gensor_kernels.dispatch.plans.launch import LaunchPlan
from gensor_kernels.dispatch.plans.plan import FallbackPlan, Plan, SwitchedPlan
from gensor_kernels.dispatch.plans.staging import problem_of
from gensor_kernels.dispatch.plans.standby import Standby
from gensor_kernels.dispatch.plans.trial import TrialContraction
from gensor_kernels.dispatch.selection.tiers import Request
from gensor_kernels.dispatch.tuning import copy_race
from gensor_kernels.dispatch.tuning.race import may
from gensor_kernels.errors import UnsupportedError

from .lowering import Study, is_staged, stage, staged_form, stand_ins, study, target, views
from .pairs import pair
from .spec import library_call

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime


class ZeroPlan:
    """A sum over nothing, or a result without elements."""

    tier = 0

    def __init__(self, runtime: Runtime, found: Study):
        self.runtime, self.study = runtime, found
        self.call: Any = None

    def run(self, a: Any, b: Any, out: Any, steps: Any, pa: int, pb: int, pc: int) -> Any:
        """Zeros."""
        if out is None:
            return self.runtime.device.xp.zeros(self.study.shape, self.study.dtype)
        out[...] = 0
        return out


class DirectPlan:
    """A kernel launched on the caller's arrays: their addresses are all it takes."""

    def __init__(self, runtime: Runtime, found: Study, plan: LaunchPlan):
        assert found.layout is not None
        self.study, self.call, self.tier, self.dtype = found, plan.call, plan.tier, found.dtype
        self.launch, self.empty, self.pointer = plan.run, runtime.device.empty, runtime.pointer
        self.swapped, self.shape, self.order = found.layout.swapped, found.layout.allocated, found.layout.order

    def run(self, a: Any, b: Any, out: Any, steps: Any, pa: int, pb: int, pc: int) -> Any:
        """A new array, transposed to the order of axes that was asked for."""
        result = self.empty(self.shape, self.dtype)
        if self.swapped:
            self.launch(b, a, result, (), pb, pa, self.pointer(result))
        else:
            self.launch(a, b, result, (), pa, pb, self.pointer(result))
        return result if self.order is None else result.transpose(self.order)


class WindowPlan:
    """A product of windows that the runtime does more with than launch: converts, asks a switch, avoids overlap."""

    def __init__(self, runtime: Runtime, found: Study, plan: Plan):
        self.runtime, self.study, self.plan, self.call, self.tier = runtime, found, plan, plan.call, plan.tier

    def run(self, a: Any, b: Any, out: Any, steps: Any, pa: int, pb: int, pc: int) -> Any:
        """The result: `out` where there is one."""
        runtime, layout = self.runtime, self.study.layout
        assert layout is not None
        result = target(runtime, self.study, out)
        x, y, z = views(runtime, self.study, a, b, result)
        self.plan.run(x, y, z, (), runtime.pointer(x), runtime.pointer(y), runtime.pointer(z))
        if self.study.direct:
            return out
        return copied(result if layout.order is None else result.transpose(layout.order), out)


class SwitchedDirectPlan:
    """TF32 products launched on the caller's arrays while the library's switch allows them, else windows again."""

    def __init__(self, runtime: Runtime, found: Study, plan: SwitchedPlan, launch: LaunchPlan):
        self.tf32, self.study, self.call, self.tier = runtime.device.tf32, found, plan.call, plan.tier
        self.direct, self.windows = DirectPlan(runtime, found, launch), WindowPlan(runtime, found, plan)

    def run(self, a: Any, b: Any, out: Any, steps: Any, pa: int, pb: int, pc: int) -> Any:
        """Asks the switch, and runs what it allows."""
        return (self.direct if self.tf32() else self.windows).run(a, b, out, steps, pa, pb, pc)


class StagedContraction:
    """Operands that are copied or summed first; the contraction of what that gives is looked up by itself."""

    tier = 3

    def __init__(self, runtime: Runtime, found: Study, call: Call):
        self.runtime, self.study, self.call = runtime, found, call
        self.form, self.dtype = staged_form(found)

    def run(self, a: Any, b: Any, out: Any, steps: Any, pa: int, pb: int, pc: int) -> Any:
        """Stages, contracts, rounds once, and copies into `out` where there is one."""
        first, second = (stage(self.runtime, self.study, number, array) for number, array in enumerate((a, b)))
        result = pair(self.runtime, self.form, first, second, None, self.dtype)
        return copied(result.astype(self.study.dtype, copy=False), out)


class LibraryPlan:
    """Tier 4: the array library's function. A kernel that is there for graph capture stands by, as for matmul."""

    tier = 4

    def __init__(self, runtime: Runtime, found: Study, call: Call | None, reason: str, standby: bool = False):
        self.runtime, self.study, self.reason = runtime, found, reason
        self.call: Any = call
        self.standby = Standby(runtime.device, standby)

    def run(self, a: Any, b: Any, out: Any, steps: Any, pa: int, pb: int, pc: int) -> Any:
        """The library's result; UnsupportedError on an emulated device."""
        device, found = self.runtime.device, self.study
        if device.emulated:
            raise UnsupportedError(f"no kernel serves this call: {self.reason}")
        standing = self.standby.now(lambda capturing: self._standby(a, b, out, capturing))
        if standing is not None:
            return standing.run(a, b, out, steps, pa, pb, pc)
        if self.reason:  # races have none
            counters.fallbacks.add()
        result = library_call(device.xp, found.form, a, b, out, found.given)
        return result if result.shape == found.shape else result.reshape(found.shape)

    def _standby(self, a: Any, b: Any, out: Any, capturing: bool) -> Plan | None:
        found = self.study
        assert found.layout is not None
        x, y, z = views(self.runtime, found, a, b, target(self.runtime, found, out))
        plan = plans_make.standby(self.runtime, self.call, x, y, z, capturing)
        return None if plan is None else bound(self.runtime, found, plan, out is None)


def bound(runtime: Runtime, found: Study, plan: Plan, fresh: bool) -> Plan:
    """The Plan of a contraction whose product the runtime serves by `plan`; `fresh`: into a new array."""
    if fresh and isinstance(plan, LaunchPlan):
        return DirectPlan(runtime, found, plan)
    if fresh and isinstance(plan, SwitchedPlan) and isinstance(plan.plan, LaunchPlan):
        return SwitchedDirectPlan(runtime, found, plan, plan.plan)
    return WindowPlan(runtime, found, plan)


def copied(result: Any, out: Any) -> Any:
    """`result`, or `out` with its elements."""
    if out is None:
        return result
    out[...] = result
    return out


def make(
    runtime: Runtime, form: Any, a: Any, b: Any, out: Any, dtype: Any, *, racing: bool = True
) -> tuple[Plan, bool]:
    """(Plan, whether it holds for later calls too); with `racing` on trial, where its kind of call is to race.

    Raises what the call raises for arguments that do not fit.
    """
    found = study(runtime, form, a, b, out, dtype)
    if found.layout is None:
        return (LibraryPlan(runtime, found, None, found.reason) if found.reason else ZeroPlan(runtime, found)), True
    if is_staged(found):
        return _staged(runtime, found, a, b, out, racing)
    x, y, z = views(runtime, found, a, b, target(runtime, found, out))
    inside, keep = plans_make.plan(runtime, x, y, z, (), found.given, None, found)
    if isinstance(inside, FallbackPlan):
        plan: Plan = LibraryPlan(runtime, found, inside.call, inside.reason, inside.standby.wanted)
    else:
        plan = bound(runtime, found, inside, out is None)
    return (_on_trial(runtime, found, inside.call, (x, y, z), plan) if racing and keep else plan), keep


def _on_trial(runtime: Runtime, found: Study, call: Call, windows: tuple[Any, Any, Any], plan: Plan) -> Plan:
    """The Plan, on trial where its kind of call is to race."""
    arch = runtime.device.arch
    if arch is None or 0 in call.shape:
        return plan
    try:
        problem, staging = problem_of(call, *windows, runtime.pointer)
    except UnsupportedError:
        return plan
    if staging is not None or not may(runtime, problem.workload):
        return plan
    return TrialContraction(runtime, found, call, Request(problem, arch, False, call.one_call), plan)


def _staged(runtime: Runtime, found: Study, a: Any, b: Any, out: Any, racing: bool) -> tuple[Plan, bool]:
    """Of operands that are copied or summed first: by kernels where that is a win as a whole (tuning/copy_race.py)."""
    form, dtype = staged_form(found)
    inner, keep = make(runtime, form, *stand_ins(runtime, found, a, b), None, dtype, racing=False)
    staged, asked = StagedContraction(runtime, found, inner.call), copied_request(runtime, found, a, b, out)
    reason, hopeful = "", True
    if isinstance(inner, LibraryPlan):
        reason, hopeful = inner.reason, inner.standby.wanted
    elif asked is not None:
        reason = copy_race.against(runtime, asked[1], asked[0].one_call)
    plan: Plan = LibraryPlan(runtime, found, None, reason) if reason else staged
    if asked is not None and racing and keep and copy_race.may(runtime, asked[1], hopeful):
        plan = CopiedContraction(runtime, found, *asked, plan, staged)
    return plan, keep


def copied_request(runtime: Runtime, found: Study, a: Any, b: Any, out: Any) -> tuple[Request, copy_race.Kind] | None:
    """What is asked of kernels once operands are copied, and which kind of call that is; None where kernels could not
    take the copies either."""
    arch = runtime.device.arch
    form, dtype = staged_form(found)
    first, second = stand_ins(runtime, found, a, b)
    inner = study(runtime, form, first, second, None, dtype)
    if arch is None or inner.layout is None or is_staged(inner):
        return None
    windows = views(runtime, inner, first, second, target(runtime, inner, None))
    try:
        call = inner.call(resolve(*windows, (), inner.given, runtime.precision(None)))
        problem, _ = problem_of(call, *windows, runtime.pointer)
    except UnsupportedError:
        return None
    return Request(problem, arch, False, call.one_call), copy_race.kind(runtime, problem, (a, b, out))


def refused(runtime: Runtime, plan: Any, reason: str) -> LibraryPlan:
    """The Plan that takes over from one that could not run."""
    return LibraryPlan(runtime, plan.study, None, reason)
