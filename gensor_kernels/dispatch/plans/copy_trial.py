"""Plans of kinds of calls whose arrays are copied, until they were timed with the copies (tuning/copy_race.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import Call
from gensor_kernels.dispatch.contractions.lowering import Study
from gensor_kernels.dispatch.observe import record as observe_record
from gensor_kernels.dispatch.selection.tiers import Request
from gensor_kernels.dispatch.tuning.copy_race import Kind, Run, weigh
from gensor_kernels.dispatch.tuning.race import contenders

from .call_plans import Base, CopyPlan, LibraryPlan, TemporaryPlan
from .plan import NOWHERE, FallbackPlan, Plan, StagedPlan
from .staging import Staging
from .trial import Steps, Trial, overlaps

if TYPE_CHECKING:
    from .runtime import Runtime


class CopyTrial(Trial):
    """A kind of call that copies; `request` is of the kernels for the copies."""

    def __init__(self, runtime: Runtime, request: Request, kind: Kind, plan: Any):
        super().__init__(runtime, request, plan)
        self.kind = kind

    def due(self) -> bool:
        """As of every Trial, but not while calls are recorded: those that ours makes would be counted."""
        return not observe_record.active and super().due()

    def decided(self, ours: Run, theirs: Run, replan: Callable[[], Any]) -> Any:
        """The Plan after a timing; there is none where no kernel is stored for the copies."""

        def race() -> bool:
            return bool(contenders(self.request, self.runtime.library)) and weigh(self.runtime, self.kind, ours, theirs)

        return self.step(race, replan)


class CopiedProduct(CopyTrial):
    """Of a product."""

    placed, allocates = NOWHERE, True
    plan: Plan

    def __init__(
        self,
        runtime: Runtime,
        call: Call,
        precision: str | None,
        staging: Staging,
        request: Request,
        kind: Kind,
        plan: Plan,
    ):
        super().__init__(runtime, request, kind, plan)
        self.call, self.precision, self.staging = call.without_arrays(), precision, staging

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """The call, before which its kind may be timed."""
        from . import make as plans_make

        if not self.due():
            return self.plan.run(a, b, out, steps, pa, pb, pc)
        runtime, call, given = self.runtime, replace(self.call, operations=steps), (a, b, out, steps, pa, pb, pc)
        if overlaps(runtime, out, [a, b, *(step.operand for step in steps)]):
            return self.leave().run(*given)
        ours = StagedPlan(runtime, call, self.staging)
        theirs = FallbackPlan(runtime, call, "", self.precision)
        plan = self.decided(
            lambda: ours.run(*given),
            lambda: theirs.run(*given),
            lambda: plans_make.plan_of(runtime, call, a, b, out, self.precision, False),
        )
        return plan.run(*given)


class CopiedContraction(CopyTrial):
    """Of a contraction."""

    def __init__(self, runtime: Runtime, found: Study, request: Request, kind: Kind, plan: Any, staged: Any):
        super().__init__(runtime, request, kind, plan)
        self.study, self.staged, self.call = found, staged, staged.call

    def run(self, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
        """The call, before which its kind may be timed."""
        from gensor_kernels.dispatch.contractions import plans as contractions_plans

        if not self.due():
            return self.plan.run(a, b, out, steps, pa, pb, pc)
        runtime, found, given = self.runtime, self.study, (a, b, out, steps, pa, pb, pc)
        if overlaps(runtime, out, [a, b]):
            return self.leave().run(*given)
        theirs = contractions_plans.LibraryPlan(runtime, found, None, "")
        plan = self.decided(
            lambda: self.staged.run(*given),
            lambda: theirs.run(*given),
            lambda: contractions_plans.make(runtime, found.form, a, b, out, found.given)[0],
        )
        return plan.run(*given)


class CopiedCall(CopyTrial):
    """Of any other Function; `staged` is the Plan that copies."""

    def __init__(self, base: Base, request: Request, kind: Kind, plan: Any, staged: CopyPlan | TemporaryPlan):
        super().__init__(base.runtime, request, kind, plan)
        self.base, self.staged = base, staged

    def serve(self, inputs: Any, out: Any, steps: Steps) -> Any:
        """The call, before which its kind may be timed."""
        base = self.base
        if not self.due():
            return self.plan.serve(inputs, out, steps)
        if overlaps(self.runtime, out, [*inputs, *(step.operand for step in steps)]):
            return self.leave().serve(inputs, out, steps)

        def replan() -> Any:
            from .calls import make

            return make(base, inputs, out, steps)[0]

        theirs = LibraryPlan(base, "")
        plan = self.decided(
            lambda: self.staged.serve(inputs, out, steps), lambda: theirs.serve(inputs, out, steps), replan
        )
        return plan.serve(inputs, out, steps)
