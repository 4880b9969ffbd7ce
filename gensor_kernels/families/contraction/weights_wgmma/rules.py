"""Legality of contraction_weights_wgmma (contraction_weights_wgmma.cu and weights_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction import rules as shared
from gensor_kernels.families.contraction.wgmma.rules import BOUNDED, REGISTERS, RING, WARPGROUPS
from gensor_kernels.families.core.rules import LAUNCH, Rule, Rules

RULES = Rules(
    (
        # ---- operands
        Rule(
            "Weights become 16-bit floats.",
            "FLOATS or same_type(IN_TYPE, half_t) or same_type(IN_TYPE, bfloat16_t)",
            given=True,
        ),
        Rule(
            "Weights have 8 or 4 bits.",
            "FLOATS or same_type(B_STORED, i8) or same_type(B_STORED, u4x2_t)",
            given=True,
        ),
        Rule("Weights have scales, and perhaps zeros.", "FLOATS or SCALED == 1 or SCALED == 2", given=True),
        Rule(
            "Floats, contiguous along n, have no scales, and are stored as floats.",
            "not FLOATS or (same_type(IN_TYPE, float) and same_type(B_STORED, float) and same_type(OUT_TYPE, float)"
            " and GROUP == 0)",
            given=True,
        ),
        Rule(
            "Groups are whole chunks, and divide a step.",
            "GROUP == 0 or GROUP == 32 or GROUP == 64 or GROUP == 128",
            given=True,
        ),
        # ---- tiles
        WARPGROUPS,
        Rule("Every warpgroup has whole tiles of 64 columns.", "TILES * 64 * CONSUMERS == BLOCK_N and BLOCK_N <= 256"),
        Rule(
            "A block has 16 to 256 rows, in steps of 16.",
            "BLOCK_M % 16 == 0 and BLOCK_M >= 16 and BLOCK_M <= 256",
            given=True,
        ),
        Rule(
            "A step of k is 128 bytes of weights.",
            "BLOCK_K == (UNIT if FLOATS else 128 * per_unit(B_STORED))",
            given=True,
        ),
        RING,
        # ---- registers
        BOUNDED,
        Rule(
            "Sums and weights do not fit the registers.",
            "TILES * ((BLOCK_M if GROUP else BLOCK_M // 2) + CHUNK * 8 // K_STEP) + 56"
            " <= (255 if ENTRY > 240 else TAKEN)",
        ),
        Rule("The operands of one product do not fit the registers at entry.", "BLOCK_M // 2 + 34 <= ENTRY"),
        shared.COLUMNS_OF_C,
        *shared.SPLITS,
        *LAUNCH,
    ),
    coordinates=shared.COORDINATES,
    derived={
        **shared.DERIVED,
        **REGISTERS,
        "TILES": "BLOCK_N // (64 * CONSUMERS)",
        "FLOATS": "SCALED == 0",
        "UNIT": "128 // sizeof(IN_TYPE)",
        "K_STEP": "8 if FLOATS else 16",
        "MOST_CHUNK": "16 if FLOATS else 32 if TILES > 1 else UNIT",
        "CHUNK": "minimum(GROUP, MOST_CHUNK) if GROUP else MOST_CHUNK",
    },
    sizes=shared.SIZES,
    computed=("SHARED_BYTES", "WARPS"),
)
