"""Legality of window_groups (window_groups.cu and groups_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import LAUNCH, ONE_DIMENSION, VERIFIED, Rule, Rules
from gensor_kernels.operators.types.workload import Workload

from .shape import MOST_UNROLLED, call_of

RULES = Rules(
    (
        Rule(
            "Neighbouring columns are not loaded as vectors.",
            "CHANNELS_LAST or A_VECTOR == sizeof(IN_TYPE)",
            given=True,
        ),
        Rule("Vectors must hold whole elements.", "A_VECTOR % sizeof(IN_TYPE) == 0", given=True),
        Rule("A store takes an element at least.", "C_VECTOR >= sizeof(OUT_TYPE)", given=True),
        Rule(
            "Thread tiles must fill the block tile.",
            "BLOCK_C % THREAD_C == 0 and BLOCK_H % THREAD_H == 0 and BLOCK_W % THREAD_W == 0",
        ),
        Rule("A block must have 1 to 32 whole warps.", "THREADS % 32 == 0 and THREADS <= 1024"),
        Rule("A block has a thread.", "THREADS > 0", asserted=False),
        Rule("A thread's accumulators must fit its registers.", "OUTPUTS * sizeof(ACC_TYPE) <= 512"),
        Rule(
            "A line's unrolled multiply-adds must stay in instruction caches.",
            f"OUTPUTS * (A_VECTOR // sizeof(IN_TYPE)) * TAPS <= {MOST_UNROLLED}",
        ),
        Rule(
            "Two lines of x must fit a thread's registers too.",
            "2 * A_VECTOR * COLUMNS + (OUTPUTS + COLUMNS) * sizeof(ACC_TYPE) <= 800",
        ),
        VERIFIED,
        ONE_DIMENSION,
        *LAUNCH,
    ),
    coordinates={"A_VECTOR": "vector_a", "C_VECTOR": "vector_c"},
    derived={
        "THREADS": "(BLOCK_C // THREAD_C) * (BLOCK_W // THREAD_W) * (BLOCK_H // THREAD_H)",
        "OUTPUTS": "THREAD_W * THREAD_C",
        "TAPS": "where(WINDOW > 0, WINDOW // 10, 1)",
        "COLUMNS": "(THREAD_W - 1) * where(WINDOW > 0, WINDOW % 10, 1) + TAPS",
        "PROMISED": "maximum(MIN_BLOCKS, 1)",
    },
    computed=("SHARED_BYTES", "VERIFIED_BYTES", "WARPS", "BLOCKS"),
)


def names(workload: Workload) -> dict[str, object]:
    """Return macros that the class decides."""
    return {
        "IN_TYPE": macro_token(workload.dtype["x"]),
        "OUT_TYPE": macro_token(workload.dtype["y"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        "CHANNELS_LAST": call_of(workload).channels_last,
    }
