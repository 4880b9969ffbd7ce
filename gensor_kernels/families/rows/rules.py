"""Legality of rows (rows.cu and rows_*.cuh)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import GRID, LAUNCH, VERIFIED, Rule, Rules
from gensor_kernels.operators.tolerance.rows import SERIAL

from .shape import HELD_BYTES, OPERATIONS, TWO_FORMS, view

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

POWERS = "Threads of rows and blocks are powers of two."
RULES = Rules(
    (
        Rule(POWERS, "power_of_two(THREADS_K) and power_of_two(THREADS_M)", given=True),
        Rule("A block must have 1 to 32 whole warps.", "THREADS >= 32 and THREADS <= 1024"),
        # ---- loads and registers
        Rule("The elements of a step are joined in pairs.", "power_of_two(ITEMS)", given=True),
        Rule("A global load must bring at least one element.", "ELEMENTS >= 1", given=True),
        Rule("Without a unit stride, x is loaded element by element.", "A_UNIT or ELEMENTS == 1", given=True),
        Rule("A thread's elements of one step must fit its registers.", f"COUNT * WORD <= {HELD_BYTES}"),
        # ---- passes over a row
        Rule(
            "Only rows that are needed again, or staged, are kept.",
            "KEEP == 0 or TWO_PASSES or (MAPS and OPERATION != COPY) or STAGED",
        ),
        Rule("A row in registers is one step.", "KEEP != 1 or K <= STEP", asserted=False),
        Rule("Maps take k as one axis.", "DIGITS == 1 or not MAPS", given=True),
        Rule(f"At most {SERIAL} steps follow one another.", f"STEPS <= {SERIAL}", "OPERATION != COPY", asserted=False),
        # ---- rows in shared memory
        Rule(
            "A thread has its staged rows alone, and keeps no copy of them there.",
            "not STAGED or (THREADS_K == 1 and KEEP != 2)",
        ),
        Rule("Staged rows are of one batch entry.", "not STAGED or BATCH == 1", asserted=False),
        Rule(
            "Staged rows are whole, and contiguous.",
            "not STAGED or (LAYOUT == 0 and A_UNIT and DIGITS == 1)",
            given=True,
        ),
        Rule(
            "Mapped rows that are staged replace x.",
            "not STAGED or not MAPS or sizeof(IN_TYPE) == sizeof(OUT_TYPE)",
            given=True,
        ),
        # ---- parts of k
        Rule(
            "A split row has one pass per launch, and is not staged.",
            "not SPLIT or (KEEP == 0 and not TWO_PASSES and not STAGED)",
        ),
        Rule("Every part of k has a step.", "(SPLIT_K - 1) * STEPS * STEP < K", "OPERATION != COPY", asserted=False),
        *GRID,
        *LAUNCH,
        VERIFIED,
    ),
    coordinates={"ELEMENTS": "vector"},
    derived={
        "THREADS": "THREADS_K * THREADS_M",
        "COUNT": "ELEMENTS * ITEMS",
        "WORD": "sizeof(ACC_TYPE)",
        "MAPS": "OPERATION == COPY or OPERATION >= SOFTMAX",
        "COPY": str(OPERATIONS["copy"]),
        "SOFTMAX": str(OPERATIONS["softmax"]),
        "TWO_FORMS": " or ".join(f"OPERATION == {OPERATIONS[name]}" for name in sorted(TWO_FORMS)),
        "TWO_PASSES": "not ONLINE and TWO_FORMS",
        "SPLIT": "SPLIT_K > 1",
        "PROMISED": "maximum(MIN_BLOCKS, 1)",
    },
    sizes=("BATCH", "K"),
    computed=("SHARED_BYTES", "VERIFIED_BYTES", "WARPS", "BLOCKS", "STEP", "STEPS"),
)


def names(workload: Workload) -> dict[str, object]:
    """Return macros that the class decides."""
    e = view(workload)
    decided = {"ACC_TYPE": macro_token(workload.accumulator), "OPERATION": OPERATIONS[e.rows.operation]}
    return decided if e.staged else {**decided, "STAGED": 0}
