"""Legality of contraction_blocks: that of contraction_mma, whose scales it does not have, and of one instruction."""

from __future__ import annotations

from dataclasses import replace

from gensor_kernels.families.contraction.mma import rules
from gensor_kernels.families.core.rules import Rule

_TYPES = next(each for each in rules.RULES.table if "multiply this type" in each.text)
_SHORT_SUMS = next(each for each in rules.RULES.table if "Short sums" in each.text)

RULES = replace(
    rules.RULES,
    table=(
        *(each for each in rules.RULES.table if each.when != "SCALED" and each not in (_TYPES, _SHORT_SUMS)),
        _TYPES._replace(condition=f"INSTRUCTION == BLOCK_SCALED or ({_TYPES.condition})"),
        Rule("Groups divide a unit of k.", "AS_STORED or FLOAT_SCALES if GROUP == 0 else 32 % GROUP == 0", given=True),
        Rule("Operands are copied as they are stored.", "ASYNC and not same_type(IN_TYPE, B_STORED)", given=True),
        Rule(
            "Tensor cores scale two operands of one format.",
            "GROUP == 0 or same_type(A_STORED, B_STORED)",
            "AS_STORED",
            given=True,
        ),
        Rule(
            "The sums of a unit and those of all units must fit the registers.",
            "WARP_M * WARP_N <= 2560",
            "not AS_STORED and not FLOAT_SCALES",
        ),
        Rule(
            "Float scales are of a step of two 8-bit floats as they are stored.",
            "is_eight_bit_float(A_STORED) and is_eight_bit_float(B_STORED) and BLOCK_K == 128 and GROUP == 0"
            " and (AS_STORED or INSTRUCTION == F8_K32)",
            "FLOAT_SCALES",
            given=True,
        ),
        Rule("The columns of a warp share a float scale.", "128 % WARP_N == 0", "FLOAT_SCALES"),
        Rule(
            "Sums of a warp, short ones of 16 rows, and the fragments of B of a step must fit the registers.",
            "WARP_N * (WARP_M + 48) <= 6656",
            "FLOAT_SCALES",
        ),
    ),
    derived={**rules.RULES.derived, "AS_STORED": "INSTRUCTION == BLOCK_SCALED"},
)
