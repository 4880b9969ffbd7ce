"""Prologues in the space: applied as an operand is loaded, or materialised by a first launch.

Inlined, every block that reads an element applies the operations to it again; it passes through registers, so nothing
of it is copied asynchronously. Materialised, it is read and written once more, and the product is any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Columns, Coordinate, Launch, Part, Values
from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, fixed_us
from gensor_kernels.operators.declaration.lowered import Prologue
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS

from . import column
from .problem import Extents

#: The coordinate, last of a family's and only where there is a prologue; and its values.
NAME = "materialised"
#: Instructions per element, counted in the SASS of both families for sm_87.
ISSUE = {
    **{"scale": 1.0, "bias": 1.0, "mul": 1.0, "relu": 2.0, "relu6": 3.0},
    **{"gelu": 26.0, "gelu_tanh": 22.0, "silu": 24.0, "tanh": 15.0, "sigmoid": 23.0},
}
#: Instructions to take a 16-bit element apart and put it together again.
CONVERT_ISSUE = 2.0
PREPARE_THREADS = 256
#: Rows of the materialised operand begin at multiples of this.
PITCH_BYTES = 16


def coordinate(e: Extents) -> Coordinate:
    """Return the choice: an operand that is read through a window is always prepared as it is loaded."""
    doc = "the prologue: 0 applied as the operand is loaded, 1 by a first launch"
    return Coordinate(NAME, (0,) if e.window else (0, 1), 1, "inline", doc)


def is_materialised(program: Program) -> bool:
    """Return whether a Program prepares its operand in a first launch."""
    return program.get(NAME) == 1


def element_issue(prologue: Prologue, element: int) -> float:
    """Return the instructions to prepare one element of ``element`` bytes."""
    return sum(ISSUE[name] for name in prologue.names) + CONVERT_ISSUE * (element == 2)


def inline_part(e: Extents, arch: Arch) -> Part:
    """Tabulate whether the prologue is inlined, and the microseconds of the first launch."""

    def function(v: Values) -> dict[Column, np.ndarray]:
        inlined = v[NAME] == 0
        return {column.INLINED: inlined, column.BEFORE: np.where(inlined, 0.0, microseconds(e, arch))}

    return Part((NAME,), function)


def issue(c: Columns, e: Extents, entries: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """Instructions of a thread's step without its ``entries`` times ``ks`` loads: its elements, and the vectors'."""
    width, along = _width(c, e)
    each = element_issue(e.prologue, e.element) if e.prologue else 0.0
    return c[column.INLINED] * (entries * ks * width * each + ks * len(_vectors(e)) * (3.0 + along))


def registers(c: Columns, e: Extents, entries: np.ndarray, ks: np.ndarray) -> np.ndarray:
    """Return the registers for the vectors: their elements of a step, addresses, and which loads are in the image."""
    _, along = _width(c, e)
    return c[column.INLINED] * (
        ks * vector_words(_vectors(e), along) + 4.0 * len(_vectors(e)) + (2.0 if e.window else 0.0) + 4.0
    )


def vector_words(vectors: Sequence[tuple[str, int]], along: np.ndarray) -> np.ndarray:
    """Return the registers for ``along`` elements of every vector."""
    words = (np.maximum(facts(dtype).itemsize * along / 4, 1.0) for dtype, _ in vectors)
    return np.asarray(sum(words, 0.0 * along))


def _width(c: Columns, e: Extents) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements of a load of the prepared operand, and how many of them are along k."""
    width = c[f"vector_{e.prepared}"] / (e.bytes_a if e.prepared == "a" else e.bytes_b)
    return width, width if e.unit[e.prepared] == "k" else np.ones_like(width)


def _vectors(e: Extents) -> tuple[tuple[str, int], ...]:
    assert e.prologue
    return e.prologue.vectors


def microseconds(e: Extents, arch: Arch) -> float:
    """Return the microseconds of the first launch, which reads from DRAM and writes into the L2 as far as it fits."""
    moved = e.whole_a * e.batch
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    spilled = float(np.clip(moved / (arch.l2_mb * 2**20) - 0.5, 0, 1))
    return moved / dram + moved * (spilled / dram + (1 - spilled) / l2) + fixed_us(arch)


# ---- one Program


def constants(program: Program, e: Extents) -> dict[str, int | str]:
    """Return the macros of prologue.cuh."""
    return macros(e.prologue, e.prepared == "b", is_materialised(program))


def macros(prologue: Prologue | None, of_b: bool = False, materialised: bool = False) -> dict[str, int | str]:
    """Return the macros of a prologue; none without a prologue."""
    if not prologue:
        return {}
    codes = sum(OPERATIONS[name].code << (5 * place) for place, name in enumerate(prologue.names))
    found: dict[str, int | str] = {"PROLOGUE": codes, "PROLOGUE_OF_B": int(of_b), "MATERIALISED": int(materialised)}
    for name, (dtype, align) in zip("DE", prologue.vectors, strict=False):
        found |= {f"{name}_TYPE": macro_token(dtype), f"{name}_VECTOR": align}
    return found


def launches(program: Program, e: Extents) -> list[Launch]:
    """Return the first launch, if there is one."""
    if not is_materialised(program):
        return []
    lines, run = lines_of(e)
    width = program["vector_a"] // e.bytes_a if e.unit["a"] != "s" else 1
    accesses = e.batch * lines * -(-run // width)
    return [Launch("contraction_prepare", -(-accesses // PREPARE_THREADS), PREPARE_THREADS, 0)]


def prepared_bytes(program: Program, e: Extents) -> int:
    """Return the bytes of the materialised operand."""
    if not is_materialised(program):
        return 0
    lines, run = lines_of(e)
    return e.batch * lines * -(-run * e.bytes_a // PITCH_BYTES) * PITCH_BYTES


def lines_of(e: Extents) -> tuple[int, int]:
    """Return (lines of A along its contiguous axis, elements of one)."""
    return (e.k, e.m) if e.unit["a"] == "m" else (e.m, e.k)


def branches(program: Program, e: Extents) -> frozenset[str]:
    """Coverage names of the prologue."""
    if e.prologue and is_materialised(program):
        return frozenset({"prologue", "materialise"})
    return inlined_branches(e.prologue, bool(e.window))


def inlined_branches(prologue: Prologue | None, windowed: bool) -> frozenset[str]:
    """Return the coverage names of a prologue that is applied as elements are read."""
    if not prologue:
        return frozenset()
    return frozenset({"prologue", "prologue_outside"} if windowed else {"prologue"})
