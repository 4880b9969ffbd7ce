"""contraction_mma: tensor cores through mma.sync, ldmatrix and cp.async (cuda/contraction_mma.cu).

Legality and shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import Terms
from . import contraction as shared
from . import mma_fragments as fragments
from .contraction import ContractionFamily, F, real
from .family import Columns, Coordinate, Facts, Launch
from .program import Program
from .traffic import Loop, assemble

if TYPE_CHECKING:
    from ..operators.workload import Workload

BLOCKS = tuple(range(16, 257, 16))
#: Bytes of k per main-loop step, rows of a shared tile where the operand is K-contiguous.
STEP_BYTES = (32, 64, 128, 256)
WARP_TILES_M = (16, 32, 48, 64, 80, 96, 128)
WARP_TILES_N = (8, 16, 24, 32, 40, 48, 64, 80, 96, 128)
#: Outputs of a warp (beyond, accumulators spill), copies of a thread per operand and step, and along one axis.
MOST_WARP_OUTPUTS = 5120
MOST_COPIES = 64
MOST_PREDICATES = 32
OUTPUTS = {"int8": ("int32", "int8", "float16", "bfloat16", "float32")}
FLOAT_OUTPUTS = ("float16", "bfloat16", "float32")


class ContractionMma(ContractionFamily):
    """Tensor-core matrix products."""

    name = "contraction_mma"
    abi = 1
    source = "contraction_mma.cu"
    names = tuple(
        [
            "level",
            "block_m",
            "block_n",
            "block_k",
            "split_k",
            "raster",
            "stages",
            "copy",
            "vector_a",
            "vector_b",
            "swizzle",
            "warp_m",
            "warp_n",
            "instruction",
            "epilogue_staged",
            "epilogue_fixed",
            "vector_c",
            "min_blocks",
        ]
    )
    starter_blocks = ((128, 128), (64, 64), (64, 128), (128, 64), (32, 64), (16, 64), (16, 128), (256, 128))

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """float16, bfloat16, int8 and TF32 products on parts that have the instruction."""
        if workload.operator != "matmul":
            return f"no tensor-core kernel for {workload.operator}"
        kind, out = fragments.kind(workload), workload.dtype["c"]
        if kind is None:
            return f"no tensor-core instruction for {workload.dtype['a']} with math {workload.math}"
        if not fragments.instructions(kind, arch):
            return f"{arch.name} has no {kind} tensor-core instruction"
        if out not in OUTPUTS.get(workload.dtype["a"], FLOAT_OUTPUTS):
            return f"no tensor-core kernel writes {out} from {workload.dtype['a']}"
        return None

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile, k step, ring of shared buffers and how they are filled, warp tile, instruction, epilogue."""
        element = shared.extents(workload).bytes_a
        codes = tuple(i.code for i in fragments.instructions(fragments.kind(workload) or "", arch))
        asynchronous = self._asynchronous(workload, arch)
        return (
            *shared.grid_coordinates(BLOCKS, BLOCKS, [b // element for b in STEP_BYTES]),
            Coordinate("stages", (2, 3, 4, 5, 6) if asynchronous else (2,), 1, "stages", "shared buffers"),
            Coordinate("copy", (0, 1) if asynchronous else (0,), 1, "layout", "1: cp.async, 0: through registers"),
            shared.vector_coordinate(workload, "a", 1),
            shared.vector_coordinate(workload, "b", 1),
            Coordinate("swizzle", (0, 1), 1, "layout", "1: shared rows permuted by 16-byte chunks"),
            Coordinate("warp_m", WARP_TILES_M, 2, "tile", "rows of C per warp"),
            Coordinate("warp_n", WARP_TILES_N, 2, "tile", "columns of C per warp"),
            Coordinate("instruction", codes, 2, "instruction", "INSTRUCTION macro: the mma shape"),
            *shared.epilogue_coordinates(workload),
        )

    @staticmethod
    def _asynchronous(workload: Workload, arch: Arch) -> bool:
        """cp.async moves 4 bytes or more."""
        return "cp_async" in arch.features and min(workload.align["a"], workload.align["b"]) >= 4

    # ---- derived quantities

    def threads(self, c: Columns) -> np.ndarray:
        """Threads per block, int32."""
        return 32 * (c["block_m"] // c["warp_m"]) * (c["block_n"] // c["warp_n"])

    def shared_bytes(self, c: Columns, workload: Workload, threads: np.ndarray) -> np.ndarray:
        """Dynamic shared memory of a block, int32: the ring, or the slabs of a staged epilogue."""
        element = shared.extents(workload).bytes_a
        ring = c["stages"] * c["block_k"] * (c["block_m"] + c["block_n"]) * element
        return np.maximum(ring, c["epilogue_staged"] * threads * c["warp_n"] * 2)

    def _copies(
        self, c: Columns, workload: Workload, operand: str, threads: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(LANES, PASSES, COLUMNS) of one operand as OperandTile computes them, int32."""
        element = shared.extents(workload).bytes_a
        extent = c["block_m" if operand == "a" else "block_n"]
        along_k = fragments.k_contiguous(workload, operand)
        rows, length = (extent, c["block_k"]) if along_k else (c["block_k"], extent)
        pieces = length * element // c[f"vector_{operand}"]
        both = pieces | threads
        lanes = np.maximum(both & -both, 1)
        lines = np.maximum(threads // lanes, 1)
        return lanes, (rows + lines - 1) // lines, pieces // lanes

    def legal(self, c: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """The rules of contraction_mma.cu, and at least one block per SM."""
        e = shared.extents(workload)
        down, across = c["block_m"] // c["warp_m"], c["block_n"] // c["warp_n"]
        threads = 32 * down * across
        ok = (down * c["warp_m"] == c["block_m"]) & (across * c["warp_n"] == c["block_n"])
        ok &= c["warp_m"] * c["warp_n"] <= MOST_WARP_OUTPUTS
        ok &= (c["copy"] == 1) | (c["stages"] == 2)
        ok &= (c["copy"] == 0) | (np.minimum(c["vector_a"], c["vector_b"]) >= 4)
        ok &= (c["warp_n"] * e.bytes_c % c["vector_c"] == 0) | (c["epilogue_staged"] == 0)
        for operand in ("a", "b"):
            _, passes, columns = self._copies(c, workload, operand, threads)
            along = passes if fragments.k_contiguous(workload, operand) else columns
            ok &= (passes * columns <= MOST_COPIES) & (along <= MOST_PREDICATES)
        return ok & shared.common_legal(c, workload, arch, threads, self.shared_bytes(c, workload, threads))

    def defaults(self, c: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Three stages of the widest copies where they fit, swizzled; the warp tile that reuses fragments best."""
        e = shared.extents(workload)
        like = np.ones_like(c["block_m"])
        stage = c["block_k"] * (c["block_m"] + c["block_n"]) * e.bytes_a
        asynchronous = self._asynchronous(workload, arch)
        tiles = fragments.default_warp_tiles(BLOCKS)[:, c["block_m"] // 16 - 1, c["block_n"] // 16 - 1]
        return {
            "stages": np.clip(arch.smem_per_block // stage, 2, 3) if asynchronous else 2 * like,
            "copy": like * int(asynchronous),
            "vector_a": 16 * like,
            "vector_b": 16 * like,
            "swizzle": like,
            "warp_m": tiles[0],
            "warp_n": tiles[1],
            "instruction": like * fragments.instructions(fragments.kind(workload) or "", arch)[0].code,
            "epilogue_staged": like,
            **shared.default_epilogue(like),
        }

    def registers(self, c: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Accumulators, the fragments of one or two k steps, pieces staged in registers, addresses."""
        threads = np.maximum(self.threads(c), 32)
        pieces = sum(
            (passes * columns).astype(F) * np.maximum(c[f"vector_{operand}"].astype(F) * F(0.25), F(1))
            for operand in ("a", "b")
            for _, passes, columns in (self._copies(c, workload, operand, threads),)
        )
        return self._register_estimate(c, pieces)

    @staticmethod
    def _register_estimate(c: Columns, staged: np.ndarray) -> np.ndarray:
        warp_m, warp_n = real(c, "warp_m", "warp_n")
        held = np.where(c["copy"] == 0, staged, F(0))
        return warp_m * warp_n * F(1 / 32) + (warp_m + warp_n) * F(1 / 4) + held + F(44)

    def terms(self, c: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """See machine.roofline.Terms."""
        e = shared.extents(workload)
        threads = self.threads(c)
        warps = threads.astype(F) * F(1 / 32)
        warp_m, warp_n, block_k = real(c, "warp_m", "warp_n", "block_k")
        steps = block_k * F(e.bytes_a / 32)
        math, latency, multiplies = fragments.multiply(c, workload, arch, warp_m * warp_n * steps, steps)
        issue, fronts, staged = multiplies + steps * F(2) + F(16), F(0), F(0)
        for operand, extent, step_fragments in (("a", "block_m", warp_m / F(16)), ("b", "block_n", warp_n / F(16))):
            reads, read_fronts = fragments.read(c, workload, operand, step_fragments * steps)
            copies, copy_fronts = self._copy_cost(c, workload, operand, threads, c[extent].astype(F) * block_k)
            issue = issue + reads + copies * np.where(c["copy"] == 1, F(2.5), F(3.5))
            fronts = fronts + warps * (read_fronts + copy_fronts)
            staged = staged + copies * np.maximum(c[f"vector_{operand}"].astype(F) * F(0.25), F(1))
        loop = Loop(
            warps=warps,
            math=math,
            issue=issue,
            wavefronts=fronts,
            chain=F(70) + np.maximum(latency - math, F(0)),
            in_flight=np.where(c["copy"] == 1, c["stages"].astype(F) - F(1), F(1)),
            registers=self._register_estimate(c, staged),
            memory=self.shared_bytes(c, workload, threads).astype(F),
            **self._stores(c, e, warp_m, warp_n, warps),
        )
        return assemble(c, e, arch, facts, loop)

    def _copy_cost(
        self, c: Columns, workload: Workload, operand: str, threads: np.ndarray, elements: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(copies of a thread, clocks of the load/store pipe per warp) to bring one operand's step."""
        lanes, passes, columns = self._copies(c, workload, operand, threads)
        copies = (passes * columns).astype(F)
        lines = np.maximum(F(32) / lanes, c[f"vector_{operand}"].astype(F) * F(32 / 128))
        # Writing shared memory, plus half of what scattered lines cost beyond that.
        return copies, copies * (lines + np.maximum(c[f"vector_{operand}"].astype(F) * F(0.25), F(1))) * F(0.5)

    @staticmethod
    def _stores(
        c: Columns, e: shared.Extents, warp_m: np.ndarray, warp_n: np.ndarray, warps: np.ndarray
    ) -> dict[str, np.ndarray]:
        """How outputs leave: staged through a slab per warp in 16 rows at a time, or pairs as they are."""
        staged = c["epilogue_staged"] == 1
        split = c["split_k"] > 1
        width_c = np.where(split, F(e.bytes_acc), F(e.bytes_c))
        wide = np.where(split, F(16), c["vector_c"].astype(F))
        width = np.where(staged, wide, np.minimum(wide, F(2) * width_c))
        lines = np.where(staged, np.maximum(width * F(32 / 128), width * F(32) / (warp_n * width_c)), F(8))
        # A slab is written and read once (8 bytes and 16 bytes per lane) and costs two warp barriers.
        rows = warp_m * F(1 / 16)
        staging = np.where(staged, rows * (F(60) + warps * warp_n * F(16 * 4 * 2 / 128)), F(0))
        return {"store_width": width, "store_lines": lines, "staging": staging}

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_mma.cu."""
        own = {name.upper(): program[name] for name in ("warp_m", "warp_n", "swizzle", "instruction")}
        return shared.class_constants(program, workload) | own | {"ASYNC": program["copy"]}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """The product, and for a split the reduction."""
        c = shared.columns_of(program)
        threads = self.threads(c)
        memory = self.shared_bytes(c, workload, threads)
        return shared.class_launches(program, workload, self.name, int(threads[0]), int(memory[0]))
