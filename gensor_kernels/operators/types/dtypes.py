"""Element types: their size, precision and rounding, in one table.

Python code uses NumPy's names everywhere.  ``bfloat16`` has no NumPy dtype, so that its values are held in
float64 here and rounded with :func:`round_to`.  Values of complex types are held in complex128.

An operand of a product may have 8 bits in memory and be multiplied in a wider type: 8-bit floats always, int8 with a
floating-point operand.  The wider type holds the numbers exactly, so that widening rounds nothing.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from gensor_kernels import spelling
from gensor_kernels.arrays import Dtype
from gensor_kernels.errors import ToolMissingError, UnsupportedError


class DType(NamedTuple):
    """Facts of one element type.

    Notes
    -----
    Figures are from IEEE 754-2019, table 3.5, from the OCP 8-bit Floating Point Specification, table 1, and from the
    OCP Microscaling Formats Specification 1.0, sections 5.3 and 5.4.

    Some types are internal. "uint4x2" and "float4_e2m1fn_x2" are bytes that hold two 4-bit numbers, and
    "float8_e8m0fnu" is a scale (products/quantised.py). "float22" is the accumulator of tensor cores for 8-bit floats
    and is never stored (tolerance/base.py). "bfloat16x3" is a float32 as three bfloat16 numbers, in workspaces only
    (families/contraction/rewrite/split_float.py).
    """

    #: bytes
    itemsize: int
    #: precision of the significand in bits, hidden bit included; 0 for integers
    digits: int
    #: exponent of the smallest normal number
    min_exponent: int
    #: largest finite value
    maximum: float
    #: type of the real and imaginary parts of a complex type, which has their figures
    part: str = ""

    @property
    def is_complex(self) -> bool:
        """True for complex types."""
        return bool(self.part)

    @property
    def is_integer(self) -> bool:
        """True for integer types, which are compared exactly."""
        return self.digits == 0

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest: 2^-digits, or 0 for integers."""
        return 2.0**-self.digits if self.digits else 0.0

    @property
    def smallest_subnormal(self) -> float:
        """Spacing of the subnormal numbers, or 0 for integers."""
        return 2.0 ** (self.min_exponent - self.digits + 1) if self.digits else 0.0


DTYPES: dict[str, DType] = {
    "float64": DType(8, 53, -1022, float(np.finfo(np.float64).max)),
    "float32": DType(4, 24, -126, float(np.finfo(np.float32).max)),
    "float16": DType(2, 11, -14, 65504.0),
    "bfloat16": DType(2, 8, -126, (2 - 2.0**-7) * 2.0**127),
    "float8_e4m3fn": DType(1, 4, -6, 448.0),
    "float8_e5m2": DType(1, 3, -14, 57344.0),
    "int8": DType(1, 0, 0, 127.0),
    "float22": DType(4, 14, -126, (2 - 2.0**-13) * 2.0**127),
    "float8_e8m0fnu": DType(1, 1, -127, 2.0**127),
    "uint4x2": DType(1, 0, 0, 255.0),
    "float4_e2m1fn_x2": DType(1, 0, 0, 255.0),
    "bfloat16x3": DType(6, 24, -126, float(np.finfo(np.float32).max)),
    "int32": DType(4, 0, 0, 2.0**31 - 1),
    "int64": DType(8, 0, 0, 2.0**63 - 1),
    "complex64": DType(8, 24, -126, float(np.finfo(np.float32).max), "float32"),
    "complex128": DType(16, 53, -1022, float(np.finfo(np.float64).max), "float64"),
}

#: Element types by their names in NumPy, C, PyTorch, LLVM, CUTLASS and ONNX. NumPy's codes keep their meaning: "f8" has
#: eight bytes.
SPELLINGS: dict[str, str] = {
    **dict.fromkeys(("fp64", "f64", "double"), "float64"),
    **dict.fromkeys(("fp32", "f32", "single"), "float32"),
    **dict.fromkeys(("fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("bf16",), "bfloat16"),
    **dict.fromkeys(
        ("fp8_e4m3", "fp8_e4m3fn", "float8_e4m3", "f8_e4m3", "f8_e4m3fn", "e4m3", "e4m3fn"), "float8_e4m3fn"
    ),
    **dict.fromkeys(("fp8_e5m2", "f8_e5m2", "e5m2"), "float8_e5m2"),
    "csingle": "complex64",
    "cdouble": "complex128",
}
#: Types that are never an operand of a call.
INTERNAL = frozenset({"float22", "bfloat16x3", "uint4x2", "float4_e2m1fn_x2", "float8_e8m0fnu"})

#: Types without infinities: numbers beyond their range become NaN.
FINITE = frozenset({"float8_e4m3fn", "float8_e8m0fnu"})

#: The types of operands and results.
CALLED = tuple(name for name in DTYPES if name not in INTERNAL)

#: TF32 is never stored: float32 operands are rounded to it before a tensor-core product.
TF32 = DType(4, 11, -126, (2 - 2.0**-10) * 2.0**127)

#: Accumulator of each input type (complex: part by part).  Shorter accumulators are never used.
ACCUMULATORS: dict[str, str] = {
    "float64": "float64",
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
    "complex64": "complex64",
    "complex128": "complex128",
}


def facts(name: str) -> DType:
    """Return the facts of the type called ``name``; UnsupportedError has similar names if it is unknown."""
    try:
        return DTYPES[name]
    except KeyError:
        raise UnsupportedError(f"dtype {spelling.unknown(str(name), CALLED, SPELLINGS)}") from None


@lru_cache(maxsize=256)
def canonical(name: str) -> str | None:
    """Return the name in DTYPES of an element type in any common spelling, or None.

    Examples
    --------
    >>> [canonical(each) for each in ("half", "FP16", "torch.bfloat16", "fp8_e4m3", "float128")]
    ['float16', 'float16', 'bfloat16', 'float8_e4m3fn', None]
    """
    return spelling.find(name.rpartition(".")[2], CALLED, SPELLINGS)


def array_dtype(name: str) -> Dtype:
    """Return the NumPy dtype of a type's name in any common spelling; bfloat16 and the 8-bit floats are ml_dtypes'.

    Raises TypeError with similar names for another word, ToolMissingError where ml_dtypes is missing.

    Examples
    --------
    >>> array_dtype("half"), array_dtype("uint8"), array_dtype("bf16")
    (dtype('float16'), dtype('uint8'), dtype(bfloat16))
    """
    known = canonical(name) or name
    if known in BY_ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise ToolMissingError(f"arrays of {known} need ml_dtypes: pip install ml-dtypes") from None
        return np.dtype(getattr(ml_dtypes, known))
    try:
        return np.dtype(known)
    except (TypeError, ValueError, SyntaxError):  # ValueError and SyntaxError: a list of fields that is none
        raise TypeError(f"dtype {spelling.unknown(name, CALLED, SPELLINGS)}") from None


def round_to(name: str, values: np.ndarray) -> np.ndarray:
    """Return values rounded to a type of DTYPES or to "tf32", as float64 (complex128: part by part).

    Floating-point types round to nearest, ties to even, with gradual underflow and overflow to infinity, in one step
    from float64, so that there is no double rounding.  Integer types drop the fraction and wrap around in two's
    complement, as NumPy's casts from a wider integer do.

    Examples
    --------
    >>> round_to("float16", np.array([1.0002, 70000.0]))
    array([ 1., inf])
    """
    kind = TF32 if name == "tf32" else facts(name)
    if kind.is_complex:
        return join_parts(round_to(kind.part, parts(np.asarray(values, dtype=np.complex128))))
    values = np.asarray(values, dtype=np.float64)
    if name == "float64":
        return values.copy()
    if kind.is_integer:
        bits = 8 * kind.itemsize
        return np.trunc(values).astype(np.int64).astype(f"int{bits}").astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        _, exponent = np.frexp(values)
        # frexp's exponent is one above the usual one; a quantum is the spacing of the type at that value.
        quantum = np.maximum(exponent - 1, kind.min_exponent) - (kind.digits - 1)
        rounded = np.ldexp(np.rint(np.ldexp(values, -quantum)), quantum)
        beyond = np.nan if name in FINITE else np.copysign(np.inf, values)
        rounded = np.where(np.abs(rounded) > kind.maximum, beyond, rounded)
    return np.where(np.isfinite(values) | (name in FINITE), rounded, values)


def parts(values: np.ndarray) -> np.ndarray:
    """Real and imaginary parts of a complex128 array along a new last axis: float64 (..., 2)."""
    return np.stack([values.real, values.imag], axis=-1)


def join_parts(pairs: np.ndarray) -> np.ndarray:
    """Return the inverse of :func:`parts`; unlike an addition, it keeps infinite and NaN parts apart."""
    return np.ascontiguousarray(pairs, dtype=np.float64).view(np.complex128)[..., 0]


def encode(name: str, values: np.ndarray) -> np.ndarray:
    """Return ``values`` rounded to the type called ``name``, as stored: bfloat16 as bits in uint16, 8-bit floats as
    bytes."""
    rounded = round_to(name, values)
    if name.startswith("float8"):
        return float8_bits(name, rounded)
    if name in PACKED:
        return rounded.astype(np.int64).astype(np.uint8)
    if name == "bfloat16":
        return (rounded.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return rounded.astype(name)


def decode(name: str, stored: np.ndarray) -> np.ndarray:
    """Return the inverse of :func:`encode`, as float64 or complex128; arrays of ml_dtypes' types are understood too."""
    stored = np.asarray(stored)
    if name.startswith("float8") and stored.dtype == np.uint8:
        return np.asarray(float8_values(name)[stored])
    if facts(name).is_complex:
        return stored.astype(np.complex128)
    if name == "bfloat16" and stored.dtype == np.uint16:
        stored = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float64)


def float8_bits(name: str, rounded: np.ndarray) -> np.ndarray:
    """Return the bytes (uint8) of numbers that have been rounded to an 8-bit float type."""
    kind = facts(name)
    if name == SCALE:  # powers of two
        return np.where(np.isnan(rounded), 0xFF, np.frexp(rounded)[1] - 1 - kind.min_exponent).astype(np.uint8)
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
    """Return the number of each of the 256 bytes: float64 (256,)."""
    return _values(name).copy()


@cache
def _values(name: str) -> np.ndarray:
    kind = facts(name)
    if name == SCALE:
        return np.append(np.ldexp(1.0, np.arange(255) + kind.min_exponent), np.nan)
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
    """Return the byte of infinity, or of NaN for a type without infinity."""
    return 0x7C if kind.digits == 3 else 0x7F


#: 8-bit floats, by the names of ml_dtypes and PyTorch.
EIGHT_BIT_FLOATS = ("float8_e4m3fn", "float8_e5m2")
#: Types that NumPy lacks.
BY_ML_DTYPES = ("bfloat16", *EIGHT_BIT_FLOATS)
#: Types that are widened when multiplied by a wider operand, and the wider types.
WIDENED, WIDE = (*EIGHT_BIT_FLOATS, "int8"), ("float16", "bfloat16", "float32")
#: A float32 in three parts, and the type of a part.
PARTS, PART = "bfloat16x3", "bfloat16"
#: Bytes per element of packed types, two numbers in a byte, the first in its lower half.
PACKED = {"uint4x2": 0.5, "float4_e2m1fn_x2": 0.5}
#: The numbers of float4_e2m1fn, by their bits.
FLOAT4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
#: The type of scales that are powers of two.
SCALE = "float8_e8m0fnu"


def element_bytes(name: str) -> float:
    """Return the bytes of one element: a whole number except for packed types."""
    return PACKED.get(name) or facts(name).itemsize


def product_type(a: str, b: str) -> str:
    """Return the type in which elements of types ``a`` and ``b`` are multiplied; UnsupportedError for other pairs."""
    if a == b and a in ACCUMULATORS:
        return a
    if {a, b} <= set(EIGHT_BIT_FLOATS) or a == b == "float4_e2m1fn_x2":
        return "float16"
    if a == b == PARTS:
        return PART
    wide, narrow = (a, b) if a in WIDE else (b, a)
    if wide in WIDE and (narrow in WIDENED or (narrow in PACKED and wide != "float32")):
        return wide
    if a == b:
        raise UnsupportedError(f"products of {a} and {b}: cast to one of {', '.join(ACCUMULATORS)}")
    raise UnsupportedError(f"products of {a} and {b}: cast one operand to the other's type")


def peak_type(a: str, b: str) -> str:
    """Return the name of such products in Arch.peak: two 8-bit floats use their own units where a part has them."""
    return "float8" if a in EIGHT_BIT_FLOATS and b in EIGHT_BIT_FLOATS else product_type(a, b)


def default_output(a: str, b: str | None = None) -> str:
    """Return the default type of a product: the wider operand's, or the accumulator's if both operands have 8 bits."""
    both = a if b in (None, a) else product_type(a, b)
    return {"int8": "int32"}.get(both, "float32" if {a, b or a} <= set(EIGHT_BIT_FLOATS) else both)
