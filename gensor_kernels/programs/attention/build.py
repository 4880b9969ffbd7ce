"""What the attention kernel is built with and launched as: macros, grid, the launch that combines the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.operators.attention.attention import NAMES
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.programs.contraction.build import EPILOGUE_NONE, WORKSPACE_GROUP
from gensor_kernels.programs.core.family import Launch, macro_token
from gensor_kernels.programs.core.program import Program

from .parts import ring_bytes, slab_bytes
from .shape import sizes_of

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

COMBINE_THREADS = 256
#: operator -> MASK
MASKS = {NAMES[""]: 0, NAMES["bool"]: 1, NAMES["added"]: 2}


def constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """Macro bindings of attention.cu."""
    types, layouts = workload.dtype, workload.layouts
    codes = 0
    if program["epilogue_fixed"]:
        codes = sum(OPERATIONS[name].code << (5 * place) for place, name in enumerate(workload.epilogue))
        codes = codes or EPILOGUE_NONE
    units = {f"{macro}_UNIT": int(layouts[name] != "s") for macro, name in zip("QKVC", "abdc", strict=True)}
    same = ("instruction", "swizzle", "stages", "warp_q", "block_q", "q_registers", "epilogue_staged", "min_blocks")
    return {
        "IN_TYPE": macro_token(types["a"]),
        "OUT_TYPE": macro_token(types["c"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        **units,
        "Q_VECTOR": workload.align["a"],
        **{f"{name.upper()}_VECTOR": program[f"vector_{name}"] for name in "kvc"},
        **mask_constants(workload),
        **{name.upper(): program[name] for name in same},
        "HEAD": program["head_tile"],
        "BLOCK_KEYS": program["block_k"],
        "ASYNC": program["copy"],
        "SPLIT": int(program["split_k"] > 1),
        "EPILOGUE_CODES": codes,
    }


def mask_constants(workload: Workload) -> dict[str, int | str]:
    """How the mask is read: two adjacent elements at a time where their address allows it."""
    if workload.operator == NAMES[""]:
        return {"MASK": 0, "MASK_TYPE": "float", "MASK_UNIT": 1, "MASK_VECTOR": 4}
    size, unit = facts(workload.dtype["e"]).itemsize, workload.layouts["e"] != "s"
    pair = unit and workload.align["e"] >= 2 * size
    return {
        "MASK": MASKS[workload.operator],
        "MASK_TYPE": macro_token(workload.dtype["e"]),
        "MASK_UNIT": int(unit),
        "MASK_VECTOR": size * (1 + pair),
    }


def tile(program: Program) -> dict[str, int]:
    """Rows, elements of a head, keys, stages, split: what arguments and cases need to know of a Program."""
    names = {"m": "block_q", "n": "head_tile", "k": "block_k", "stages": "stages", "split": "split_k"}
    return {name: program[coordinate] for name, coordinate in names.items()} | {"raster": 1}


def launches(program: Program, workload: Workload) -> tuple[Launch, ...]:
    """The attention, and for a split the launch that combines its parts (its grid: attention_finish.cuh)."""
    p, e = dict(program.values), sizes_of(workload)
    warps, split = p["block_q"] // p["warp_q"], p["split_k"]
    memory = max(ring_bytes(p), slab_bytes(p) * warps)
    grid = e.batch * split * -(-e.m // p["block_q"])
    found = [Launch("attention", grid, 32 * warps, memory)]
    if split > 1:
        width = p["vector_c"] // e.bytes_c if workload.layouts["c"] != "s" else 1
        groups = e.batch * e.m * -(-e.n // width)
        found.append(Launch("attention_combine", -(-groups // COMBINE_THREADS), COMBINE_THREADS, 0, dependent=True))
    return tuple(found)


def workspace_bytes(program: Program, workload: Workload) -> int:
    """Bytes of a split's parts: sums in rows of whole groups of four, and two numbers a row."""
    e, split = sizes_of(workload), program["split_k"]
    columns = -(-e.n // WORKSPACE_GROUP) * WORKSPACE_GROUP
    return split * e.batch * e.m * (columns + 2) * e.bytes_acc if split > 1 else 0
