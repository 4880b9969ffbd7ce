"""`explain` runs a function up to the point where a kernel would be chosen: what is asked there, not done."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime

asking: ContextVar[bool] = ContextVar("gensor_kernels_asking", default=False)


class Question(Exception):
    """Raised instead of a call while `asking`: of matrix products ("product") or of a Function ("function")."""

    def __init__(self, kind: str, *arguments: Any):
        super().__init__("a call that is only asked about")
        self.kind, self.arguments = kind, arguments


def product(runtime: Runtime, a: Any, b: Any, out: Any, steps: Any, dtype: Any, precision: str | None) -> Any:
    """A matrix product of another function's making: run, or asked about."""
    if asking.get():
        raise Question("product", a, b, out, steps, dtype, precision)
    return runtime.call(a, b, out, steps, dtype, precision)
