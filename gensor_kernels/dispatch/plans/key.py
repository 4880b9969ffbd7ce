"""Keys by which Plans are found: what two calls must share for one Plan to serve both.

They are flat tuples of numbers where time matters: each entry costs time to build, to hash and to compare. CuPy's
`_shape` and `_strides` are the lists that its properties make tuples of at every read, at twice the price; behind each
array's (of equal lengths) stands None, so that no two different calls have equal keys. `Runtime.call` and the short
way of matmul (api/matmul.py) build them in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.calls.fallback import is_whole


def about(steps: tuple[Operation, ...], pointer: Callable[[Any], int]) -> tuple[Any, ...]:
    """The part of a key that stands for the epilogue: alignment for addresses, for scalars whether they are whole."""
    parts: list[Any] = []
    for name, operand, scalar in steps:
        if operand is not None:
            parts += (name, operand.shape, operand.strides, operand.dtype, pointer(operand) & 15)
        else:
            parts.append(name)
        if scalar != 0.0 or type(scalar) is complex:
            parts += (is_whole(scalar), type(scalar) is complex)
    return tuple(parts)


def laid(array: Any) -> tuple[Any, ...]:
    """How an array lies, of any library."""
    return array.shape, array.strides, array.dtype


def places(arrays: Sequence[Any], where: Callable[[Any], int]) -> tuple[int | None, ...]:
    """The devices whose memory arrays are in."""
    return tuple(None if array is None else where(array) for array in arrays)
