"""Gated products as expressions (gated.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression, Value


def declare(gate: str, biased: bool) -> tuple[Expression, Expression]:
    """h[batch, m, half, n] = sum over k of a b, and c = f(h[.., 0, n]) h[.., 1, n]; d is added to h."""
    from gensor_kernels.operators.expression.expression import SUM, Axis, Expression, axes, tensor

    batch, m, n, k = axes("batch m n k")
    both = Axis("half", 2)
    a, b, d = tensor("a", batch, m, k), tensor("b", batch, k, both, n), tensor("d", both, n)
    products = Expression("h", (batch, m, both, n), a[batch, m, k] * b[batch, k, both, n], SUM)
    sides: list[Value] = [products[batch, m, 0, n], products[batch, m, 1, n]]
    if biased:
        sides = [side + d[half, n] for half, side in enumerate(sides)]
    return products, Expression("c", (batch, m, n), _curve(gate, sides[0]) * sides[1])


def _curve(gate: str, v: Value) -> Value:
    from gensor_kernels.operators.expression.expression import erf, maximum, sigmoid, tanh

    if gate == "silu":
        return v * sigmoid(v)
    if gate == "relu":
        return maximum(v, 0.0)
    if gate == "gelu":
        return 0.5 * v * (1.0 + erf(v * 0.5**0.5))
    return 0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))
