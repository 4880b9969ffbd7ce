"""Types of stored operands: the pairs that products accept, and the type in which they are multiplied.

An operand of a product may have 8 bits in memory and be multiplied in a wider type: 8-bit floats always, int8 beside a
floating-point operand.  The wider type holds the numbers exactly, so that widening rounds nothing.
"""

from __future__ import annotations

from gensor_kernels.errors import UnsupportedError

from .dtypes import ACCUMULATORS, facts

#: 8-bit floats, by the names of ml_dtypes and PyTorch.
EIGHT_BIT_FLOATS = ("float8_e4m3fn", "float8_e5m2")
#: Types that are widened beside a wider operand, and the wider types.
WIDENED, WIDE = (*EIGHT_BIT_FLOATS, "int8"), ("float16", "bfloat16", "float32")
#: A float32 in three parts, and the type of a part.
PARTS, PART = "bfloat16x3", "bfloat16"
#: Bytes per element of packed types.
PACKED = {"uint4x2": 0.5}


def element_bytes(name: str) -> float:
    """Return the bytes of one element: a whole number except for packed types."""
    return PACKED.get(name) or facts(name).itemsize


def product_type(a: str, b: str) -> str:
    """Return the type in which elements of types ``a`` and ``b`` are multiplied; UnsupportedError for other pairs."""
    if a == b and a in ACCUMULATORS:
        return a
    if a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS:
        return "float16"
    if a == b == PARTS:
        return PART
    wide, narrow = (a, b) if a in WIDE else (b, a)
    if wide in WIDE and (narrow in WIDENED or (narrow in PACKED and wide != "float32")):
        return wide
    stored = f"{' or '.join(WIDE)} with one of {', '.join(WIDENED)}, two of {', '.join(EIGHT_BIT_FLOATS)}"
    raise UnsupportedError(f"products of {a} and {b}: expected one of {', '.join(ACCUMULATORS)} twice, {stored}")


def peak_type(a: str, b: str) -> str:
    """Return the name of such products in Arch.peak: two 8-bit floats use their own units where a part has them."""
    return "float8" if a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS else product_type(a, b)


def default_output(a: str, b: str | None = None) -> str:
    """Return the default type of a product: the wider operand's, or the accumulator's if both operands have 8 bits."""
    both = a if b in (None, a) else product_type(a, b)
    return {"int8": "int32"}.get(both, "float32" if {a, b or a} <= set(EIGHT_BIT_FLOATS) else both)
