"""Plans of kinds of calls that have not raced yet: they serve as without a race, and step aside when it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Call, Operation
from gensor_kernels.dispatch.contractions.lowering import Study, target, views
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.dispatch.selection.tiers import Request
from gensor_kernels.dispatch.tuning.race import Bind, may, race

from .call_plans import Base, KernelPlan, LibraryPlan
from .plan import NOWHERE, FallbackPlan, Plan
from .staging import clearance

if TYPE_CHECKING:
    from .runtime import Runtime

RACING_RUN = 2  # which run of a kind of call races: kinds that never come back must not pay
HOT_RUN = 64  # which run makes a kind of call worth a walk of its own

Steps = tuple[Operation, ...]


class Trial:
    """A kind of call on trial; `plan` serves it meanwhile."""

    def __init__(self, runtime: Runtime, request: Request, plan: Any):
        self.runtime, self.request, self.plan, self.runs = runtime, request, plan, 0
        self.tier: int = plan.tier
        self.raced = False
        self._turn = threading.Lock()

    def due(self) -> bool:
        """One run more: whether it may race, or has come often enough to leave trial."""
        self.runs += 1
        return self.runs >= (HOT_RUN if self.raced else RACING_RUN)

    def step(self, race: Callable[[], bool], replan: Callable[[], Any]) -> Any:
        """The Plan that serves a run that is due. Another thread's turn is not waited for.

        `race` says whether there is anything new to know.
        """
        if not self._turn.acquire(blocking=False):
            return self.plan
        try:
            if self.raced or self.runtime.device.capturing():
                return self.leave()
            self.raced = True
            if race():
                self._take(replan)
            return self.plan
        finally:
            self._turn.release()

    def race(self, bind: Bind, vendor: Callable[[], Any], name: str) -> bool:
        """Kernels against the library's call, unless another kind of call of this Workload has raced meanwhile."""
        runtime, request = self.runtime, self.request
        return may(runtime, request.problem.workload) and race(runtime, request, bind, vendor, name)

    def _take(self, replan: Callable[[], Any]) -> None:
        """The Plan that the race's times ask for; where it cannot be made, the one there is goes on serving."""
        try:
            plan = replan()
        except Exception as error:
            config.logger().warning("no kernel could be prepared after a race: %s", error, exc_info=True)
        else:
            self.plan, self.tier = plan, plan.tier

    def leave(self) -> Any:
        """The Plan that serves; from a certain run on by itself, raced or not."""
        if self.runs >= HOT_RUN:
            self.runtime.settle(self)
        return self.plan


class TrialPlan(Trial):
    """Of a product."""

    placed, allocates = NOWHERE, True
    plan: Plan

    def __init__(self, runtime: Runtime, call: Call, precision: str | None, request: Request, plan: Plan):
        super().__init__(runtime, request, plan)
        self.call, self.precision = call.without_arrays(), precision

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """The call, before which its kind may race."""
        from . import make as plans_make

        if not self.due():
            return self.plan.run(a, b, out, steps, pa, pb, pc)
        if overlaps(self.runtime, out, [a, b, *(step.operand for step in steps)]):
            return self.leave().run(a, b, out, steps, pa, pb, pc)
        runtime, call = self.runtime, replace(self.call, operations=steps)

        def bind(kernel: Kernel) -> Callable[[], Any]:
            scratch = runtime.device.empty(call.shape, call.dtype) if out is None else out
            address = runtime.pointer(scratch)
            plan = plans_make.bind(runtime, kernel, self.request.problem, call, None, (a, b, out))
            return lambda: plan.run(a, b, scratch, steps, pa, pb, address)

        library = FallbackPlan(runtime, call, "", self.precision)
        plan = self.step(
            lambda: self.race(
                bind, lambda: library.run(a, b, out, steps, pa, pb, pc), f"{runtime.device.xp.__name__}.matmul"
            ),
            lambda: plans_make.plan_of(runtime, call, a, b, out, self.precision, False),
        )
        return plan.run(a, b, out, steps, pa, pb, pc)


class TrialContraction(Trial):
    """Of a contraction: its product's kernels launched on the caller's arrays, against the library's function."""

    def __init__(self, runtime: Runtime, found: Study, call: Call, request: Request, plan: Any):
        super().__init__(runtime, request, plan)
        self.study, self.call = found, call

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """The call, before which its kind may race."""
        from gensor_kernels.dispatch.contractions import plans as contractions_plans

        from . import make as plans_make

        runtime, found = self.runtime, self.study
        if not self.due():
            return self.plan.run(a, b, out, steps, pa, pb, pc)
        if overlaps(runtime, out, [a, b]):
            return self.leave().run(a, b, out, steps, pa, pb, pc)

        def bind(kernel: Kernel) -> Callable[[], Any]:
            windows = views(runtime, found, a, b, target(runtime, found, out))
            launch = plans_make.bind(runtime, kernel, self.request.problem, self.call, None, windows)
            plan = contractions_plans.bound(runtime, found, launch, out is None)
            return lambda: plan.run(a, b, out, steps, pa, pb, pc)

        library = contractions_plans.LibraryPlan(runtime, found, None, "")
        plan = self.step(
            lambda: self.race(
                bind, lambda: library.run(a, b, out, steps, pa, pb, pc), f"{runtime.device.xp.__name__}: contraction"
            ),
            lambda: contractions_plans.make(runtime, found.form, a, b, out, found.given)[0],
        )
        return plan.run(a, b, out, steps, pa, pb, pc)


class TrialCall(Trial):
    """Of any other Function."""

    def __init__(self, base: Base, request: Request, plan: Any):
        super().__init__(base.runtime, request, plan)
        self.base = base

    def serve(self, inputs: Any, out: Any, steps: Steps) -> Any:
        """The call, before which its kind may race."""
        base, problem = self.base, self.request.problem
        if not self.due():
            return self.plan.serve(inputs, out, steps)
        if overlaps(self.runtime, out, [*inputs, *(step.operand for step in steps)]):
            return self.leave().serve(inputs, out, steps)

        def bind(kernel: Kernel) -> Callable[[], Any]:
            scratch = base.result.new(self.runtime.device) if out is None else out
            plan = KernelPlan(base, kernel, problem, inputs, scratch, steps, 1)
            return lambda: plan.serve(inputs, scratch, steps)

        def replan() -> Any:
            from .calls import make

            return make(base, inputs, out, steps)[0]

        library = LibraryPlan(base, "")
        name = f"{self.runtime.device.xp.__name__}: {base.function.name}"
        plan = self.step(lambda: self.race(bind, lambda: library.serve(inputs, out, steps), name), replan)
        return plan.serve(inputs, out, steps)


def overlaps(runtime: Runtime, out: Any, arrays: Sequence[Any]) -> bool:
    """Whether `out` shares memory with what is read: then it cannot be computed several times."""
    if out is None:
        return False
    at = runtime.pointer(out)
    pairs = ((array, clearance(array, out)) for array in arrays if array is not None)
    return any(low < at - runtime.pointer(array) < high for array, (low, high) in pairs)
