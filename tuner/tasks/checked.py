"""Results that another machine has sent: every field of a dataclass is checked against its annotation."""

from __future__ import annotations

import math
import types
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

Made = TypeVar("Made")
_type_hints = cache(get_type_hints)


def checked(made: Made) -> Made:
    """Return a dataclass; ValueError where a field has a value that its annotation does not admit.

    Numbers are counts, seconds or microseconds of kernels, so negative, infinite and undefined ones are refused.
    """
    kind: type = type(made)
    for name, hint in _type_hints(kind).items():
        if not _admits(hint, value := getattr(made, name)):
            raise ValueError(f"{kind.__name__}.{name} cannot be {str(value)[:80]}")
    return made


def _admits(hint: Any, value: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_admits(each, value) for each in inner)
    if origin is list:
        return type(value) is list and all(_admits(inner[0], each) for each in value)
    if origin is dict:
        return type(value) is dict and all(_admits(inner[0], k) and _admits(inner[1], v) for k, v in value.items())
    if type(value) in (int, float) and hint in (int, float):
        return (hint is float or type(value) is int) and 0 <= value < math.inf
    return type(value) is hint and (not is_dataclass(hint) or checked(value) is value)
