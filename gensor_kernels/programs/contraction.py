"""What the contraction families share: coordinates, legality, macros and launches (their traffic: traffic.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import DRAM_EFFICIENCY, RAMP_US
from ..operators.dtypes import facts
from ..operators.epilogue import OPERATIONS
from .family import Coordinate, Family, Launch, Part, Values, macro_token
from .program import Program
from .tables import Columns, Tables

if TYPE_CHECKING:
    from ..operators.workload import Workload

F = np.float32
SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
RASTERS = (1, 2, 4, 8, 16)
REDUCE_THREADS = 256
#: Partial sums of a split lie in rows of whole groups of four (contraction.cuh).
WORKSPACE_GROUP = 4
#: First entry of a compile-time epilogue without operations (epilogue.cuh).
EPILOGUE_NONE = 31


@dataclass(frozen=True)
class Extents:
    """A contraction's sizes (an empty axis counts as 1) and element bytes; ``extra`` are epilogue operand bytes."""

    batch: int
    m: int
    n: int
    k: int
    bytes_a: int
    bytes_b: int
    bytes_c: int
    bytes_acc: int
    extra: int
    steps: int


@lru_cache(maxsize=4096)
def extents(workload: Workload) -> Extents:
    """The numbers of a Workload the vectorised code needs."""
    batch, m, n, k = (max(1, workload.size[axis]) for axis in ("batch", "m", "n", "k"))
    width = {name: facts(workload.dtype[name]).itemsize for name in ("a", "b", "c")}
    extra = 0
    for name in workload.epilogue:
        operand = OPERATIONS[name].operand
        extra += {"": 0, "n": n, "mn": batch * m * n}[operand] * (1 if name == "mask" else width["c"])
    accumulator = facts(workload.accumulator).itemsize
    return Extents(batch, m, n, k, width["a"], width["b"], width["c"], accumulator, extra, len(workload.epilogue))


# ---- coordinates

GRID_NAMES = ("level", "block_m", "block_n", "block_k", "split_k", "raster")
EPILOGUE_NAMES = ("epilogue_staged", "epilogue_fixed", "vector_c", "min_blocks")


def grid_coordinates(block_m: Sequence[int], block_n: Sequence[int], block_k: Sequence[int]) -> tuple[Coordinate, ...]:
    """The level itself and the choices of level 0: block tile, split, raster."""
    return (
        Coordinate("level", (0, 1, 2), 0, "cache", "memory level the construction has reached"),
        Coordinate("block_m", tuple(block_m), 0, "tile", "rows of C per block"),
        Coordinate("block_n", tuple(block_n), 0, "tile", "columns of C per block"),
        Coordinate("block_k", tuple(block_k), 0, "tile", "k extent of one main-loop step"),
        Coordinate("split_k", SPLITS, 0, "split", "blocks that share one tile's k range", runtime=True),
        Coordinate("raster", RASTERS, 0, "raster", "tile rows walked together", runtime=True),
    )


def vector_coordinate(workload: Workload, operand: str, level: int) -> Coordinate:
    """Bytes of one global access of an operand: 1 to 16, at least an element, at most its alignment class."""
    e = extents(workload)
    element = {"a": e.bytes_a, "b": e.bytes_b, "c": e.bytes_c}[operand]
    most = max(workload.align[operand], element)
    widths = tuple(width for width in (1, 2, 4, 8, 16) if element <= width <= most)
    return Coordinate(f"vector_{operand}", widths, level, "copy_width", f"bytes per global access of {operand.upper()}")


def epilogue_coordinates(workload: Workload) -> tuple[Coordinate, ...]:
    """How C leaves: route, compile-time list, width, and the launch bounds."""
    return (
        Coordinate("epilogue_staged", (0, 1), 2, "epilogue", "1: C leaves through shared memory"),
        Coordinate("epilogue_fixed", (0, 1), 2, "epilogue", "1: the list of operations is compiled in"),
        vector_coordinate(workload, "c", 2),
        Coordinate("min_blocks", (0, 1, 2, 3, 4), 2, "launch_bounds", "blocks per SM promised to the compiler"),
    )


# ---- legality


def common_legal(c: Columns, arch: Arch, warps: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """What every contraction kernel asks for: warps and shared memory fit, no split without a k step."""
    promised = c["promised"]
    held = promised * (memory + F(arch.smem_reserved))
    ok = (memory <= arch.smem_per_block) & (held <= arch.smem_per_sm) & (c["fits_split"] > 0)
    ok &= (warps >= 1) & (warps <= arch.threads_per_block // 32)
    return ok & (promised * warps <= arch.threads_per_sm // 32)


# ---- tabulated parts


def power_of_two_in(value: np.ndarray) -> np.ndarray:
    """The largest power of two that divides each integer (0 for 0)."""
    return value & -value


def shared_parts(e: Extents, arch: Arch) -> tuple[Part, ...]:
    """What depends on the coordinates both families have."""

    def steps(v: Values) -> dict[str, np.ndarray]:
        count = -(-e.k // v["block_k"])
        return {
            "iterations": -(-count // v["split_k"]),
            "fits_split": (v["split_k"] - 1) * v["block_k"] < e.k,
            "step_a": v["block_k"] * e.bytes_a,
            "step_b": v["block_k"] * e.bytes_b,
        }

    def splits(v: Values) -> dict[str, np.ndarray]:
        written, after = reduction(v["split_k"], e, arch)
        return {"slabs": v["split_k"] * e.batch, "written": written, "after": after}

    def bounds(v: Values) -> dict[str, np.ndarray]:
        promised = np.maximum(v["min_blocks"], 1)
        return {"promised": promised, "register_share": arch.regs_per_sm / 32 / 8 / promised}

    return (
        Part(("block_k", "split_k"), steps),
        Part(("split_k",), splits),
        Part(("min_blocks",), bounds),
        Part(("raster",), lambda v: {"raster_rows": v["raster"]}),
    )


def reduction(split: np.ndarray, e: Extents, arch: Arch) -> tuple[np.ndarray, np.ndarray]:
    """(DRAM bytes the main kernel writes, microseconds of the reduction kernel), by split count.

    Partial sums pass through the L2 where they fit, otherwise through DRAM.
    """
    outputs = float(e.batch) * e.m * e.n
    plain = outputs * e.bytes_c + e.extra
    partial = split * outputs * e.bytes_acc
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    spilled = np.clip(partial / (arch.l2_mb * 2**20) - 0.5, 0, 1)
    moved = partial * (spilled / dram + (1 - spilled) / l2) + plain / dram
    fixed = RAMP_US + arch.dram_latency * 2e-3 / arch.clock_ghz
    return np.where(split > 1, partial * spilled, plain), np.where(split > 1, moved + fixed, 0)


# ---- one Program


def class_constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """The macros both families bind from the class and from shared coordinates."""
    layouts = workload.layouts
    codes = 0
    if program["epilogue_fixed"]:
        codes = sum(OPERATIONS[name].code << (5 * place) for place, name in enumerate(workload.epilogue))
        codes = codes or EPILOGUE_NONE
    return {
        "IN_TYPE": macro_token(workload.dtype["a"]),
        "OUT_TYPE": macro_token(workload.dtype["c"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        "MATH_TF32": int(workload.math == "tf32"),
        "A_LAYOUT": int(layouts["a"] == "m"),
        "B_LAYOUT": int(layouts["b"] == "n"),
        "A_UNIT": int(layouts["a"] != "s"),
        "B_UNIT": int(layouts["b"] != "s"),
        "C_UNIT": int(layouts["c"] != "s"),
        "A_VECTOR": program["vector_a"],
        "B_VECTOR": program["vector_b"],
        "C_VECTOR": program["vector_c"],
        "BLOCK_M": program["block_m"],
        "BLOCK_N": program["block_n"],
        "BLOCK_K": program["block_k"],
        "STAGES": program["stages"],
        "SPLIT": int(program["split_k"] > 1),
        "EPILOGUE_STAGED": program["epilogue_staged"],
        "EPILOGUE_CODES": codes,
        "MIN_BLOCKS": program["min_blocks"],
    }


def class_launches(
    program: Program, workload: Workload, entry: str, threads: int, shared_bytes: int
) -> tuple[Launch, ...]:
    """The main launch, and for split-K the reduction (its grid: contraction.cuh)."""
    e = extents(workload)
    split = program["split_k"]
    tiles = -(-e.m // program["block_m"]) * -(-e.n // program["block_n"])
    launches = [Launch(entry, e.batch * split * tiles, threads, shared_bytes)]
    if split > 1:
        width = program["vector_c"] // e.bytes_c if workload.layouts["c"] != "s" else 1
        groups = e.batch * e.m * -(-e.n // width)
        launches.append(Launch("contraction_reduce", -(-groups // REDUCE_THREADS), REDUCE_THREADS, 0))
    return tuple(launches)


class ContractionFamily(Family):
    """What both contraction families answer alike about one Program."""

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums; nothing needs to be zero."""
        e = extents(workload)
        columns = -(-e.n // WORKSPACE_GROUP) * WORKSPACE_GROUP
        split = program["split_k"]
        return (split * e.batch * e.m * columns * e.bytes_acc if split > 1 else 0), False

    def branches(self, program: Program) -> frozenset[str]:
        """Coverage names that runs at verification sizes must count."""
        names = {"full_tile", "edge_m", "edge_n", "edge_k", "steady", "drain"}
        if program["split_k"] > 1:
            names.add("split_reduce")
        if program["raster"] > 1:
            names.add("raster_tail")
        return frozenset(names)

    def tile(self, program: Program) -> dict[str, int]:
        """m, n, k, stages, split, raster of a Program."""
        source = {"m": "block_m", "n": "block_n", "k": "block_k", "split": "split_k"}
        return {name: program[source.get(name, name)] for name in ("m", "n", "k", "stages", "split", "raster")}

    #: block tiles whose default completions are the starters
    starter_blocks: tuple[tuple[int, int], ...] = ()

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Default completions of some block tiles, every third one split; at most 8, all legal."""
        coordinates = self.coordinates(workload, arch)
        tables = Tables(coordinates, self.parts(workload, arch))
        steps = next(c.values for c in coordinates if c.name == "block_k")
        found: list[Program] = []
        for place, (m, n) in enumerate(self.starter_blocks):
            for step in (steps[1], steps[0]):
                chosen = {"block_m": m, "block_n": n, "block_k": step, "split_k": 1 + (place % 3 == 2)}
                point = self._completed(chosen, coordinates, workload, arch)
                if self.legal(Columns(tables, np.array([point])), workload, arch)[0]:
                    pairs = ((c.name, c.values[i]) for c, i in zip(coordinates, point, strict=True))
                    found.append(Program(self.name, tuple(pairs)))
                    break
        return list(dict.fromkeys(found))[:8]

    def _completed(
        self, chosen: dict[str, int], coordinates: tuple[Coordinate, ...], workload: Workload, arch: Arch
    ) -> list[int]:
        """Value indices of the default completion of some chosen values."""
        values = {c.name: chosen.get(c.name, c.values[0]) for c in coordinates} | {"level": 2}
        for level in (1, 2):
            columns = {name: np.array([value], dtype=np.int32) for name, value in values.items()}
            defaults = self.defaults(columns, workload, arch)
            for c in coordinates:
                if c.level == level:
                    wanted = int(defaults[c.name][0])
                    values[c.name] = max((v for v in c.values if v <= wanted), default=c.values[0])
        return [c.values.index(values[c.name]) for c in coordinates]


def default_epilogue(like: np.ndarray) -> dict[str, np.ndarray]:
    """Defaults of epilogue_coordinates: the widest store, the runtime list, nothing promised."""
    return {"epilogue_fixed": 0 * like, "vector_c": 16 * like, "min_blocks": 0 * like}
