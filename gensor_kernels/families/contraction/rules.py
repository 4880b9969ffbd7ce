"""Rules that several main loops of contractions share, and the macros that rules are about (core/rules.py)."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.rules import Rule
from gensor_kernels.operators.types.dtypes import PARTS
from gensor_kernels.operators.types.workload import Workload

from . import complex as contraction_complex
from . import stream_k
from .problem import Extents, extents

#: Macros of coordinates with other names.
COORDINATES = {"A_VECTOR": "vector_a", "B_VECTOR": "vector_b", "C_VECTOR": "vector_c", "BLOCKS": stream_k.NAME}
SIZES = ("K", "N")
DERIVED = {
    "MATRICES": "2 if GATE else 1",
    "SPLIT": "SPLIT_K > 1 or EPILOGUE_STAGED != 2 if NORM else SPLIT_K > 1",
    "NORM_WIDTH": "C_VECTOR // sizeof(OUT_TYPE) if C_UNIT else 1",
    "STREAM": "BLOCKS > 0",
    "MOST_INT": "2147483647",
    "STEPS": "(K + BLOCK_K - 1) // BLOCK_K",
    "STREAM_STEPS": "STEPS",
    "PROMISED": "maximum(MIN_BLOCKS, 1)",
    "A_PREPARED": "PROLOGUE and not MATERIALISED and not PROLOGUE_OF_B",
    "B_PREPARED": "PROLOGUE and not MATERIALISED and PROLOGUE_OF_B",
}
COLUMNS_OF_C = Rule(
    "Columns of C that are not adjacent are stored one by one.", "C_UNIT or C_VECTOR == sizeof(OUT_TYPE)", given=True
)
SPLITS = (Rule("Every part of k has a step.", "SPLIT_K - 1 < STEPS", asserted=False, sized=True),)
STREAMS = (
    Rule("Streams are plain products.", "not SPLIT and not RAGGED_ROWS and not NORM and not GATE", when="STREAM"),
    Rule(
        "All blocks of a stream, which wait for one another, are resident as promised to the compiler.",
        "BLOCKS <= MIN_BLOCKS * SMS",
        when="STREAM",
        asserted=False,
    ),
    Rule(
        "A stream counts the steps of two waves in 32 bits.",
        "2 * BLOCKS * STREAM_STEPS <= MOST_INT",
        when="STREAM",
        asserted=False,
        sized=True,
    ),
)
NORMS = (
    Rule("Without a tile of whole rows, sums go through the workspace.", "SPLIT == (EPILOGUE_STAGED != 2)", "NORM"),
    Rule("Stores into C must fill the block tile's rows.", "BLOCK_N % NORM_WIDTH == 0", "NORM and not SPLIT"),
    Rule("A block that normalises has whole rows.", "BLOCK_N >= N", "NORM and not SPLIT", asserted=False, sized=True),
)


def names(workload: Workload, streams: bool) -> dict[str, object]:
    """Return the macros that a class decides, and those of coordinates that its lattice does not have; ``streams``:
    whether it may have stream_k's."""
    e = extents(workload)
    stored = {f"{x.upper()}_STORED": e.multiplied if e.dtype[x] == PARTS else e.dtype[x] for x in "ab"}
    return {
        **({} if e.prologue else {"MATERIALISED": 0}),
        **({} if streams and stream_k.serves(e) else {"BLOCKS": 0}),
        **({} if e.is_complex else {contraction_complex.NAME.upper(): 1}),
        **type_macros(e, workload.accumulator),
        **layout_macros(e),
        **{name: macro_token(dtype) for name, dtype in stored.items()},
        **{f"{x}_UNIT": int(e.unit[x.lower()] != "s") for x in "ABC"},
        "GATE": bool(e.gate),
        "RAGGED_ROWS": bool(e.rows),
        "NORM": bool(e.norm),
        "SCALED": e.scaled,
        "GROUP": e.group,
        "PROLOGUE": bool(e.prologue),
        "PROLOGUE_OF_B": e.prepared == "b",
        "MATH_TF32": workload.math == "tf32",
    }


def sizes(workload: Workload) -> dict[str, int | np.int64]:
    """Return the sizes that rules are about."""
    e = extents(workload)
    return {"K": np.int64(e.k), "N": np.int64(e.n)}


def type_macros(e: Extents, accumulator: str) -> dict[str, int | str]:
    """Return the types of operands and sums, and whether columns of C are adjacent."""
    types = {"IN_TYPE": e.multiplied, "OUT_TYPE": e.dtype["c"], "ACC_TYPE": accumulator}
    return {**{name: macro_token(dtype) for name, dtype in types.items()}, "C_UNIT": int(e.unit["c"] != "s")}


def layout_macros(e: Extents) -> dict[str, int | str]:
    """Return the layouts of both factors."""
    return {"A_LAYOUT": int(e.unit["a"] == "m"), "B_LAYOUT": int(e.unit["b"] == "n")}
