"""Plans of kinds of calls whose kernels have not raced or were not compared with the library: they serve as without
that, and step aside when it is done."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import Problem, overlaps
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.selection.library import Kernel
from gensor_kernels.dispatch.selection.tiers import Request
from gensor_kernels.dispatch.tuning.comparison import compare, is_due
from gensor_kernels.dispatch.tuning.copy_race import weigh
from gensor_kernels.dispatch.tuning.race import contenders, may, race
from gensor_kernels.dispatch.tuning.tuned_calls import Kind

from .launch import LaunchPlan, bind
from .plan import Call, Inputs, Launched, LibraryPlan, Plan, Steps
from .stage import stage

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

RACING_RUN = 2  # the run of a kind of call that races: kinds that never come back must not pay
HOT_RUN = 64  # the run from which a kind of call is worth a walk

#: Share of the free memory that the largest array of a race may take: a race needs a result and what the library's
#: call takes, which is often two or three arrays as large.
MOST_MEMORY = 0.25
#: Bytes of the largest array of a slice that races: less than this, and a launch is a part of its time that does not
#: grow with the rows.
LEAST_SLICE = 256 << 20

Again = Callable[[Call, Operands], Plan]


class Trial(Plan):
    """A kind of call on trial; `plan` serves it meanwhile.

    `again` makes the Plan of the kind of call after a race; without `races` only its kernel is compared. A kind of call
    that copies its arrays is timed as a whole: `copied` is its kind (tuning/copy_race.py) and the Plan that copies.
    """

    def __init__(
        self, plan: Plan, request: Request, again: Again, copied: tuple[Kind, Plan] | None = None, races: bool = True
    ):
        super().__init__(plan.call)
        self.plan, self.request, self.runs, self.tier = plan, request, 0, plan.tier
        self.nbytes = plan.nbytes + 5 * 1024
        self.raced = False
        self._again, self.copied, self._races = again, copied, races
        self._turn = threading.Lock()

    def serve(self, inputs: Inputs, out: DeviceArray, steps: Steps) -> DeviceArray:
        """Serve the call, before which its kind may race."""
        if not self._due():
            return self.plan.serve(inputs, out, steps)
        operands = Operands(inputs, out, steps)
        plan = self._leave() if overlaps(self.call.runtime.pointer, operands) else self._step(operands)
        return plan.serve(inputs, out, steps)

    def bound(self, operands: Operands) -> tuple[DeviceArray, Launched | None]:
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
            if self._races and self._race(operands):
                self._take(operands)
            if isinstance(self.plan, LaunchPlan):
                self._compare(self.plan, operands)
            if not self._races:
                self.call.runtime.replace(self, self.plan)
            return self.plan
        finally:
            self._turn.release()

    def _race(self, operands: Operands) -> bool:
        """Time our ways against the library's; return whether there is anything new to know."""
        call, runtime, request = self.call, self.call.runtime, self.request
        if self.copied is None and not may(runtime, request.problem.workload):
            return False  # another kind of call of this Workload has raced meanwhile
        try:
            raced = self._affordable(operands)
        except Exception as error:  # the call itself is served as before
            config.logger().info("no race: %s", error, exc_info=True)
            return False
        if raced is None or not self._is_like(raced[2]):
            config.logger().info(
                "no race: the arrays of %s take too much of the memory", request.problem.workload.key()
            )
            return False
        part, given, problem, share = raced

        def library() -> DeviceArray:
            return part.by_library(given)

        if self.copied is not None:
            kind, copying = self.copied
            stored = contenders(request, runtime.library)
            return bool(stored) and weigh(runtime, kind, lambda: copying.serve(*operands), library)

        def bound(kernel: Kernel) -> Callable[[], DeviceArray]:
            plan = bind(part, 1, kernel, problem, given)
            return lambda: plan.serve(*given)

        name = call.function.timing_name(call.device.xp.__name__)
        return race(runtime, request, bound, library, name, share, _written(part, given))

    def _compare(self, plan: LaunchPlan, operands: Operands) -> None:
        """Compare the kernel that serves with the library, which takes its place if they differ."""
        call, runtime, workload = self.call, self.call.runtime, self.request.problem.workload
        if not is_due(runtime, plan.kernel, workload, call.result.dtype):
            return
        if plan.switched and not call.device.tf32():
            return  # the Plan makes another call now
        try:
            part = self._affordable(operands)
            if part is None:
                return
            some, given, problem, share = part
            ours = plan if share == 1 else bind(some, plan.tier, plan.kernel, problem, given)
        except Exception as error:  # the call itself is served as before
            config.logger().info("no comparison: %s", error, exc_info=True)
            return
        apart = given._replace(out=None)  # the kernel computes the caller's result last
        calls = partial(ours.serve, *given), partial(some.by_library, apart)
        if not compare(runtime, plan.kernel, workload, *calls, _written(some, given)):
            reason = f"kernel {plan.kernel.stored[:12]} computes something else"
            self.plan = LibraryPlan(call, reason)
            self.tier = self.plan.tier
            runtime.give_up(workload, reason)

    def _affordable(self, operands: Operands) -> tuple[Call, Operands, Problem, float] | None:
        """Return the call itself, or one of its first rows, as kernels see it, and its share of the rows; None where
        there is no memory for either."""
        call = self.call
        free = call.device.free_bytes()
        most = math.inf if free is None else free * MOST_MEMORY
        size = max(_nbytes(call.result), *(array.nbytes for array in operands.arrays()))
        if size <= most:
            return call, operands, self.request.problem, 1.0
        extent = call.result.shape[0] if call.result.shape else 0
        count = int(extent * most / size)
        if self.copied is not None or count * size < LEAST_SLICE * extent:
            return None
        given = call.function.first_rows(operands, call.parameters, count)
        if given is None:
            return None
        inputs, out, _ = given
        part = call.runtime.kind_of(call.function, inputs, call.parameters, out, call.precision)
        lowered = stage(part, given)
        return None if lowered.staged else (part, given, lowered.problem, count / extent)

    def _is_like(self, problem: Problem) -> bool:
        """Return whether the kernels that are to race are also the first that would race for a slice."""
        library, request = self.call.runtime.library, self.request
        if problem is request.problem:
            return True
        wishes = request, replace(request, problem=problem)
        whole, some = ([kernel.digest for kernel in contenders(wish, library)] for wish in wishes)
        return some[: len(whole)] == whole

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
            self.call.runtime.replace(self, self.plan)
            self.call.runtime.consider(self.request.problem.workload)
        return self.plan


def _written(call: Call, operands: Operands) -> Inputs:
    return call.function.written(operands.inputs, call.parameters)


def _nbytes(result: Any) -> int:
    return int(math.prod(result.shape) * result.dtype.itemsize)
