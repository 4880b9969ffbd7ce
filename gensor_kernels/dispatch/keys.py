"""Parts of the keys by which Plans are found: what two calls must share for one Plan to serve both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .arguments import Operation
from .fallback import is_whole


def about(steps: tuple[Operation, ...], pointer: Callable[[Any], int]) -> tuple[Any, ...]:
    """The part of a key that stands for the epilogue: alignment for addresses, for scalars whether they are whole."""
    parts: list[Any] = []
    for name, operand, scalar in steps:
        if operand is None:
            parts += (name, is_whole(scalar), type(scalar) is complex)
        else:
            parts += (name, operand.shape, operand.strides, operand.dtype, pointer(operand) & 15, is_whole(scalar))
    return tuple(parts)


def places(arrays: Sequence[Any], where: Callable[[Any], int]) -> tuple[int | None, ...]:
    """The devices whose memory arrays are in."""
    return tuple(None if array is None else where(array) for array in arrays)
