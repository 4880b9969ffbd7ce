"""Legality of contraction_mma (contraction_mma.cu and mma_*.cuh)."""

from __future__ import annotations

from gensor_kernels.families.contraction import rules as shared
from gensor_kernels.families.core.rules import LAUNCH, Rule, Rules

from .instructions import LEAST_DOUBLE_REGISTERS, Code

#: A thread's share of copying a tile (OperandTile in mma_tiles.cuh).
COPIES = (
    Rule(
        "More than 64 copies per thread and step: use wider accesses or more warps.", "PIECES_PER_THREAD <= 64", of="AB"
    ),
    Rule("A thread's edge predicates must fit 32 bits.", "(PASSES if K_CONTIGUOUS else COLUMNS) <= 32", of="AB"),
)
RULES = Rules(
    (
        Rule("Warp tiles are whole fragments of 16 x 8 outputs.", "WARP_M % 16 == 0 and WARP_N % 8 == 0", given=True),
        Rule("A block tile is whole warp tiles.", "BLOCK_M % WARP_M == 0 and BLOCK_N % WARP_N == 0"),
        Rule("A block has 1 to 32 warps.", "THREADS >= 32 and THREADS <= 1024"),
        # ---- instructions and steps
        Rule(
            "This instruction does not multiply this type.",
            "INSTRUCTION == F16_K16 or INSTRUCTION == F16_K8 or INSTRUCTION == F8_K32 if same_type(IN_TYPE, half_t)"
            " else INSTRUCTION == F16_K16 if same_type(IN_TYPE, bfloat16_t)"
            " else INSTRUCTION == (TF32_K8 if MATH_TF32 else F32_PARTS) if same_type(IN_TYPE, float)"
            " else INSTRUCTION >= F64_K16 and INSTRUCTION <= F64_K4 or INSTRUCTION == F64_ROWS_K4 if DOUBLES"
            " else INSTRUCTION == I8_K32 or INSTRUCTION == I8_K16",
            given=True,
        ),
        Rule(
            "Integers accumulate in i32, doubles and complex numbers as they are, the others in float.",
            "same_type(ACC_TYPE, i32) == same_type(IN_TYPE, i8) and same_type(ACC_TYPE, IN_TYPE) == (ELEMENT >= 4)",
            given=True,
        ),
        Rule("A step of k is whole fragments of 32 bytes.", "BLOCK_K * NARROW % 256 == 0", given=True),
        Rule("A step of k is whole fragments of the instruction.", "not DOUBLES or BLOCK_K % K_STEP == 0"),
        Rule(
            "A step of k of floats is whole fragments of 64 bytes.",
            "BLOCK_K % K_MULTIPLIED == 0",
            "INSTRUCTION == F32_PARTS",
        ),
        Rule(
            "8-bit floats are multiplied in the type of shared memory.",
            "is_eight_bit_float(A_STORED) and is_eight_bit_float(B_STORED) and ASYNC",
            when="INSTRUCTION == F8_K32",
        ),
        Rule(
            "Fragments are widened only where both operands are K-contiguous.",
            "NARROW == 8 * ELEMENT or (TileA.K_CONTIGUOUS and TileB.K_CONTIGUOUS and A_UNIT and B_UNIT)",
            given=True,
        ),
        # ---- registers
        Rule(
            "The accumulators do not fit the registers.",
            "MATRICES * WARP_M * WARP_N <= (MOST_DOUBLES if DOUBLES else 5120)",
        ),
        Rule("The sums of slices fit the registers.", "WARP_M * WARP_N <= 1536", "SLICED", asserted=False),
        Rule("The sums of float32 parts fit the registers.", "WARP_M * WARP_N <= 2560", "IN_PARTS", asserted=False),
        Rule(
            "Short sums and long ones must fit the registers.",
            "MATRICES * WARP_M * WARP_N <= 2560",
            when="INSTRUCTION == F8_K32",
        ),
        Rule(
            "ptxas needs registers for the products of doubles of 16 rows, or of a larger step.",
            f"INSTRUCTION == F64_K4 or REGISTERS >= {LEAST_DOUBLE_REGISTERS}",
            when="DOUBLES",
            asserted=False,
        ),
        # ---- copies and shared memory
        Rule(
            "cp.async takes 2 to 6 stages, registers take 2.", "STAGES >= 2 and STAGES <= 6 if ASYNC else STAGES == 2"
        ),
        Rule(
            "cp.async copies 4, 8 or 16 bytes; narrower needs ASYNC 0.",
            "not ASYNC or (A_VECTOR >= 4 and B_VECTOR >= 4)",
        ),
        Rule("A global access must hold at least one element.", "VECTOR >= STORED", of="AB", given=True),
        Rule("Without a unit stride, elements are copied one by one.", "UNIT or VECTOR == STORED", of="AB", given=True),
        Rule(
            "Fragments, and several elements in a byte, are widened of K-contiguous operands only.",
            "(HELD == 8 * ELEMENT and PER_UNIT == 1) or (K_CONTIGUOUS and UNIT)",
            of="AB",
            given=True,
        ),
        *COPIES,
        Rule(
            "An operand with a prologue passes through registers, in the type that is multiplied.",
            "not PREPARED or (not ASYNC and same_type(Source, IN_TYPE))",
            of="AB",
        ),
        # ---- scales
        Rule("A gated product has no quantised weights.", "not SCALED or MATRICES == 1", given=True),
        Rule(
            "Groups are whole steps of k, or steps whole groups.",
            "GROUP % 32 == 0 and ((GROUP == 0 or BLOCK_K % GROUP == 0) if GROUP <= BLOCK_K else GROUP % BLOCK_K == 0)",
            when="SCALED",
        ),
        Rule(
            "A group's sums and those of all groups must fit the registers.",
            "GROUP == 0 or WARP_M * WARP_N <= 2560",
            when="SCALED",
        ),
        # ---- results
        Rule("A warp's row of outputs is whole chunks.", "WARP_N * sizeof(OUT_TYPE) % 16 == 0", asserted=False),
        Rule(
            "A warp's row of outputs must be whole stores: use a narrower C_VECTOR.", "WARP_N % WIDTH == 0", given=True
        ),
        shared.COLUMNS_OF_C,
        *shared.SPLITS,
        *shared.STREAMS,
        *shared.NORMS,
        *LAUNCH,
    ),
    coordinates={**shared.COORDINATES, "ASYNC": "copy"},
    derived={
        **shared.DERIVED,
        "THREADS": "32 * (BLOCK_M // WARP_M) * (BLOCK_N // WARP_N)",
        "ELEMENT": "sizeof(IN_TYPE)",
        "DOUBLES": "ELEMENT >= 8",
        "MOST_DOUBLES": "768 if FORM == 3 else 1152 if FORM == 4 else 2048",
        "FOURS": "4 if INSTRUCTION == F64_K16 else 2 if INSTRUCTION == F64_K8 else 1",
        "K_MULTIPLIED": "16",
        "K_STEP": "(4 * ELEMENT if DOUBLES else 32) * FOURS * 8 // NARROW",
        "NARROW": "minimum(TileA.HELD, TileB.HELD)",
        "A_Source": "A_STORED",
        "B_Source": "B_STORED",
        "IN_PARTS": "same_type(IN_TYPE, float) and not MATH_TF32",
        "SLICED": "same_type(IN_TYPE, i8) and sizeof(ACC_TYPE) == 8",
        "PREFERRED_WIDTH": "16 // sizeof(ACC_TYPE) if SPLIT else NORM_WIDTH",
        "WIDTH": "PREFERRED_WIDTH if EPILOGUE_STAGED else minimum(2, PREFERRED_WIDTH)",
    },
    of_operand={
        "STORED": "sizeof(Source)",
        "PER_UNIT": "per_unit(Source)",
        "HELD": "8 * STORED // PER_UNIT if ASYNC else 8 * ELEMENT",
        "K_CONTIGUOUS": "LAYOUT == 0",
    },
    members=(
        *("VECTOR", "STORED", "UNIT", "HELD", "PER_UNIT", "K_CONTIGUOUS", "PREPARED", "Source"),
        *("PASSES", "COLUMNS", "PIECES_PER_THREAD"),
    ),
    constants={code.name: code.value for code in Code},
    sizes=shared.SIZES,
    computed=(
        *("SHARED_BYTES", "WARPS", "REGISTERS"),
        *(f"{x}_{name}" for x in "AB" for name in ("PASSES", "COLUMNS", "PIECES_PER_THREAD")),
    ),
)
