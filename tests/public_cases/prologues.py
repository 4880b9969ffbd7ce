"""Prologues, drawn: operations on the first operand as kernels read it."""

from typing import Any

from gensor_kernels.operators.types.epilogue import Step

from .drawing import FLOATS, Draw
from .references import ACTIVATIONS

LINEAR = [("mul", "bias"), ("scale", "mul"), ("bias",), ("scale",)]


def prologue(
    draw: Draw, dtype: str, extent: int, behind: int = 0, share: float = 0.25, *, curves: bool = True
) -> tuple[list[Any] | None, list[Step]]:
    """For this share of calls, operations as a caller writes them, and as steps on an operand whose axis of vectors has
    this extent and so many axes behind it. Products of integers and complex numbers have none. Without `curves` an
    emulated device computes them in front, too, where kernels do not take them."""
    asked: list[Any] = []
    steps: list[Step] = []
    if dtype not in FLOATS or not draw.often(share):
        return None, steps
    for name in draw.pick([*LINEAR, ()] if curves else LINEAR):
        if name == "scale":
            asked.append((name, 0.5))
            steps.append(Step(name, None, 0.5))
            continue
        of = draw.pick([dtype, dtype if dtype == "float64" else "float32"])
        asked.append((name, draw.array((extent,), of, special=False)))
        steps.append(Step(name, asked[-1][1].reshape(-1, *[1] * behind)))
    if curves and (not asked or draw.often(0.6)):
        asked.append(draw.pick(list(ACTIVATIONS)))
        steps.append(Step(asked[-1]))
    draw.traits.add("prologue")
    return asked, steps
