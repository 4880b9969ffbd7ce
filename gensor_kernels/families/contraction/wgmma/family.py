"""contraction_wgmma: Hopper's warpgroup products, fed by tensor copies (contraction_wgmma.cu).

Legality and shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import base as shared
from gensor_kernels.families.contraction import column, stream_k
from gensor_kernels.families.contraction import rules as shared_rules
from gensor_kernels.families.contraction.base import (
    ContractionFamily,
    block_starters,
    common_constants,
    constants_of_stored,
    gate_constants,
    plain_branches,
)
from gensor_kernels.families.contraction.cost import Loop, assemble, searching
from gensor_kernels.families.contraction.norm import CODES
from gensor_kernels.families.contraction.problem import Extents, extents, scales_of_b
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import PRODUCTS, WARPGROUPS, Columns, Coordinate, Facts, Family, Launch
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import cluster, cost, implicit_gemm, rules, store, tma
from . import column as wgmma

#: Bytes of the flag with which a warp passes on its share of a tile that is streamed.
FLAG_BYTES = 8
#: The case of contraction_cases without any k.
EMPTY = "empty k"


class ContractionWgmma(ContractionFamily):
    """Matrix products of warpgroups."""

    abi = 7
    source = "contraction_wgmma.cu"
    parts = staticmethod(cost.parts)
    kind = staticmethod(cost.kind)
    rules = rules.RULES
    #: what refusals call the family's products
    product = "warpgroup product"
    names: tuple[str, ...] = (
        *(*shared.GRID_NAMES, "cluster", "persistent", "stages", "consumers"),
        *(*shared.EPILOGUE_NAMES, cost.OVERLAPPED, stream_k.NAME),
    )
    # The eighth one walks in pairs: few rows, whose tiles of A would else pass through the L2 for every 16 columns.
    starter_blocks: tuple[tuple[int, int], ...] = (
        *((128, 128), (128, 256), (64, 64), (256, 128), (64, 128), (128, 64), (192, 192)),
        *((64, 16), (64, 256)),
    )
    #: In place of 192 x 192 where no operation changes the sums: its registers allow no other epilogue, so that a walk
    #: would have to take several steps at once to reach it.
    widest_block = (256, 192)
    needs = (PRODUCTS, WARPGROUPS)
    shared = Family.shared
    #: the launch bound, part of the main loop, stays
    unbound = MappingProxyType({"epilogue_fixed": 0})

    def __init__(self, name: str = "contraction_wgmma", *, only_products: bool = False, images: str = "a") -> None:
        """Make the main loop of the kernel ``name``.

        ``only_products`` leaves out stream-K, gates, groups of different rows and norms.  ``images`` are the operands
        that can be the image of a convolution.
        """
        self.name, self.only_products, self.images = name, only_products, images

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Products of plain matrices, and of images, that tensor copies can read, of the types in cost.KINDS."""
        e = extents(workload)
        kind = self.kind(workload)
        if kind is None or e.dtype["c"] not in kind.outputs:
            math = "" if workload.math == "ieee" else f" with math {workload.math}"
            return f"no {self.product} of {e.dtype['a']} and {e.dtype['b']} into {e.dtype['c']}{math}"
        if not self.computes(e):
            return f"no {self.product} for {workload.operator}"
        for operand in "ab":
            if e.unit[operand] == "s" or e.align[operand] < 16:
                return f"tensor copies read {operand} from addresses and rows that are multiples of 16 bytes only"
            if kind.k_contiguous and e.unit[operand] != "k":
                return f"{e.dtype[operand]} is multiplied from rows along k only, unlike those of {operand}"
        return implicit_gemm.unreadable(workload, self.images) if e.window else None

    def own_kind(self, workload: Workload) -> cost.Kind:
        """Return the kind of a Workload that is served."""
        kind = self.kind(workload)
        assert kind is not None
        return kind

    def computes(self, e: Extents) -> bool:
        """Return whether the kernel computes what a Workload has in addition to a product."""
        refused = self.only_products and (e.gate or e.rows or e.norm or e.in_blocks)
        return not (refused or (e.scaled and not e.in_blocks) or (e.prologue and not e.window))

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Tensor copies go forward, and over one batch entry again and again, but not over one row."""
        reads = implicit_gemm.reads if extents(workload).window else tma.reads
        return store.writes(workload, geometry) and reads(workload, geometry)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile, k step, who walks tiles, ring, warpgroups that multiply, epilogue."""
        e, kind = extents(workload), self.own_kind(workload)
        columns = [n for n in cost.columns(e, kind) if n * e.matrices <= 256]
        columns = [n for n in columns if not e.in_blocks or scales_of_b(n, e.group) <= cost.MOST_SCALES]
        steps = [size // kind.element for size in cost.STEP_BYTES[: 1 if kind.promoted else None]]
        route, *ends, bounds = shared.epilogue_coordinates(e)
        grid = shared.grid_coordinates(e, cost.BLOCKS_M, columns, steps)
        return (
            *(c._replace(values=(1,)) if c.kind == "split" and e.gate else c for c in grid),
            cluster.coordinate(e),
            Coordinate("persistent", cost.PERSISTENT, 0, "raster", "1: blocks walk tiles; 2: groups in turn; 3: apart"),
            Coordinate("stages", cost.STAGES, 1, "stages", "shared buffers"),
            Coordinate("consumers", cost.CONSUMERS, 2, "tile", "warpgroups that multiply"),
            store.route(route, e),
            *ends,
            bounds._replace(values=(1, 2, 3)),  # registers change hands only under a bound
            *cost.overlapped(kind),
            # Steps of an image are steps of taps, which streams do not count.
            *(() if self.only_products or e.window else stream_k.coordinate(e)),
        )

    def known(self, workload: Workload) -> dict[str, object]:
        """See contraction/rules.py, and rules.py."""
        streams = not (self.only_products or extents(workload).window)
        return shared_rules.names(workload, streams) | rules.names(workload)

    def sizes(self, workload: Workload) -> dict[str, int | np.int64]:
        """Add the parts of k that whole steps are made of."""
        return {**super().sizes(workload), "TAPS": implicit_gemm.taps(workload)}

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the shared bytes and the warps of a block."""
        return {"SHARED_BYTES": self._memory(columns), "WARPS": columns[column.WARPS]}

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """As many stages as fit, up to five; 64 or 128 rows per warpgroup; two sets of short sums in small tiles."""
        m, n = columns["block_m"], columns["block_n"]
        like = np.ones_like(m)
        one = {"stages": 1, "block_m": m, "block_n": n, "block_k": columns["block_k"]}
        fitting = (arch.smem_per_block - cost.RING) // cost.ring_bytes(one, extents(workload))
        return {
            "stages": np.clip(fitting, 2, 5),
            "consumers": np.where(m == 64, 1, np.where(m == 192, 3, 2)),
            "epilogue_staged": like,
            cost.OVERLAPPED: like * (m * n <= 128 * 128),
            **shared.default_epilogue(like) | {"min_blocks": stream_k.least_blocks(columns, arch) * like},
        }

    @staticmethod
    def _memory(c: Columns) -> np.ndarray:
        """Return the dynamic shared bytes of a block."""
        return cost.shared_bytes(c[column.RING], c[column.SLAB], c["persistent"])

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the registers that the launch gives every thread."""
        return columns[wgmma.ENTRY]

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c, e = columns, extents(workload)

        def loop() -> Loop:
            heat = cost.heat(workload, arch)
            return replace(
                cost.warpgroup_loop(c, self._memory(c), c[column.STAGING_ROWS], c[column.K_STEPS], heat),
                ahead=c[wgmma.AHEAD],
                behind=c[wgmma.BEHIND],
                request=c[wgmma.REQUEST],
                stalls=c[wgmma.ISSUING],
                taking=c[wgmma.TAKING],
                share=c[wgmma.SHARE],
            )

        terms = cluster.with_clusters(assemble(c, e, arch, facts, loop), c)
        terms.behind = terms.behind + (c["persistent"] == cost.APART) * cost.hidden_apart(terms, c["consumers"], arch)
        if e.rows:  # a warp that walks finds every tile's group
            terms.epilogue = terms.epilogue + (c["persistent"] > 0) * np.float32(searching(e))
        return stream_k.with_streams(terms, c, e, arch, c["block_m"] * np.float32(1) * c["block_n"])

    # ---- one Program

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return the starters of contractions, and the widest tile."""
        values = {"persistent": cost.APART, "stages": 3, "epilogue_staged": store.COPIED, "epilogue_fixed": 1}
        wide = block_starters(self, (self.widest_block,), (values,), self.starts, workload, arch)
        left = [p for p in super().starters(workload, arch) if (p["block_m"], p["block_n"]) != (192, 192) or not wide]
        return left + wide

    def variants(self, workload: Workload) -> list[dict[str, int]]:
        """Let starters walk tiles or not, in turn, and some in pairs."""
        walking = {"persistent": cost.WALKING}
        return [{}, walking, {}, walking | {"cluster": cluster.ALONG_N}]

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with the widest stores, staged: the direct epilogue stores two outputs at a time."""
        route = store.COPIED if store.copies(program.by_name) else store.STAGED
        return program.replace(vector_c=extents(workload).align["c"], epilogue_staged=route)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of contractions, refilled buffers, a block's second tile, and another group's."""
        walking = {"next_tile", "another_group"} if program["persistent"] == cost.IN_TURNS else {"next_tile"}
        odd = program.get(cost.OVERLAPPED) and cost.group_rows(program.by_name) % 2
        own = {"refill", "odd_step"} if odd else {"refill"}
        own |= walking if program["persistent"] and not stream_k.blocks_of(program) else set()
        without = {"raster_tail"} if self.tile(program)["raster"] == 1 else set()
        columns = int(store.slab_columns(program["block_n"], program["persistent"]))
        own |= implicit_gemm.branches(workload) | plain_branches(program, workload, columns)
        if store.copies(program.by_name) and store.rest_columns(program["block_n"], extents(workload)):
            own |= {"rest_of_row"}
        return (super().branches(program, workload) - without) | own

    def tile(self, program: Program) -> dict[str, int]:
        """Return the tile of a cluster."""
        return cluster.tile(super().tile(program), program.by_name)

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Products of 64 x block_n x 32 bytes that a warp takes part in."""
        kind, tiles = self.own_kind(workload), int(cost.group_rows(program.by_name))
        steps = program["block_k"] * kind.element // cost.PRODUCT_BYTES
        return frozenset({kind.opcode}), tiles * steps * kind.products

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the cases of every contraction, summed as the hardware does."""
        found, e = super().cases(program, workload, epilogue), extents(workload)
        if e.window:
            found = implicit_gemm.cases(found, self.tile(program), alone="a" in self.images)
        elif program["persistent"] == cost.IN_TURNS:
            found += [_empty_turns(case, e.rows > 0) for case in found if case.name == EMPTY]
        return [replace(case, workload=self.summed(case.workload)) for case in found]

    def summed(self, workload: Workload) -> Workload:
        """8-bit floats have another type of sums (operators/tolerance/base.py)."""
        own = self.kind(workload)
        return replace(workload, accumulator=own.summed) if own and own.summed else workload

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_wgmma.cu."""
        e = extents(workload)
        own = common_constants(program, workload) | constants_of_stored(e) | gate_constants(e)
        own |= {"BLOCK_N": program["block_n"] * e.matrices}
        walking = {"PERSISTENT": program["persistent"]} if program["persistent"] else {}
        window = {f"{e.window.upper()}_WINDOW": e.order} if e.window else {}
        window |= {"CLUSTER": program["cluster"]} if program["cluster"] else {}
        own |= store.constants(program.by_name) | stream_k.constants(program)
        own |= {"BLOCK_SCALED": 1} if e.in_blocks else {}
        own |= {"OVERLAPPED": 1} if program.get(cost.OVERLAPPED) else {}
        own |= ({"RAGGED_ROWS": 1} if e.rows else {}) | ({"NORM": CODES[e.norm]} if e.norm else {})
        return own | walking | window | {"CONSUMERS": program["consumers"]}

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Add what stream_k does not count: room of the threads that do not multiply, and the flags of warps."""
        own, zero = super().workspace(program, workload)
        blocks, threads = stream_k.blocks_of(program), cost.GROUP_THREADS * (program["consumers"] + 1)
        idle = program["block_m"] * program["block_n"] * extents(workload).bytes_acc // program["consumers"]
        return own + blocks * (idle + FLAG_BYTES * threads // 32), zero

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the product, whose operands are read by tensor copies, and for a split the reduction."""
        p, e = program.by_name, extents(workload)
        memory = int(cost.shared_bytes(cost.ring_bytes(p, e), store.slab_bytes(p), p["persistent"]))
        # Each block of a pair fetches half of a shared tile.
        rows = {
            operand: n // int(cluster.pair(p, axis)) for (operand, n), axis in zip(tma.rows(p, e), "nm", strict=True)
        }
        return tma.launches(program, workload, self.name, self.tile(program), memory, rows, int(cluster.blocks(p)))


def _empty_turns(case: Case, ragged: bool) -> Case:
    """Many tiles without a step, in an order that lets lanes of a warp be late by turns."""
    own = case.workload
    along = {"batch": 12} if "batch" in own.size and not ragged else {"m": 12 * own.size["m"]}
    return replace(case, name="empty turns", workload=own.with_sizes(**along), schedule=(("late", 5),))
