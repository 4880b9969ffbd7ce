"""window: depthwise convolution and pooling, one thread for a few outputs of a few channels (window.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import prologue as contraction_prologue
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import (
    EPILOGUE_FIXED,
    LEVEL,
    MIN_BLOCKS,
    SLIDING,
    Columns,
    Coordinate,
    Facts,
    Launch,
    access_widths,
)
from gensor_kernels.families.core.macros import epilogue_codes, macro_token
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.rules import Ruled, bound
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import cost as window_cost
from . import rules
from . import shape as parts
from .cases import window_branches, window_cases
from .shape import call_of, tiles

CHANNELS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512)
PIXELS = (*range(1, 17), 18, 20, 21, 22, 24, 28, 30, 32, 36, 40, 42, 48, 56, 64, 84, 96, 128)
THREAD_TILES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16)
SPLITS = (1, 2, 4, 8, 16, 32, 64)
EPILOGUE_NAMES = ("epilogue_fixed", "vector_c", "min_blocks")
#: Estimated registers a starter may take: far from where compilers spill.
STARTER_REGISTERS = 88
#: Thread tiles (rows, columns) a default completion tries, the first legal one of a whole number of warps.
PREFERRED = ((4, 2), (2, 2), (4, 1), (2, 1), (1, 2), (1, 1))


#: Values of many Programs, by the names of coordinates.
Named = dict[str | Column, np.ndarray]


class Window(Ruled):
    """Reductions over a sliding window, channel by channel."""

    name = "window"
    abi = 3
    source = "window.cu"
    known = staticmethod(rules.names)
    branches = staticmethod(window_branches)
    cases = staticmethod(window_cases)
    rules = rules.RULES
    ends = EPILOGUE_NAMES
    unbound = MappingProxyType({"epilogue_fixed": 0, "min_blocks": 0})
    names = (
        *("level", "block_c", "block_h", "block_w"),
        *("vector_a", "window", "staged", "filter_held", "split"),
        *("thread_h", "thread_w"),
        *EPILOGUE_NAMES,
    )
    own = MappingProxyType({"window": range(10_000), "staged": range(2)})
    needs = (SLIDING,)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Depthwise convolution and pooling of real numbers."""
        if not workload.is_complex:
            return None
        return f"windows of {workload.accumulator} are not folded: give the real and the imaginary part apart"

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile, how x is loaded and the window walked, thread tile, epilogue."""
        call = call_of(workload)
        stores = access_widths(call.bytes_y, call.align["y"])
        loads = access_widths(call.bytes_x, call.align["x"] if call.channels_last else call.bytes_x)
        return (
            LEVEL,
            Coordinate("block_c", CHANNELS, 0, "tile", "channels of y per block"),
            Coordinate("block_h", PIXELS, 0, "tile", "rows of y per block"),
            Coordinate("block_w", PIXELS, 0, "tile", "columns of y per block"),
            Coordinate("vector_a", loads, 1, "copy_width", "bytes per load of x"),
            Coordinate(
                "window", (0, call.code) if call.code else (0,), 1, "instruction", "0: any window; else its digits"
            ),
            Coordinate(
                "staged",
                (0, 1) if (call.code or call.slides) and not call.channels_last else (0,),
                1,
                "layout",
                "1: x passes through shared memory",
            ),
            Coordinate(
                "filter_held", (0, 1) if call.kind == "multiply" else (0,), 1, "layout", "1: the filter in registers"
            ),
            Coordinate("split", SPLITS, 1, "split", "threads that share a window"),
            Coordinate("thread_h", THREAD_TILES, 2, "tile", "rows of y per thread"),
            Coordinate("thread_w", THREAD_TILES, 2, "tile", "columns of y per thread"),
            EPILOGUE_FIXED,
            Coordinate("vector_c", stores, 2, "copy_width", "bytes per store of y, at most"),
            MIN_BLOCKS,
        )

    def sizes(self, workload: Workload) -> dict[str, bool]:
        """Return whether filters can slide."""
        return {"SLIDES": call_of(workload).slides}

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        call = call_of(workload)
        t = tiles(columns, call)
        memory, blocks = parts.shared_bytes(columns, t, call), parts.grid(t, call)
        return {"SHARED_BYTES": memory, "WARPS": t.threads / 32, "BLOCKS": blocks}

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Choose the widest loads, the window compiled in if possible, the largest preferred thread tile that fits."""
        call, c = call_of(workload), columns
        like = np.ones_like(c["block_c"])
        whole = c["block_c"] * call.bytes_x
        vector = np.minimum(whole & -whole, 16)
        level = {"vector_a": vector, "staged": 0 * like, "filter_held": 0 * like, "split": like}
        unrolled = np.maximum(vector // call.bytes_x, 1) * call.positions <= parts.MOST_UNROLLED
        level["window"] = np.where(unrolled, call.code, 0)
        tile_h, tile_w, found = like.copy(), like.copy(), np.zeros(len(like), dtype=bool)
        given: Named = {name: c[name] for name in ("vector_a", "window", "staged", "filter_held", "split")}
        block: Named = {name: c[name] for name in ("block_c", "block_h", "block_w")}
        for high, wide in PREFERRED:
            tried: Named = {**block, **given, "thread_h": high * like, "thread_w": wide * like}
            t = tiles(tried, call)
            fits = self._fits(tried, workload, arch) & ((t.threads >= 128) | (high * wide == 1)) & ~found
            tile_h, tile_w = np.where(fits, high, tile_h), np.where(fits, wide, tile_w)
            found |= fits
        ends = {"epilogue_fixed": 0 * like, "vector_c": 16 * like, "min_blocks": 0 * like}
        return {**level, "thread_h": tile_h, "thread_w": tile_w, **ends}

    def _fits(self, tried: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return which tiles are legal where there is shared memory for them."""
        none = 0 * tried["block_c"]
        launch = {"SHARED_BYTES": none, "WARPS": none, "BLOCKS": none}
        columns = {**tried, "min_blocks": none}
        return bound(self, workload, arch).legal(columns, lambda _: launch, self.sizes(workload), plain=False)

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the estimate of shape.registers."""
        call = call_of(workload)
        return parts.registers(columns, tiles(columns, call), call).astype(np.float32)

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of cost.py."""
        call = call_of(workload)
        t = tiles(columns, call)
        wanted = parts.registers(columns, t, call)
        return window_cost.terms(columns, t, call, arch, workload.accumulator, wanted, facts)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of window.cu."""
        call = call_of(workload)
        names = ("block_c", "block_h", "block_w", "thread_h", "thread_w", "window", "staged", "filter_held", "split")
        return {
            "IN_TYPE": macro_token(workload.dtype["x"]),
            "OUT_TYPE": macro_token(workload.dtype["y"]),
            "ACC_TYPE": macro_token(workload.accumulator),
            "OPERATION": parts.KINDS.index(call.kind),
            "CHANNELS_LAST": int(call.channels_last),
            "A_VECTOR": program["vector_a"],
            "B_VECTOR": int(parts.vector_b(program["vector_a"], call)),
            "C_VECTOR": program["vector_c"],
            **{name.upper(): program[name] for name in names},
            "EPILOGUE_CODES": epilogue_codes(program, workload),
            "MIN_BLOCKS": program["min_blocks"],
            **contraction_prologue.macros(call.prologue),
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the one launch."""
        call, c = call_of(workload), {name: np.array([value]) for name, value in program.values}
        t = tiles(c, call)
        blocks, memory = parts.grid(t, call), parts.shared_bytes(c, t, call)
        return (Launch(self.name, int(blocks[0]), int(t.threads[0]), int(memory[0])),)

    def tile(self, program: Program) -> dict[str, int]:
        """Channels, rows and columns of y per block, and threads per window."""
        return {"c": program["block_c"], "h": program["block_h"], "w": program["block_w"], "split": program["split"]}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return no counts: the kernel counts its tiles itself."""
        return Tiling(tiles_m=1, tiles_n=1, split=1, k_per_split=1, raster=1)

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with accesses as wide as the alignment class of each operand."""
        call = call_of(workload)
        loads = call.align["x"] if call.channels_last else call.bytes_x
        return program.replace(vector_a=loads, vector_c=call.align["y"])

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return the fastest of each kind of some thousand Programs."""
        coordinates = self.coordinates(workload, arch)
        lattice = {coordinate.name: coordinate.values for coordinate in coordinates}
        c = _grid(lattice)
        c = _where(c, self.legal(c, workload, arch))
        c = _where(c, self.registers(c, workload, arch) <= STARTER_REGISTERS)
        seconds = roofline.seconds(self.terms(c, workload, arch), arch)
        order = np.argsort(seconds, kind="stable")
        kinds = (c["window"] > 0, c["split"] > 1, c["vector_a"], c["staged"], c["filter_held"])
        _, first = np.unique(np.stack(kinds, axis=1)[order], axis=0, return_index=True)
        fastest = order[np.sort(first)[:8]].tolist()
        return [Program(self.name, tuple((name, int(c[name][i])) for name in self.names)) for i in fastest]


def _grid(lattice: dict[str, tuple[int, ...]]) -> dict[str | Column, np.ndarray]:
    """Return combinations of some values of every coordinate, whole threads in a block, for starters to choose from."""
    wanted = {
        **{
            "level": (2,),
            "block_c": (1, 4, 16, 32, 64, 128),
            "block_h": (1, 4, 8, 14),
            "block_w": (1, 7, 8, 16, 32, 64),
        },
        **{"split": (1, 4, 32), "thread_h": (1, 2, 4, 7), "thread_w": (1, 2, 4), "epilogue_fixed": (0,)},
        # Promised one block per SM, compilers do not spill to make room for more.
        **{"vector_c": (max(lattice["vector_c"]),), "min_blocks": (1,)},
    }
    values = [[v for v in lattice[name] if v in wanted.get(name, lattice[name])] for name in lattice]
    points = np.meshgrid(*(np.array(each, np.int64) for each in values), indexing="ij")
    c: dict[str | Column, np.ndarray] = {name: column.ravel() for name, column in zip(lattice, points, strict=True)}
    return _where(c, (c["block_h"] % c["thread_h"] == 0) & (c["block_w"] % c["thread_w"] == 0))


def _where(columns: Columns, chosen: np.ndarray) -> dict[str | Column, np.ndarray]:
    places = np.flatnonzero(chosen)
    return {name: column[places] for name, column in columns.items()}
