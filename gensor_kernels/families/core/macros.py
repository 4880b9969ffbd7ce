"""Macros that every kernel source binds: device types, and the epilogue that is compiled in."""

from __future__ import annotations

from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload

from .program import Program

#: First entry of a compile-time epilogue without operations (epilogue.cuh).
EPILOGUE_NONE = 31


def epilogue_codes(program: Program, workload: Workload) -> int:
    """Return the compiled-in list of the epilogue's operations; 0 where they come with the arguments."""
    return compiled_codes(workload) if program["epilogue_fixed"] else 0


def compiled_codes(workload: Workload) -> int:
    """Return the list of an epilogue's operations where it is compiled in."""
    return sum(OPERATIONS[name].code << (5 * place) for place, name in enumerate(workload.epilogue)) or EPILOGUE_NONE


def macro_token(dtype: str) -> str:
    """Return the device type of a NumPy dtype name, as the kernel sources spell it."""
    return _TOKENS[dtype]


_TOKENS = {
    "float64": "double",
    "float32": "float",
    "float16": "half_t",
    "bfloat16": "bfloat16_t",
    "float8_e4m3fn": "e4m3_t",
    "float8_e5m2": "e5m2_t",
    "int8": "i8",
    "float8_e8m0fnu": "e8m0_t",
    "uint4x2": "u4x2_t",
    "float4_e2m1fn_x2": "e2m1x2_t",
    "int32": "i32",
    "int64": "i64",
    "complex64": "c64",
    "complex128": "c128",
}
