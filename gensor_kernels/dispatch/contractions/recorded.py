"""Contractions while calls are recorded: the product that each is counts, not the arrays it is a view of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import resolve
from gensor_kernels.dispatch.observe.record_file import Cells
from gensor_kernels.dispatch.plans import recorded as plans_recorded
from gensor_kernels.dispatch.plans.plan import Plan

from .lowering import Study, is_staged, staged_form, stand_ins, study, target, views
from .plans import LibraryPlan

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime


def counted(runtime: Runtime, plan: Any, a: Any, b: Any, out: Any, pa: int, pb: int, pc: int) -> Any:
    """Runs a Plan while calls are recorded: what is counted is the product, not the arrays it is a view of."""
    arrays: Any = (a, b, out)
    found = plan.study
    if isinstance(plan, LibraryPlan) and plan.call is None:
        result = plan.run(a, b, out, (), pa, pb, pc)
        plans_recorded.count(plan, lambda: library_row(runtime, found, a, b))
        return result
    if plan.call is None or found.layout is None or is_staged(found):
        return plan.run(a, b, out, (), pa, pb, pc)
    return plans_recorded.run(
        runtime, _Seen(plan, arrays), *views(runtime, found, a, b, target(runtime, found, out)), (), pa, pb, pc
    )


def library_row(runtime: Runtime, found: Study, a: Any, b: Any) -> Cells:
    """The row of a contraction that the library does as one call: the product that it is, or why it is none."""
    while is_staged(found):
        form, dtype = staged_form(found)
        a, b = stand_ins(runtime, found, a, b)
        found = study(runtime, form, a, b, None, dtype)
    if found.layout is None:
        return plans_recorded.unsupported(runtime, "einsum", (a, b), (), found.reason or "the sums have no terms")
    x, y, z = views(runtime, found, a, b, target(runtime, found, None))
    call = found.call(resolve(x, y, z, (), found.given, runtime.precision(None)))
    return plans_recorded.describe(runtime, call, LibraryPlan.tier, x, y, z)


class _Seen:
    """A Plan as it is counted: it is run with the caller's arrays, and described by its windows on them."""

    def __init__(self, plan: Plan, arrays: tuple[Any, Any, Any]):
        self.plan, self.arrays, self.call, self.tier = plan, arrays, plan.call, plan.tier

    def run(self, a: Any, b: Any, out: Any, steps: Any, pa: int, pb: int, pc: int) -> Any:
        """Runs the Plan."""
        return self.plan.run(*self.arrays, steps, pa, pb, pc)
