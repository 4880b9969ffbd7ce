"""Shapes of a matrix product and of its result, and NumPy's words where they do not fit."""

from __future__ import annotations

import numpy as np

SIGNATURE = "(n?,k),(k,m?)->(n?,m?)"


def product_shapes(
    a: tuple[int, ...], b: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, int, int], tuple[int, ...]]:
    """(batch axes, (m, n, k), result shape) of operands of shapes `a` and `b`."""
    for index, shape in enumerate((a, b)):
        if not shape:
            raise ValueError(
                f"matmul: Input operand {index} does not have enough dimensions "
                f"(has 0, gufunc core with signature {SIGNATURE} requires 1)"
            )
    k, inner = a[-1], b[-2 if len(b) > 1 else 0]
    if k != inner:
        raise ValueError(
            f"matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"{SIGNATURE} (size {inner} is different from {k})"
        )
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ValueError(
            "operands could not be broadcast together with remapped shapes [original->remapped]: "
            f"{_remapped(a)} {_remapped(b)}"
        ) from None
    rows, columns = a[-2:-1] if len(a) > 1 else (), b[-1:] if len(b) > 1 else ()
    return batch, (rows[0] if rows else 1, columns[0] if columns else 1, k), (*batch, *rows, *columns)


def _remapped(shape: tuple[int, ...]) -> str:
    return f"({','.join(map(str, shape))})->({','.join((*map(str, shape[:-2]), 'newaxis', 'newaxis'))})"
