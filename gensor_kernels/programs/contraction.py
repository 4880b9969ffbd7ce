"""What the contraction families share: extents, grids, L2 and DRAM traffic, the split-K reduction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import DRAM_EFFICIENCY
from ..operators.dtypes import facts
from ..operators.epilogue import OPERATIONS
from .family import Columns, Family, Launch, macro_token
from .program import Program

if TYPE_CHECKING:
    from ..operators.workload import Workload

F = np.float32
SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
RASTERS = (1, 2, 4, 8, 16)
#: Share of the L2 that keeps a working set alive beside streams, and threads of the reduction kernel.
L2_USABLE = 0.75
REDUCE_THREADS = 256


@dataclass(frozen=True)
class Extents:
    """A contraction's sizes and element bytes; ``extra`` are the bytes of epilogue operands."""

    batch: int
    m: int
    n: int
    k: int
    bytes_a: int
    bytes_b: int
    bytes_c: int
    bytes_acc: int
    extra: int


@lru_cache(maxsize=4096)
def extents(workload: Workload) -> Extents:
    """The numbers of a Workload the vectorised code needs."""
    batch, m, n, k = (max(1, workload.size[axis]) for axis in ("batch", "m", "n", "k"))
    width = {name: facts(workload.dtype[name]).itemsize for name in ("a", "b", "c")}
    extra = 0
    for name in workload.epilogue:
        operand = OPERATIONS[name].operand
        extra += {"": 0, "n": n, "mn": batch * m * n}[operand] * (1 if name == "mask" else width["c"])
    return Extents(batch, m, n, k, width["a"], width["b"], width["c"], facts(workload.accumulator).itemsize, extra)


@dataclass
class Grid:
    """float32 arrays: tiles along each axis, their product with batch and split, k steps of one split."""

    tiles_m: np.ndarray
    tiles_n: np.ndarray
    blocks: np.ndarray
    iterations: np.ndarray


def grid(block_m: np.ndarray, block_n: np.ndarray, block_k: np.ndarray, split: np.ndarray, e: Extents) -> Grid:
    """The grid of Programs; blocks of float32 tile extents, exact up to 2^24 tiles."""
    tiles_m = np.ceil(F(e.m) / block_m)
    tiles_n = np.ceil(F(e.n) / block_n)
    iterations = np.ceil(np.ceil(F(e.k) / block_k) / split)
    return Grid(tiles_m, tiles_n, tiles_m * tiles_n * split * F(e.batch), iterations)


def dram_bytes(
    g: Grid, block_m: np.ndarray, block_n: np.ndarray, raster: np.ndarray, residents: np.ndarray, e: Extents, arch: Arch
) -> np.ndarray:
    """Bytes of A and B from DRAM over the whole main loop, with L2 reuse over one residency window.

    The blocks resident at once walk along k together: what several of them read in a step comes from DRAM
    once.  Between windows a panel is found again in so far as it fits the L2.
    """
    window = np.minimum(g.blocks, residents * F(arch.sms))
    rows_grouped = np.minimum(raster, g.tiles_m)
    # The window covers whole groups of `raster` tile rows once it is wider than one of them.
    columns = np.minimum(g.tiles_n, np.ceil(window / rows_grouped))
    rows = np.minimum(g.tiles_m, np.ceil(window / columns))
    windows = np.maximum(g.tiles_m * g.tiles_n / (rows * columns), F(1))
    panel_a, panel_b = block_m * F(e.k * e.bytes_a), block_n * F(e.k * e.bytes_b)
    whole_a, whole_b = F(e.m) * F(e.k * e.bytes_a), F(e.n) * F(e.k * e.bytes_b)
    usable = F(arch.l2_mb * 2**20 * L2_USABLE)
    held = rows * panel_a + columns * panel_b
    fit_a = np.minimum(usable / held, F(1))
    fit_b = np.minimum(usable / (held + whole_b), F(1))
    read_a = whole_a + np.maximum(windows * rows * panel_a - whole_a, F(0)) * (F(1) - fit_a)
    read_b = whole_b + np.maximum(windows * columns * panel_b - whole_b, F(0)) * (F(1) - fit_b)
    return (read_a + read_b) * F(e.batch)


def reduction(split: np.ndarray, e: Extents, arch: Arch) -> tuple[np.ndarray, np.ndarray]:
    """(bytes the main kernel writes and the epilogue reads, microseconds of the reduction kernel).

    The partial sums pass through the L2 where they fit, otherwise through DRAM.
    """
    outputs = float(e.batch) * e.m * e.n
    plain = F(outputs * e.bytes_c + e.extra)
    partial = split * F(outputs * e.bytes_acc)
    taken = split > 1
    written = np.where(taken, partial, plain)
    dram = F(arch.dram_gb_s * DRAM_EFFICIENCY * 1e3)
    l2 = F(arch.l2_bytes_per_clk * arch.clock_ghz * 1e3)
    slow = np.minimum(np.maximum(partial / F(arch.l2_mb * 2**20) - F(0.5), F(0)), F(1))
    moved = partial * (slow / dram + (F(1) - slow) / l2) + plain / dram
    fixed = F(1.0 + arch.dram_latency * 2e-3 / arch.clock_ghz)
    return written, np.where(taken, moved + fixed, F(0))


def class_constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """The macros both families bind from the class and from shared coordinates."""
    layouts, split = workload.layouts, program["split_k"] > 1
    codes = 0
    if program["epilogue_fixed"]:
        for place, name in enumerate(workload.epilogue):
            codes |= OPERATIONS[name].code << (5 * place)
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
        "SPLIT": int(split),
        "EPILOGUE_STAGED": program["epilogue_staged"],
        "EPILOGUE_CODES": codes,
        "MIN_BLOCKS": program["min_blocks"],
    }


def class_launches(
    program: Program, workload: Workload, entry: str, threads: int, shared_bytes: int
) -> tuple[Launch, ...]:
    """The main launch, and for split-K the reduction."""
    e = extents(workload)
    split = program["split_k"]
    tiles = -(-e.m // program["block_m"]) * -(-e.n // program["block_n"])
    launches = [Launch(entry, e.batch * split * tiles, threads, shared_bytes)]
    if split > 1:
        groups = e.batch * e.m * -(-e.n // (program["vector_c"] // e.bytes_c))
        launches.append(Launch("contraction_reduce", -(-groups // REDUCE_THREADS), REDUCE_THREADS, 0))
    return tuple(launches)


def workspace(program: Program, workload: Workload) -> tuple[int, bool]:
    """Bytes of the partial sums of a split; nothing needs to be zero."""
    e = extents(workload)
    split = program["split_k"]
    return (split * e.batch * e.m * e.n * e.bytes_acc if split > 1 else 0), False


def copy_widths(alignment: int, element: int) -> tuple[int, ...]:
    """Bytes one global access may have: 16, 8, 4, 2, 1, at most the alignment class, at least an element."""
    return tuple(width for width in (1, 2, 4, 8, 16) if element <= width <= max(alignment, element))


def tile(program: Program) -> dict[str, int]:
    """The extents the runtime and the verifier need."""
    names = {"m": "block_m", "n": "block_n", "k": "block_k", "stages": "stages", "split": "split_k", "raster": "raster"}
    return {short: program[name] for short, name in names.items()}


def branches(program: Program, has_epilogue: bool = False) -> frozenset[str]:
    """Coverage names every contraction kernel of this Program must count at verification sizes."""
    names = {"full_tile", "edge_m", "edge_n", "edge_k", "steady", "drain"}
    if program["split_k"] > 1:
        names.add("split_reduce")
    if program["raster"] > 1:
        names.add("raster_tail")
    return frozenset(names)


def real(columns: Columns, *names: str) -> list[np.ndarray]:
    """Columns as float32 arrays."""
    return [columns[name].astype(F) for name in names]


def starters(family: Family, workload: Workload, arch: Arch, blocks: tuple[tuple[int, int], ...]) -> list[Program]:
    """The default completions of some block tiles, the deepest legal k step each, split where the grid is small."""
    from .space import FamilySpace

    space = FamilySpace(family, workload, arch)
    steps = space.coordinates[space.names.index("block_k")].values
    found: list[Program] = []
    for m, n in blocks:
        for split, step in ((1, 1), (1, 0), (4, 1)):
            wanted = {"block_m": m, "block_n": n, "block_k": steps[min(step, len(steps) - 1)], "split_k": split}
            point = np.array([[c.values.index(wanted.get(c.name, c.values[0])) for c in space.coordinates]])
            if space.legal(point)[0]:
                found.append(space.program(point[0]))
                break
    return list(dict.fromkeys(found))[:8]
