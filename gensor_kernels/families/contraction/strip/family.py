"""contraction_strip: a convolution of few channels on tensor cores, without copies
(contraction_strip.cu).

Legality and shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction import rules as shared_rules
from gensor_kernels.families.contraction.base import vector_coordinate
from gensor_kernels.families.contraction.cost import BLOCK_START, Loop, assemble
from gensor_kernels.families.contraction.mma.cost import BLOCKS
from gensor_kernels.families.contraction.mma.family import FLOAT_OUTPUTS
from gensor_kernels.families.contraction.mma.instructions import heat, instructions, kind
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import (
    CP_ASYNC,
    EPILOGUE_FIXED,
    LEVEL,
    Columns,
    Coordinate,
    Facts,
    Launch,
    operators,
)
from gensor_kernels.families.core.macros import epilogue_codes
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.core.rules import Ruled
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.geometry import Geometry, Window
from gensor_kernels.operators.types.workload import Workload

from . import column as strip
from . import cost as strip_cost
from . import rules
from . import shape as shapes
from .cases import strip_branches, strip_cases
from .shape import call_of

EPILOGUE_NAMES = ("epilogue_fixed", "vector_c")
#: (outputs, filters) of the block tiles of starters.
STARTERS = ((128, 64), (112, 64), (224, 64), (64, 32), (128, 32), (64, 64), (256, 32), (32, 64))
MOST_STARTING_REGISTERS = 200.0


class ContractionStrip(Ruled):
    """Convolutions whose blocks keep the lines of the image that a tile reads."""

    name = "contraction_strip"
    abi = 2
    source = "contraction_strip.cu"
    parts = staticmethod(strip_cost.parts)
    known = staticmethod(rules.names)
    branches = staticmethod(strip_branches)
    cases = staticmethod(strip_cases)
    rules = rules.RULES
    ends = EPILOGUE_NAMES
    #: the launch bound, the number of walking blocks, stays
    unbound = MappingProxyType({"epilogue_fixed": 0})
    names = (
        *("level", "block_m", "block_n", "lines", "octets", "planes", "warp_m", "warp_n"),
        *EPILOGUE_NAMES,
        "min_blocks",
    )
    own = MappingProxyType(dict.fromkeys(("lines", "octets", "planes"), range(1, shapes.MOST_OCTETS + 1)))
    needs = (operators(("conv2d",), "is no convolution without a prologue"), CP_ASYNC)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """float16 and bfloat16 images of few channels, whose outputs' segments begin at even elements."""
        z, e = workload.size, extents(workload)
        if kind(workload) not in ("f16", "bf16"):
            return "it multiplies float16 and bfloat16"
        if not instructions(kind(workload) or "", arch):
            return f"{arch.name} has no instruction for {e.multiplied}"
        if e.dtype["c"] not in FLOAT_OUTPUTS:
            return f"no tensor-core kernel writes {e.dtype['c']} from {e.multiplied}"
        if workload.align["x"] >= 16:
            return "a pixel's channels can be copied by themselves"
        if (z["groups"], z["dilation_h"], z["dilation_w"]) != (1, 1, 1):
            return "segments of groups and of dilated filters have gaps"
        call = call_of(workload)
        if call.step[1] * call.unit % 2:
            return "every other output's segment begins within a word"
        octets = call.lines * call.octets
        return None if 1 <= octets <= shapes.MOST_OCTETS else f"{octets} eights of places are none, or too many"

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Return the images whose lines have no gaps, forwards."""
        call, window = call_of(workload), Window.unpack(geometry.tail)
        step = geometry.a.column if call.pixel_rows else geometry.b.column
        dense = not call.last or call.channels == 1 or window.k_strides[2] == 1
        return dense and step == call.unit

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block and warp tile, the window's lines, epilogue, blocks of a multiprocessor."""
        call = call_of(workload)
        rows, columns = ("outputs", "filters") if call.pixel_rows else ("filters", "outputs")
        return (
            LEVEL,
            Coordinate("block_m", BLOCKS, 0, "tile", f"{rows} per block"),
            Coordinate("block_n", BLOCKS, 0, "tile", f"{columns} per block"),
            Coordinate("lines", (call.lines,), 1, "layout", "lines of the image that an output reads"),
            Coordinate("octets", (call.octets,), 1, "layout", "eights of places of k for each of them"),
            Coordinate("planes", (call.planes,), 1, "layout", "lines of a row of the image"),
            Coordinate("warp_m", shapes.WARP_TILES, 2, "tile", f"{rows} per warp"),
            Coordinate("warp_n", shapes.WARP_TILES, 2, "tile", f"{columns} per warp"),
            EPILOGUE_FIXED,
            vector_coordinate(extents(workload), "c", 2),
            Coordinate("min_blocks", (1, 2, 3, 4), 2, "launch_bounds", "blocks per SM, which walk from tile to tile"),
        )

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        return {
            "SHARED_BYTES": self._memory(columns),
            "WARPS": columns[strip.WARPS["m"]] * columns[strip.WARPS["n"]],
            "VERIFIED_BYTES": columns[strip.VERIFIED],
            "STORED_WHOLE": columns[column.FITS_STORE],
        }

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the warp tile that reuses fragments best, the widest stores, one block per multiprocessor."""
        call = call_of(workload)
        like = np.ones_like(columns["block_m"])
        window = {"lines": call.lines * like, "octets": call.octets * like, "planes": call.planes * like}
        return window | strip_cost.defaults(columns, workload)

    @staticmethod
    def _memory(c: Columns) -> np.ndarray:
        """Return the dynamic shared bytes of a block: filters, two tiles' lines."""
        return c[strip.FILTERS] + 2 * c[strip.STAGE_BYTES]

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Accumulators, fragments and where they come from."""
        return columns[column.BASE_REGISTERS]

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """See machine.roofline.Terms; iterations are steps of 16 places, and a tile's copies are spread over them."""
        c, call = columns, call_of(workload)
        warps, own = c[strip.WARPS["m"]] * c[strip.WARPS["n"]], 1.0 / call.steps
        copied = strip_cost.copying(c, call, warps)
        loop = Loop(
            warps=warps,
            math=c[column.MATH],
            multiplies=c[column.MULTIPLIES],
            issue=c[column.STEP_ISSUE],
            wavefronts=c[strip.STEP_CLOCKS] * warps + c[strip.STAGE_BYTES] * (own / 128),
            chain=c[column.CHAIN],
            in_flight=float(call.steps),
            slot=float(call.steps),
            exposed=np.full_like(warps, 0.08),
            heat=heat(workload, arch),
            registers=self.registers(c, workload, arch),
            memory=self._memory(c),
            outputs=c[column.OUTPUTS],
            touched=np.ones_like(warps),
            staging=np.zeros_like(warps),
            ahead=np.ones_like(warps),
        )
        used: dict[str | Column, np.ndarray] = {name: c[name] for name in USED}
        used |= {column.ITERATIONS: call.steps + 0 * warps, **{each: 0 * warps for each in column.STEP.values()}}
        terms = assemble(used, extents(workload), arch, facts, lambda: loop)
        terms.residents = np.minimum(terms.residents, c[column.PROMISED])
        terms.issue = terms.issue + copied * own
        # Filters are read once by every block, lines for every tile.
        terms.l2_bytes = terms.l2_bytes + columns[strip.TILE_BYTES] * np.float32(own)
        terms.prologue = BLOCK_START + strip_cost.arranging(columns, warps, arch)
        return terms

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_strip.cu."""
        e, call = extents(workload), call_of(workload)
        names = ("block_m", "block_n", "warp_m", "warp_n", "lines", "octets", "planes", "min_blocks")
        return {
            **shared_rules.type_macros(e, workload.accumulator),
            "C_VECTOR": program["vector_c"],
            "CHANNELS_LAST": int(call.last),
            "PIXEL_ROWS": int(call.pixel_rows),
            "EPILOGUE_CODES": epilogue_codes(program, workload),
            **{name.upper(): program[name] for name in names},
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the blocks that walk from tile to tile."""
        p, call = program.by_name, call_of(workload)
        outputs, filters = shapes.sides(p, call)
        own = shapes.shape(call, outputs)
        warps = (p["block_m"] // p["warp_m"]) * (p["block_n"] // p["warp_n"])
        memory = shapes.filter_bytes(-(-p["lines"] * p["octets"] // 2), filters) + 2 * int(own.stage)
        tiles = call.images * int(own.bands * own.runs) * -(-call.filters // filters)
        return (Launch(self.name, tiles, 32 * warps, memory, per_sm=p["min_blocks"]),)

    def tile(self, program: Program) -> dict[str, int]:
        """Return the rows and columns of a block's tile."""
        return {"m": program["block_m"], "n": program["block_n"]}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return one tile: the kernel counts its tiles itself."""
        return Tiling(1, 1, 1, max(geometry.sizes[2], 1), 1)

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with stores as wide as the alignment class of the output."""
        return program.replace(vector_c=extents(workload).align["c"])

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Return the instructions of a step, a warp tile in units of 16 x 8, and no opcode.

        The innermost loop that multiplies is a tile's, with its stores and copies of every width.
        """
        return frozenset(), program["warp_m"] * program["warp_n"] // (16 * 8)

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of some block tiles; all legal."""
        rows = ("block_m", "block_n") if call_of(workload).pixel_rows else ("block_n", "block_m")
        wanted = [dict(zip(rows, each, strict=True)) | {"min_blocks": 2} for each in STARTERS]
        return complete(self, wanted, workload, arch, MOST_STARTING_REGISTERS)[:8]


#: Columns that contraction/cost.py reads.
USED = (
    *(column.PROMISED, column.RASTER_ROWS, column.SLABS, column.WRITTEN, column.AFTER),
    *(column.STORES, column.STORE_LINES, *column.TILES.values(), *column.HELD.values()),
)
