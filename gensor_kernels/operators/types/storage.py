"""Element types that are only stored: which products take them, and the numbers their bytes stand for.

An operand of a product may lie in memory in 8 bits and be multiplied in a wider type: 8-bit floats always, int8 beside
a floating-point operand. The wider type holds their numbers exactly, so nothing is rounded on the way.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from gensor_kernels.errors import UnsupportedError

from .dtypes import ACCUMULATORS, DType, facts

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


def float8_bits(name: str, rounded: np.ndarray) -> np.ndarray:
    """The bytes (uint8) of numbers that have been rounded to an 8-bit float type."""
    kind = facts(name)
    with np.errstate(all="ignore"):
        magnitude = np.abs(rounded)
        finite = np.where(np.isfinite(magnitude), magnitude, 0.0)
        exponent = np.maximum(np.frexp(finite)[1] - 1, kind.min_exponent)
        exponent = np.where(finite == 0, kind.min_exponent, exponent)
        # The hidden bit of the significand adds one to the exponent's field.
        significand = np.ldexp(finite, kind.digits - 1 - exponent).astype(np.int64)
        bits = ((exponent - kind.min_exponent) << (kind.digits - 1)) + significand
    bits = np.where(np.isinf(magnitude), _infinity(kind), bits)
    bits = np.where(np.isnan(magnitude), 0x7F, bits)
    return np.asarray(bits | np.where(np.signbit(rounded), 0x80, 0)).astype(np.uint8)


def float8_values(name: str) -> np.ndarray:
    """The number each of the 256 bytes stands for: float64 (256,)."""
    return _values(name).copy()


@cache
def _values(name: str) -> np.ndarray:
    kind = facts(name)
    magnitude = np.arange(128)
    field, digits = magnitude >> (kind.digits - 1), magnitude & ((1 << (kind.digits - 1)) - 1)
    hidden = np.where(field > 0, 1 << (kind.digits - 1), 0)
    values = np.ldexp(
        (hidden + digits).astype(np.float64), np.maximum(field, 1) - 1 + kind.min_exponent - kind.digits + 1
    )
    values[values > kind.maximum] = np.nan
    if _infinity(kind) != 0x7F:
        values[_infinity(kind)] = np.inf
    return np.concatenate([values, np.copysign(values, -1.0)])


def _infinity(kind: DType) -> int:
    """The byte of infinity; of a type without one, of NaN."""
    return 0x7C if kind.digits == 3 else 0x7F
