"""Element types as shapes files name them."""

from __future__ import annotations

#: Name -> (operand dtype, math mode); the accumulator follows from the operand dtype.
DTYPES = {
    "fp64": ("float64", "ieee"),
    "fp64_ozaki": ("float64", "ozaki"),
    "fp32": ("float32", "ieee"),
    "tf32": ("float32", "tf32"),
    "fp32_winograd": ("float32", "winograd"),
    "fp16": ("float16", "ieee"),
    "bf16": ("bfloat16", "ieee"),
    "int8": ("int8", "ieee"),
    "complex64": ("complex64", "ieee"),
    "complex128": ("complex128", "ieee"),
    "complex64_3m": ("complex64", "3m"),
    "complex128_3m": ("complex128", "3m"),
    "fp8_e4m3": ("float8_e4m3fn", "ieee"),
    "fp8_e5m2": ("float8_e5m2", "ieee"),
}
#: Names of element types that no family serves.
FOREIGN = frozenset({"fp4_e2m1", "int4"})
#: Names of results beside the operands' own.
OUTPUTS = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",
    "int32": "int32",
    "complex64": "complex64",
    "complex128": "complex128",
}
#: What sums are kept in at least; of complex types, the parts of sums.
ACCUMULATORS = {
    "fp16": "float32",
    "fp32": "float32",
    "fp64": "float64",
    "int32": "int32",
    "complex64": "float32",
    "complex128": "float64",
}
