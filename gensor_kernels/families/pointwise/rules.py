"""Legality of pointwise (pointwise.cu)."""

from __future__ import annotations

from gensor_kernels.families.core.rules import GRID, LAUNCH, Rule, Rules

#: Most bytes of inputs that a thread holds at once, and instructions of its code.
HELD_BYTES, CODE = 256, 4096
POWERS = "Threads, elements of an access and accesses of a thread are powers of two."
WARPS = Rule("A block must have 1 to 32 whole warps.", "THREADS >= 32 and THREADS <= 1024", given=True)
HELD = Rule("A thread's inputs must fit its registers.", f"HELD_BYTES <= {HELD_BYTES}", asserted=False)
DERIVED = {"PROMISED": "maximum(MIN_BLOCKS, 1)"}
COMPUTED = ("SHARED_BYTES", "HELD_BYTES", "CODE", "WARPS", "BLOCKS")
RULES = Rules(
    (
        Rule(POWERS, "power_of_two(THREADS) and power_of_two(VECTOR) and power_of_two(ITEMS)", given=True),
        WARPS,
        Rule("An array has one to four axes.", "RANK >= 1 and RANK <= 4", given=True),
        HELD,
        Rule("A thread's code stays short.", f"ITEMS == 1 or CODE <= {CODE}", asserted=False),
        *GRID,
        *LAUNCH,
    ),
    derived=DERIVED,
    computed=COMPUTED,
)
