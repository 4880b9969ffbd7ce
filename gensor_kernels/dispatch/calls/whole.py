"""Arguments that are numbers, or pairs of whole numbers. Imports little."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from gensor_kernels.shown import shown

Pairs = tuple[tuple[int, int], tuple[int, int]]


def real(name: str, value: Any) -> float:
    """Return a number as a float; TypeError and ValueError in the argument's name."""
    if type(value) is float:
        return value
    if not isinstance(value, str):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{name} is beyond the range of float64") from None
        except (TypeError, ValueError):
            pass
    raise TypeError(f"{name} must be a number, not {shown(value)}")


def whole(name: str, value: Any, least: int) -> int:
    """Return an integer; TypeError and ValueError in the argument's name."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {shown(value)}") from None
    if number < least:
        raise ValueError(f"{name} must be {least} or more, not {number}")
    return number


def pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """Return (h, w) of an integer or a pair."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) == 2:
            return whole(name, value[0], least), whole(name, value[1], least)
        raise ValueError(f"{name} must be an integer or a pair, not {shown(value)}")
    one = whole(name, value, least)
    return one, one


def padding_pairs(padding: Any) -> Pairs:
    """Return ((top, bottom), (left, right)) of an integer, a pair, or that."""
    if isinstance(padding, Sequence) and len(padding) == 2 and any(isinstance(each, Sequence) for each in padding):
        first, second = (pair("padding", each, 0) for each in padding)
        return first, second
    h, w = pair("padding", padding, 0)
    return (h, h), (w, w)
