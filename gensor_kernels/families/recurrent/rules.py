"""Legality of recurrent and recurrent_slices (recurrent_cell.cuh)."""

from __future__ import annotations

from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import GRID, LAUNCH, VERIFIED, Rule, Rules
from gensor_kernels.operators.recurrent.recurrent import QUANTISED
from gensor_kernels.operators.types.workload import Workload

from .shape import MOST_WORKSPACE, SLICED_CELLS, SUM_BYTES

_TABLE = (
    Rule("Lanes of a unit are in one warp, and meet by shuffles.", "LANES <= 32 and LANES > 0", given=True),
    Rule("A block must have 1 to 32 whole warps.", "THREADS % 32 == 0 and THREADS <= 1024"),
    Rule("Vectors must hold whole elements.", "ELEMENTS >= 1", given=True),
    Rule("A thread's sums must fit its registers.", f"GATES * BATCH * WORD <= {SUM_BYTES}"),
    Rule("Units are not idle at every step.", "GROUPS <= UNITS or GROUPS == LEAST", asserted=False),
    VERIFIED,
    *GRID,
    *LAUNCH,
)
_DERIVED = {
    "THREADS": "LANES * GROUPS",
    "ELEMENTS": "VECTOR // sizeof(IN_TYPE)",
    "GATES": "4 if CELL < 2 else 3 if CELL == 2 else 1",
    "WORD": "sizeof(ACC_TYPE)",
    "LEAST": "32 // LANES",
    "PROMISED": "maximum(MIN_BLOCKS, 1)",
}
_COMPUTED = ("SHARED_BYTES", "VERIFIED_BYTES", "WARPS", "BLOCKS", "UNITS")
RULES = Rules(_TABLE, derived=_DERIVED, computed=_COMPUTED)
#: Rules of blocks that wait for one another (recurrent_slices.cu).
SLICED = Rules(
    (
        *_TABLE,
        Rule("All blocks are resident together.", "BLOCKS <= SMS", asserted=False),
        Rule("The states of all steps fit the workspace.", f"WORKSPACE <= {MOST_WORKSPACE}", asserted=False),
        Rule("The range of h is that of the whole batch.", "ENTRIES <= BATCH or not QUANTISED", asserted=False),
    ),
    derived=_DERIVED,
    computed=(*_COMPUTED, "WORKSPACE"),
    sizes=("ENTRIES",),
)


def names(workload: Workload) -> dict[str, object]:
    """Return macros that the class decides."""
    return {
        "IN_TYPE": macro_token(workload.dtype["b"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        "CELL": SLICED_CELLS[workload.operator],
        "QUANTISED": int(workload.operator == QUANTISED),
    }
