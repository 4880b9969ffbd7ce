"""Direct ways: a warm call of a public function goes from its arguments, as they were given, straight to its launch.

The key of a way has all that a call of the function can depend on but the contents and the addresses of its arrays:
type and value of every argument and of what lists and tuples hold, and of CuPy's arrays dtype, shape, strides and
alignment. Checks, transposed weights, a reshaped bias and the parameters of a Plan follow from the key, and are left
out. Three things may differ between calls of one key, and are examined at each: whether `out` overlaps an operand, the
library's TF32 switch, and graph capture. Where one of these bars the way, where it raises, and for any other arguments,
the call is made in full. Ways are learned from calls that are made in full (plans/ways.py). Imports little.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar

#: Arguments and items of lists among them that a key is made of at most: offsets of groups are no key.
MOST_VALUES = 48
PublicFunction = TypeVar("PublicFunction", bound=Callable[..., Any])


def direct(current: ModuleType, function: PublicFunction) -> PublicFunction:
    """Return a public function whose warm calls take direct ways; `current` is the module that finds the Runtime
    (api/current.py)."""

    @wraps(function)
    def direct_way(*args: Any, **keywords: Any) -> Any:
        way: Any = False
        values = [*args, *keywords.values()]
        try:
            runtime = current.only or current.inside.get() or current.lookup()
            array, where = runtime.array, runtime.where
            addresses = [0]
            parts: list[Any] = [function]
            for value in values:
                kind = type(value)
                if kind is array:
                    address = value.data.ptr
                    addresses.append(address)
                    # Where an array is contiguous, strides follow from the shape, or are of an axis of one element.
                    if value._c_contiguous:
                        parts += (value.dtype, address & 15, *value._shape)
                    else:
                        parts += (value.dtype, ~(address & 15), *value._shape, *value._strides)
                    if where is not None:
                        parts.append(where(value))
                elif kind is tuple or kind is list:
                    parts += (kind, len(value))
                    if len(values) + len(value) > MOST_VALUES:
                        raise ValueError("not a key")
                    values += value  # which this loop comes to
                else:
                    parts += (kind, value)
            if keywords:
                parts.append(tuple(keywords))
            key = tuple(parts)
            way = runtime.way(key)
            if type(way) is tuple:
                run, pick, place, allocates = way
                if not (allocates and runtime.device.capturing()):
                    if pick is None:
                        return run(values)
                    result = run(None if place is None else values[place], *pick(addresses))
                    if result is not None:
                        return result
        except Exception:  # which the call in full raises, in its own words
            if way:
                runtime.ways.pop(key, None)
        if way is None or type(way) is int:
            return runtime.learn(key, way or 0, values, lambda: function(*args, **keywords))
        return function(*args, **keywords)

    return direct_way  # type: ignore[return-value]
