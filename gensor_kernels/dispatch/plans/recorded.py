"""Calls while they are recorded: each is run, described once per Plan, and counted where the work is done."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Call
from gensor_kernels.dispatch.observe import record as observe_record
from gensor_kernels.dispatch.observe.record_file import Cells, Served, workload_row
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.shape_row import NAMES, join

from .staging import problem_of

if TYPE_CHECKING:
    from .plan import Plan, Steps
    from .runtime import Runtime

#: Rows by Plan and tier, which changes when the Plan of a kind of call has raced.
_rows: WeakKeyDictionary[Any, dict[int, Cells]] = WeakKeyDictionary()


def run(runtime: Runtime, plan: Plan, a: Any, b: Any, out: Any, steps: Steps, pa: int, pb: int, pc: int) -> Any:
    """Runs a Plan; while calls are recorded, counts the call.

    Not so where the Plan passed it on (converted, say): the call it made is counted instead. So what a file has is
    what kernels, or CuPy, were asked for, and the tier that served it. A call that raises is not counted.
    """
    if not observe_record.active:
        return plan.run(a, b, out, steps, pa, pb, pc)
    before = observe_record.counted()
    result = plan.run(a, b, out, steps, pa, pb, pc)
    if observe_record.counted() == before:
        count(plan, lambda: describe(runtime, replace(plan.call, operations=steps), plan.tier, a, b, out))
    return result


def serve(plan: Any, inputs: Any, out: Any, steps: Steps) -> Any:
    """Runs a Plan of a Function; while calls are recorded, counts the call, as `run` does."""
    if not observe_record.active:
        return plan.serve(inputs, out, steps)
    before = observe_record.counted()
    result = plan.serve(inputs, out, steps)
    if observe_record.counted() == before:
        count(plan, lambda: _described(plan, inputs, out, steps))
    return result


def count(plan: Any, describe: Callable[[], Cells]) -> None:
    """Counts a call that a Plan has served, by the row that `describe` gives the first time."""
    try:
        rows, tier = _rows.setdefault(plan, {}), getattr(plan, "tier", 0)
        if tier not in rows:
            rows[tier] = describe()
        observe_record.count(rows[tier])
    except Exception as error:  # the call is served; that is what counts
        config.logger().warning("a call could not be recorded: %s", error, exc_info=True)


def _described(plan: Any, inputs: Any, out: Any, steps: Steps) -> Cells:
    """The row of a call of a Function: its Workload, or what it is and why no kernel takes it."""
    from .lowering import study

    base = plan.base
    try:
        found = study(base, inputs, out, steps)
        return workload_row(found.problem.workload, _served(base.runtime, plan.tier))
    except (UnsupportedError, ValueError) as error:
        op = base.function.op(base.parameters)
        return unsupported(base.runtime, op, inputs, steps, getattr(error, "reason", str(error)), plan.tier)


def unsupported(runtime: Runtime, op: str, inputs: Sequence[Any], steps: Steps, reason: str, tier: int = 4) -> Cells:
    """The row of a call that forms no Workload."""
    arrays = [array for array in inputs if array is not None]
    dtype = arrays[0].dtype.name
    cells = {
        "op": op,
        "dtype": NAMES.get(dtype, dtype),
        "epilogue": join_names(steps),
        "shapes": " ".join("x".join(map(str, array.shape)) for array in arrays),
        "unsupported": reason,
    }
    return _served(runtime, tier).row(cells)


def join_names(steps: Steps) -> str:
    """The names of an epilogue of any length."""
    return ";".join(step.name for step in steps) or join(())


def _served(runtime: Runtime, tier: int) -> Served:
    arch = runtime.device.arch
    return Served(tier, arch.part if arch else "")


def unseen(key: Any) -> None:
    """In the place of a look-up of Plans: no call has been seen before."""


def describe(runtime: Runtime, call: Call, tier: int, a: Any, b: Any, out: Any) -> Cells:
    """The row of a call: its Workload, or, where it forms none, what it is and why no kernel takes it."""
    served = _served(runtime, tier)
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
        "epilogue": join_names(call.operations),
        "unsupported": reason,
    }
