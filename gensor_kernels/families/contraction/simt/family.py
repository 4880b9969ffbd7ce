"""contraction_simt: multiply-adds on the CUDA cores, for every dtype and any strides
(contraction_simt.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction import base as shared
from gensor_kernels.families.contraction import column, stream_k
from gensor_kernels.families.contraction import complex as contraction_complex
from gensor_kernels.families.contraction import prologue as contraction_prologue
from gensor_kernels.families.contraction.base import ContractionFamily, class_constants, class_launches
from gensor_kernels.families.contraction.cost import (
    Loop,
    assemble,
    in_workspace,
    window_issue,
    window_registers,
)
from gensor_kernels.families.contraction.norm import tile_bytes
from gensor_kernels.families.contraction.problem import (
    MASKED,
    Extents,
    bytes_in_memory,
    entries,
    extents,
    is_transposed,
    masked_coordinate,
    matrices,
    power_of_two_in,
)
from gensor_kernels.families.core.family import PRODUCTS, Columns, Coordinate, Facts, Launch
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from gensor_kernels.operators.types.workload import Workload

from . import column as simt
from . import cost, rules
from .cost import BLOCKS, LANES, THREAD_TILES, VTHREADS, load_clocks

#: Instructions that a mask saves of a piece that passes through registers: of the SASS of four Programs.
SAVED = 4.2
_WARPS = 33


@lru_cache(maxsize=1)
def _common_divisors() -> np.ndarray:
    """gcd(pieces, 32 x warps), flat: [pieces up to 256] x [warps up to 32], float32."""
    return np.gcd(np.arange(257)[:, None], 32 * np.arange(_WARPS)[None]).astype(np.float32).ravel()


@lru_cache(maxsize=8)
def default_thread_tiles(held: int, word: int, most: int) -> np.ndarray:
    """Return (5, blocks, blocks) int32: thread_m, thread_n, vthread_m, vthread_n, lanes_m by block indices.

    ``held`` are the bytes a thread sums an output in, ``word`` the bytes of a word in shared memory, ``most`` the
    bytes of all sums of a thread.

    The largest, squarest thread tile that makes whole warps, 4 to 8 of them where the block has that many;
    where no thread tile makes a warp (1 x 16) the entry is illegal and `legal` says so.
    """
    blocks, tiles, lanes = np.array(BLOCKS), np.array(THREAD_TILES), np.array(LANES)
    wide = max(1, 16 // word)
    groups = np.array([max([v for v in VTHREADS if t % v == 0 and (v == 1 or t // v >= wide)]) for t in THREAD_TILES])
    # Every array below is [m, n, thread_m, thread_n].
    down, across = (blocks[:, None] // tiles)[:, None, :, None], (blocks[:, None] // tiles)[:, None, :]
    tm, tn = tiles[:, None], tiles
    words = np.full((len(blocks), len(blocks), len(tiles), len(tiles)), np.inf)
    best = np.ones_like(words, dtype=np.int32)
    for x in lanes:
        fewer = (down % x == 0) & (across % (32 // x) == 0) & (x * tm + 32 // x * tn < words)
        words, best = np.where(fewer, x * tm + 32 // x * tn, words), np.where(fewer, x, best)
    threads = down * across
    whole = (blocks[:, None] % tiles == 0)[:, None, :, None] & (blocks[:, None] % tiles == 0)[:, None, :]
    # Fewest words read per multiply-add, but four to eight warps.
    cost = (1 / tm + 1 / tn) * (1 + np.maximum(0, 128 - threads) / 64 + np.maximum(0, threads - 256) / 256)
    cost[~whole | np.isinf(words) | (threads > 1024) | (tm * tn * held > most)] = np.inf
    flat = cost.reshape(*cost.shape[:2], -1)
    first = flat.argmin(axis=2)
    rows, columns = first // len(tiles), first % len(tiles)
    lanes_m = np.take_along_axis(best.reshape(flat.shape), first[..., None], axis=2)[..., 0]
    table = np.array([tiles[rows], tiles[columns], groups[rows], groups[columns], lanes_m], np.int32)
    return np.where(np.isfinite(flat.min(axis=2)), table, np.int32(1))


class ContractionSimt(ContractionFamily):
    """Matrix products on the CUDA cores, with virtual threads."""

    abi = 8
    source = "contraction_simt.cu"
    parts = staticmethod(cost.parts)
    rules = rules.RULES
    names = (
        *shared.GRID_NAMES,
        *("stages", "vector_a", "vector_b", "pad", "form"),
        *("thread_m", "thread_n", "vthread_m", "vthread_n", "lanes_m"),
        *shared.EPILOGUE_NAMES,
        *(contraction_prologue.NAME, MASKED, stream_k.NAME),
    )
    always = ("form",)
    starter_blocks = ((128, 128), (64, 64), (64, 128), (128, 64), (32, 32), (8, 128), (128, 8), (16, 64))
    needs = (PRODUCTS,)
    alignment_bounds_widths = True

    def __init__(self, name: str = "contraction_simt") -> None:
        """Make the main loop of the kernel ``name``."""
        self.name = name

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Every matmul: any dtype, any strides."""
        e = extents(workload)
        if e.scaled:
            return "scales of quantised weights need tensor cores"
        out = e.dtype["c"]
        return f"no kernel writes {out}" if out in EIGHT_BIT_FLOATS else None

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile and k step, shared tiles, thread tile (in groups: virtual threads), epilogue."""
        e = extents(workload)
        return (
            *shared.grid_coordinates(e, cost.BLOCKS, cost.BLOCKS, cost.STEPS),
            Coordinate("stages", (1, 2), 1, "stages", "shared buffers"),
            shared.vector_coordinate(e, "a", 1),
            shared.vector_coordinate(e, "b", 1),
            Coordinate("pad", (0, 1), 1, "layout", "transposed tiles: 1 padded rows, 0 swizzled columns"),
            contraction_complex.form(workload),
            Coordinate("thread_m", cost.THREAD_TILES, 2, "tile", "rows of C per thread"),
            Coordinate("thread_n", cost.THREAD_TILES, 2, "tile", "columns of C per thread"),
            Coordinate("vthread_m", cost.VTHREADS, 2, "vthread", "strided groups of a thread's rows"),
            Coordinate("vthread_n", cost.VTHREADS, 2, "vthread", "strided groups of a thread's columns"),
            Coordinate("lanes_m", cost.LANES, 2, "layout", "threads of a warp along M"),
            *shared.epilogue_coordinates(e),
            *((contraction_prologue.coordinate(e),) if e.prologue else ()),
            *masked_coordinate(e, workload.size),
            *stream_k.coordinate(e),
        )

    def starts(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """For complex types, start from Programs whose threads find registers: wide sums spill easily."""
        if not extents(workload).is_complex:
            return super().starts(columns, workload, arch)
        threads = columns[column.DOWN] * columns[column.ACROSS]
        return self.registers(columns, workload, arch) * threads <= arch.regs_per_sm

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        e = extents(workload)
        warps = columns[column.DOWN] * columns[column.ACROSS] * (1 / 32)
        loads = {f"{x.upper()}_LOADS": np.multiply(*self._loads(columns, e, x, warps)) for x in "ab"}
        return {"WARPS": warps, "SHARED_BYTES": self._memory(columns, e), **loads}

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Choose the widest loads that divide the tile, two buffers, the squarest thread tile with enough warps."""
        e = extents(workload)
        c = columns
        like = np.ones_like(c["block_m"])
        m, n = np.searchsorted(cost.BLOCKS, c["block_m"]), np.searchsorted(cost.BLOCKS, c["block_n"])
        form = c["form"]
        tiles = np.zeros((5, len(like)), dtype=np.int32)
        for each in np.unique(form):
            held, word = (
                int(f(each, e.bytes_acc)) for f in (contraction_complex.sum_bytes, contraction_complex.word_bytes)
            )
            most = 256 if not e.is_complex else 512 if e.bytes_acc == 8 else 384
            table = default_thread_tiles(held * e.matrices, word, most)
            tiles[:, form == each] = table[:, m, n][:, form == each]
        widths = {}
        for operand, extent in (("a", c["block_m"]), ("b", c["block_n"])):
            inner = (c["block_k"] if is_transposed(e, operand) else extent) * bytes_in_memory(e, operand)
            widths[f"vector_{operand}"] = np.minimum(power_of_two_in(inner), 16)
        return {
            "stages": 2 * like,
            **widths,
            "pad": 0 * like,
            "form": contraction_complex.PLAIN * like,
            **dict(zip(("thread_m", "thread_n", "vthread_m", "vthread_n", "lanes_m"), tiles, strict=True)),
            "epilogue_staged": 0 * like,
            **shared.default_epilogue(like) | {"min_blocks": stream_k.least_blocks(c, arch) * like},
            contraction_prologue.NAME: 0 * like,
            MASKED: like,
        }

    # ---- numbers that depend on too many coordinates to be tabulated

    @staticmethod
    def _loads(c: Columns, e: Extents, operand: str, warps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (INNER_LOADS, OUTER_LOADS) of an operand's TileShape: their product is a thread's loads of a step."""
        per_line = c[simt.PER_LINE[operand]]
        if is_transposed(e, operand):
            lanes = c[simt.LOAD_LANES[operand]]
        else:
            place = per_line * _WARPS + np.minimum(warps, _WARPS - 1)
            lanes = np.maximum(_common_divisors().take(place.astype(np.intp), mode="clip"), 1.0)
        return per_line / lanes, np.ceil(c[simt.LINES[operand]] * lanes / (warps * 32.0))

    @staticmethod
    def _memory(c: Columns, e: Extents) -> np.ndarray:
        """Return the dynamic shared bytes of a block: the buffers, two slabs of a staged epilogue, or a tile of whole
        rows."""
        slab = c[simt.ROW_WORDS] * c[column.DOWN] * c[simt.EXTENT["n"]]
        memory = np.maximum(c[column.RING], np.ceil(slab * (1 / 128)) * 256.0 * c[simt.STAGED])
        return np.maximum(memory, c[column.TILE]) if e.norm else memory

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Accumulators, two fragments of each operand, the loads of a step under way, addresses."""
        c, e = columns, extents(workload)
        warps = np.maximum(c[column.DOWN] * c[column.ACROSS] * (1 / 32), 1.0)
        registers = c[column.BASE_REGISTERS] + stream_k.registers(c)
        for operand in ("a", "b"):
            registers = registers + self._held(c, e, operand, *self._loads(c, e, operand, warps))
        return registers

    @staticmethod
    def _held(c: Columns, e: Extents, operand: str, inner: np.ndarray, outer: np.ndarray) -> np.ndarray:
        """Return the registers of an operand's loads under way, and of their addresses."""
        held = inner * outer * c[simt.LOAD_WORDS[operand]] * matrices(e, operand)
        if operand == e.prepared:
            held = held + contraction_prologue.registers(c, e, *entries(e, operand, outer, inner))
        if operand != e.window:
            return held
        return held + window_registers(*entries(e, operand, outer, inner), c[MASKED])

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c, e = columns, extents(workload)
        terms = assemble(c, e, arch, facts, lambda: self._loop(c, e, workload.size))
        return stream_k.with_streams(terms, c, e, arch, c[column.OUTPUTS] * terms.warps)

    def _loop(self, c: Columns, e: Extents, z: Mapping[str, int]) -> Loop:
        """Return the cost of an iteration, and of the end of a block."""
        warps = c[column.DOWN] * c[column.ACROSS] * (1 / 32)
        issue = c[column.STEP_ISSUE] + (c[column.READ_ISSUE["a"]] + c[column.READ_ISSUE["b"]]) * c[simt.STEPS]
        clocks = (c[column.READ_CLOCKS["a"]] + c[column.READ_CLOCKS["b"]]) * c[simt.STEPS]
        registers = c[column.BASE_REGISTERS] + stream_k.registers(c)
        for operand in ("a", "b"):
            inner, outer = self._loads(c, e, operand, warps)
            loads = inner * outer * matrices(e, operand)
            issue = issue + loads * c[simt.LOAD_ISSUE[operand]]
            clocks = clocks + loads * load_clocks(c, e, z, operand)
            registers = registers + self._held(c, e, operand, inner, outer)
            if operand == e.window:
                issue = issue + window_issue(*entries(e, operand, outer, inner), c[MASKED], SAVED)
            if operand == e.prepared:
                issue = issue + contraction_prologue.issue(c, e, *entries(e, operand, outer, inner))
        # A slab is written and read once, in words, with a barrier on either side.
        moved = warps * c[column.OUTPUTS] * c[simt.SLAB_WORDS] * (e.bytes_acc * 2 / 128)
        return Loop(
            warps=warps,
            math=c[column.MATH],
            multiplies=c[column.MULTIPLIES],
            issue=issue,
            wavefronts=clocks * warps,
            chain=c[column.CHAIN],
            in_flight=1.0,
            exposed=c[column.EXPOSED],
            registers=registers,
            memory=self._memory(c, e),
            outputs=c[column.OUTPUTS],
            touched=c[simt.STEPS] * 0.5,
            staging=moved
            + c[simt.ROW_ROUNDS] * c[simt.STAGED] * 50.0
            + (c[column.ROW_CLOCKS] / warps if e.norm else 0.0),
        )

    # ---- one Program

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Multiply-adds of a thread's outputs; addresses use IMAD too, so int8 counts are a little high."""
        count = program["thread_m"] * program["thread_n"] * program["block_k"] * program["form"]
        count *= extents(workload).matrices
        opcode = {"fma_f32": "FFMA", "fma_f64": "DFMA"}.get(contraction_complex.RATES[workload.accumulator], "IMAD")
        return frozenset({opcode}), count

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_simt.cu."""
        names = ("thread_m", "thread_n", "vthread_m", "vthread_n", "lanes_m", "pad")
        own = contraction_complex.constants(program, extents(workload))
        own |= {"MASKED": 1} if program.get(MASKED) else {}
        return class_constants(program, workload) | own | {name.upper(): program[name] for name in names}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the product, and for a split the reduction."""
        p, e = program.by_name, extents(workload)
        down, across = p["block_m"] // p["thread_m"], p["block_n"] // p["thread_n"]
        memory = int(cost.ring_bytes(p, e))
        if e.norm:
            memory = max(memory, int(tile_bytes(p, e)))
        if p["epilogue_staged"] == 1 and not in_workspace(program, e):
            word = e.bytes_acc
            slab = int(cost.store_rows(p["thread_m"], p["thread_n"], word)) * down * p["block_n"] * word
            memory = max(memory, (slab + 127) // 128 * 256)
        return class_launches(program, workload, self.name, down * across, memory)

    # ---- verification

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of contractions, and of unchanged outputs, which leave registers as they are."""
        e = extents(workload)
        direct = program["epilogue_staged"] == 0 and not (e.norm or in_workspace(program, e))
        compiled = program["epilogue_fixed"] and workload.epilogue
        return super().branches(program, workload) | ({"unchanged"} if direct and not compiled else set())
