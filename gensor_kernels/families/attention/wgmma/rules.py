"""Legality of attention_wgmma (attention_wgmma.cu)."""

from __future__ import annotations

from gensor_kernels.families.attention import rules as attention
from gensor_kernels.families.core.rules import Rule, Rules

from .cost import SPARE

#: Rules that attention_tcgen05 shares.
TYPES = Rule(
    "Queries, keys and values have 16 bits.",
    "same_type(IN_TYPE, half_t) or same_type(IN_TYPE, bfloat16_t)",
    given=True,
)
KEYS_OF_A_PRODUCT = Rule(
    "A product has 16 to 256 keys.",
    "BLOCK_KEYS % 16 == 0 and BLOCK_KEYS >= 16 and BLOCK_KEYS <= 256",
    given=True,
)
BOXES = Rule(
    "Boxes of whole queries, in all heads of a group, fit the memory of a tile of Q.",
    "GROUP <= BLOCK_Q and (BLOCK_Q + GROUP - 1) // GROUP * GROUP - BLOCK_Q <= SPARE",
    asserted=False,
)
RING = Rule("The ring has 2 to 16 buffers.", "STAGES >= 2 and STAGES <= 16", given=True)
PACKED = Rule(
    "Rows and keys are packed together.",
    "KEYS_IN == KEYS_PACKED and SLIDING and not MASK if RAGGED else not KEYS_IN",
    given=True,
)
MASKS = Rule(
    "Tiles of the mask pass through shared memory where its keys are adjacent.",
    "MASK_STAGES <= 2 and (not MASK_STAGES or (MASK and MASK_UNIT))",
    given=True,
)
PROMISED = Rule(
    "Registers change hands only where the launch bounds say how many there are.", "MIN_BLOCKS >= 1", given=True
)
POWERS = (
    Rule("Some fragment has polynomials, if any.", "POLYNOMIALS == 0 or BLOCK_KEYS // 8 * POLYNOMIALS >= 8"),
    Rule("Logarithms need more precise totals than polynomials give.", "POLYNOMIALS == 0 or not LSE", given=True),
)
RULES = Rules(
    (
        TYPES,
        # ---- tiles
        Rule(
            "One to three warpgroups have 64 rows each.",
            "BLOCK_Q % 64 == 0 and CONSUMERS >= 1 and CONSUMERS <= 3",
            given=True,
        ),
        KEYS_OF_A_PRODUCT,
        BOXES,
        *POWERS,
        RING,
        PACKED,
        MASKS,
        # ---- registers
        PROMISED,
        Rule(
            "Sums, scores and weights do not fit the registers.",
            "(2 * HEAD + (5 if MASK and not MASK_STAGES else 3) * BLOCK_KEYS) // 4"
            " + (48 if HEAD > 192 else 32 if HEAD == 64 and not (SLIDING or MASK) else 40)"
            " <= (255 if ENTRY > 240 else TAKEN)",
        ),
        Rule(
            "The operands of one product do not fit the registers at entry.",
            "(HEAD + 8) // 2 + 26 <= ENTRY and BLOCK_KEYS // 2 + 26 <= ENTRY",
        ),
        *attention.SHARED,
    ),
    coordinates=attention.COORDINATES,
    derived={
        "CONSUMERS": "BLOCK_Q // 64",
        "THREADS": "128 * (CONSUMERS + 1)",
        "SPARE": str(SPARE),
        "ENTRY": "minimum(65536 // (THREADS * MIN_BLOCKS) // 8 * 8, 256)",
        "GIVEN": "32 if CONSUMERS == 3 else 40",
        "TAKEN": "minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) // CONSUMERS // 8 * 8)",
        "KEYS_PACKED": "1",
        "PROMISED": "MIN_BLOCKS",
    },
    sizes=(*attention.SIZES, "GROUP"),
    computed=("SHARED_BYTES", "WARPS"),
)
