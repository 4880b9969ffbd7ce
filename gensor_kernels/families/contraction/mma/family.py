"""contraction_mma: tensor cores through mma.sync, ldmatrix and cp.async (contraction_mma.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction import base as shared
from gensor_kernels.families.contraction import column, stream_k
from gensor_kernels.families.contraction import complex as contraction_complex
from gensor_kernels.families.contraction import prologue as contraction_prologue
from gensor_kernels.families.contraction.base import ContractionFamily, class_constants, class_launches, plain_branches
from gensor_kernels.families.contraction.cost import Loop, assemble, register_limit
from gensor_kernels.families.contraction.norm import tile_bytes
from gensor_kernels.families.contraction.problem import MASKED, by_fragment, extents, masked_coordinate
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import PRODUCTS, Columns, Coordinate, Facts, Launch, Need
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.workload import Workload

from . import cost, rules
from . import split_float as mma_split_float
from .cost import BLOCKS
from .instructions import INSTRUCTIONS, SHORT_SUM, Code, Instruction, default_instruction, instructions, kind

OUTPUTS = {"int8": ("int32", "int8", "float16", "bfloat16", "float32"), "float64": ("float64",)}
OUTPUTS["complex128"] = ("complex128",)
FLOAT_OUTPUTS = ("float16", "bfloat16", "float32")


#: Warp tiles the default completion tries: fewest shared bytes per multiply-add first.
PREFERRED = (
    *((64, 64), (64, 48), (48, 64), (64, 32), (32, 64), (48, 48), (48, 32), (32, 48), (32, 32)),
    *((64, 16), (16, 64), (48, 16), (16, 48), (32, 16), (16, 32), (16, 16)),
)


@lru_cache(maxsize=8)
def default_warp_tiles(matrices: int = 1) -> np.ndarray:
    """Return (2, 16, 16) int32: warp_m and warp_n of the default completion by block_m / 16 - 1, block_n / 16 - 1.

    The first preferred tile that divides the block into 4 to 16 warps; in smaller blocks, the most warps. A warp sums
    products with ``matrices`` B's.
    """
    table = np.zeros((2, len(BLOCKS), len(BLOCKS)), dtype=np.int32)
    for i, m in enumerate(BLOCKS):
        for j, n in enumerate(BLOCKS):
            tiles = [(wm, wn) for wm, wn in PREFERRED if m % wm == n % wn == 0 and wm * wn * matrices <= 4096]
            warps = [(m // wm) * (n // wn) for wm, wn in tiles]
            good = [tile for tile, count in zip(tiles, warps, strict=True) if 4 <= count <= 16]
            small = [tile for tile, count in zip(tiles, warps, strict=True) if count < 4]
            fewest = tiles[int(np.argmin(warps))]
            table[:, i, j] = good[0] if good else small[-1] if small else fewest
    return table


def warp_tiles(m: np.ndarray, n: np.ndarray, held: np.ndarray) -> np.ndarray:
    """(2, points) int32: warp_m and warp_n for blocks of ``m`` rows and ``n`` columns, of ``held`` words an output."""
    tiles = np.zeros((2, len(m)), dtype=np.int32)
    for each in np.unique(held):
        tiles[:, held == each] = default_warp_tiles(int(each))[:, m // 16 - 1, n // 16 - 1][:, held == each]
    return tiles


class ContractionMma(ContractionFamily):
    """Tensor-core matrix products."""

    abi = 7
    source = "contraction_mma.cu"
    parts = staticmethod(cost.parts)
    rules = rules.RULES
    names = (
        *shared.GRID_NAMES,
        *("stages", "copy", "vector_a", "vector_b", "swizzle"),
        *("warp_m", "warp_n", "instruction"),
        *shared.EPILOGUE_NAMES,
        *(contraction_prologue.NAME, MASKED, stream_k.NAME, contraction_complex.NAME),
    )
    starter_blocks = ((128, 128), (64, 64), (64, 128), (128, 64), (32, 64), (16, 64), (16, 128), (256, 128))
    needs: tuple[Need, ...] = (PRODUCTS,)
    #: whether weights are in block-scaled formats (../blocks)
    scales_blocks = False
    alignment_bounds_widths = True

    def __init__(
        self,
        name: str = "contraction_mma",
        *,
        streams: bool = True,
        stream_registers: float = stream_k.STREAM_REGISTERS,
    ) -> None:
        """Make the main loop of the kernel ``name``.

        ``streams``: stream-K is among the choices, at the cost of ``stream_registers`` per thread.
        """
        self.name, self.streams, self.stream_registers = name, streams, stream_registers

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """float16, bfloat16, int8 and TF32 products on parts that have the instruction, float32 where it pays."""
        e = extents(workload)
        name, out = kind(workload), e.dtype["c"]
        if e.is_formatted and not self.scales_blocks:
            return "block-scaled weights have their own main loop"
        if e.in_blocks and not self.scales_blocks:
            return "scales of both operands need products of 8-bit floats as they are stored"
        if name is None:
            return f"no tensor-core instruction for {e.multiplied} with math {workload.math}"
        if not self.instructions(workload, arch):
            return f"{arch.name} has no {name} tensor-core instruction, or none that is faster"
        written = OUTPUTS.get(e.multiplied, FLOAT_OUTPUTS)
        if out not in written:
            return f"no tensor-core kernel writes {out} from {e.multiplied}: ask for {' or '.join(written)}"
        return mma_split_float.refusal(e) if name == mma_split_float.KIND else None

    def instructions(self, workload: Workload, arch: Arch) -> tuple[Instruction, ...]:
        """Return the instructions of this main loop, in the order of their codes; contraction_blocks has the others."""
        name = kind(workload)
        own = instructions(name, arch) if name else ()
        if extents(workload).is_formatted:
            return own
        return tuple(i for i in own if (i.code == Code.BLOCK_SCALED) == self.scales_blocks)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile, k step, ring of shared buffers and how they are filled, warp tile, instruction, epilogue."""
        e = extents(workload)
        steps = [int(b // min(e.bytes_a, e.bytes_b)) << e.is_complex for b in cost.STEP_BYTES]
        codes = tuple(int(i.code) for i in self.instructions(workload, arch))
        asynchronous = self._asynchronous(workload, arch)
        return (
            *shared.grid_coordinates(e, cost.BLOCKS, cost.BLOCKS, steps),
            Coordinate("stages", (2, 3, 4, 5, 6) if asynchronous else (2,), 1, "stages", "shared buffers"),
            Coordinate("copy", (0, 1) if asynchronous else (0,), 1, "layout", "1: cp.async, 0: through registers"),
            shared.vector_coordinate(e, "a", 1),
            shared.vector_coordinate(e, "b", 1),
            Coordinate("swizzle", (0, 1), 1, "layout", "1: shared rows permuted by 16-byte chunks"),
            Coordinate("warp_m", cost.WARP_TILES_M, 2, "tile", "rows of C per warp"),
            Coordinate("warp_n", cost.WARP_TILES_N, 2, "tile", "columns of C per warp"),
            Coordinate("instruction", codes, 2, "instruction", "INSTRUCTION macro: the mma shape"),
            *shared.epilogue_coordinates(e),
            *((contraction_prologue.coordinate(e),) if e.prologue else ()),
            *masked_coordinate(e, workload.size),
            *(stream_k.coordinate(e) if self.streams else ()),
            *((contraction_complex.form(workload),) if e.is_complex else ()),
        )

    @staticmethod
    def _asynchronous(workload: Workload, arch: Arch) -> bool:
        """cp.async moves 4 bytes or more, as they are."""
        e = extents(workload)
        if e.prologue and e.window:
            return False
        return "cp_async" in arch.features and min(e.align["a"], e.align["b"]) >= 4 and by_fragment(e)

    def starts(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """For complex types, start from Programs whose threads find registers: blocks of many warps spill them."""
        if not extents(workload).is_complex:
            return super().starts(columns, workload, arch)
        held = self.registers(columns, workload, arch) * columns[column.DOWN] * columns[column.ACROSS] * 32
        return held <= arch.regs_per_sm

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        warps = columns[column.DOWN] * columns[column.ACROSS]
        found = {
            "WARPS": warps,
            "SHARED_BYTES": self._memory(columns, warps, workload),
            "REGISTERS": register_limit(columns, warps, arch),
        }
        for operand in "ab":
            _, passes, pieces = cost.thread_copies(columns, operand, warps)
            whole = {"PASSES": passes, "COLUMNS": pieces, "PIECES_PER_THREAD": passes * pieces}
            found |= {f"{operand.upper()}_{name}": value for name, value in whole.items()}
        return found

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Three stages of the widest copies where they fit, swizzled; the warp tile that reuses fragments best."""
        m, n, e = columns["block_m"], columns["block_n"], extents(workload)
        like = np.ones_like(m)
        asynchronous = self._asynchronous(workload, arch)
        one = {"stages": 1, "copy": int(asynchronous), "block_k": columns["block_k"], "block_m": m, "block_n": n}
        stage = cost.ring_bytes(one, e)
        # The parts of floats take registers of accumulators, accumulators of doubles twice as many.
        in_parts = kind(workload) == mma_split_float.KIND
        instruction = default_instruction(columns["block_k"], workload, self.instructions(workload, arch))
        held = contraction_complex.sum_words(columns, 2 if in_parts else e.matrices * cost.words(e))
        tiles = warp_tiles(m, n, held * np.where((instruction == Code.F8_K32) | e.in_blocks, 2, 1))
        promised = np.maximum(like * int(in_parts or self.scales_blocks), stream_k.least_blocks(columns, arch))
        return {
            "stages": np.clip(arch.smem_per_block // stage, 2, 3) if asynchronous else 2 * like,
            "copy": like * int(asynchronous),
            "vector_a": 16 * like,
            "vector_b": 16 * like,
            "swizzle": like,
            "warp_m": tiles[0],
            "warp_n": tiles[1],
            "instruction": instruction,
            "epilogue_staged": like,
            **shared.default_epilogue(like) | {"min_blocks": promised},
            contraction_prologue.NAME: like * int(asynchronous),
            MASKED: like,
            contraction_complex.NAME: contraction_complex.PLAIN * like,
        }

    def _memory(self, c: Columns, warps: np.ndarray, workload: Workload) -> np.ndarray:
        """Return a block's dynamic shared bytes: the ring, the slabs of a staged epilogue, or a tile of whole rows."""
        memory = np.maximum(c[column.RING] + stream_k.place_bytes(c), c[column.SLAB] * warps)
        return np.maximum(memory, c[column.TILE]) if extents(workload).norm else memory

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """See cost."""
        return cost.registers(columns, workload, arch, self._of_stream(workload))

    def _of_stream(self, workload: Workload) -> float:
        """Return the registers that a stream takes."""
        return self.stream_registers if cost.words(extents(workload)) == 1 else stream_k.DOUBLE_STREAM_REGISTERS

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c, e = columns, extents(workload)

        def loop() -> Loop:
            memory = self._memory(c, c[column.DOWN] * c[column.ACROSS], workload)
            return cost.loop(c, workload, arch, memory, self._of_stream(workload))

        terms = assemble(c, e, arch, facts, loop)
        return stream_k.with_streams(terms, c, e, arch, c[column.OUTPUTS] * terms.warps)

    # ---- one Program

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the cases of every contraction, and sums that have to be formed again (see with_own_cases)."""
        found = self.with_own_cases(super().cases(program, workload, epilogue), program)
        return [replace(case, workload=self.summed_by(program, case.workload)) for case in found]

    def summed_by(self, program: Program, workload: Workload) -> Workload:
        """8-bit floats that are not widened have another type of sums (operators/tolerance/base.py)."""
        return replace(workload, accumulator=SHORT_SUM) if program["instruction"] == Code.F8_K32 else workload

    def with_own_cases(self, found: list[Case], program: Program) -> list[Case]:
        """Add inputs whose sums overflow in bfloat16 parts and have to be formed again."""
        return mma_split_float.with_lost_sums(found) if program["instruction"] == Code.F32_PARTS else found

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of contractions, of sums that are formed again, and of unchanged outputs."""
        own = frozenset({mma_split_float.AGAIN} if program["instruction"] == Code.F32_PARTS else ())
        return super().branches(program, workload) | own | plain_branches(program, workload, program["warp_n"])

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with the widest accesses, staged and swizzled.

        The direct epilogue stores two outputs at a time, whatever vector_c says, and shared rows that are not swizzled
        are read with bank conflicts.
        """
        staged = max(1, program["epilogue_staged"])
        return super().widest(program, workload).replace(epilogue_staged=staged, swizzle=1)

    def shared(self, program: Program) -> Program:
        """Parts of floats and block scales keep a promise of one block: left alone, the compiler aims at three and
        spills for them."""
        found, kept = super().shared(program), program["instruction"] == Code.F32_PARTS or self.scales_blocks
        return found.replace(min_blocks=max(found["min_blocks"], int(kept)))

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Matrix instructions: a warp tile in units of 16 x 8 x 32 bytes."""
        choices = INSTRUCTIONS[kind(workload) or ""]
        needed = next(each.needed for each in choices if each.code == program["instruction"])
        e, columns = extents(workload), program["warp_n"] + 8 * (extents(workload).scaled == 2)
        real = e.element * contraction_complex.products(program) // (2 if e.is_complex else 1)
        units = program["warp_m"] * columns * program["block_k"] * real // (16 * 8 * 32)
        return frozenset({"HMMA", "IMMA", "DMMA", "QMMA", "OMMA"}), int(units * needed) * e.matrices

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_mma.cu."""
        own = {name.upper(): program[name] for name in ("warp_m", "warp_n", "swizzle", "instruction")}
        masked = {"MASKED": 1} if program.get(MASKED) else {}
        own |= {"ASYNC": program["copy"]}
        return (
            class_constants(program, workload)
            | own
            | masked
            | contraction_complex.constants(program, extents(workload))
        )

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the product, and for a split the reduction."""
        p, e = program.by_name, extents(workload)
        warps = (p["block_m"] // p["warp_m"]) * (p["block_n"] // p["warp_n"])
        ring = cost.ring_bytes(p, e) + stream_k.place_bytes(p)
        memory = int(max(ring, cost.slab_bytes(p, e) * warps))
        memory = max(memory, int(tile_bytes(p, e))) if e.norm else memory
        return class_launches(program, workload, self.name, 32 * warps, memory)
