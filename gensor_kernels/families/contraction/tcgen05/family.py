"""contraction_tcgen05: Blackwell's products in tensor memory, fed by tensor copies (contraction_tcgen05.cu)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gensor_kernels.families.contraction import base as shared
from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction import rules as shared_rules
from gensor_kernels.families.contraction.base import (
    ContractionFamily,
    common_constants,
    constants_of_stored,
    gate_constants,
)
from gensor_kernels.families.contraction.blocks.cost import scale_vector
from gensor_kernels.families.contraction.cost import assemble, searching
from gensor_kernels.families.contraction.norm import CODES
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.contraction.wgmma import cluster as wgmma_cluster
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma import rules as wgmma_rules
from gensor_kernels.families.contraction.wgmma import store, tma
from gensor_kernels.families.contraction.wgmma.cost import PRODUCT_BYTES, RING, STAGES, STEP_BYTES
from gensor_kernels.families.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.families.core.family import PRODUCTS, Columns, Coordinate, Facts, Launch, feature
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import cluster, cost, rules
from . import column as own_column

#: The feature of parts whose tensor memory has sums of integers.
INTEGER_SUMS = "tcgen05_s8"


class ContractionTcgen05(ContractionWgmma):
    """Matrix products in tensor memory."""

    abi = 1
    source = "contraction_tcgen05.cu"
    parts = staticmethod(cost.parts)
    rules = rules.RULES
    kind = staticmethod(cost.kind)
    product = "product in tensor memory"
    names = (*shared.GRID_NAMES, "cluster", "persistent", "stages", "consumers", *shared.EPILOGUE_NAMES)
    starter_blocks = ((128, 256), (128, 128), (128, 64), (128, 32), (128, 192), (128, 16), (128, 96))
    needs = (PRODUCTS, feature("tcgen05", "tensor memory"))
    streams = False

    def __init__(self, name: str = "contraction_tcgen05", *, only_products: bool = False, images: str = "a") -> None:
        """Make the main loop of the kernel ``name``; see ContractionWgmma."""
        super().__init__(name, only_products=only_products, images=images)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Refuse integers where tensor memory has no sums of them, and what warpgroups are refused."""
        kind = self.kind(workload)
        if kind is not None and kind.rate == "peak_s8" and INTEGER_SUMS not in arch.features:
            return f"{arch.name} has no {self.product} of int8"
        if extents(workload).is_formatted and scale_vector(workload) < cost.WORD:
            return f"scales are copied in whole words of {cost.WORD}"
        return super().refusal(workload, arch)

    def computes(self, e: Extents) -> bool:
        """Return whether the kernel computes what a Workload has in addition to a product."""
        return not self.only_products if e.is_formatted else super().computes(e)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return a block's columns, the k step, whether two blocks multiply as one, ring, epilogue."""
        e, kind = extents(workload), self.own_kind(workload)
        steps = [size // kind.element * kind.together for size in STEP_BYTES[: 1 if kind.promoted else None]]
        columns = [n for n in cost.columns(e, kind) if n * e.matrices <= 256]
        route, *ends, bounds = shared.epilogue_coordinates(e)
        grid = shared.grid_coordinates(e, (cost.BLOCK_ROWS,), columns, steps)
        return (
            *(c._replace(values=(1,)) if c.kind == "split" and e.gate else c for c in grid),
            cluster.coordinate(e),
            Coordinate("persistent", (1,), 0, "raster", "blocks walk tiles"),
            Coordinate("stages", STAGES, 1, "stages", "shared buffers"),
            Coordinate("consumers", (consumers(e),), 2, "tile", "times four warps that store"),
            store.route(route, e),
            *ends,
            bounds._replace(values=(1, 2)),
        )

    def known(self, workload: Workload) -> dict[str, object]:
        """See contraction/rules.py, and wgmma/rules.py."""
        own = {"ROW_SCALES": cost.scales(extents(workload))}
        return shared_rules.names(workload, streams=False) | wgmma_rules.names(workload) | own

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """As many stages as fit, up to six."""
        e, like = extents(workload), np.ones_like(columns["block_m"])
        one: dict[str, Any] = {"stages": 1, "cluster": columns.get("cluster", 0 * like)}
        one |= {name: columns[name] for name in ("block_m", "block_n", "block_k")}
        left = arch.smem_per_block - RING - 4 * consumers(e) * store.BOX_BYTES * 2 - cost.scale_bytes(one, e)
        fitting = left // cost.ring_bytes(one, e)
        return {
            "stages": np.clip(fitting, 2, 6),
            "consumers": consumers(e) * like,
            "persistent": like,
            "epilogue_staged": like * (columns["block_n"] * e.matrices <= cost.SLAB_COLUMNS),
            **shared.default_epilogue(like) | {"min_blocks": like},
        }

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c, e = columns, extents(workload)
        terms = assemble(c, e, arch, facts, lambda: cost.loop(c, self._memory(c), self.heat(workload, arch)))
        # Each block of a pair requests half of the columns of B, which no other block of the pair receives.
        tiles = c[column.HELD["m"]] * c[column.STEP["a"]] + c[column.HELD["n"]] * c[column.STEP["b"]]
        terms.l2_bytes = terms.l2_bytes - tiles * c[wgmma.SAVED] + c[own_column.SCALES_AGAIN]
        terms.arriving = 1.0 + tiles * c[own_column.MULTICAST] / terms.l2_bytes
        terms.placed = c[own_column.PLACED]
        terms.epilogue = terms.epilogue + c[wgmma.MEETINGS]
        if e.rows:
            terms.epilogue = terms.epilogue + np.float32(searching(e))
        return terms

    def heat(self, workload: Workload, arch: Arch) -> float:
        """Return the share of the clock that products take where they are always busy."""
        return arch.heat(self.own_kind(workload).rate)

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return the starters of contractions."""
        return ContractionFamily.starters(self, workload, arch)

    def variants(self, workload: Workload) -> list[dict[str, int]]:
        """Let starters be pairs in turn; where few products hide stores, those of wide tiles are copies."""
        e = extents(workload)
        turns = [{"cluster": cluster.PAIR}, {"cluster": cluster.ALONE}] if not e.rows else [{}]
        if e.in_blocks and store.stores_copies(e):
            return [turns[0] | {"epilogue_staged": store.COPIED}, turns[1], *turns]
        return turns

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with the widest stores."""
        found = super().widest(program, workload)
        wide = program["block_n"] * extents(workload).matrices > cost.SLAB_COLUMNS
        return found.replace(epilogue_staged=program["epilogue_staged"]) if wide else found

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Count k in elements in memory."""
        return replace(super().tiling(program, geometry), together=geometry.together)

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Products of 32 bytes of k that the issuing warp takes part in."""
        kind = self.own_kind(workload)
        return frozenset({kind.opcode}), program["block_k"] // kind.together * kind.element // PRODUCT_BYTES

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_tcgen05.cu."""
        e = extents(workload)
        own = common_constants(program, workload) | constants_of_stored(e) | gate_constants(e)
        own |= {"BLOCK_N": program["block_n"] * e.matrices}
        if e.is_formatted:
            own |= {"ROW_SCALES": cost.scales(e), "BLOCK_K": program["block_k"] // cost.together(e)}
        own |= {f"{e.window.upper()}_WINDOW": e.order} if e.window else {}
        own |= ({"RAGGED_ROWS": 1} if e.rows else {}) | ({"NORM": CODES[e.norm]} if e.norm else {})
        own |= {"BLOCK_SCALED": 1, "CONSUMERS": program["consumers"]} if e.in_blocks else {}
        own |= {"PAIRS": program["cluster"] - 1} if program["cluster"] > cluster.PAIR else {}
        return own | store.constants(program.by_name) | ({"PAIR": 1} if program["cluster"] else {})

    def tile(self, program: Program) -> dict[str, int]:
        """Return the tile of a cluster."""
        return wgmma_cluster.tile(ContractionFamily.tile(self, program), program.by_name, cluster.along)

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the product, whose operands are read by tensor copies, and for a split the reduction."""
        p, e = program.by_name, extents(workload)
        rows = dict(tma.rows(p, e))
        if p["cluster"] and e.unit["b"] == "k" and not e.gate:
            rows["b"] //= 2  # of a gate each block fetches one matrix
        if p["cluster"] > cluster.PAIR:
            rows["b" if p["cluster"] == cluster.ALONG_M else "a"] //= 2  # the other pair fetches the other half
        memory, blocks = int(cost.shared_bytes(p, e)), int(wgmma_cluster.blocks(p, cluster.along))
        return tma.launches(program, workload, self.name, self.tile(program), memory, rows, blocks)


def consumers(e: Extents) -> int:
    """Return how many times four warps store: scales take twice as many."""
    return 2 if e.in_blocks else 1
