"""contraction_mma: tensor cores through mma.sync, ldmatrix and cp.async (cuda/contraction_mma.cu)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import Terms, residency
from . import contraction as shared
from .banks import wavefronts
from .contraction import F, real
from .family import Columns, Coordinate, Facts, Family, Launch
from .program import Program

if TYPE_CHECKING:
    from ..operators.workload import Workload

WARP_TILES_M = (16, 32, 48, 64, 80, 96, 128)
WARP_TILES_N = (16, 32, 48, 64, 80, 96, 128)
BLOCKS = tuple(range(16, 257, 16))
#: Warp tiles the default completion tries, best reuse of fragments per register first.
PREFERRED = (
    (64, 64),
    (64, 32),
    (32, 64),
    (48, 64),
    (64, 48),
    (32, 48),
    (48, 32),
    (32, 32),
    (64, 16),
    (16, 64),
    (48, 48),
)
PREFERRED += ((32, 16), (16, 32), (48, 16), (16, 48), (16, 16))


class Instruction(NamedTuple):
    """One tensor-core instruction: INSTRUCTION macro, shape, feature it needs, the Arch's rate for it."""

    code: int
    m: int
    n: int
    k: int
    feature: str
    rate: str


INSTRUCTIONS = {
    "f16": (
        Instruction(0, 16, 8, 16, "mma_m16n8k16", "mma_f16"),
        Instruction(1, 16, 8, 8, "mma_m16n8k8_f16", "mma_f16"),
    ),
    "bf16": (Instruction(0, 16, 8, 16, "mma_m16n8k16", "mma_f16"),),
    "tf32": (Instruction(2, 16, 8, 8, "tf32", "mma_tf32"),),
    "s8": (
        Instruction(3, 16, 8, 32, "mma_m16n8k32_s8", "mma_s8"),
        Instruction(4, 8, 8, 16, "mma_m8n8k16_s8", "mma_s8"),
    ),
}


def kind(workload: Workload) -> str | None:
    """Which row of INSTRUCTIONS a Workload uses; None where tensor cores do not serve its types."""
    dtype = workload.dtype["a"]
    if dtype == "float32" and workload.math == "tf32":
        return "tf32"
    return {"float16": "f16", "bfloat16": "bf16", "int8": "s8"}.get(dtype)


@lru_cache(maxsize=256)
def instructions(name: str, arch: Arch) -> tuple[Instruction, ...]:
    """The instructions of a kind that the Arch has."""
    return tuple(i for i in INSTRUCTIONS[name] if i.feature in arch.features)


@lru_cache(maxsize=256)
def conflict_degrees(element: int, extents: tuple[int, ...]) -> np.ndarray:
    """Wavefronts per 8x16-byte ldmatrix matrix of an unswizzled tile, by index of the row extent."""
    return np.array([wavefronts([row * e * element for row in range(8)], 16) for e in extents], dtype=F)


class ContractionMma(Family):
    """Tensor-core matrix products."""

    name = "contraction_mma"
    abi = 1
    source = "contraction_mma.cu"
    names = (
        "level block_m block_n block_k split_k raster stages copy vector_a vector_b swizzle "
        "warp_m warp_n instruction epilogue_staged epilogue_fixed vector_c min_blocks"
    ).split()

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        if workload.operator != "matmul":
            return f"no tensor-core kernel for {workload.operator}"
        name = kind(workload)
        if name is None:
            return f"no tensor-core instruction for {workload.dtype['a']} with math {workload.math}"
        if not instructions(name, arch):
            return f"{arch.name} has no {name} tensor-core instruction"
        return None

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        name = kind(workload) or ""
        e = shared.extents(workload)
        widths = {x: shared.copy_widths(workload.align[x], b) for x, b in zip("abc", (e.bytes_a, e.bytes_b, e.bytes_c))}
        steps = tuple(b // e.bytes_a for b in (32, 64, 128, 256))
        asynchronous = "cp_async" in arch.features
        return (
            Coordinate("level", (0, 1, 2), 0, "cache", "memory level the construction has reached"),
            Coordinate("block_m", BLOCKS, 0, "tile", "rows of C per block"),
            Coordinate("block_n", BLOCKS, 0, "tile", "columns of C per block"),
            Coordinate("block_k", steps, 0, "tile", "k extent of one main-loop step"),
            Coordinate("split_k", shared.SPLITS, 0, "split", "blocks that share one tile's k range", runtime=True),
            Coordinate("raster", shared.RASTERS, 0, "raster", "tile rows walked together", runtime=True),
            Coordinate("stages", (2, 3, 4, 5, 6) if asynchronous else (2,), 1, "stages", "shared buffers"),
            Coordinate("copy", (0, 1) if asynchronous else (0,), 1, "copy_width", "1: cp.async, 0: through registers"),
            Coordinate("vector_a", widths["a"], 1, "copy_width", "bytes per global load of A"),
            Coordinate("vector_b", widths["b"], 1, "copy_width", "bytes per global load of B"),
            Coordinate("swizzle", (0, 1), 1, "layout", "1: XOR swizzle of the shared tiles"),
            Coordinate("warp_m", WARP_TILES_M, 2, "tile", "rows of C per warp"),
            Coordinate("warp_n", WARP_TILES_N, 2, "tile", "columns of C per warp"),
            Coordinate("instruction", tuple(i.code for i in instructions(name, arch)), 2, "instruction", "mma shape"),
            Coordinate("epilogue_staged", (0, 1), 2, "epilogue", "1: C leaves through shared memory"),
            Coordinate("epilogue_fixed", (0, 1) if workload.epilogue else (0,), 2, "epilogue", "1: compile-time list"),
            Coordinate("vector_c", widths["c"], 2, "copy_width", "bytes per global store of C"),
            Coordinate("min_blocks", (0, 1, 2, 3, 4), 2, "launch_bounds", "blocks per SM promised to the compiler"),
        )

    # ---- derived quantities

    def threads(self, columns: Columns) -> np.ndarray:
        """Threads per block, int32."""
        return 32 * (columns["block_m"] // columns["warp_m"]) * (columns["block_n"] // columns["warp_n"])

    def shared_bytes(self, columns: Columns, workload: Workload) -> np.ndarray:
        """Dynamic shared memory of a block: the tile ring, or the staged epilogue where that is larger."""
        e = shared.extents(workload)
        ring = columns["stages"] * columns["block_k"] * (columns["block_m"] + columns["block_n"]) * e.bytes_a
        staged = columns["epilogue_staged"] * columns["block_m"] * columns["block_n"] * e.bytes_acc
        return np.maximum(ring, staged)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        c = columns
        ok = (c["block_m"] % c["warp_m"] == 0) & (c["block_n"] % c["warp_n"] == 0)
        threads = self.threads(c)
        ok &= (threads <= arch.threads_per_block) & (c["warp_m"] * c["warp_n"] <= 8192)
        memory = self.shared_bytes(c, workload)
        ok &= memory <= arch.smem_per_block
        ok &= (c["copy"] == 1) | (c["stages"] == 2)
        ok &= (c["copy"] == 0) | ((c["vector_a"] >= 4) & (c["vector_b"] >= 4))
        e = shared.extents(workload)
        ok &= (c["split_k"] - 1) * c["block_k"] < e.k
        ok &= c["min_blocks"] * threads <= arch.threads_per_sm
        warps = np.maximum(threads, 32).astype(F) * F(1 / 32)
        wanted = np.minimum(self.registers(c, workload, arch), F(arch.regs_per_thread))
        return ok & (residency(warps, wanted, memory.astype(F), arch) >= np.maximum(c["min_blocks"], 1))

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        c = columns
        e = shared.extents(workload)
        like = np.ones_like(c["block_m"])
        bytes_per_stage = c["block_k"] * (c["block_m"] + c["block_n"]) * e.bytes_a
        asynchronous = "cp_async" in arch.features and min(workload.align["a"], workload.align["b"]) >= 4
        fit = np.clip(arch.smem_per_block // bytes_per_stage, 2, 3) if asynchronous else 2 * like
        tiles = _default_warp_tiles()[:, c["block_m"] // 16 - 1, c["block_n"] // 16 - 1]
        return {
            "stages": fit,
            "copy": like * int(asynchronous),
            "vector_a": like * 16,
            "vector_b": like * 16,
            "swizzle": like,
            "warp_m": tiles[0],
            "warp_n": tiles[1],
            "instruction": like * instructions(kind(workload) or "", arch)[0].code,
            "epilogue_staged": 0 * like,
            "epilogue_fixed": 0 * like,
            "vector_c": like * 16,
            "min_blocks": 0 * like,
        }

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        e = shared.extents(workload)
        warp_m, warp_n = real(columns, "warp_m", "warp_n")
        accumulators = warp_m * warp_n * F(1 / 32)
        fragments = (warp_m + warp_n) * F(e.bytes_a * 16 / 128)
        block = (columns["block_m"] + columns["block_n"]).astype(F) * columns["block_k"]
        staged = np.where(columns["copy"] == 0, block * F(e.bytes_a / 4) / np.maximum(self.threads(columns), 32), F(0))
        return accumulators + fragments + staged + F(40)

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        e = shared.extents(workload)
        block_m, block_n, block_k, split, raster, warp_m, warp_n, stages, vector_a, vector_b = real(
            columns,
            "block_m",
            "block_n",
            "block_k",
            "split_k",
            "raster",
            "warp_m",
            "warp_n",
            "stages",
            "vector_a",
            "vector_b",
        )
        g = shared.grid(block_m, block_n, block_k, split, e)
        warps = (block_m / warp_m) * (block_n / warp_n)
        threads = warps * F(32)
        shape = {i.code: i for i in instructions(kind(workload) or "", arch)}
        first = next(iter(shape.values()))
        registers = self.registers(columns, workload, arch)
        spilled = np.maximum(registers - F(arch.regs_per_thread), F(0)) * F(4)
        if facts is not None:
            registers = np.where(np.isnan(facts.registers), registers + facts.register_offset, facts.registers)
            spilled = np.where(np.isnan(facts.spill_bytes), spilled, facts.spill_bytes)
        memory = self.shared_bytes(columns, workload).astype(F)
        resident = np.maximum(residency(warps, registers, memory, arch), F(1))
        macs = warp_m * warp_n * block_k
        per_mma = F(first.m * first.n * first.k)
        rate = F(arch.rate(first.rate) / 4)
        mmas = macs / per_mma
        loads_a = warp_m * block_k * F(e.bytes_a / 128)
        loads_b = warp_n * block_k * F(e.bytes_b / 128)
        tile_a, tile_b = block_m * block_k * F(e.bytes_a), block_n * block_k * F(e.bytes_b)
        copies = (tile_a / vector_a + tile_b / vector_b) / threads
        per_copy = np.where(columns["copy"] == 1, F(3), F(5))
        issue = mmas + (loads_a + loads_b) * F(0.25) + copies * per_copy + F(24) + spilled * F(0.5)
        swizzled = columns["swizzle"] == 1
        degree_a = np.where(swizzled, F(1), self._degree(columns, workload, "a") * F(1 / 1))
        degree_b = np.where(swizzled, F(1), self._degree(columns, workload, "b") * F(1 / 1))
        fronts = warps * (loads_a * degree_a + loads_b * degree_b) + (tile_a + tile_b) * F(1 / 128)
        ksteps = block_k * F(1 / first.k)
        written, after = shared.reduction(split, e, arch)
        per_thread = block_m * block_n / threads
        return Terms(
            blocks=g.blocks,
            residents=resident,
            warps=warps,
            iterations=g.iterations,
            math=macs / rate,
            issue=issue,
            wavefronts=fronts,
            chain=F(60) + ksteps * F(4),
            l2_bytes=tile_a + tile_b,
            dram_bytes=shared.dram_bytes(g, block_m, block_n, raster, resident, e, arch),
            in_flight=np.where(columns["copy"] == 1, stages - F(1), F(1)),
            prologue=F(200) + F(0) * block_m,
            epilogue=F(200) + per_thread * F(6),
            epilogue_busy=per_thread * warps * F(2 / 4),
            epilogue_bytes=written,
            after=after,
            registers=registers,
            shared_bytes=memory,
        )

    def _degree(self, columns: Columns, workload: Workload, operand: str) -> np.ndarray:
        e = shared.extents(workload)
        if (operand == "a") == (workload.layouts["a"] == "m") and workload.layouts[operand] in ("m", "n"):
            axis, values = f"block_{'m' if operand == 'a' else 'n'}", BLOCKS
        else:
            axis, values = "block_k", tuple(b // e.bytes_a for b in (32, 64, 128, 256))
        degrees = conflict_degrees(e.bytes_a, values) / F(1)
        return np.take(degrees, np.searchsorted(np.array(values), columns[axis]))

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        return shared.class_constants(program, workload) | {
            "WARP_M": program["warp_m"],
            "WARP_N": program["warp_n"],
            "ASYNC": program["copy"],
            "SWIZZLE": program["swizzle"],
            "INSTRUCTION": program["instruction"],
        }

    def _columns(self, program: Program) -> dict[str, np.ndarray]:
        return {name: np.array([value], dtype=np.int32) for name, value in program.values}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        columns = self._columns(program)
        threads, memory = int(self.threads(columns)[0]), int(self.shared_bytes(columns, workload)[0])
        return shared.class_launches(program, workload, self.name, threads, memory)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        return shared.workspace(program, workload)

    def branches(self, program: Program) -> frozenset[str]:
        return shared.branches(program)

    def tile(self, program: Program) -> dict[str, int]:
        return shared.tile(program)

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        return shared.starters(self, workload, arch, ((128, 128), (64, 64), (128, 64), (64, 128), (16, 64), (32, 128)))


@lru_cache(maxsize=1)
def _default_warp_tiles() -> np.ndarray:
    """(2, 16, 16) int32: warp_m and warp_n of the default completion by block_m / 16 - 1 and block_n / 16 - 1.

    The largest preferred tile that divides the block into 4 to 16 warps; failing that, as near as it gets.
    """
    table = np.zeros((2, len(BLOCKS), len(BLOCKS)), dtype=np.int32)
    for i, m in enumerate(BLOCKS):
        for j, n in enumerate(BLOCKS):
            fits = [(wm, wn) for wm, wn in PREFERRED if m % wm == 0 and n % wn == 0]
            warps = [(m // wm) * (n // wn) for wm, wn in fits]
            good = [t for t, w in zip(fits, warps, strict=True) if 4 <= w <= 16]
            few = [t for t, w in zip(fits, warps, strict=True) if w < 4]
            table[:, i, j] = good[0] if good else few[-1] if few else fits[int(np.argmin(warps))]
    return table
