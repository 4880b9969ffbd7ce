"""Numbers in 8 bits, between the least and the largest of them and 0, as DynamicQuantizeLinear of ONNX rounds."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def in_bytes(xp: ModuleType, x: Any, low: Any, high: Any, least: int = 0) -> tuple[Any, Any, Any]:
    """Return x, with elements from `low` to `high`, as 256 whole numbers from `least` on, their scale and their zero
    point, all as floats of x's dtype; `xp` is the array library."""
    low, high = xp.minimum(low, x.dtype.type(0)), xp.maximum(high, x.dtype.type(0))
    scale = (high - low) / x.dtype.type(255)
    scale = xp.where(scale == 0, x.dtype.type(1), scale)
    zero = xp.minimum(xp.maximum(xp.rint(-low / scale), 0), 255) + x.dtype.type(least)
    return xp.minimum(xp.maximum(xp.rint(x / scale) + zero, least), least + 255), scale, zero


def rounded(xp: ModuleType, x: Any, low: Any, high: Any) -> Any:
    """Return the floats that stand for x in 8 bits; see `in_bytes`."""
    number, scale, zero = in_bytes(xp, x, low, high)
    return (number - zero) * scale
