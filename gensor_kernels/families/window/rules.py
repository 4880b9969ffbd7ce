"""Legality of window (window.cu and window_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import LAUNCH, ONE_DIMENSION, Rule, Rules
from gensor_kernels.operators.types.workload import Workload

from .shape import KINDS, MOST_UNROLLED, call_of

RULES = Rules(
    (
        # ---- loads
        Rule(
            "Neighbouring columns are not loaded as vectors.",
            "CHANNELS_LAST or A_VECTOR == sizeof(IN_TYPE)",
            given=True,
        ),
        Rule(
            "Vectors must hold whole elements.",
            "A_VECTOR % sizeof(IN_TYPE) == 0 and A_VECTOR % B_VECTOR == 0",
            given=True,
        ),
        # ---- tiles
        Rule("Channel vectors must fill the block tile.", "BLOCK_C % CHANNELS == 0"),
        Rule("Thread tiles must fill the block tile.", "BLOCK_W % THREAD_W == 0 and BLOCK_H % THREAD_H == 0"),
        Rule("A block must have 1 to 32 whole warps.", "THREADS % 32 == 0 and THREADS <= 1024"),
        Rule("A block has a thread.", "THREADS > 0", asserted=False),
        Rule("A thread's accumulators must fit its registers.", "OUTPUTS * sizeof(ACC_TYPE) <= 512"),
        # ---- ways along the window
        Rule("Only windows from Params are split.", "not WINDOW or SPLIT == 1"),
        Rule(
            "An unrolled window must not grow without bound.",
            f"not WINDOW or OUTPUTS * (WINDOW // 1000) * (WINDOW // 100 % 10) <= {MOST_UNROLLED}",
        ),
        Rule(
            "Planes are staged, and no window over them is split.", "not STAGED or (SPLIT == 1 and not CHANNELS_LAST)"
        ),
        Rule(
            "Filters slide over staged planes; other windows are compiled in.", "not STAGED or WINDOW or OPERATION == 0"
        ),
        Rule("They slide by steps of 1.", "SLIDES", when="STAGED and not WINDOW", asserted=False),
        Rule("The filter is held only where its size is known.", "WINDOW or not FILTER_HELD"),
        Rule("Threads that share a window have few outputs.", "SPLIT == 1 or OUTPUTS <= 16"),
        Rule(
            "Rows of x and the filter must fit a thread's registers.",
            "2 * A_VECTOR * COLUMNS + (A_VECTOR * WINDOW_R * WINDOW_S if FILTER_HELD else 0) <= 768",
            when="WINDOW",
        ),
        Rule("A store takes an element at least.", "C_VECTOR >= sizeof(OUT_TYPE)", given=True),
        ONE_DIMENSION,
        *LAUNCH,
    ),
    coordinates={"A_VECTOR": "vector_a", "C_VECTOR": "vector_c"},
    derived={
        "CHANNELS": "A_VECTOR // sizeof(IN_TYPE)",
        "THREADS": "SPLIT * (BLOCK_C // CHANNELS) * (BLOCK_W // THREAD_W) * (BLOCK_H // THREAD_H)",
        "OUTPUTS": "THREAD_H * THREAD_W * CHANNELS",
        "WINDOW_R": "WINDOW // 1000",
        "WINDOW_S": "WINDOW // 100 % 10",
        "STEP_W": "WINDOW % 10",
        "COLUMNS": "(THREAD_W - 1) * STEP_W + WINDOW_S",
        "PROMISED": "maximum(MIN_BLOCKS, 1)",
    },
    sizes=("SLIDES",),
    computed=("SHARED_BYTES", "WARPS", "BLOCKS"),
)


def names(workload: Workload) -> dict[str, object]:
    """Return macros that the class decides."""
    call = call_of(workload)
    return {
        "IN_TYPE": macro_token(workload.dtype["x"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        "OPERATION": KINDS.index(call.kind),
        "CHANNELS_LAST": call.channels_last,
    }
