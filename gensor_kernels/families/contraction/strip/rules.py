"""Legality of contraction_strip (contraction_strip.cu and strip_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction.patch import rules as patch
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import LAUNCH, Rule, Rules
from gensor_kernels.operators.types.workload import Workload

RULES = Rules(
    (
        *patch.TILES,
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
        **patch.DERIVED,
        "WIDTH": "C_VECTOR // sizeof(OUT_TYPE) if C_UNIT else 1",
        "TOGETHER": "WIDTH // 2 if WIDTH > 1 else 1",
        "PROMISED": "MIN_BLOCKS",
    },
    computed=("SHARED_BYTES", "WARPS", "VERIFIED_BYTES", "STORED_WHOLE"),
)


def names(workload: Workload) -> dict[str, object]:
    """Return macros that the class decides."""
    e = extents(workload)
    return {"OUT_TYPE": macro_token(e.dtype["c"]), "C_UNIT": e.unit["c"] != "s"}
