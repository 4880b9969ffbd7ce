"""Plans of kinds of calls that have not raced yet: they serve as without a race, and step aside when it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import clearance
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.dispatch.selection.tiers import Request
from gensor_kernels.dispatch.tuning.copy_race import weigh
from gensor_kernels.dispatch.tuning.race import contenders, may, race
from gensor_kernels.dispatch.tuning.tuned_calls import Kind, TunedCalls

from .launch import bind
from .plan import Call, Inputs, Launched, Plan, Steps

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

RACING_RUN = 2  # the run of a kind of call that races: kinds that never come back must not pay
HOT_RUN = 64  # the run from which a kind of call is worth a walk

Again = Callable[[Call, Operands], Plan]


class Trial(Plan):
    """A kind of call on trial; `plan` serves it meanwhile.

    `again` makes the Plan of the kind of call after a race. A kind of call that copies its arrays is timed as a whole:
    `copied` is its kind (tuning/copy_race.py) and the Plan that copies.
    """

    def __init__(self, plan: Plan, request: Request, again: Again, copied: tuple[Kind, Plan] | None = None):
        super().__init__(plan.call)
        self.plan, self.request, self.runs, self.tier = plan, request, 0, plan.tier
        self.nbytes = plan.nbytes + 5 * 1024
        self.raced = False
        self._again, self.copied = again, copied
        self._turn = threading.Lock()

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
        """Serve the call, before which its kind may race."""
        if not self._due():
            return self.plan.serve(inputs, out, steps)
        operands = Operands(inputs, out, steps)
        plan = self._leave() if overlaps(self.call.runtime, operands) else self._step(operands)
        return plan.serve(inputs, out, steps)

    def bound(self, operands: Operands) -> tuple[Any, Launched | None]:
        """Bind the Plan that the race has left."""
        return self.plan.bound(operands) if self.raced else (self.serve(*operands), None)

    def ripen(self) -> None:
        """Leave trial: launches that are made without dispatch have come often enough."""
        self.runs = max(self.runs, HOT_RUN)
        self._leave()

    def _due(self) -> bool:
        """Count a run; return whether it may race, or has come often enough to leave trial.

        Calls that copy do not while calls are recorded: those that ours makes would be counted.
        """
        if self.copied is not None and record.active:
            return False
        self.runs += 1
        return self.runs >= (HOT_RUN if self.raced else RACING_RUN)

    def _step(self, operands: Operands) -> Plan:
        """Return the Plan that serves a run that is due. Another thread's turn is not waited for."""
        if not self._turn.acquire(blocking=False):
            return self.plan
        try:
            if self.raced or self.call.device.capturing():
                return self._leave()
            self.raced = True
            if self._race(operands):
                self._take(operands)
            return self.plan
        finally:
            self._turn.release()

    def _race(self, operands: Operands) -> bool:
        """Time our ways against the library's; return whether there is anything new to know."""
        call, runtime = self.call, self.call.runtime

        def library() -> Any:
            return call.by_library(operands)

        if self.copied is not None:
            kind, copying = self.copied
            stored = contenders(self.request, runtime.library)
            return bool(stored) and weigh(runtime, kind, lambda: copying.serve(*operands), library)
        if not may(runtime, self.request.problem.workload):  # another kind of call of this Workload has raced meanwhile
            return False

        def bound(kernel: Kernel) -> Callable[[], Any]:
            target = call.result.new(call.device) if operands.out is None else operands.out
            given = operands._replace(out=target)
            plan = bind(call, 1, kernel, self.request.problem, given)
            return lambda: plan.serve(*given)

        return race(runtime, self.request, bound, library, call.function.timing_name(call.device.xp.__name__))

    def _take(self, operands: Operands) -> None:
        """Switch to the Plan that won the race; the present one stays if that cannot be made."""
        try:
            plan = self._again(self.call, operands)
        except Exception as error:
            config.logger().warning("no kernel could be prepared after a race: %s", error, exc_info=True)
        else:
            self.plan, self.tier = plan, plan.tier

    def _leave(self) -> Plan:
        """Return the Plan that serves; from a certain run on by itself, raced or not."""
        if self.runs >= HOT_RUN:
            self.call.runtime.replace(self, self.plan, self.request.problem.workload)
        return self.plan


def overlaps(runtime: TunedCalls, operands: Operands) -> bool:
    """Return whether `out` shares memory with what is read: then it cannot be computed several times."""
    out = operands.out
    if out is None:
        return False
    at, read = runtime.pointer(out), operands._replace(out=None).arrays()
    pairs = ((array, clearance(array, out)) for array in read)
    return any(low < at - runtime.pointer(array) < high for array, (low, high) in pairs)
