"""Legality of contraction_patch (contraction_patch.cu and patch_*.cuh)."""

from __future__ import annotations

from functools import lru_cache

from gensor_kernels.families.contraction import rules as shared
from gensor_kernels.families.core.rules import LAUNCH, VERIFIED, Rule, Rules
from gensor_kernels.operators.types.workload import Workload

from .shape import call_of, channel_step

#: Rules that contraction_strip shares.
TILES = (
    Rule(
        "Warp tiles are whole pairs of fragments of 16 x 8 outputs.",
        "WARP_M % 16 == 0 and WARP_N % 16 == 0",
        given=True,
    ),
    Rule("A block tile is whole warp tiles.", "BLOCK_M % WARP_M == 0 and BLOCK_N % WARP_N == 0"),
    Rule("The accumulators of a larger warp tile do not fit the registers.", "WARP_M * WARP_N <= 5120"),
    Rule("A block has 1 to 32 warps.", "THREADS >= 32 and THREADS <= 1024"),
    VERIFIED,
    Rule("Outputs that are stored together belong to one tile.", "STORED_WHOLE > 0", asserted=False),
)
DERIVED = {"THREADS": "32 * (BLOCK_M // WARP_M) * (BLOCK_N // WARP_N)"}
RULES = Rules(
    (
        *TILES,
        Rule("A step of channels is whole fragments of 32 bytes.", "BLOCK_K * ELEMENT % 32 == 0", given=True),
        Rule("cp.async copies 4, 8 or 16 bytes.", "A_VECTOR >= 4", given=True),
        Rule("The taps of four bytes of channels must fit the registers.", "TAPS <= 50", given=True),
        Rule("Rows of a tile are whole matrices of ldmatrix.", "RUN == 0 or RUN == 8 or RUN == 16", given=True),
        Rule("The channels of merged groups are one step.", "MERGED == 0 or (not SPLIT and not STREAM)"),
        Rule(
            "They are in verification, too.",
            "CHANNELS <= BLOCK_K // maximum(MERGED, 1)"
            " and (STEP_OF_TAPS if TAPS > 0 else STEP_OF_ANY) <= BLOCK_K // maximum(MERGED, 1)",
            when="MERGED",
            asserted=False,
        ),
        Rule("More pieces than patches have: use fewer copies.", "COPIES * THREADS <= 2048"),
        Rule(
            "Integers accumulate in i32, the others in float.",
            "same_type(ACC_TYPE, i32) if same_type(IN_TYPE, i8) else same_type(ACC_TYPE, float)",
            given=True,
        ),
        *shared.SPLITS,
        *shared.STREAMS,
        *LAUNCH,
    ),
    coordinates=shared.COORDINATES,
    derived={
        **shared.DERIVED,
        **DERIVED,
        "ELEMENT": "sizeof(IN_TYPE)",
        "K": "CHANNELS * maximum(MERGED, 1)",
        "STREAM_STEPS": "STEPS * WINDOW",
    },
    sizes=("CHANNELS", "STEP_OF_TAPS", "STEP_OF_ANY", "WINDOW", "N"),
    computed=("SHARED_BYTES", "WARPS", "VERIFIED_BYTES", "STORED_WHOLE"),
)


@lru_cache(maxsize=4096)
def sizes(workload: Workload) -> dict[str, int]:
    """Return the sizes that rules are about."""
    call = call_of(workload)
    return {
        "CHANNELS": call.channels,
        "STEP_OF_TAPS": channel_step(workload, call.taps),
        "STEP_OF_ANY": channel_step(workload, 0),
        "WINDOW": call.taps,
    }
