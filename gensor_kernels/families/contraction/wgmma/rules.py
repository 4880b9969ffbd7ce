"""Legality of contraction_wgmma (contraction_wgmma.cu and wgmma_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction import rules as shared
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.macros import EPILOGUE_NONE, compiled_codes
from gensor_kernels.families.core.rules import LAUNCH, Rule, Rules
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, PARTS
from gensor_kernels.operators.types.workload import Workload

#: Registers of each thread at entry, and after the exchange, of kernels whose warpgroups exchange registers.
REGISTERS = {
    "THREADS": "128 * (CONSUMERS + 1)",
    "ENTRY": "minimum(65536 // (THREADS * MIN_BLOCKS) // 8 * 8, 256)",
    "GIVEN": "32 if CONSUMERS == 3 else 40",
    "TAKEN": "minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) // CONSUMERS // 8 * 8)",
}
BOUNDED = Rule(
    "Registers change hands only where the launch bounds say how many there are.", "MIN_BLOCKS >= 1", given=True
)
WARPGROUPS = Rule("One to three warpgroups multiply.", "CONSUMERS >= 1 and CONSUMERS <= 3", given=True)
RING = Rule("The ring has 2 to 8 buffers.", "STAGES >= 2 and STAGES <= 8", given=True)
#: Rules of results that leave through slabs, or by copies (contraction/tma).
RESULTS = (
    Rule(
        "Copies store rows of 128 bytes, of which 16-bit outputs may leave a rest.",
        "not STORE_COPIES or ((COLUMNS * sizeof(OUT_TYPE) % 128 == 0 or (sizeof(OUT_TYPE) == 2 and COLUMNS > 64))"
        " and not EPILOGUE_STAGED and not SPLIT and C_UNIT)",
    ),
    Rule("Copies are the widest stores.", "C_VECTOR == 16", "STORE_COPIES", asserted=False),
    Rule(
        "Stores fill a warp's slab.",
        "SLAB_N * sizeof(OUT_TYPE) % C_VECTOR == 0",
        when="EPILOGUE_STAGED",
        asserted=False,
    ),
)
SUMS = Rule(
    "Integers accumulate in i32, the others in float.",
    "same_type(ACC_TYPE, i32) if same_type(IN_TYPE, i8) else same_type(ACC_TYPE, float)",
    given=True,
)
RULES = Rules(
    (
        # ---- tiles
        WARPGROUPS,
        Rule(
            "Every warpgroup has whole tiles of 64 rows.",
            "BLOCK_M % 64 == 0 and TILES_M * 64 * (1 if ALTERNATING else CONSUMERS) == BLOCK_M and BLOCK_M <= 256",
        ),
        Rule(
            "A block has up to 256 columns, in steps of 8 of plain 16-bit products, else of 16.",
            "BLOCK_N % (8 if ELEMENT == 2 and PARTS == 1 and not GATE else 16) == 0 and BLOCK_N <= 256",
            given=True,
        ),
        Rule(
            "A step of k is one or two rows of 128 bytes, one of 8-bit floats.",
            "BLOCK_K * ELEMENT == 128 or (BLOCK_K * ELEMENT == 256 and not PROMOTED)",
            given=True,
        ),
        Rule(
            "Blocks walk tiles or not, and several warpgroups can take them in turn, or be apart.",
            "PERSISTENT >= 0 and PERSISTENT <= 3 and (PERSISTENT < 2 or CONSUMERS > 1)",
        ),
        Rule(
            "Short sums of 8-bit floats are added while the next products run, or not.",
            "OVERLAPPED == 0 or (OVERLAPPED == 1 and PROMOTED)",
            given=True,
        ),
        Rule("A cluster is a pair of blocks along m or n.", "CLUSTER >= 0 and CLUSTER <= 2", given=True),
        Rule("Blocks of a pair fetch whole periods of the swizzle.", "CLUSTER != 1 or B_LAYOUT or BLOCK_N % 16 == 0"),
        RING,
        # ---- operands
        Rule("Both operands have elements of one size.", "ELEMENT == sizeof(B_STORED)", given=True),
        Rule(
            "Only 16-bit rows of k are multiplied.",
            "ELEMENT == 2 or (TileA.K_CONTIGUOUS and TileB.K_CONTIGUOUS)",
            given=True,
        ),
        Rule(
            "8-bit floats are multiplied by one another, the other types by themselves.",
            "same_type(IN_TYPE, half_t) and is_eight_bit_float(B_STORED) if PROMOTED"
            " else same_type(A_STORED, IN_TYPE) and same_type(B_STORED, IN_TYPE)",
            given=True,
        ),
        SUMS,
        Rule(
            "An image's channels are contiguous.",
            "A_WINDOW == WINDOW_NONE or (A_WINDOW == WINDOW_CHANNELS_LAST and TileA.K_CONTIGUOUS)",
            given=True,
        ),
        Rule(
            "Columns are pixels of packed or divided images, whose filters are packed or divided as well.",
            "B_WINDOW == WINDOW_NONE or (B_WINDOW == WINDOW_CHANNELS_LAST and (PACKED or PARTS > 1)"
            " and TileA.K_CONTIGUOUS and TileB.K_CONTIGUOUS)",
            given=True,
        ),
        Rule("One operand is an image.", "A_WINDOW == WINDOW_NONE or B_WINDOW == WINDOW_NONE", given=True),
        # ---- forms of products
        Rule(
            "A stream's blocks walk shares of a plain product.",
            "not STREAM or (PERSISTENT == 1 and not CLUSTER and not SPLIT"
            " and A_WINDOW == WINDOW_NONE and B_WINDOW == WINDOW_NONE)",
        ),
        Rule(
            "A gated product has whole boxes of both matrices, which no pair of blocks shares, and all of k.",
            "not GATE or (COLUMNS % (64 if B_LAYOUT else 16) == 0 and not SPLIT and not STREAM and CLUSTER != 1"
            " and A_WINDOW == WINDOW_NONE and B_WINDOW == WINDOW_NONE)",
            given=True,
        ),
        Rule(
            "Parts of floats are bfloat16, a box of each to a step.",
            "PARTS == 1 or (PARTS == 3 and same_type(IN_TYPE, bfloat16_t) and same_type(OUT_TYPE, float)"
            " and TileA.K_CONTIGUOUS and TileB.K_CONTIGUOUS and BLOCK_K == UNIT and not STREAM and not GATE)",
            given=True,
        ),
        Rule(
            "Tiles of groups have matrices of their own, and end where the next group begins.",
            "not RAGGED_ROWS or (CLUSTER != 1 and not STORE_COPIES and not SPLIT and not STREAM and not GATE"
            " and PARTS == 1 and A_WINDOW == WINDOW_NONE and B_WINDOW == WINDOW_NONE)",
            given=True,
        ),
        Rule(
            "A plain product of 8-bit floats is scaled, a step at a time by one scale of B or two.",
            "not BLOCK_SCALED or (PROMOTED and BLOCK_K == SCALED_COLUMNS and SCALES_OF_B <= 2 and not GATE"
            " and not RAGGED_ROWS and not NORM and A_WINDOW == WINDOW_NONE and B_WINDOW == WINDOW_NONE)",
            given=True,
        ),
        Rule(
            "Rows are normalised where all of them are: in the workspace.",
            "not NORM or (SPLIT and PARTS == 1)",
            given=True,
        ),
        # ---- registers
        BOUNDED,
        Rule(
            "The sums do not fit the registers.",
            "TILES_M * BLOCK_N // 2 + (32 if STORE_COPIES and NO_OPERATIONS"
            " else 72 if STORE_COPIES and COLUMNS * sizeof(OUT_TYPE) % 128 > 0"
            " else 64 if PERSISTENT or STORE_COPIES else 32) <= (255 if ENTRY > 240 else TAKEN)",
        ),
        # Short sums are dead in the epilogue; at 16 more, no main loop of 160 to 216 sums of 8-bit floats spills.
        Rule(
            "Sums and short sums do not fit the registers.",
            "not SHORT_SUMS or (TILES_M + 1 + OVERLAPPED) * BLOCK_N // 2"
            " + (16 if PROMOTED else 64 if PERSISTENT or STORE_COPIES else 32)"
            " + (10 + 2 * SCALES_OF_B + 2 * (1 + SCALES_OF_B) * TILES_M if BLOCK_SCALED else 0)"
            " <= (255 if ENTRY > 240 else TAKEN)",
        ),
        Rule("The sums of one product fit the registers at entry.", "BLOCK_N // 2 + 26 <= ENTRY", asserted=False),
        # ---- results
        *RESULTS,
        shared.COLUMNS_OF_C,
        *shared.SPLITS,
        *shared.STREAMS,
        *shared.NORMS,
        *LAUNCH,
    ),
    coordinates={**shared.COORDINATES, "COLUMNS": "block_n", "ROUTE": "epilogue_staged"},
    derived={
        **shared.DERIVED,
        **REGISTERS,
        "STEPS": "TAPS * ((maximum(K // TAPS, 1) + BLOCK_K - 1) // BLOCK_K)",
        "BLOCK_N": "MATRICES * COLUMNS",
        "EPILOGUE_STAGED": "ROUTE == 1",
        "STORE_COPIES": "ROUTE == 3",
        "EPILOGUE_CODES": "EPILOGUE_FIXED * COMPILED_CODES",
        "NO_OPERATIONS": "EPILOGUE_CODES == EPILOGUE_NONE and not GATE",
        "ALTERNATING": "PERSISTENT == 2",
        "TILES_M": "BLOCK_M // (64 * (1 if ALTERNATING else CONSUMERS))",
        "SMALL_N": "64 if COLUMNS % 64 == 0 else 48 if COLUMNS % 48 == 0 else 32 if COLUMNS % 32 == 0"
        " else 16 if COLUMNS % 16 == 0 else 56 if COLUMNS % 56 == 0 else 40 if COLUMNS % 40 == 0"
        " else 24 if COLUMNS % 24 == 0 else 8",
        "SLAB_N": "SMALL_N if PERSISTENT or (COLUMNS > 128 and COLUMNS % 16 > 0) else COLUMNS // 2 if COLUMNS > 128"
        " else COLUMNS",
        "ELEMENT": "sizeof(A_STORED)",
        "UNIT": "128 // ELEMENT",
        "PROMOTED": "is_eight_bit_float(A_STORED)",
        "SHORT_SUMS": "PROMOTED or PARTS > 1",
        "SCALED_COLUMNS": "128",
        "SCALES_OF_B": "(2 * SCALED_COLUMNS - minimum(power_of_two_in(BLOCK_N), SCALED_COLUMNS) + BLOCK_N - 1)"
        " // SCALED_COLUMNS",
        "EPILOGUE_NONE": str(EPILOGUE_NONE),
        "WINDOW_NONE": "0",
        "WINDOW_CHANNELS_LAST": "1",
    },
    of_operand={"K_CONTIGUOUS": "LAYOUT == 0"},
    sizes=(*shared.SIZES, "TAPS"),
    computed=("SHARED_BYTES", "WARPS"),
)


def names(workload: Workload) -> dict[str, object]:
    """Return macros that the class decides beyond those of every contraction."""
    e = extents(workload)
    return {
        "PARTS": 3 if e.dtype["a"] == PARTS else 1,
        **({} if e.dtype["a"] in EIGHT_BIT_FLOATS else {"OVERLAPPED": 0}),
        "BLOCK_SCALED": e.in_blocks,
        "COMPILED_CODES": compiled_codes(workload),
        "A_WINDOW": e.order if e.window == "a" else 0,
        "B_WINDOW": e.order if e.window == "b" else 0,
    }
