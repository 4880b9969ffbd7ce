"""contraction_patch: a convolution with channels first on tensor cores, without copies
(contraction_patch.cu).

Legality and shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import column, stream_k
from gensor_kernels.families.contraction import rules as shared_rules
from gensor_kernels.families.contraction.base import RASTERS, SPLITS, reduce_launch, vector_coordinate, workspace_bytes
from gensor_kernels.families.contraction.cases import contraction_cases, impossible_edges
from gensor_kernels.families.contraction.cost import BLOCK_START, Loop, assemble
from gensor_kernels.families.contraction.mma.cost import BLOCKS, WARP_TILES_M, WARP_TILES_N
from gensor_kernels.families.contraction.mma.family import FLOAT_OUTPUTS, OUTPUTS
from gensor_kernels.families.contraction.mma.instructions import heat, instructions, kind
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core import params
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import (
    CP_ASYNC,
    EPILOGUE_FIXED,
    LEVEL,
    MIN_BLOCKS,
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

from . import column as patch
from . import cost as patch_cost
from . import rules
from . import shape as shapes
from .cases import patch_branches, patch_cases
from .shape import call_of

EPILOGUE_NAMES = ("epilogue_fixed", "vector_c", "min_blocks")
#: Block tiles of starters.
STARTERS = ((64, 64), (32, 128), (64, 208), (128, 64), (32, 64), (128, 128), (16, 64), (48, 112))
#: Outputs of starters with merged groups.
MERGED_STARTERS = (128, 208)
MOST_STARTING_REGISTERS = 240.0


class ContractionPatch(Ruled):
    """Convolutions whose blocks keep the patch of the image that they read."""

    name = "contraction_patch"
    abi = 3
    source = "contraction_patch.cu"
    parts = staticmethod(patch_cost.parts)
    sizes = staticmethod(rules.sizes)
    rules = rules.RULES
    ends = EPILOGUE_NAMES
    names = (
        *("level", "block_m", "block_n", "block_k", "split_k", "raster"),
        *("vector_a", "warp_m", "warp_n", "taps", "copies"),
        *EPILOGUE_NAMES,
        stream_k.NAME,
        *("run", shapes.MERGED),
    )
    own = MappingProxyType({"taps": range(shapes.MOST_TAPS + 1), shapes.MERGED: shapes.MERGES})
    needs = (operators(("conv2d",), "is no convolution without a prologue"), CP_ASYNC)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """float16, bfloat16 and int8 images with channels first, whose filters can be copied without registers."""
        e = extents(workload)
        if workload.layouts["x"] != "nchw":
            return "channels of the image are innermost"
        if kind(workload) not in ("f16", "bf16", "s8"):
            return "it multiplies float16, bfloat16 and int8"
        choices = instructions(kind(workload) or "", arch)
        if not choices or choices[0].needed > 1:
            return f"{arch.name} has no instruction for 32 bytes of {e.multiplied}"
        if e.dtype["c"] not in OUTPUTS.get(e.multiplied, FLOAT_OUTPUTS):
            return f"no tensor-core kernel writes {e.dtype['c']} from {e.multiplied}"
        return None if e.align["a"] >= 4 else "cp.async copies 4 bytes or more, which filters are no multiple of"

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile, channels of a step, copies on their way, warp tile, epilogue."""
        e = extents(workload)
        steps = tuple(size // e.bytes_a for size in shapes.STEP_BYTES)
        vector_a, own = vector_coordinate(e, "a", 1), call_of(workload).taps
        return (
            LEVEL,
            Coordinate("block_m", BLOCKS, 0, "tile", "filters per block"),
            Coordinate("block_n", BLOCKS, 0, "tile", "outputs per block, at most"),
            Coordinate("block_k", steps, 0, "tile", "channels of one main-loop step"),
            Coordinate("split_k", SPLITS, 0, "split", "blocks that share one tile's channels", runtime=True),
            Coordinate("raster", RASTERS, 0, "raster", "tile rows walked together", runtime=True),
            vector_a._replace(values=tuple(width for width in vector_a.values if width >= 4)),
            Coordinate("warp_m", WARP_TILES_M, 2, "tile", "filters per warp"),
            Coordinate("warp_n", tuple(n for n in WARP_TILES_N if n % 16 == 0), 2, "tile", "outputs per warp"),
            Coordinate("taps", (0, own) if own <= shapes.MOST_TAPS else (0,), 2, "layout", "taps compiled in, 0: any"),
            Coordinate("copies", shapes.COPIES, 2, "stages", "pieces of the patch on their way to a thread"),
            EPILOGUE_FIXED,
            vector_coordinate(e, "c", 2),
            MIN_BLOCKS,
            *stream_k.coordinate(e),
            Coordinate("run", shapes.RUNS, 0, "tile", "outputs of a row in a tile; 0: as many as there are"),
            Coordinate(
                shapes.MERGED, shapes.merges(workload), 0, "tile", "groups whose filters are multiplied as one matrix"
            ),
        )

    def known(self, workload: Workload) -> dict[str, object]:
        """See contraction/rules.py."""
        return shared_rules.names(workload, streams=True)

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        warps = columns[column.DOWN] * columns[column.ACROSS]
        strided = columns[patch.STRIDED] + columns["copies"] * warps * 32 * shapes.PLANE
        return {
            "SHARED_BYTES": self._memory(columns, warps),
            "WARPS": warps,
            "VERIFIED_BYTES": np.maximum(columns[patch.VERIFIED], strided),
            "STORED_WHOLE": columns[column.FITS_STORE],
        }

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Choose the warp tile that reuses fragments best, a whole patch in flight where it fits, the widest stores."""
        found = patch_cost.defaults(columns, workload)
        promised = stream_k.default(columns, arch)
        return found | {name: np.maximum(found[name], value) for name, value in promised.items()}

    @staticmethod
    def _memory(c: Columns, warps: np.ndarray) -> np.ndarray:
        """Return the dynamic shared bytes of a block: one or two stages, or the slabs."""
        return np.maximum(
            c[patch.FILTERS] + c[patch.STAGE] * np.minimum(c[patch.BLOCK_STEPS], 2), c[column.SLAB] * warps
        )

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Accumulators, fragments, elements on their way and where they come from."""
        staged = columns["copies"] * (shapes.PLANE / call_of(workload).size + 3.0)
        return columns[column.BASE_REGISTERS] + staged + stream_k.registers(columns)

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """See machine.roofline.Terms; iterations are taps, and a step's copies are spread over its taps."""
        c, call = columns, call_of(workload)
        warps = c[column.DOWN] * c[column.ACROSS]
        late = np.maximum(c[patch.PATCH_PIECES] / (warps * 32) - c["copies"], 0)
        copied, own = patch_cost.copying(c, workload, warps, late), 1.0 / call.taps
        arranging = np.ceil(c[patch.FOURS] / (warps * 32)) * c[patch.ARRANGE_ISSUE]
        loop = Loop(
            warps=warps,
            math=c[column.MATH],
            multiplies=c[column.MULTIPLIES],
            issue=c[patch.TAP_ISSUE],
            wavefronts=c[patch.TAP_CLOCKS] * warps
            + (c[patch.COPY_CLOCKS] + c[patch.FOURS] * c[patch.ARRANGE_CLOCKS] / 32) * own,
            # Filters are arranged between barriers; pieces that come late are waited for, one after the other.
            chain=c[column.CHAIN] + (np.ceil(late) * arch.l2_latency + np.ceil(warps / 4) * arranging) * own,
            in_flight=float(call.taps),
            slot=float(call.taps),
            exposed=np.full_like(warps, 0.08),
            heat=heat(workload, arch),
            registers=self.registers(c, workload, arch),
            memory=self._memory(c, warps),
            outputs=c[column.OUTPUTS],
            touched=np.ones_like(warps),
            staging=c["warp_m"] / 16 * (60.0 + warps * c[column.STAGING_CLOCKS]),
        )
        terms = assemble(c, extents(workload), arch, facts, lambda: loop)
        terms.issue = terms.issue + (copied + arranging) * own
        terms.prologue = BLOCK_START + patch_cost.start(c[patch.COPY_BYTES], copied, warps)
        outputs = c["block_m"] * c["block_n"]
        return stream_k.with_streams(terms, c, extents(workload), arch, outputs, iterations=call.taps)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_patch.cu."""
        e = extents(workload)
        names = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "taps", "copies", "min_blocks")
        return {
            **shared_rules.type_macros(e, workload.accumulator),
            "A_VECTOR": program["vector_a"],
            "C_VECTOR": program["vector_c"],
            "SPLIT": int(program["split_k"] > 1),
            "EPILOGUE_CODES": epilogue_codes(program, workload),
            **stream_k.constants(program),
            **{name.upper(): value for name in ("run", shapes.MERGED) if (value := program.get(name))},
            **{name.upper(): program[name] for name in names},
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the convolution, and for a split the reduction."""
        p, e, call = program.by_name, extents(workload), call_of(workload)
        own = shapes.shape(call, p["block_n"], p.get("run", 0))
        warps = (p["block_m"] // p["warp_m"]) * (p["block_n"] // p["warp_n"])
        groups = max(p.get(shapes.MERGED, 0), 1)
        stages = min(2, int(shapes.steps(call, p["block_k"], p["split_k"], groups)))
        filters, stage = shapes.filter_bytes(p, call.taps, call.size), p["block_k"] * call.size * int(own.pixels)
        memory = max(filters + stages * stage, shapes.slab_bytes(p) * warps)
        tiles = -(-e.m * groups // p["block_m"]) * int(own.bands * own.runs)
        main = Launch(self.name, e.batch // groups * p["split_k"] * tiles, 32 * warps, memory)
        launches = [stream_k.launch(main, program)]
        if p["split_k"] > 1:
            launches.append(reduce_launch(e, p["vector_c"] // e.bytes_c if e.unit["c"] != "s" else 1))
        return tuple(launches)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of a split's partial sums, of a stream's flags and sums; nothing needs to be zero."""
        return workspace_bytes(program, workload), False

    def tile(self, program: Program) -> dict[str, int]:
        """Return filters, outputs and channels of a block's tile, stages, split and raster."""
        source = {"m": "block_m", "n": "block_n", "k": "block_k", "split": "split_k", "raster": "raster"}
        return {name: program[own] for name, own in source.items()} | {"stages": 2} | stream_k.tile(program)

    def _under(self, program: Program, taps: int) -> dict[str, int]:
        """Return the tile of a product whose k are channels and taps."""
        own = self.tile(program)
        return own | {"k": own["k"] * taps}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of C and parts of k: whole steps of channels, with all taps."""
        window = Window.unpack(geometry.tail)
        _, _, bands, runs = shapes.tiles(window.rows, program["block_n"], program.get("run"))
        count = program.get(shapes.MERGED)
        tile = self._under(program, window.ks[0] * window.ks[1])
        own = replace(
            params.tiling(tile, params.merge_groups(geometry, count)), tiles_n=int(bands * runs), merged=count
        )
        return stream_k.tiling(own, program)

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the problems of cases.py."""
        found = contraction_cases(workload, self._under(program, shapes.VERIFIED_TAPS), epilogue)
        return patch_cases(found, workload, program)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names that runs at verification sizes must count."""
        impossible = impossible_edges(workload, self._under(program, shapes.VERIFIED_TAPS))
        return patch_branches(program, workload) - impossible | stream_k.branches(program)

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with accesses as wide as the alignment class of filters and output."""
        align = extents(workload).align
        return program.replace(vector_a=align["a"], vector_c=align["c"])

    def shared(self, program: Program) -> Program:
        """Return the Program with the run-time epilogue, and a promise of one block, or of a stream's."""
        return program.replace(epilogue_fixed=0, min_blocks=max(stream_k.promise(program), 1))

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Matrix instructions under one tap: a warp tile in units of 16 x 8 x 32 bytes."""
        units = program["warp_m"] * program["warp_n"] * program["block_k"] * extents(workload).element
        return frozenset({"HMMA", "IMMA"}), units // (16 * 8 * 32)

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of some block tiles, every third one split, and of tiles that are the filters of
        as many groups as a step has room for; all legal."""
        e, call = extents(workload), call_of(workload)
        step = shapes.STEP_BYTES[0] // e.bytes_a
        wanted = [
            {"block_m": m, "block_n": n, "block_k": step, "split_k": 1 + (place % 3 == 2)}
            for place, (m, n) in enumerate(STARTERS)
        ]
        count = max(count for count in shapes.merges(workload) if count * call.channels <= step)
        if count:
            rows = min(-(-e.m * count // 16) * 16, max(BLOCKS))
            merged = {"block_m": rows, "block_k": step, "split_k": 1, shapes.MERGED: count}
            wanted = [merged | {"block_n": n} for n in MERGED_STARTERS] + wanted
        return complete(self, wanted, workload, arch, MOST_STARTING_REGISTERS)[:8]
