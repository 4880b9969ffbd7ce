"""Macros, grids and launches of contraction kernels, split-K reduction included."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.operators.types.dtypes import PARTS
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.macros import epilogue_codes, macro_token
from gensor_kernels.programs.core.params import ragged_tiles
from gensor_kernels.programs.core.program import Program

from . import prologue as contraction_prologue
from . import stream_k
from .norm import CODES, in_workspace
from .problem import Extents, extents

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

REDUCE_THREADS = 256
#: Rows of a block of contraction_normalise: one per warp.
NORM_ROWS = REDUCE_THREADS // 32
#: Partial sums of a split lie in rows of whole groups of four (contraction.cuh).
WORKSPACE_GROUP = 4


def common_constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """The macros every contraction binds from the class and from shared coordinates."""
    e = extents(workload)
    return {
        "IN_TYPE": macro_token(e.multiplied),
        "OUT_TYPE": macro_token(e.dtype["c"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        "A_LAYOUT": int(e.unit["a"] == "m"),
        "B_LAYOUT": int(e.unit["b"] == "n"),
        "C_UNIT": int(e.unit["c"] != "s"),
        "C_VECTOR": program["vector_c"],
        "BLOCK_M": program["block_m"],
        "BLOCK_N": program["block_n"],
        "BLOCK_K": program["block_k"],
        "STAGES": program["stages"],
        "SPLIT": int(in_workspace(program, e)),
        "EPILOGUE_STAGED": program["epilogue_staged"],
        "EPILOGUE_CODES": epilogue_codes(program, workload),
        "MIN_BLOCKS": program["min_blocks"],
    }


def stored_constants(e: Extents, name: str = "STORED") -> dict[str, int | str]:
    """Types of operands that are stored in another than products are said to be in."""
    return {f"{x.upper()}_{name}": macro_token(e.dtype[x]) for x in "ab" if e.dtype[x] not in (e.multiplied, PARTS)}


def gate_constants(e: Extents) -> dict[str, int | str]:
    """The curve of a gated product, and whether both products get a bias."""
    return {"GATE": OPERATIONS[e.gate].code, "GATE_BIAS": int(e.biased)} if e.gate else {}


def class_constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """Return the macros of families that read operands by ordinary accesses."""
    e = extents(workload)
    own: dict[str, int | str] = {**gate_constants(e), **({"RAGGED_ROWS": 1} if e.rows else {})}
    if e.norm:
        own["NORM"] = CODES[e.norm]
    if e.scaled:
        own |= {"SCALED": e.scaled, "GROUP": e.group}
    own |= contraction_prologue.constants(program, e) | stream_k.constants(program)
    return (
        common_constants(program, workload)
        | stored_constants(e)
        | own
        | {
            "MATH_TF32": int(workload.math == "tf32"),
            "A_UNIT": int(e.unit["a"] != "s"),
            "B_UNIT": int(e.unit["b"] != "s"),
            "A_WINDOW": e.order if e.window == "a" else 0,
            "B_WINDOW": e.order if e.window == "b" else 0,
            "A_VECTOR": program["vector_a"],
            "B_VECTOR": program["vector_b"],
        }
    )


def class_launches(
    program: Program, workload: Workload, entry: str, threads: int, shared_bytes: int
) -> tuple[Launch, ...]:
    """Return the launches of a prologue, of the product, and of split-K's reduction (its grid: contraction.cuh)."""
    e = extents(workload)
    split = program["split_k"]
    tiles = -(-e.m // program["block_m"]) * -(-e.n // program["block_n"])
    if e.rows:
        down = ragged_tiles(e.rows, e.batch, program["block_m"])
        return (Launch(entry, down * -(-e.n // program["block_n"]), threads, shared_bytes),)
    front = contraction_prologue.launches(program, e)
    main = stream_k.launch(Launch(entry, e.batch * split * tiles, threads, shared_bytes), program)
    launches = [*front, replace(main, dependent=bool(front))]
    if e.norm and in_workspace(program, e):
        rows = e.batch * e.m
        launches.append(Launch("contraction_normalise", -(-rows // NORM_ROWS), REDUCE_THREADS, 0, dependent=True))
    elif split > 1:
        launches.append(reduce_launch(e, program["vector_c"] // e.bytes_c if e.unit["c"] != "s" else 1))
    return tuple(launches)


def reduce_launch(e: Extents, width: int) -> Launch:
    """The second launch of split-K, of ``width`` columns per thread."""
    groups = e.batch * e.m * -(-e.n // width)
    return Launch("contraction_reduce", -(-groups // REDUCE_THREADS), REDUCE_THREADS, 0, dependent=True)


def workspace_bytes(program: Program, workload: Workload) -> int:
    """Bytes of a split's partial sums, of an operand that is prepared in front, of a stream's flags and sums."""
    e, split = extents(workload), program["split_k"]
    columns = -(-e.n // WORKSPACE_GROUP) * WORKSPACE_GROUP
    sums = split * e.matrices * e.batch * e.m * columns * e.bytes_acc if in_workspace(program, e) else 0
    return sums + contraction_prologue.prepared_bytes(program, e) + stream_k.workspace_bytes(program, e)
