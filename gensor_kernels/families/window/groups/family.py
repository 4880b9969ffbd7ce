"""window_groups: grouped convolution, one thread for a few outputs of a few filters of a group (window_groups.cu)."""

from __future__ import annotations

from itertools import product
from types import MappingProxyType

import numpy as np

from gensor_kernels.families.core.family import (
    EPILOGUE_FIXED,
    LEVEL,
    MIN_BLOCKS,
    Columns,
    Coordinate,
    Facts,
    Launch,
    access_widths,
    operators,
)
from gensor_kernels.families.core.macros import epilogue_codes, macro_token
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.window.base import EPILOGUE_NAMES, PIXELS, THREAD_TILES, Named, Windows
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.geometry import Geometry, Window
from gensor_kernels.operators.types.workload import Workload

from . import cost, rules
from . import shape as parts
from .cases import groups_branches, groups_cases, verified_bytes
from .shape import call_of, tiles

FILTERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
THREAD_FILTERS = (1, 2, 3, 4, 6, 8)
THREAD_ROWS = (1, 2, 4, 7, 8, 14)
#: Most channels and filters of a group: of more, tensor cores lose little, and filters do not fit shared memory.
MOST = 64
#: Thread tiles (filters, columns) that a default completion tries, the first legal one of enough threads.
PREFERRED = tuple(product((4, 3, 2, 1), (7, 4, 2, 1)))


class WindowGroups(Windows):
    """Convolutions of groups of few channels, on the CUDA cores."""

    name = "window_groups"
    abi = 1
    source = "window_groups.cu"
    known = staticmethod(rules.names)
    branches = staticmethod(groups_branches)
    cases = staticmethod(groups_cases)
    rules = rules.RULES
    names = (
        *("level", "block_c", "block_h", "block_w", "vector_a", "window", "thread_c", "thread_h", "thread_w"),
        *EPILOGUE_NAMES,
    )
    own = MappingProxyType({"window": range(100), "vector_c": (1, 2, 4, 8, 16)})
    needs = (operators(("conv2d",), "is no convolution without a prologue"),)

    starter_registers = 120  # with which four warps fit a scheduler, too
    wanted = MappingProxyType(
        {
            "level": (2,),
            "block_c": (6, 8, 12, 16, 32, 64, 128),
            "block_h": (1, 2, 4, 7, 8, 14),
            "block_w": (7, 8, 14, 16, 28, 32, 56),
            "thread_c": (2, 3, 4, 6, 8),
            "thread_h": (1, 2, 4),
            "thread_w": (2, 4, 7, 8, 14),
            "epilogue_fixed": (0,),
            # Promised one block per SM, compilers do not spill to make room for more.
            "min_blocks": (1,),
        }
    )

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Refuse all but grouped convolutions of real numbers, of few channels and filters, that keep the layout."""
        z = workload.size
        if refused := super().refusal(workload, arch):
            return refused
        if (workload.layouts["x"] == "nhwc") != (workload.layouts["y"] == "nhwk"):
            return "kernels keep the layout"
        if z["groups"] < 2:
            return "there is one group"
        most = max(z["c"], z["k_out"]) // z["groups"]
        return None if most <= MOST else f"groups of {most} are for tensor cores"

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Return whether 32 bits hold the elements between columns of x under neighbouring outputs."""
        image = geometry.b if geometry.swapped else geometry.a
        return abs(image.column) * Window.unpack(geometry.tail).step[1] < 2**31

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile, how x is loaded and the window walked, thread tile, epilogue."""
        call = call_of(workload)
        return (
            LEVEL,
            Coordinate("block_c", FILTERS, 0, "tile", "filters per block"),
            Coordinate("block_h", PIXELS, 0, "tile", "rows of y per block"),
            Coordinate("block_w", PIXELS, 0, "tile", "columns of y per block"),
            Coordinate("vector_a", access_widths(call.bytes_x, call.align_x), 1, "copy_width", "bytes per load of x"),
            Coordinate(
                "window",
                (0, call.code) if call.code else (0,),
                1,
                "instruction",
                "0: any window; else digits of its columns",
            ),
            Coordinate("thread_c", THREAD_FILTERS, 2, "tile", "filters per thread"),
            Coordinate("thread_h", THREAD_ROWS, 2, "tile", "rows of y per thread"),
            Coordinate("thread_w", THREAD_TILES, 2, "tile", "columns of y per thread"),
            EPILOGUE_FIXED,
            Coordinate(
                "vector_c", access_widths(call.bytes_y, call.align_y), 2, "copy_width", "bytes per store of y, at most"
            ),
            MIN_BLOCKS,
        )

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        call = call_of(workload)
        t = tiles(columns, call)
        return {
            "SHARED_BYTES": parts.shared_bytes(t, call),
            "VERIFIED_BYTES": verified_bytes(columns, workload),
            "WARPS": t.threads / 32,
            "BLOCKS": parts.grid(t, call),
        }

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Choose the widest loads of at most 8 bytes, the window compiled in if possible, and the first preferred
        thread tile that fits."""
        call, like = call_of(workload), np.ones_like(columns["block_c"])
        vector = min(max(access_widths(call.bytes_x, min(call.align_x, 8))), 8)
        given: Named = {name: columns[name] for name in ("block_c", "block_h", "block_w", "vector_a", "window")}
        chosen = {name: like.copy() for name in ("thread_c", "thread_w")}
        found = np.zeros(len(like), dtype=bool)
        for deep, wide in PREFERRED:
            tried: Named = {**given, "thread_h": like, "thread_c": deep * like, "thread_w": wide * like}
            fits = self.fits(tried, workload, arch)
            fits &= ((tiles(tried, call).threads >= 128) | (deep * wide == 1)) & ~found
            for name, value in (("thread_c", deep), ("thread_w", wide)):
                chosen[name] = np.where(fits, value, chosen[name])
            found |= fits
        ends = {"epilogue_fixed": 0 * like, "vector_c": call.align_y * like, "min_blocks": 0 * like}
        return {"vector_a": vector * like, "window": call.code * like, "thread_h": like, **chosen, **ends}

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the estimate of shape.registers."""
        call = call_of(workload)
        return parts.registers(columns, tiles(columns, call), call).astype(np.float32)

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of cost.py."""
        return cost.terms(columns, call_of(workload), arch, workload.accumulator, facts)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of window_groups.cu."""
        names = ("block_c", "block_h", "block_w", "thread_c", "thread_h", "thread_w", "window", "min_blocks")
        return {
            "IN_TYPE": macro_token(workload.dtype["x"]),
            "OUT_TYPE": macro_token(workload.dtype["y"]),
            "ACC_TYPE": macro_token(workload.accumulator),
            "CHANNELS_LAST": int(call_of(workload).channels_last),
            "A_VECTOR": program["vector_a"],
            "C_VECTOR": program["vector_c"],
            **{name.upper(): program[name] for name in names},
            "EPILOGUE_CODES": epilogue_codes(program, workload),
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the one launch."""
        call = call_of(workload)
        t = tiles({name: np.array([value]) for name, value in program.values}, call)
        blocks, memory = parts.grid(t, call), parts.shared_bytes(t, call)
        return (Launch(self.name, int(blocks[0]), int(t.threads[0]), int(memory[0])),)

    def tile(self, program: Program) -> dict[str, int]:
        """Return the filters, rows and columns of y per block."""
        return {"c": program["block_c"], "h": program["block_h"], "w": program["block_w"]}

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with accesses as wide as the alignment class of each operand."""
        call = call_of(workload)
        return program.replace(vector_a=call.align_x, vector_c=call.align_y)

    def kind(self, c: Columns) -> tuple[np.ndarray, ...]:
        """Return the window, how x is read, and the filters of a thread."""
        return c["window"] > 0, c["vector_a"], c["thread_c"]
