"""Legality of gemv (gemv.cu and gemv_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import GRID, LAUNCH, Rule, Rules
from gensor_kernels.operators.types.workload import Workload

from .shape import INPUT_BYTES, SUM_BYTES, widths

RULES = Rules(
    (
        Rule("Threads come in powers of two.", "power_of_two(THREADS_K) and power_of_two(THREADS_L)", given=True),
        Rule(
            "Rows and loads of a thread come in powers of two.",
            "power_of_two(ROWS) and power_of_two(ITEMS)",
            given=True,
        ),
        Rule("A block must have 1 to 32 whole warps.", "THREADS >= 32 and THREADS <= 1024"),
        Rule("Weights are multiplied as they are.", "FORM != 3", given=True),
        Rule("Columns are adjacent, and share x.", "not W_COLUMNS or (ROWS == 1 and X_SHARED and W_UNIT)"),
        # ---- loads
        Rule("Accesses are as wide as the alignment of the weights.", "ELEMENTS <= WIDEST", asserted=False),
        Rule("Without a unit stride, weights are loaded element by element.", "W_UNIT or ELEMENTS == 1", given=True),
        Rule("Without a unit stride, x is loaded element by element.", "X_UNIT or X_ELEMENTS == 1", given=True),
        Rule("Loads of x must fill a step.", "STEP % X_ELEMENTS == 0", given=True),
        Rule(
            "A prologue is that of x in shared memory.",
            "not PROLOGUE or (INLINED_A and not WEIGHTS and X_SHARED)",
            given=True,
        ),
        # ---- registers
        Rule("A thread's sums must fit its registers.", f"COUNT * WORD <= {SUM_BYTES}"),
        Rule(
            "Weights on their way must fit the registers.",
            "ROWS * ITEMS * ELEMENTS * sizeof(IN_TYPE) <= 256",
            asserted=False,
        ),
        Rule(
            "Elements of x on their way must fit the registers.",
            f"(X_LOADS * X_ELEMENTS if X_SHARED else SMALL * ITEMS * ELEMENTS) * sizeof(IN_TYPE) <= {INPUT_BYTES}",
            asserted=False,
        ),
        # ---- results
        Rule(
            "Stores into C must fill a thread's columns.", "(SMALL if WEIGHTS else ENTRIES) % C_WIDTH == 0", given=True
        ),
        # ---- the launch
        Rule("Every part of k has a step.", "(SPLIT_K - 1) * STEPS * STEP < K", asserted=False),
        Rule("Verification problems stay small.", "LONG * STEP * SPLIT_K <= 2097152", asserted=False),
        *GRID,
        *LAUNCH,
    ),
    coordinates={"OPERAND": "form", "ELEMENTS": "vector"},
    derived={
        "WEIGHTS": "OPERAND >= 2",
        "W_COLUMNS": "OPERAND % 2",
        "W_UNIT": "A_UNIT if WEIGHTS else B_UNIT",
        "X_UNIT": "B_UNIT_K if WEIGHTS else A_UNIT_K",
        "WIDEST": "A_WIDEST if WEIGHTS else B_WIDEST",
        "THREADS": "THREADS_K * THREADS_L",
        "ENTRIES": "ELEMENTS if W_COLUMNS else ROWS",
        "COUNT": "SMALL * ENTRIES",
        "WORD": "sizeof(ACC_TYPE)",
        "PROMISED": "maximum(MIN_BLOCKS, 1)",
    },
    sizes=("K",),
    computed=(*("SHARED_BYTES", "WARPS", "BLOCKS"), *("STEP", "STEPS", "LONG", "X_ELEMENTS", "X_LOADS", "C_WIDTH")),
)


def names(workload: Workload) -> dict[str, object]:
    """Return macros that the class decides."""
    e = extents(workload)
    return {
        "IN_TYPE": macro_token(e.dtype["a"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        "FORM": 4 if e.is_complex else 1,
        "PROLOGUE": bool(e.prologue),
        "INLINED_A": bool(e.prologue),
        **{f"{x.upper()}_UNIT": e.unit[x] != "s" for x in "ab"},
        **{f"{x.upper()}_UNIT_K": e.unit[x] == "k" for x in "ab"},
        **{f"{x.upper()}_WIDEST": width for x, width in widths(e).items()},
    }
