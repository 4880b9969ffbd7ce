"""Calls while they are recorded: each is run, described once per Plan, and counted where the work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gensor_kernels import config
from gensor_kernels.dispatch.functions.base import SUMS_OF_NOTHING
from gensor_kernels.dispatch.observe import record
from gensor_kernels.dispatch.observe.record_file import Cells, Served, workload_row
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.shape_row import NAMES, join

from .lowering import lower
from .plan import Call, Inputs, Plan, Steps

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: Rows by Plan and tier, which changes when the Plan of a kind of call has raced.
_rows: WeakKeyDictionary[Any, dict[int, Cells | None]] = WeakKeyDictionary()


def serve(plan: Plan, inputs: Inputs, out: DeviceArray, steps: Steps) -> Any:
    """Run a Plan; while calls are recorded, count the call.

    If the Plan made another call (with converted arrays, say), that one is counted instead: a file has the calls that
    kernels or CuPy served, and their tiers. A call that raises is not counted.
    """
    if not record.active:
        return plan.serve(inputs, out, steps)
    before = record.count_calls()
    result = plan.serve(inputs, out, steps)
    if record.count_calls() == before:
        count(plan, lambda: describe(plan.call, plan.tier, inputs, out, steps))
    return result


def count(plan: Any, row: Callable[[], Cells | None]) -> None:
    """Count a call that a Plan has served, by the row that `row` returns the first time, if it is not None."""
    try:
        rows, tier = _rows.setdefault(plan, {}), getattr(plan, "tier", 0)
        if tier not in rows:
            rows[tier] = row()
        found = rows[tier]
        if found is not None:
            record.count(found)
    except Exception as error:  # the call is served; that is what counts
        config.logger().warning("a call could not be recorded: %s", error, exc_info=True)


def describe(call: Call, tier: int, inputs: Inputs, out: DeviceArray, steps: Steps) -> Cells | None:
    """Return the row of a call: its Workload, or, where it forms none, its shapes and why no kernel takes it.

    None for a contraction whose sums have no terms: nothing was computed, and there is nothing to tune.
    """
    arch = call.device.arch
    served = Served(tier, arch.part if arch else "")
    try:
        return workload_row(lower(call, inputs, out, steps).problem.workload, served)
    except (UnsupportedError, ValueError) as error:
        reason = getattr(error, "reason", str(error))
        if tier == 0 and reason == SUMS_OF_NOTHING:
            return None
        return served.row(_cells_of(call, inputs, steps, reason))


def _cells_of(call: Call, inputs: Inputs, steps: Steps, reason: str) -> dict[str, object]:
    """Return the cells of a call that forms no Workload."""
    arrays = [array for array in inputs if array is not None]
    sizes = call.function.cells(call.result)
    if not sizes:
        shapes = " ".join("x".join(map(str, array.shape)) for array in arrays)
        sizes = {"op": call.function.op(call.parameters), "dtype": arrays[0].dtype.name, "shapes": shapes}
    sizes |= {name: NAMES.get(str(sizes[name]), sizes[name]) for name in ("dtype", "out") if name in sizes}
    epilogue = ";".join(step.name for step in steps) or join(())
    return sizes | {"epilogue": epilogue, "unsupported": reason}
