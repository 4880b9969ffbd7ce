"""Element types that are only stored: which products take them, and the numbers their bytes stand for.

An operand of a product may lie in memory in 8 bits and be multiplied in a wider type: 8-bit floats always, int8 beside
a floating-point operand. The wider type holds their numbers exactly, so nothing is rounded on the way.
"""

from __future__ import annotations

from gensor_kernels.errors import UnsupportedError

from .dtypes import ACCUMULATORS, facts

#: 8-bit floats, by the names of ml_dtypes and PyTorch.
EIGHT_BIT_FLOATS = ("float8_e4m3fn", "float8_e5m2")
#: What is widened beside a wider operand, and what that may be.
WIDENED, WIDE = (*EIGHT_BIT_FLOATS, "int8"), ("float16", "bfloat16", "float32")
#: A float32 in three parts, each of which is multiplied.
PARTS, PART = "bfloat16x3", "bfloat16"
#: Bytes of the elements that a byte holds several of.
PACKED = {"uint4x2": 0.5}


def element_bytes(name: str) -> float:
    """Bytes of one element: a whole number but for packed ones."""
    return PACKED.get(name) or facts(name).itemsize


def product_type(a: str, b: str) -> str:
    """The type in which elements of types ``a`` and ``b`` are multiplied; UnsupportedError where none is."""
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
    """What Arch.peak calls the type of such products: of two 8-bit floats, where there are units for them, theirs."""
    return "float8" if a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS else product_type(a, b)


def default_output(a: str, b: str | None = None) -> str:
    """The type of a product where the caller names none: that of the operands, or the wider one; where both have 8
    bits, the accumulator's."""
    both = a if b in (None, a) else product_type(a, b)
    return {"int8": "int32"}.get(both, "float32" if {a, b or a} <= set(EIGHT_BIT_FLOATS) else both)
