"""Legality of contraction_tcgen05 (contraction_tcgen05.cu and tma_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction import rules as shared
from gensor_kernels.families.contraction.wgmma import rules as wgmma
from gensor_kernels.families.core.rules import LAUNCH, Rule, Rules

RULES = Rules(
    (
        # ---- tiles
        Rule("A block has 128 rows.", "BLOCK_M == 128", given=True),
        Rule(
            "A product has up to 256 columns, in steps of 16, of a pair of 32.",
            "BLOCK_N % (32 if PAIR else 16) == 0 and BLOCK_N <= 256",
        ),
        Rule(
            "Rows of columns are whole boxes in each block.",
            "not B_LAYOUT or BLOCK_N % (UNIT * (2 if PAIR else 1)) == 0",
        ),
        Rule(
            "A step of k is one or two rows of 128 bytes.",
            "BLOCK_K * ELEMENT == 128 or BLOCK_K * ELEMENT == 256",
            given=True,
        ),
        Rule(
            "Two pairs of a cluster fetch tiles of matrices for each other.",
            "PAIRS == 0 or (PAIRS <= 2 and PAIR and not RAGGED_ROWS and A_WINDOW == 0 and B_WINDOW == 0)",
            given=True,
        ),
        wgmma.RING,
        Rule(
            "Tensor memory has the sums of two tiles, or up to four short sums, of as many blocks as are promised.",
            "MIN_BLOCKS * MEMORY_COLUMNS <= 512",
        ),
        # ---- operands
        Rule("Both operands have elements of one size.", "ELEMENT == sizeof(B_STORED)", given=True),
        Rule(
            "Only 16-bit rows of k are multiplied.",
            "ELEMENT == 2 or (TileA.K_CONTIGUOUS and TileB.K_CONTIGUOUS)",
            given=True,
        ),
        Rule(
            "8-bit floats are multiplied by one another, the other types by themselves.",
            "same_type(IN_TYPE, half_t) and is_eight_bit_float(B_STORED) if is_eight_bit_float(A_STORED)"
            " else (same_type(A_STORED, IN_TYPE) or ROW_SCALES > 1) and same_type(B_STORED, A_STORED)",
            given=True,
        ),
        Rule(
            "Numbers of four bits have two or four scales to a product, 8-bit floats one or none, other numbers none.",
            "ROW_SCALES == 2 or ROW_SCALES == 4 if same_type(A_STORED, e2m1x2_t)"
            " else ROW_SCALES == 0 or (ROW_SCALES == 1 and is_eight_bit_float(A_STORED))",
            given=True,
        ),
        Rule(
            "Plain products of rows of k are scaled.",
            "not ROW_SCALES or (not GATE and not RAGGED_ROWS and not NORM and TileA.K_CONTIGUOUS and TileB.K_CONTIGUOUS"
            " and A_WINDOW == 0 and B_WINDOW == 0)",
            given=True,
        ),
        Rule("A step has up to four words of scales of a row: more leave sums less room.", "WORDS <= 4"),
        wgmma.SUMS,
        # ---- forms of products
        Rule(
            "A gated product has whole boxes of both matrices, and all of k.",
            "not GATE or (COLUMNS % (UNIT if B_LAYOUT else 16) == 0 and not SPLIT)",
        ),
        Rule(
            "Tiles of groups have matrices of their own, and end where the next group begins.",
            "not RAGGED_ROWS or (not PAIR and not STORE_COPIES and not SPLIT and not GATE)",
        ),
        Rule(
            "Parts of floats are bfloat16, a box of each to a step.",
            "PARTS == 1 or (PARTS == 3 and same_type(IN_TYPE, bfloat16_t) and same_type(OUT_TYPE, float)"
            " and TileA.K_CONTIGUOUS and TileB.K_CONTIGUOUS and BLOCK_K == UNIT and not GATE)",
            given=True,
        ),
        Rule(
            "A plain product of 8-bit floats is scaled, a step at a time by one scale of B or two.",
            "not BLOCK_SCALED or (is_eight_bit_float(A_STORED) and BLOCK_K == SCALED_COLUMNS and SCALES_OF_B <= 2"
            " and not GATE and not RAGGED_ROWS and not NORM and A_WINDOW == 0 and B_WINDOW == 0)",
            given=True,
        ),
        Rule("Eight warps store scaled sums, else four.", "CONSUMERS == (2 if BLOCK_SCALED else 1)", given=True),
        Rule("Rows are normalised where all of them are: in the workspace.", "not NORM or SPLIT", given=True),
        # ---- registers
        Rule("Registers are promised.", "MIN_BLOCKS >= 1", given=True),
        Rule(
            "The sums of a row fit the registers.",
            "(BLOCK_N // 2 + PIECE + 40 if BLOCK_SCALED else BLOCK_N + 124 if PARTS > 1 else BLOCK_N // 2 + 62)"
            " <= (TAKEN if BLOCK_SCALED else minimum(65536 // (256 * MIN_BLOCKS) // 8 * 8, 255))",
        ),
        Rule("Sums that pass through slabs leave registers.", "not EPILOGUE_STAGED or BLOCK_N <= 224 or BLOCK_SCALED"),
        # ---- results
        *wgmma.RESULTS,
        shared.COLUMNS_OF_C,
        *shared.SPLITS,
        *shared.NORMS,
        *LAUNCH,
    ),
    coordinates={
        **shared.COORDINATES,
        "COLUMNS": "block_n",
        "ROUTE": "epilogue_staged",
        "STEP": "block_k",
    },
    derived={
        **shared.DERIVED,
        "BLOCK_N": "MATRICES * COLUMNS",
        "PAIR": "CLUSTER > 0",
        "PAIRS": "maximum(CLUSTER - 1, 0)",
        "BLOCK_K": "STEP // per_unit(A_STORED)",
        "SUM_COLUMNS": "BLOCK_N if ROW_SCALES else 256 if BLOCK_N > 128 else 128 if BLOCK_N > 64"
        " else 64 if BLOCK_N > 32 else 32 if BLOCK_N > 16 else 16",
        "WORDS": "BLOCK_K // 128 * ROW_SCALES",
        "SCALE_COLUMNS": "WORDS * 4 * (1 + (BLOCK_N + 127) // 128)",
        "PLACES": "4 if (PARTS > 1 or BLOCK_SCALED) and BLOCK_N <= 128"
        " else 1 if 2 * SUM_COLUMNS + SCALE_COLUMNS > 512 else 2",
        "USED_COLUMNS": "PLACES * SUM_COLUMNS + SCALE_COLUMNS",
        "MEMORY_COLUMNS": "512 if USED_COLUMNS > 256 else 256 if USED_COLUMNS > 128 else 128 if USED_COLUMNS > 64"
        " else 64 if USED_COLUMNS > 32 else 32",
        "PIECE": "minimum(power_of_two_in(BLOCK_N), 32 if BLOCK_N > 192 else 64)",
        **{name: wgmma.RULES.derived[name] for name in ("SCALED_COLUMNS", "SCALES_OF_B", *wgmma.REGISTERS)},
        "STEPS": "TAPS * ((maximum(K // TAPS, 1) + STEP - 1) // STEP)",
        "EPILOGUE_STAGED": "ROUTE == 1",
        "STORE_COPIES": "ROUTE == 3",
        "SLAB_N": "64 if COLUMNS % 64 == 0 else 48 if COLUMNS % 48 == 0 else 32 if COLUMNS % 32 == 0 else 16",
        "ELEMENT": "sizeof(A_STORED)",
        "UNIT": "128 // ELEMENT",
    },
    of_operand={"K_CONTIGUOUS": "LAYOUT == 0"},
    sizes=(*shared.SIZES, "TAPS"),
    computed=("SHARED_BYTES", "WARPS"),
)
