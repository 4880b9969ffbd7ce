"""Prologues, drawn: operations on the first operand as kernels read it."""

from __future__ import annotations

from typing import Any

from gensor_kernels.operators.epilogue import Step

from .drawing import FLOATS, Draw
from .references import ACTIVATIONS


def prologue(draw: Draw, dtype: str, extent: int, behind: int = 0) -> tuple[list[Any] | None, list[Step]]:
    """For one in four calls, operations as a caller writes them, and as steps on an operand whose axis of vectors has
    this extent and so many axes behind it. Products of integers and complex numbers have none."""
    asked: list[Any] = []
    steps: list[Step] = []
    if dtype not in FLOATS or not draw.often(0.25):
        return None, steps
    for name in draw.pick([("mul", "bias"), ("scale", "mul"), ("bias",), ("scale",), ()]):
        if name == "scale":
            asked.append((name, 0.5))
            steps.append(Step(name, None, 0.5))
            continue
        of = draw.pick([dtype, dtype if dtype == "float64" else "float32"])
        asked.append((name, draw.array((extent,), of, special=False)))
        steps.append(Step(name, asked[-1][1].reshape(-1, *[1] * behind)))
    if not asked or draw.often(0.6):
        asked.append(draw.pick(list(ACTIVATIONS)))
        steps.append(Step(asked[-1]))
    draw.traits.add("prologue")
    return asked, steps
