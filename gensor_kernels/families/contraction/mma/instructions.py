"""The tensor-core instructions of mma.sync kernels: types, parts that have them, and rates."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.problem import Extents, by_fragment, extents
from gensor_kernels.families.core.columns import Column, Numbers
from gensor_kernels.machine.arch import BFLOAT16_PRODUCTS, Arch
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from gensor_kernels.operators.types.workload import Workload

from . import column as mma
from . import split_float as mma_split_float

#: Clocks until the sum of one mma can enter the next one (Ampere m16n8k16, measured by third parties), from a
#: fragment's load to its use, and of an iteration's barrier.
MMA_LATENCY, READ_LATENCY, BARRIER = 33.0, 33.0, 25.0


#: Registers of a thread without which ptxas does not compile the products of doubles that need less than one to a step.
LEAST_DOUBLE_REGISTERS = 64


#: Accumulator of the sums of 8-bit floats that are multiplied as they are.
SHORT_SUM = "float22"


class Code(IntEnum):
    """Values of the coordinate "instruction", and of the macro INSTRUCTION."""

    F16_K16, F16_K8, TF32_K8, I8_K32, I8_K16, F32_PARTS, F64_K16, F64_K8, F64_K4, F8_K32, F64_ROWS_K4 = range(11)
    BLOCK_SCALED = 11  # bound as the macro AS_STORED of contraction_blocks.cu


class Instruction(NamedTuple):
    """One tensor-core instruction: INSTRUCTION macro, how many make 16 x 8 x 32 bytes of what other instructions of its
    kind multiply, feature, rate, and how many of its products stand for one."""

    code: int
    needed: float
    feature: str
    rate: str
    products: int = 1


INSTRUCTIONS = {
    "f16": (
        Instruction(Code.F16_K16, 1, "mma_m16n8k16", "mma_f16"),
        Instruction(Code.F16_K8, 2, "mma_m16n8k8_f16", "mma_f16"),
    ),
    "f8": (
        Instruction(Code.F16_K16, 1, "mma_m16n8k16", "mma_f16"),
        Instruction(Code.F16_K8, 2, "mma_m16n8k8_f16", "mma_f16"),
        Instruction(Code.F8_K32, 1 / 2, "mma_m16n8k32_f8", "peak_f8"),
        Instruction(Code.BLOCK_SCALED, 1 / 2, "mma_block_scale", "peak_mxf8"),
    ),
    "bf16": (Instruction(Code.F16_K16, 1, "mma_m16n8k16", "mma_f16"),),
    "tf32": (Instruction(Code.TF32_K8, 1, "tf32", "mma_tf32"),),
    "s8": (
        Instruction(Code.I8_K32, 1, "mma_m16n8k32_s8", "mma_s8"),
        Instruction(Code.I8_K16, 4, "mma_m8n8k16_s8", "mma_s8"),
    ),
    "f64": (
        Instruction(Code.F64_K16, 1 / 4, "mma_m16n8k16_f64", "mma_f64"),
        Instruction(Code.F64_K8, 1 / 2, "mma_m16n8k16_f64", "mma_f64"),
        Instruction(Code.F64_K4, 2, "mma_m8n8k4_f64", "mma_f64"),
        Instruction(Code.F64_ROWS_K4, 1, "mma_m16n8k16_f64", "mma_f64"),
    ),
    "mxf4": (
        Instruction(Code.F16_K16, 1, "mma_m16n8k16", "mma_f16"),
        Instruction(Code.BLOCK_SCALED, 1 / 4, "mma_block_scale", "peak_f4"),
    ),
    mma_split_float.KIND: (Instruction(Code.F32_PARTS, 3, "mma_m16n8k16", "mma_f16", BFLOAT16_PRODUCTS),),
}


def as_stored(instruction: Numbers) -> np.ndarray:
    """Return whether instructions take narrow operands as they are stored."""
    return np.isin(instruction, (Code.F8_K32, Code.BLOCK_SCALED))


def kind(workload: Workload) -> str | None:
    """Return the row of INSTRUCTIONS that a Workload uses, or None if tensor cores do not serve its types."""
    e = extents(workload)
    dtype = e.multiplied
    if dtype == "float32" and workload.math == "tf32":
        return "tf32"
    if e.dtype["a"] == e.dtype["b"] == "float32":
        return mma_split_float.KIND
    if e.dtype["a"] == e.dtype["b"] == "float4_e2m1fn_x2":
        return "mxf4"
    if {e.dtype["a"], e.dtype["b"]} <= set(EIGHT_BIT_FLOATS) and _as_stored(e):
        return "f8"
    return {"float16": "f16", "bfloat16": "bf16", "int8": "s8", "float64": "f64", "complex128": "f64"}.get(dtype)


def _as_stored(e: Extents) -> bool:
    """Return whether operands can be copied as they are stored, in accesses of cp.async."""
    return by_fragment(e) and not e.window and min(e.align["a"], e.align["b"]) >= 4


@lru_cache(maxsize=256)
def instructions(name: str, arch: Arch) -> tuple[Instruction, ...]:
    """Return the instructions of a kind that the Arch has and gains by, in the order of their codes."""
    own = (i for i in INSTRUCTIONS[name] if i.feature in arch.features)
    return tuple(i for i in own if mma_split_float.pays(i.products, arch.rate(i.rate), arch))


def default_instruction(block_k: np.ndarray, workload: Workload, instructions: Sequence[Instruction]) -> np.ndarray:
    """Codes of the first of ``instructions`` that divide steps of ``block_k``: of one that widens nothing, if there is
    one."""
    e = extents(workload)
    choices = sorted(instructions, key=lambda each: -int(as_stored(each.code)) * each.code)
    element = e.element // (2 if e.is_complex else 1)
    fits = [block_k * element * min(i.needed, 1) % 32 == 0 for i in choices]
    return np.select(fits, [i.code for i in choices], choices[-1].code)


def waits(latency: np.ndarray, reads: Numbers, copy: np.ndarray) -> dict[Column, np.ndarray]:
    """Return the waits of an iteration of ``reads`` steps of fragments, without the ``latency`` of sums.

    With two sets of fragments the next ones are read during the math, across the barrier too where the steps come in
    pairs; with one set every step waits for its own.
    """
    paired = (reads % 2 == 0) & (copy == 1)
    double = np.where(paired, BARRIER, BARRIER + READ_LATENCY)
    return {
        column.CHAIN: latency + BARRIER + READ_LATENCY * reads,
        mma.CHAIN_SAVED: BARRIER + READ_LATENCY * reads - double,
    }


def heat(workload: Workload, arch: Arch) -> float:
    """Return the share of the clock that products of a Workload take where they are always busy (Arch.heat)."""
    best, *_ = instructions(kind(workload) or "", arch)
    return arch.heat(best.rate)
