"""Calls while they are recorded: each is run, described once per Plan, and counted where the work is done."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from gensor_kernels import config
from gensor_kernels.arrays import DeviceArray
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.functions.base import SUMS_OF_NOTHING
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.observe.dry_run import Question
from gensor_kernels.dispatch.observe.record_file import Cells, Served, workload_row
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.shape_row import NAMES, join

from .plan import Call, Plan
from .stage import stage

#: Rows by Plan and tier, which changes when the Plan of a kind of call has raced.
_rows: WeakKeyDictionary[object, dict[int, Cells | None]] = WeakKeyDictionary()


def serve(plan: Plan, operands: Operands) -> DeviceArray:
    """Run a Plan, and count the call.

    If the Plan made another call (with converted arrays, say), that one is counted instead: a file has the calls that
    kernels or CuPy served, and their tiers. A call that raises is not counted.
    """
    before = record.count_calls()
    result = plan.serve(*operands)
    if record.count_calls() == before:
        count(plan, lambda: describe(plan.call, plan.tier, operands), Question(plan.call, operands))
    return result


def count(plan: object, row: Callable[[], Cells | None], asked: Question | None = None) -> None:
    """Count a call that a Plan has served, by the row that `row` returns the first time, if it is not None."""
    try:
        rows, tier = _rows.setdefault(plan, {}), getattr(plan, "tier", 0)
        if tier not in rows:
            rows[tier] = row()
        found = rows[tier]
        if found is not None:
            record.count(found, asked)
    except Exception as error:  # the call is served; that is what counts
        config.logger().warning("a call could not be recorded: %s", error, exc_info=True)


def describe(call: Call, tier: int, operands: Operands) -> Cells | None:
    """Return the row of a call: its Workload, or, where it forms none, its shapes and why no kernel takes it.

    None for a contraction whose sums have no terms: nothing was computed, and there is nothing to tune.
    """
    arch = call.device.arch
    served = Served(tier, arch.part if arch else "")
    try:
        return workload_row(stage(call, operands).problem.workload, served)
    except (UnsupportedError, ValueError) as error:
        reason = getattr(error, "reason", str(error))
        if tier == 0 and reason == SUMS_OF_NOTHING:
            return None
        return served.row(_cells_of(call, operands, reason))


def _cells_of(call: Call, operands: Operands, reason: str) -> dict[str, object]:
    """Return the cells of a call that forms no Workload."""
    arrays = [array for array in operands.inputs if array is not None]
    sizes = call.function.cells(call.result)
    if not sizes:
        shapes = " ".join("x".join(map(str, array.shape)) for array in arrays)
        sizes = {"op": call.function.op(call.parameters), "dtype": arrays[0].dtype.name, "shapes": shapes}
    sizes |= {name: NAMES.get(str(sizes[name]), sizes[name]) for name in ("dtype", "out") if name in sizes}
    epilogue = ";".join(step.name for step in operands.steps) or join(())
    return sizes | {"epilogue": epilogue, "unsupported": reason}
