"""The base of contraction families: coordinates, legality, and answers about one Program that main loops share.

They also share macros, grids and launches, split-K's reduction included.  Common tabulated parts and memory traffic
are in cost.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import (
    EPILOGUE_FIXED,
    LEVEL,
    MIN_BLOCKS,
    Columns,
    Coordinate,
    Family,
    Launch,
    access_widths,
)
from gensor_kernels.families.core.macros import epilogue_codes, macro_token
from gensor_kernels.families.core.params import Tiling, ragged_tiles, tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import completions
from gensor_kernels.families.core.rules import Ruled
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.dtypes import PARTS
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import complex as contraction_complex
from . import prologue as contraction_prologue
from . import rules, stream_k
from .cases import contraction_cases, impossible_edges
from .cost import WHOLE_ROWS, in_workspace
from .norm import CODES
from .problem import Extents, extents

SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
RASTERS = (1, 2, 4, 8, 16)

GRID_NAMES = ("level", "block_m", "block_n", "block_k", "split_k", "raster")
EPILOGUE_NAMES = ("epilogue_staged", "epilogue_fixed", "vector_c", "min_blocks")

REDUCE_THREADS = 256
#: Rows of a block of contraction_normalise: one per warp.
NORM_ROWS = REDUCE_THREADS // 32
#: Partial sums of a split are stored in rows of whole groups of four (contraction.cuh).
WORKSPACE_GROUP = 4


def grid_coordinates(
    e: Extents, block_m: Sequence[int], block_n: Sequence[int], block_k: Sequence[int]
) -> tuple[Coordinate, ...]:
    """Return level and choices of level 0: block tile, split (none of groups of different rows), raster."""
    splits = (1,) if e.rows else SPLITS
    return (
        LEVEL,
        Coordinate("block_m", tuple(block_m), 0, "tile", "rows of C per block"),
        Coordinate("block_n", tuple(block_n), 0, "tile", "columns of C per block"),
        Coordinate("block_k", tuple(block_k), 0, "tile", "k extent of one main-loop step"),
        Coordinate("split_k", splits, 0, "split", "blocks that share one tile's k range", runtime=True),
        Coordinate("raster", RASTERS, 0, "raster", "tile rows walked together", runtime=True),
    )


def vector_coordinate(e: Extents, operand: str, level: int) -> Coordinate:
    """Bytes of one global access of an operand: 1 to 16, at least an element, at most its alignment class."""
    element = {"a": e.bytes_a, "b": e.bytes_b, "c": e.bytes_c}[operand]
    widths = access_widths(element, e.align[operand])
    return Coordinate(f"vector_{operand}", widths, level, "copy_width", f"bytes per global access of {operand.upper()}")


def epilogue_coordinates(e: Extents) -> tuple[Coordinate, ...]:
    """Return the coordinates of the epilogue: route of C, compile-time list, store width, launch bounds."""
    ways = (0, 1, WHOLE_ROWS) if e.norm else (0, 1)
    return (
        Coordinate("epilogue_staged", ways, 2, "epilogue", "1: C leaves through shared memory; 2: as whole rows"),
        EPILOGUE_FIXED._replace(values=(0,)) if e.norm else EPILOGUE_FIXED,
        vector_coordinate(e, "c", 2),
        MIN_BLOCKS,
    )


class ContractionFamily(Ruled):
    """The answers that main loops of contractions share."""

    ends = EPILOGUE_NAMES
    sizes = staticmethod(rules.sizes)
    #: whether blocks of plain products may share the steps of all tiles (stream_k.py)
    streams = True

    def known(self, workload: Workload) -> dict[str, object]:
        """See contraction/rules.py."""
        return rules.names(workload, self.streams)

    def is_covered(self, other: Program, program: Program, workload: Workload) -> bool:
        """Return what macros say: those of a whole k differ (SPLIT, STREAM), but where a norm's rows do not fit."""
        return bool(extents(workload).norm) and super().is_covered(other, program, workload)

    def steady(self, workload: Workload) -> bool:
        """Whole rows, groups, scales and prologues add numbers of their sizes."""
        return extents(workload).is_steady

    def sizeless(self, workload: Workload) -> bool:
        """Plain products have one lattice."""
        return extents(workload).is_plain

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of a split's partial sums and of a prepared operand; nothing needs to be zero."""
        return workspace_bytes(program, workload), False

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of C and parts of k."""
        return stream_k.tiling(tiling(self.tile(program), geometry), program)

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the problems of contraction_cases."""
        return contraction_cases(workload, self.tile(program), epilogue)

    def with_own_cases(self, found: list[Case], program: Program) -> list[Case]:
        """Add the problems that this main loop needs in addition to every contraction's."""
        return found

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names that runs at verification sizes must count."""
        e, names = extents(workload), {"full_tile", "edge_m", "edge_n", "edge_k", "steady", "drain"}
        names |= {"group"} if e.group and not e.in_blocks else set()
        if in_workspace(program, e):
            names.add("split_reduce")
        if program["raster"] > 1:
            names.add("raster_tail")
        if e.gate:
            names.add("gate")
        if e.norm:
            names.add("norm")
        if e.rows:
            names |= {"rest", "spare"}
        if e.prologue:
            names |= contraction_prologue.branches(program, e)
        names |= stream_k.branches(program)
        return frozenset(names) - impossible_edges(workload, self.tile(program))

    def tile(self, program: Program) -> dict[str, int]:
        """m, n, k, stages, split, raster: numbers of a Program that arguments and cases need."""
        source = {"m": "block_m", "n": "block_n", "k": "block_k", "split": "split_k"}
        found = {name: program.by_name[source.get(name, name)] for name in ("m", "n", "k", "stages", "split", "raster")}
        found |= {"whole_rows": 1} if program.get("epilogue_staged") == WHOLE_ROWS else {}
        return found | stream_k.tile(program)

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with accesses as wide as the alignment class of each operand."""
        align = extents(workload).align
        return program.replace(**{f"vector_{operand}": align[operand] for operand in "abc"})

    def shared(self, program: Program) -> Program:
        """Return the Program with the run-time epilogue, and no promise to the compiler beyond a stream's need."""
        return program.replace(epilogue_fixed=0, min_blocks=stream_k.promise(program))

    #: block tiles whose default completions are the starters
    starter_blocks: tuple[tuple[int, int], ...] = ()

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of ``starter_blocks``, with ``variants`` in turn."""
        return block_starters(self, self.starter_blocks, self.variants(workload), self.starts, workload, arch)

    def variants(self, workload: Workload) -> list[dict[str, int]]:
        """Return the values of further coordinates that starters take in turn: of complex products, where rows are
        normalised, or A is prepared."""
        e = extents(workload)
        if e.is_complex:
            return [{contraction_complex.NAME: form} for form in reversed(contraction_complex.forms(workload))]
        if e.prologue and not e.window:
            return [{contraction_prologue.NAME: 0}, {contraction_prologue.NAME: 1}]
        return [{}, {"epilogue_staged": WHOLE_ROWS, "split_k": 1}] if e.norm else [{}]

    def starts(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return which legal Programs are worth starting from."""
        return np.ones(len(columns["block_m"]), bool)


def block_starters(
    family: Family,
    blocks: Sequence[tuple[int, int]],
    variants: Sequence[dict[str, int]],
    starts: Callable[[Columns, Workload, Arch], np.ndarray],
    workload: Workload,
    arch: Arch,
) -> list[Program]:
    """Return default completions of some block tiles that ``starts`` accepts; at most 8.

    Every third tile is split, and each takes the next of the ``variants``: values of further coordinates.
    """
    coordinates = {c.name: c.values for c in family.coordinates(workload, arch)}
    splits = len(coordinates["split_k"]) > 1
    wanted = [
        {"block_m": m, "block_n": n, "block_k": step, "split_k": 1 + (place % 3 == 2 and splits)}
        | variants[place % len(variants)]
        for place, (m, n) in enumerate(blocks)
        for step in coordinates["block_k"][1::-1]
    ]
    programs, columns = completions(family, wanted, workload, arch)
    good = family.legal(columns, workload, arch) & starts(columns, workload, arch)
    found: dict[tuple[int, ...], Program] = {}  # by block tile: the first step that is good
    for program, fine in zip(programs, good, strict=True):
        if fine:
            found.setdefault((program["block_m"], program["block_n"]), program)
    return list(dict.fromkeys(found.values()))[:8]


def default_epilogue(like: np.ndarray) -> dict[str, np.ndarray]:
    """Defaults of epilogue_coordinates: the widest store, the runtime list, nothing promised."""
    return {"epilogue_fixed": 0 * like, "vector_c": 16 * like, "min_blocks": 0 * like}


# ---- macros and launches of one Program


def common_constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """Return the macros every contraction binds from the class and from shared coordinates."""
    e, p = extents(workload), program.by_name
    return {
        **rules.type_macros(e, workload.accumulator),
        **rules.layout_macros(e),
        "C_VECTOR": p["vector_c"],
        "BLOCK_M": p["block_m"],
        "BLOCK_N": p["block_n"],
        "BLOCK_K": p["block_k"],
        "STAGES": p["stages"],
        "SPLIT": int(in_workspace(p, e)),
        "EPILOGUE_STAGED": p["epilogue_staged"],
        "EPILOGUE_CODES": epilogue_codes(program, workload),
        "MIN_BLOCKS": p["min_blocks"],
    }


def constants_of_stored(e: Extents, name: str = "STORED") -> dict[str, int | str]:
    """Types of operands that are stored in another than products are said to be in."""
    return {f"{x.upper()}_{name}": macro_token(e.dtype[x]) for x in "ab" if e.dtype[x] not in (e.multiplied, PARTS)}


def gate_constants(e: Extents) -> dict[str, int | str]:
    """Return the curve of a gated product, and whether both products get a bias."""
    return {"GATE": OPERATIONS[e.gate].code, "GATE_BIAS": int(e.biased)} if e.gate else {}


def class_constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """Return the macros of families that read operands by ordinary accesses."""
    e = extents(workload)
    own: dict[str, int | str] = {**gate_constants(e), **({"RAGGED_ROWS": 1} if e.rows else {})}
    if e.norm:
        own["NORM"] = CODES[e.norm]
    if e.scaled:
        own |= {"SCALED": e.scaled, "GROUP": e.group}
    if e.prologue:
        own |= contraction_prologue.constants(program, e)
    own |= stream_k.constants(program)
    return (
        common_constants(program, workload)
        | constants_of_stored(e)
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
    first = contraction_prologue.launches(program, e) if e.prologue else []
    main = stream_k.launch(Launch(entry, e.batch * split * tiles, threads, shared_bytes), program)
    launches = [*first, replace(main, dependent=bool(first))]
    if e.norm and in_workspace(program, e):
        rows = e.batch * e.m
        launches.append(Launch("contraction_normalise", -(-rows // NORM_ROWS), REDUCE_THREADS, 0, dependent=True))
    elif split > 1:
        launches.append(reduce_launch(e, program["vector_c"] // e.bytes_c if e.unit["c"] != "s" else 1))
    return tuple(launches)


def reduce_launch(e: Extents, width: int) -> Launch:
    """Return the second launch of split-K, of ``width`` columns per thread."""
    groups = e.batch * e.m * -(-e.n // width)
    return Launch("contraction_reduce", -(-groups // REDUCE_THREADS), REDUCE_THREADS, 0, dependent=True)


def plain_branches(program: Program, workload: Workload, columns: int) -> frozenset[str]:
    """Name the way of outputs that no operation changes, where a kernel has it (warp_outputs.cuh).

    ``columns`` pass through a warp's slab at a time.
    """
    e = extents(workload)
    staged = program["epilogue_staged"] == 1 and not (e.norm or in_workspace(program, e))
    compiled = program["epilogue_fixed"] and workload.epilogue
    return frozenset({"unchanged"} if staged and not compiled and columns * e.bytes_c % 16 == 0 else ())


def workspace_bytes(program: Program, workload: Workload) -> int:
    """Return the bytes of a split's partial sums, of a prepared operand, of a stream's flags and sums."""
    e, split = extents(workload), program["split_k"]
    columns = -(-e.n // WORKSPACE_GROUP) * WORKSPACE_GROUP
    sums = split * e.matrices * e.batch * e.m * columns * e.bytes_acc if in_workspace(program, e) else 0
    prepared = contraction_prologue.prepared_bytes(program, e) if e.prologue else 0
    return sums + prepared + stream_k.workspace_bytes(program, e)
