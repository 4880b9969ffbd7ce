"""contraction_simt: multiply-adds on the CUDA cores, for every dtype and any strides (cuda/contraction_simt.cu)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..machine.arch import Arch
from ..machine.roofline import Terms
from . import contraction as shared
from .banks import wavefronts
from .contraction import ContractionFamily, F, real
from .family import Columns, Coordinate, Facts, Launch
from .program import Program
from .traffic import Loop, assemble

if TYPE_CHECKING:
    from ..operators.workload import Workload

BLOCKS = (1, 2, 4, 8, *range(16, 257, 16))
STEPS = (4, 8, 16, 32, 64)
THREAD_TILES = (1, 2, 4, 6, 8, 12, 16)
VTHREADS = (1, 2, 4, 8)
LANES = (1, 2, 4, 8, 16, 32)
#: Bytes of accumulators a thread may hold, and global loads per thread, operand and step (contraction_simt.cu).
ACCUMULATOR_BYTES = 768
MOST_LOADS = 32


@lru_cache(maxsize=8)
def fragment_wavefronts(word: int) -> np.ndarray:
    """Clocks to read one k of a fragment group, [adjacent entries, distinct lanes], float32 (17, 33).

    Along M, lanes that share a row share addresses and lie next to each other (axis 0 of the result's last
    dimension); along N they repeat.  Shape (2, 17, 33): [along M or N, entries, distinct lanes].
    """
    table = np.zeros((2, 17, 33), dtype=F)
    lane = np.arange(32)
    for group in range(1, 17):
        words = min(group & -group, max(1, 16 // word))
        for distinct in LANES:
            for axis, place in enumerate((lane // (32 // distinct), lane % distinct)):
                reads = [wavefronts((place * group + e) * word, words * word) for e in range(0, group, words)]
                table[axis, group, distinct] = sum(reads)
    return table


@lru_cache(maxsize=1)
def _common_divisors() -> np.ndarray:
    """gcd(entries, 32 x warps) by [entries up to 256, warps up to 32], int32."""
    return np.gcd(np.arange(257)[:, None], 32 * np.arange(33)[None]).astype(np.int32)


class ContractionSimt(ContractionFamily):
    """Matrix products on the CUDA cores, with virtual threads."""

    name = "contraction_simt"
    abi = 1
    source = "contraction_simt.cu"
    names = tuple(
        [
            "level",
            "block_m",
            "block_n",
            "block_k",
            "split_k",
            "raster",
            "stages",
            "vector_a",
            "vector_b",
            "pad",
            "thread_m",
            "thread_n",
            "vthread_m",
            "vthread_n",
            "lanes_m",
            "epilogue_staged",
            "epilogue_fixed",
            "vector_c",
            "min_blocks",
        ]
    )
    starter_blocks = ((128, 128), (64, 64), (64, 128), (128, 64), (32, 32), (8, 128), (128, 8), (16, 64))

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Every matmul: any dtype, any strides."""
        return None if workload.operator == "matmul" else f"no CUDA-core kernel for {workload.operator}"

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile and k step, shared tiles, thread tile (in groups: virtual threads), epilogue."""
        return (
            *shared.grid_coordinates(BLOCKS, BLOCKS, STEPS),
            Coordinate("stages", (1, 2), 1, "stages", "shared buffers"),
            shared.vector_coordinate(workload, "a", 1),
            shared.vector_coordinate(workload, "b", 1),
            Coordinate("pad", (0, 1), 1, "layout", "transposed tiles: 1 padded rows, 0 swizzled columns"),
            Coordinate("thread_m", THREAD_TILES, 2, "tile", "rows of C per thread"),
            Coordinate("thread_n", THREAD_TILES, 2, "tile", "columns of C per thread"),
            Coordinate("vthread_m", VTHREADS, 2, "vthread", "strided groups of a thread's rows"),
            Coordinate("vthread_n", VTHREADS, 2, "vthread", "strided groups of a thread's columns"),
            Coordinate("lanes_m", LANES, 2, "layout", "threads of a warp along M"),
            *shared.epilogue_coordinates(workload),
        )

    # ---- derived quantities

    def threads(self, c: Columns) -> np.ndarray:
        """Threads per block, int32."""
        return (c["block_m"] // c["thread_m"]) * (c["block_n"] // c["thread_n"])

    @staticmethod
    def _transposed(workload: Workload, operand: str) -> bool:
        """Whether an operand lies contiguous along k (or without a unit stride): transposed on its way in."""
        return workload.layouts[operand] in ("k", "s")

    def _loads(
        self, c: Columns, workload: Workload, operand: str, threads: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(whether vectors fit, LANES, LOADS) of one operand as TileShape computes them."""
        extent = c["block_m" if operand == "a" else "block_n"]
        vector = c[f"vector_{operand}"]
        elements = vector // shared.extents(workload).bytes_a
        if self._transposed(workload, operand):
            inner, outer = c["block_k"], extent
            per_line = inner // elements
            lanes = np.minimum(per_line & -per_line, np.clip(32 // vector, 1, 8))
        else:
            inner, outer = extent, c["block_k"]
            per_line = inner // elements
            lanes = _common_divisors()[per_line, np.minimum(threads >> 5, 32)]
        lanes = np.maximum(lanes, 1)
        lines = np.maximum(threads // lanes, 1)
        return per_line * elements == inner, lanes, per_line // lanes * ((outer + lines - 1) // lines)

    def shared_bytes(self, c: Columns, workload: Workload) -> np.ndarray:
        """Dynamic shared memory of a block, int32: the buffers, or the slabs of a staged epilogue."""
        word = shared.extents(workload).bytes_acc
        tiles = 0
        for operand, extent in (("a", c["block_m"]), ("b", c["block_n"])):
            row = extent + 4 * c["pad"] if self._transposed(workload, operand) else extent
            tiles = tiles + ((c["block_k"] * row * word + 127) & -128)
        staged = (c["epilogue_staged"] == 1) & (c["split_k"] == 1)
        slab = self._store_rows(c, word) * (c["block_m"] // c["thread_m"]) * c["block_n"] * word
        return np.maximum(c["stages"] * tiles, np.where(staged, 2 * ((slab + 127) & -128), 0))

    @staticmethod
    def _store_rows(c: Columns, word: int) -> np.ndarray:
        """Rows of a thread whose epilogue runs at once: STORE_ROWS of simt_store.cuh."""
        tall, wide = c["thread_m"], c["thread_n"]
        room = np.where(tall * wide * word >= 256, 8, 16)
        four = (tall & 3 == 0) & (4 * wide <= room)
        two = (tall & 1 == 0) & (2 * wide <= room)
        return np.where(four, 4, np.where(two, 2, 1))

    def legal(self, c: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """The rules of contraction_simt.cu, and at least one block per SM."""
        e = shared.extents(workload)
        down, across = c["block_m"] // c["thread_m"], c["block_n"] // c["thread_n"]
        threads = down * across
        ok = (down * c["thread_m"] == c["block_m"]) & (across * c["thread_n"] == c["block_n"])
        # Virtual threads and lanes are powers of two.
        ok &= (c["thread_m"] & (c["vthread_m"] - 1) == 0) & (c["thread_n"] & (c["vthread_n"] - 1) == 0)
        ok &= (down & (c["lanes_m"] - 1) == 0) & (across * c["lanes_m"] & 31 == 0)
        ok &= c["thread_m"] * c["thread_n"] * e.bytes_acc <= ACCUMULATOR_BYTES
        ok &= (c["block_n"] * e.bytes_c % c["vector_c"] == 0) | (c["epilogue_staged"] == 0)
        for operand in ("a", "b"):
            fits, _, loads = self._loads(c, workload, operand, threads)
            ok &= fits & (loads <= MOST_LOADS)
        return ok & shared.common_legal(c, workload, arch, threads, self.shared_bytes(c, workload))

    def defaults(self, c: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """The widest loads that divide the tile, double buffering, the squarest thread tile with enough warps."""
        e = shared.extents(workload)
        like = np.ones_like(c["block_m"])
        m, n = np.searchsorted(BLOCKS, c["block_m"]), np.searchsorted(BLOCKS, c["block_n"])
        tiles = _default_thread_tiles(e.bytes_acc)[:, m, n]
        vectors = {}
        for operand, extent in (("a", c["block_m"]), ("b", c["block_n"])):
            inner = (c["block_k"] if self._transposed(workload, operand) else extent) * e.bytes_a
            vectors[f"vector_{operand}"] = np.minimum(inner & -inner, 16)
        return {
            "stages": 2 * like,
            **vectors,
            "pad": 0 * like,
            **dict(zip(("thread_m", "thread_n", "vthread_m", "vthread_n", "lanes_m"), tiles, strict=True)),
            "epilogue_staged": 0 * like,
            **shared.default_epilogue(like),
        }

    def registers(self, c: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Accumulators, two fragments of each operand, the loads of a step under way, addresses."""
        threads = self.threads(c)
        held = F(0)
        for operand in ("a", "b"):
            loads = self._loads(c, workload, operand, threads)[2]
            held = held + loads.astype(F) * np.maximum(c[f"vector_{operand}"].astype(F) * F(0.25), F(1))
        return self._register_estimate(c, workload, held)

    @staticmethod
    def _register_estimate(c: Columns, workload: Workload, held: np.ndarray) -> np.ndarray:
        words = F(shared.extents(workload).bytes_acc / 4)
        tall, wide = real(c, "thread_m", "thread_n")
        return (tall * wide + F(2) * (tall + wide)) * words + held + F(44)

    def terms(self, c: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """See machine.roofline.Terms; one warp-wide multiply-add is 32 MACs."""
        e = shared.extents(workload)
        block_k, tall, wide = real(c, "block_k", "thread_m", "thread_n")
        threads = self.threads(c)
        warps = threads.astype(F) * F(1 / 32)
        products = tall * wide * block_k
        reads, read_fronts = self._fragments(c, e.bytes_acc)
        issue, fronts, held = products + reads * block_k + F(12), warps * read_fronts * block_k, F(0)
        for operand in ("a", "b"):
            _, lanes, loads = self._loads(c, workload, operand, threads)
            count, vector = loads.astype(F), c[f"vector_{operand}"].astype(F)
            instructions, clocks = self._staging(c, workload, operand, lanes, vector)
            issue, fronts = issue + count * instructions, fronts + warps * count * clocks
            held = held + count * np.maximum(vector * F(0.25), F(1))
        rate = arch.rate({"float32": "fma_f32", "float64": "fma_f64", "int32": "imad"}[workload.accumulator]) / 4
        loop = Loop(
            warps=warps,
            math=products * F(32 / rate),
            issue=issue,
            wavefronts=fronts,
            chain=np.where(c["stages"] == 1, F(130), F(70)),
            in_flight=F(1),
            registers=self._register_estimate(c, workload, held),
            memory=self.shared_bytes(c, workload).astype(F),
            **self._stores(c, e, tall, wide, warps),
        )
        return assemble(c, e, arch, facts, loop)

    @staticmethod
    def _fragments(c: Columns, word: int) -> tuple[np.ndarray, np.ndarray]:
        """(shared loads, wavefronts) of a warp for one k of both fragments."""
        table = fragment_wavefronts(word)
        most = max(1, 16 // word)
        reads, fronts = F(0), F(0)
        for axis, thread, vthread, lanes in (
            (0, c["thread_m"], c["vthread_m"], c["lanes_m"]),
            (1, c["thread_n"], c["vthread_n"], 32 // c["lanes_m"]),
        ):
            group = thread // vthread
            fronts = fronts + vthread * table[axis, group, lanes]
            reads = reads + thread / np.minimum(group & -group, most)
        return reads.astype(F), fronts.astype(F)

    def _staging(
        self, c: Columns, workload: Workload, operand: str, lanes: np.ndarray, vector: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(instructions, clocks of the load/store pipe) of a warp for one global load and its shared stores."""
        e = shared.extents(workload)
        words = F(e.bytes_acc / 4)
        elements = vector * F(1 / e.bytes_a)
        convert = F(0) if e.bytes_a == e.bytes_acc else elements
        if self._transposed(workload, operand):
            aligned = (lanes * elements == F(32) / words) | (lanes == 1) | (c["pad"] == 0)
            stores = elements
            clocks = elements * np.where(aligned, F(1), F(2)) * words
            lines = F(32) / lanes
        else:
            stores = np.ceil(elements * words * F(1 / 4))
            clocks = elements * words * np.where(elements * words > F(4), F(2), F(1))
            lines = np.maximum(vector * F(32 / 128), F(1))
        return F(3) + convert + stores, clocks + lines

    def _stores(
        self, c: Columns, e: shared.Extents, tall: np.ndarray, wide: np.ndarray, warps: np.ndarray
    ) -> dict[str, np.ndarray]:
        """How outputs leave: straight from registers, or through slabs that make whole rows of them."""
        staged, split = c["epilogue_staged"] == 1, c["split_k"] > 1
        group = c["thread_n"] // c["vthread_n"]
        adjacent = (group & -group).astype(F)
        width_c = np.where(split, F(e.bytes_acc), F(e.bytes_c))
        most = np.where(split, F(16), c["vector_c"].astype(F))
        staged &= ~split
        width = np.where(staged, most, np.minimum(most, adjacent * width_c))
        # Direct: every row of lanes writes elsewhere, in pieces a group apart.
        across = F(32) / c["lanes_m"]
        pieces = c["lanes_m"].astype(F) * np.maximum(across * group * width_c * F(1 / 128), F(1))
        lines = np.where(staged, np.maximum(width * F(32 / 128), F(1)), np.maximum(pieces, width * F(32 / 128)))
        outputs = tall * wide * warps * F(e.bytes_acc * 2 * 32 / 128)
        rounds = tall / self._store_rows(c, e.bytes_acc)
        return {
            "store_width": width,
            "store_lines": lines,
            "staging": np.where(staged, outputs + rounds * F(50), F(0)),
        }

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of contraction_simt.cu."""
        names = ("thread_m", "thread_n", "vthread_m", "vthread_n", "lanes_m", "pad")
        return shared.class_constants(program, workload) | {name.upper(): program[name] for name in names}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """The product, and for a split the reduction."""
        c = shared.columns_of(program)
        memory = int(self.shared_bytes(c, workload)[0])
        return shared.class_launches(program, workload, self.name, int(self.threads(c)[0]), memory)


@lru_cache(maxsize=8)
def _default_thread_tiles(word: int) -> np.ndarray:
    """(5, blocks, blocks) int32: thread_m, thread_n, vthread_m, vthread_n, lanes_m by block indices.

    The largest, squarest thread tile that makes whole warps, 4 to 8 of them where the block has that many;
    where no thread tile makes a warp (1 x 16) the entry is illegal and `legal` says so.
    """
    table = np.ones((5, len(BLOCKS), len(BLOCKS)), dtype=np.int32)
    wide = max(1, 16 // word)
    for i, m in enumerate(BLOCKS):
        for j, n in enumerate(BLOCKS):
            table[:, i, j] = min(_thread_choices(m, n, word, wide), default=(0, 1, 1, 1, 1, 1))[1:]
    return table


def _thread_choices(m: int, n: int, word: int, wide: int) -> list[tuple[float, int, int, int, int, int]]:
    found = []
    for tm in (t for t in THREAD_TILES if m % t == 0):
        for tn in (t for t in THREAD_TILES if n % t == 0):
            down, across = m // tm, n // tn
            lanes = [x for x in LANES if down % x == 0 and across % (32 // x) == 0]
            threads = down * across
            if not lanes or threads > 1024 or tm * tn * word > ACCUMULATOR_BYTES // 3:
                continue
            best = min(lanes, key=lambda x: (x * tm + 32 // x * tn, x))
            groups = [max(v for v in VTHREADS if t % v == 0 and (v == 1 or t // v >= wide)) for t in (tm, tn)]
            # Fewest words read per multiply-add, but four to eight warps.
            cost = (1 / tm + 1 / tn) * (1 + max(0, 128 - threads) / 64 + max(0, threads - 256) / 256)
            found.append((cost, tm, tn, groups[0], groups[1], best))
    return found
