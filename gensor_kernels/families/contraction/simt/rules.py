"""Legality of contraction_simt (contraction_simt.cu and simt_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction import rules as shared
from gensor_kernels.families.core.rules import LAUNCH, Rule, Rules

RULES = Rules(
    (
        # ---- threads and warps
        Rule("Thread tiles must fill the block tile.", "BLOCK_M % THREAD_M == 0 and BLOCK_N % THREAD_N == 0"),
        Rule(
            "Virtual threads must share a thread's outputs evenly.",
            "THREAD_M % VTHREAD_M == 0 and THREAD_N % VTHREAD_N == 0",
        ),
        Rule("A block must have 1 to 32 whole warps.", "THREADS % 32 == 0 and THREADS <= 1024"),
        Rule(
            "LANES_M must divide the 32 lanes of a warp.",
            "LANES_M >= 1 and LANES_M <= 32 and 32 % LANES_M == 0",
            given=True,
        ),
        Rule("Warps must fill the block tile along M.", "BLOCK_M // THREAD_M % LANES_M == 0"),
        Rule("Warps must fill the block tile along N.", "BLOCK_N // THREAD_N % (32 // LANES_M) == 0"),
        # ---- registers and instructions
        # 16 KB of code, a quarter of what 4096 made, which took NVRTC 1.5 s instead of 0.6. An SM's innermost
        # instruction cache is thought to be of this size (unsure: nothing official says so).
        Rule(
            "A step's unrolled multiply-adds must stay in instruction caches.",
            "MATRICES * FORM * THREAD_M * THREAD_N * BLOCK_K <= 1024",
        ),
        Rule("A thread's accumulators must fit its registers.", "MATRICES * THREAD_M * THREAD_N * sizeof(Sum) <= 768"),
        # ---- loads
        Rule("Shared memory holds one or two buffers.", "STAGES == 1 or STAGES == 2", given=True),
        Rule(
            "Without a unit stride, A is loaded element by element.",
            "A_UNIT or A_VECTOR == sizeof(A_STORED)",
            given=True,
        ),
        Rule(
            "Without a unit stride, B is loaded element by element.",
            "B_UNIT or B_VECTOR == sizeof(B_STORED)",
            given=True,
        ),
        Rule("A global load must bring at least one element.", "ELEMENTS >= 1", of="AB", given=True),
        Rule("Global loads must fill the tile's contiguous axis.", "INNER % ELEMENTS == 0", of="AB"),
        Rule(
            "More than 32 global loads per thread and step: use a smaller tile or more threads.", "LOADS <= 32", of="AB"
        ),
        # ---- results
        Rule("Stores into C must fill the block tile's rows.", "not EPILOGUE_STAGED or BLOCK_N % SLAB_WIDTH == 0"),
        *shared.SPLITS,
        *shared.STREAMS,
        *shared.NORMS,
        *LAUNCH,
    ),
    coordinates=shared.COORDINATES,
    derived={
        **shared.DERIVED,
        "THREADS": "BLOCK_M // THREAD_M * (BLOCK_N // THREAD_N)",
        "Sum": "sizeof(ACC_TYPE) // 2 * 3 if FORM == 3 else sizeof(ACC_TYPE)",
        "SLAB_WIDTH": "C_VECTOR // sizeof(OUT_TYPE) if C_UNIT else 1",
        "A_EXTENT": "BLOCK_M",
        "B_EXTENT": "BLOCK_N",
    },
    of_operand={"ELEMENTS": "VECTOR // sizeof(STORED)", "INNER": "BLOCK_K if LAYOUT == 0 else EXTENT"},
    members=("ELEMENTS", "INNER", "LOADS"),
    types={"A": "ShapeA", "B": "ShapeB"},
    sizes=shared.SIZES,
    computed=("SHARED_BYTES", "WARPS", "A_LOADS", "B_LOADS"),
)
