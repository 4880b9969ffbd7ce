"""Legality of contraction_blocks: that of contraction_mma, whose scales it does not have."""

from __future__ import annotations

from dataclasses import replace

from gensor_kernels.families.contraction.mma import rules
from gensor_kernels.families.core.rules import Rule

RULES = replace(
    rules.RULES,
    table=(
        *(each for each in rules.RULES.table if each.when != "SCALED"),
        Rule("Groups divide a unit of k.", "GROUP > 0 and 32 % GROUP == 0", given=True),
        Rule("Operands are copied as they are stored.", "ASYNC and not same_type(IN_TYPE, B_STORED)", given=True),
        Rule("The sums of a unit and those of all units must fit the registers.", "WARP_M * WARP_N <= 2560"),
    ),
)
