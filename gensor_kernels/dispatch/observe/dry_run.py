"""`explain` runs a function up to the point where a kernel would be chosen: a dry run, which launches nothing."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

#: whether calls of this thread are only explained; a Runtime sets it (Runtime.dry_run)
asking: ContextVar[bool] = ContextVar("gensor_kernels_asking", default=False)


class Question(Exception):
    """Raised in place of a call in a dry run: its kind (plans/plan.py: Call) and its operands.

    Without a kind of call the array library serves, for the `reason` given; `steps` are the Questions of a call that is
    made of several.
    """

    def __init__(self, call: Any = None, operands: Any = None, *, reason: str = "", steps: tuple[Question, ...] = ()):
        super().__init__("a call that is only asked about")
        self.call, self.operands, self.reason, self.steps = call, operands, reason, steps
