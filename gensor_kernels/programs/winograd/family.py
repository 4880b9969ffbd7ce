"""winograd: 3 x 3 convolution of float32 with 4/9 of the multiply-adds, F(2 x 2, 3 x 3) (winograd.cu).

Legality and shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.windows import winograd
from gensor_kernels.programs.contraction import column
from gensor_kernels.programs.contraction.base import RASTERS, SPLITS, common_legal, reduce_launch, workspace_bytes
from gensor_kernels.programs.contraction.cost import Loop, assemble
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.core.family import (
    Columns,
    Coordinate,
    Facts,
    Family,
    Launch,
    Part,
    math_mode,
    operators,
)
from gensor_kernels.programs.core.macros import epilogue_codes, macro_token
from gensor_kernels.programs.core.params import Tiling
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.core.program_batch import completed

from . import column as own
from . import cost as winograd_cost
from . import shape as shapes
from .cases import branches_of, winograd_cases
from .shape import call_of

if TYPE_CHECKING:
    from gensor_kernels.operators.types.geometry import Geometry
    from gensor_kernels.operators.types.workload import Workload

PREPARE_THREADS = 256
EPILOGUE_NAMES = ("epilogue_fixed", "vector_c", "min_blocks")
#: (thread_m, thread_n, held) a default completion tries, the first legal one.
PREFERRED = ((16, 8, 1), (8, 16, 1), (8, 8, 2), (8, 8, 1), (8, 4, 2), (8, 4, 1), (4, 4, 2), (4, 4, 1), (2, 4, 1))
#: Block tiles of starters.
BLOCKS = ((64, 32), (32, 64), (32, 32), (16, 64), (48, 32), (16, 32), (8, 32))
#: Starters stay well below the registers that a thread may hold.
MOST_STARTING_REGISTERS = 248.0


class Winograd(Family):
    """Convolution by Winograd's minimal filtering."""

    name = "winograd"
    abi = 4
    source = "winograd.cu"
    names = (
        *("level", "block_m", "block_n", "block_k", "split_k", "raster"),
        *("stages", "prepared", "thread_m", "thread_n", "held"),
        *EPILOGUE_NAMES,
    )
    needs = (
        operators(("conv2d",), "is no convolution"),
        math_mode(winograd.MATH, "does not allow Winograd's algorithm"),
    )

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Convolutions of 3 x 3 taps that may be computed so."""
        return None if winograd.fits(workload.size) else "it computes 3 x 3 taps without stride, dilation and groups"

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile and channels of a step, buffers, thread tile and components of a thread, epilogue."""
        return (
            Coordinate("level", (0, 1, 2), 0, "cache", "memory level the construction has reached"),
            Coordinate("block_m", shapes.ROWS, 0, "tile", "rows of C per block: filters, or 2 x 2 outputs"),
            Coordinate("block_n", shapes.COLUMNS, 0, "tile", "columns of C per block: 2 x 2 outputs, or filters"),
            Coordinate("block_k", shapes.STEPS, 0, "tile", "channels of one main-loop step"),
            Coordinate("split_k", SPLITS, 0, "split", "blocks that share one tile's channels", runtime=True),
            Coordinate("raster", RASTERS, 0, "raster", "tile rows walked together", runtime=True),
            Coordinate("stages", (1, 2), 1, "stages", "shared buffers"),
            Coordinate(
                "prepared",
                (0, 1) if "cp_async" in arch.features else (0,),
                1,
                "layout",
                "1: filters are transformed by a first launch, and copied with cp.async",
            ),
            Coordinate("thread_m", shapes.THREAD_ROWS, 2, "tile", "rows per thread"),
            Coordinate("thread_n", shapes.THREAD_COLUMNS, 2, "tile", "columns per thread"),
            Coordinate("held", shapes.HELD, 2, "vthread", "of the 16 components, those of a thread"),
            Coordinate("epilogue_fixed", (0, 1), 2, "epilogue", "1: the list of operations is compiled in"),
            Coordinate("vector_c", shapes.store_widths(workload), 2, "copy_width", "bytes per store into y"),
            Coordinate("min_blocks", (0, 1, 2, 3, 4), 2, "launch_bounds", "blocks per SM promised to the compiler"),
        )

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return what winograd tabulates (cost.py)."""
        return winograd_cost.parts(workload, arch)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Apply the rules of winograd.cu, and at least one block per SM."""
        legal = columns[own.FITS] * columns[own.FITS_STAGES] > 0
        return legal & common_legal(columns, arch, columns[column.WARPS], self._memory(columns))

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """The largest preferred thread tile that is legal and finds registers, two buffers where they fit."""
        call, like = call_of(workload), np.ones_like(columns["block_m"])
        block = {name: columns[name].astype(np.int64) for name in ("block_m", "block_n", "block_k")} | {"prepared": 0}
        chosen = {name: like.copy() for name in ("thread_m", "thread_n", "held")}
        found, tile = np.zeros(len(like), dtype=bool), np.zeros(len(like))
        for room, values in product((arch.regs_per_sm, np.inf), PREFERRED):
            tried = block | {name: value * like for name, value in zip(chosen, values, strict=True)}
            shape = shapes.shape(tried, call)
            held = winograd_cost.registers(tried, shape) * shape["threads"]
            ok = shapes.fits(tried, shape, call) & (held <= room) & ~found
            for name in chosen:
                chosen[name] = np.where(ok, tried[name], chosen[name])
            tile = np.where(ok, shape["tile"], tile)
            found |= ok
        twice = 2 * tile + arch.smem_reserved <= min(arch.smem_per_block, arch.smem_per_sm)
        ends = {"epilogue_fixed": 0 * like, "vector_c": 16 * like, "min_blocks": 0 * like}
        return {"stages": np.where(twice, 2, 1), "prepared": 0 * like, **chosen, **ends}

    @staticmethod
    def _memory(c: Columns) -> np.ndarray:
        """Return the dynamic shared bytes of a block: the buffers, or both slabs."""
        return np.maximum(c[own.TILE] * c["stages"], c[column.SLAB])

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the estimate of cost.registers."""
        return columns[column.BASE_REGISTERS]

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c = columns
        loop = Loop(
            warps=c[column.WARPS],
            math=c[column.MATH],
            multiplies=c[column.MULTIPLIES],
            issue=c[column.ISSUE],
            wavefronts=c[own.CLOCKS],
            chain=c[column.CHAIN],
            in_flight=1.0,
            exposed=c[column.EXPOSED],
            registers=c[column.BASE_REGISTERS],
            memory=self._memory(c),
            outputs=c[column.OUTPUTS],
            touched=c["block_k"] * 0.5,
            staging=c[own.STAGING],
        )
        terms = assemble(c, call_of(workload).e, arch, facts, loop)
        terms.after = terms.after + c[own.FIRST]
        return terms

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of winograd.cu."""
        call = call_of(workload)
        names = ("block_m", "block_n", "block_k", "thread_m", "thread_n", "held", "prepared", "stages", "min_blocks")
        return {
            "OUT_TYPE": macro_token(workload.dtype["y"]),
            "CHANNELS_LAST": int(call.channels_last),
            "FILTERS_LAST": int(call.filters_last),
            "C_VECTOR": program["vector_c"],
            "SPLIT": int(program["split_k"] > 1),
            "EPILOGUE_CODES": epilogue_codes(program, workload),
            **{name.upper(): program[name] for name in names},
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """The filters' transform where it is prepared, the convolution, and for a split the reduction."""
        call, e, split = call_of(workload), extents(workload), program["split_k"]
        shape = shapes.shape({name: program[name] for name in shapes.SHAPE}, call)
        rows, columns = (call.positions, call.filters)[:: 1 if call.channels_last else -1]
        tiles = -(-rows // program["block_m"]) * -(-columns // program["block_n"])
        memory = max(int(shape["tile"]) * program["stages"], int(shape["slab"]))
        prepared = bool(program["prepared"])
        launches = [Launch(self.name, tiles * split, int(shape["threads"]), memory, dependent=prepared)]
        if prepared:
            items = call.e.k * int(shapes.prepared_filters(dict(program.values), call))
            launches.insert(0, Launch("winograd_filters", -(-items // PREPARE_THREADS), PREPARE_THREADS, 0))
        if split > 1:
            launches.append(reduce_launch(e, program["vector_c"] // e.bytes_c))
        return tuple(launches)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of a split's partial sums and of prepared filters; nothing needs to be zero."""
        call = call_of(workload)
        filters = call.e.k * int(shapes.prepared_filters(dict(program.values), call)) * shapes.COMPONENTS * shapes.WORD
        return workspace_bytes(program, workload) + program["prepared"] * filters, False

    def tile(self, program: Program) -> dict[str, int]:
        """Rows, columns and channels of a block's tile, split and raster."""
        source = {"m": "block_m", "n": "block_n", "k": "block_k", "split": "split_k", "raster": "raster"}
        return {name: program[coordinate] for name, coordinate in source.items()}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Parts of the channels; the kernel counts its tiles itself."""
        steps, split = -(-(geometry.sizes[2] // 9) // program["block_k"]), program["split_k"]
        return Tiling(1, 1, split, max(1, -(-steps // split)) * program["block_k"], program["raster"])

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See cases.py."""
        return winograd_cases(workload, program, epilogue)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """See cases.py."""
        return branches_of(workload, program)

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with stores of two columns, where rows of y hold pairs of them."""
        return program.replace(vector_c=shapes.store_widths(workload)[-1])

    def shared(self, program: Program) -> Program:
        """Return the Program with the run-time epilogue and no promise to the compiler."""
        return program.replace(epilogue_fixed=0, min_blocks=0)

    def main_loop(self, program: Program) -> Hashable:
        """Return whether channels are split, and every coordinate except epilogue, launch bounds and grid order."""
        rest = ("raster", "split_k", *EPILOGUE_NAMES)
        return program.family, program["split_k"] > 1, tuple(v for name, v in program.values if name not in rest)

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Multiply-adds of a thread's step."""
        return frozenset({"FFMA"}), program["held"] * program["thread_m"] * program["thread_n"] * program["block_k"]

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of some block tiles, every third one split, filters prepared or not; all legal."""
        wanted = [
            {"block_m": m, "block_n": n, "block_k": step, "split_k": 1 + (place % 3 == 2), "prepared": prepared}
            for place, (m, n) in enumerate(BLOCKS)
            for prepared in ((1, 0) if place < 2 else (place % 2,))
            for step in (8, 4)
        ]
        found = completed(self, wanted, workload, arch, MOST_STARTING_REGISTERS)
        # The longest step of each kind.
        longest = {tuple(p[name] for name in ("block_m", "block_n", "prepared")): p for p in reversed(found)}
        return [p for p in found if p in longest.values()][:8]
