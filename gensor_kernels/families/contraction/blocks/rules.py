"""Legality of contraction_blocks: that of contraction_mma, whose scales it does not have, and of one instruction."""

from __future__ import annotations

from dataclasses import replace

from gensor_kernels.families.contraction.mma import rules
from gensor_kernels.families.core.rules import Rule

_TYPES = next(each for each in rules.RULES.table if "multiply this type" in each.text)

RULES = replace(
    rules.RULES,
    table=(
        *(each for each in rules.RULES.table if each.when != "SCALED" and each is not _TYPES),
        _TYPES._replace(condition=f"INSTRUCTION == BLOCK_SCALED or ({_TYPES.condition})"),
        Rule("Groups divide a unit of k.", "AS_STORED if GROUP == 0 else 32 % GROUP == 0", given=True),
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
            "not AS_STORED",
        ),
    ),
    derived={**rules.RULES.derived, "AS_STORED": "INSTRUCTION == BLOCK_SCALED"},
)
