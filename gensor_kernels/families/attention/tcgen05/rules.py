"""Legality of attention_tcgen05 (attention_tcgen05.cu and attention_rows.cuh)."""

from __future__ import annotations

from gensor_kernels.families.attention import rules as attention
from gensor_kernels.families.attention.wgmma import rules as wgmma
from gensor_kernels.families.attention.wgmma.cost import SPARE
from gensor_kernels.families.core.rules import Rule, Rules

RULES = Rules(
    (
        wgmma.TYPES,
        # ---- tiles
        Rule("One or two warpgroups have 128 rows each.", "BLOCK_Q == 128 or BLOCK_Q == 256", given=True),
        wgmma.KEYS_OF_A_PRODUCT,
        Rule("One or two tiles of scores are in flight.", "SCORE_TILES == 1 or SCORE_TILES == 2", given=True),
        wgmma.BOXES,
        wgmma.RING,
        wgmma.PACKED,
        wgmma.MASKS,
        *wgmma.POWERS,
        Rule(
            "Tensor memory has the scores and sums of as many blocks as are promised.",
            "MIN_BLOCKS * MEMORY_COLUMNS <= 512",
        ),
        # ---- registers
        wgmma.PROMISED,
        Rule(
            "A warp's scores and weights do not fit the registers.",
            "BLOCK_KEYS * 5 // 4 + (56 if MASK_STAGES else BLOCK_KEYS if MASK else 0)"
            " + (68 if POLYNOMIALS and SOFTCAP else 52) <= TAKEN",
        ),
        Rule("The sums of 16 rows do not fit the registers.", "HEAD // 2 + 80 <= TAKEN"),
        *attention.SHARED,
    ),
    coordinates=attention.COORDINATES,
    derived={
        "CONSUMERS": "BLOCK_Q // 128",
        "THREADS": "128 * (CONSUMERS + 1)",
        "SPARE": str(SPARE),
        "ENTRY": "minimum(65536 // (THREADS * MIN_BLOCKS) // 8 * 8, 256)",
        "TAKEN": "minimum(240, (ENTRY * (CONSUMERS + 1) - 48) // CONSUMERS // 8 * 8)",
        "ALL_COLUMNS": "CONSUMERS * (SCORE_TILES * BLOCK_KEYS + HEAD)",
        "MEMORY_COLUMNS": "1024 if ALL_COLUMNS > 512 else 512 if ALL_COLUMNS > 256 else 256 if ALL_COLUMNS > 128"
        " else 128 if ALL_COLUMNS > 64 else 64",
        "KEYS_PACKED": "1",
        "PROMISED": "MIN_BLOCKS",
    },
    sizes=(*attention.SIZES, "GROUP"),
    computed=("SHARED_BYTES", "WARPS"),
)
