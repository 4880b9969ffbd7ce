"""Calls while they are recorded: each is run, described once per Plan, and counted where the work is done."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import config, recording
from ..errors import UnsupportedError
from ..record_file import NAMES, Cells, Served, join, workload_row
from .arguments import Call
from .staging import problem_of

if TYPE_CHECKING:
    from .plan import Plan, Steps
    from .runtime import Runtime

_rows: WeakKeyDictionary[Plan, Cells] = WeakKeyDictionary()


def run(runtime: Runtime, plan: Plan, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
    """Runs a Plan; while calls are recorded, counts the call.

    Not so where the Plan passed it on (converted, say): the call it made is counted instead. So what a file has is
    what kernels, or CuPy, were asked for, and the tier that served it. A call that raises is not counted.
    """
    if not recording.active:
        return plan.run(a, b, out, steps, pa, pb, pc)
    before = recording.counted()
    result = plan.run(a, b, out, steps, pa, pb, pc)
    if recording.counted() == before:
        try:
            row = _rows.get(plan)
            if row is None:
                row = _rows[plan] = describe(runtime, replace(plan.call, operations=steps), plan.tier, a, b, out)
            recording.count(row)
        except Exception as error:  # the call is served; that is what counts
            config.logger().warning("a call could not be recorded: %s", error, exc_info=True)
    return result


def unseen(key: Any) -> None:
    """In the place of a look-up of Plans: no call has been seen before."""


def describe(runtime: Runtime, call: Call, tier: int, a: Any, b: Any, out: Any) -> Cells:
    """The row of a call: its Workload, or, where it forms none, what it is and why no kernel takes it."""
    arch = runtime.device.arch
    served = Served(tier, arch.part if arch else "")
    try:
        problem, _ = problem_of(call, a, b, out, runtime.pointer)
        return workload_row(problem.workload, served)
    except UnsupportedError as error:
        return served.row(_unserved(call, error.reason))


def _unserved(call: Call, reason: str) -> dict[str, object]:
    m, n, k = call.sizes
    return {
        "op": "batched_matmul" if call.batch else "matmul",
        "batch": math.prod(call.batch),
        "m": m,
        "n": n,
        "k": k,
        "dtype": NAMES.get(call.inputs.name, call.inputs.name),
        "out": NAMES.get(call.dtype.name, call.dtype.name),
        "epilogue": ";".join(step.name for step in call.operations) or join(()),
        "unsupported": reason,
    }
