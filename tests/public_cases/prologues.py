"""Prologues, drawn: operations on the first operand as kernels read it."""

from typing import Any

from gensor_kernels.operators.types.epilogue import Step

from .drawing import FLOATS, Draw
from .references import ACTIVATIONS

LINEAR = [("mul", "bias"), ("scale", "mul"), ("bias",), ("scale",)]


def prologue(
    draw: Draw, dtype: str, extent: int, trailing: int = 0, share: float = 0.25, *, curves: bool = True
) -> tuple[list[Any] | None, list[Step]]:
    """A prologue for this share of calls: its items as a caller writes them, and as steps.

    Vectors have `extent` elements, along the axis of the operand that `trailing` axes follow. Integers and complex
    numbers have no prologue. Without `curves`, a device without a library computes it where kernels do not.
    """
    items: list[Any] = []
    steps: list[Step] = []
    if dtype not in FLOATS or not draw.often(share):
        return None, steps
    for name in draw.pick([*LINEAR, ()] if curves else LINEAR):
        if name == "scale":
            items.append((name, 0.5))
            steps.append(Step(name, None, 0.5))
            continue
        kind = draw.pick([dtype, dtype if dtype == "float64" else "float32"])
        vector = draw.array((extent,), kind, special=False)
        items.append((name, vector))
        steps.append(Step(name, vector.reshape(-1, *[1] * trailing)))
    if curves and (not items or draw.often(0.6)):
        items.append(draw.pick(list(ACTIVATIONS)))
        steps.append(Step(items[-1]))
    draw.traits.add("prologue")
    return items, steps
