"""`explain` runs a function up to the point where a kernel would be chosen: a dry run, which launches nothing."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: whether calls of this thread are only explained; a Runtime sets it (Runtime.dry_run)
asking: ContextVar[bool] = ContextVar("gensor_kernels_asking", default=False)


class Question(Exception):
    """Raised in place of a call in a dry run: its kind (plans/plan.py: Call), inputs, out and epilogue.

    Without a kind of call the array library serves, for the `reason` given; `steps` are the Questions of a call that is
    made of several.
    """

    def __init__(
        self,
        call: Any = None,
        inputs: Any = (),
        out: DeviceArray = None,
        epilogue: Any = (),
        *,
        reason: str = "",
        steps: tuple[Question, ...] = (),
    ):
        super().__init__("a call that is only asked about")
        self.call, self.inputs, self.out, self.epilogue, self.reason, self.steps = (
            *(call, inputs, out, epilogue),
            *(reason, steps),
        )
