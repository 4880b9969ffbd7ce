"""Legality of contraction_strip (contraction_strip.cu and strip_*.cuh)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import LAUNCH, Bound, Rule, Rules, bind, launch_names
from gensor_kernels.machine.arch import Arch

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Rules of contraction_patch, too.
TILES = (
    Rule(
        "Warp tiles are whole pairs of fragments of 16 x 8 outputs.",
        "WARP_M % 16 == 0 and WARP_N % 16 == 0",
        given=True,
    ),
    Rule("A block tile is whole warp tiles.", "BLOCK_M % WARP_M == 0 and BLOCK_N % WARP_N == 0"),
    Rule("The accumulators of a larger warp tile do not fit the registers.", "WARP_M * WARP_N <= 5120"),
    Rule("A block has 1 to 32 warps.", "THREADS >= 32 and THREADS <= 1024"),
    Rule("Problems of verification fit shared memory, too.", "VERIFIED_BYTES <= MOST_SHARED_BYTES", asserted=False),
    Rule("Outputs that are stored together belong to one tile.", "STORED_WHOLE > 0", asserted=False),
)
DERIVED = {"THREADS": "32 * (BLOCK_M // WARP_M) * (BLOCK_N // WARP_N)"}
RULES = Rules(
    (
        *TILES,
        Rule("A warp's row of outputs must be whole stores of four lanes.", "WARP_N % (8 * TOGETHER) == 0", given=True),
        Rule("The steps of a longer k are too much code.", "LINES * OCTETS <= 64", given=True),
        Rule(
            "A row of the image is whole lines.",
            "LINES % PLANES == 0 and (not CHANNELS_LAST or PLANES == 1)",
            given=True,
        ),
        Rule(
            "Pairs of elements are words.", "same_type(IN_TYPE, half_t) or same_type(IN_TYPE, bfloat16_t)", given=True
        ),
        Rule("Products are summed in float.", "same_type(ACC_TYPE, float)", given=True),
        *LAUNCH,
    ),
    coordinates={"C_VECTOR": "vector_c"},
    derived={
        **DERIVED,
        "WIDTH": "C_VECTOR // sizeof(OUT_TYPE) if C_UNIT else 1",
        "TOGETHER": "WIDTH // 2 if WIDTH > 1 else 1",
        "PROMISED": "MIN_BLOCKS",
    },
    computed=("SHARED_BYTES", "WARPS", "VERIFIED_BYTES", "STORED_WHOLE"),
)


@lru_cache(maxsize=4096)
def bound(workload: Workload, arch: Arch) -> Bound:
    """Return the rules for a Workload on an Arch."""
    e = extents(workload)
    names = {"OUT_TYPE": macro_token(e.dtype["c"]), "C_UNIT": e.unit["c"] != "s"}
    return bind(RULES, frozenset((names | launch_names(arch)).items()))
