"""attention_wgmma: softmax(Q K^T) V fused, on Hopper's warpgroup products fed by tensor copies (attention_wgmma.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gensor_kernels.families.attention import mask, order
from gensor_kernels.families.attention.cost import CUT_ISSUE, HEADS, SPLITS, assemble, rows_of
from gensor_kernels.families.attention.family import (
    EPILOGUE_NAMES,
    Attention,
    combining,
    one_of_each,
    shared_constants,
    vector,
    written,
)
from gensor_kernels.families.attention.shape import ELEMENT, Sizes, sizes_of
from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma.cost import warpgroup_loop
from gensor_kernels.families.core.family import (
    EPILOGUE_FIXED,
    LEVEL,
    MIN_BLOCKS,
    WARPGROUPS,
    Columns,
    Coordinate,
    Facts,
    Launch,
    operators,
)
from gensor_kernels.families.core.params import Tiling, ragged_tiles
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.core.tensor_maps import TensorMap
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.attention.attention import mask_strides
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import cost, rules

#: Queries, keys and values, by operand.
COPIED = {"a": "queries", "b": "keys", "d": "values"}


class AttentionWgmma(Attention):
    """Fused attention of warpgroups."""

    name = "attention_wgmma"
    abi = 3
    source = "attention_wgmma.cu"
    parts = staticmethod(cost.parts)
    threads = staticmethod(cost.threads)
    launch_bytes = staticmethod(cost.launch_bytes)
    rules = rules.RULES
    sized: Callable[[Workload], Sizes] = staticmethod(sizes_of)
    #: the launch bound, part of the main loop, stays
    unbound = MappingProxyType({"epilogue_fixed": 0})
    names: tuple[str, ...] = (
        *("level", "block_q", "block_k", "head_tile", "split_k", "longest_first"),
        *("stages", "mask_stages", "polynomials", *EPILOGUE_NAMES),
    )
    needs = (operators(FORMS, "is no attention"), WARPGROUPS)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Return the reason of attention, or that tensor copies cannot read an operand."""
        if reason := super().refusal(workload, arch):
            return reason
        if FORMS[workload.operator].paged:
            return "tensor copies read keys one after the other, not in pages"
        for operand, what in COPIED.items():
            if workload.layouts[operand] == "s" or workload.align[operand] < 16:
                return f"tensor copies read {what} from addresses and rows that are multiples of 16 bytes only"
        return None

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Tensor copies need positive strides; the stride of a batch entry or of a head of K and V may be 0."""
        g = geometry
        rows = ((g.a, g.sizes[0], g.a.row), (g.b, g.sizes[2], g.b.column), (g.d, g.sizes[2], g.d.row))
        members = g.batch[2] <= 1 or g.a.batch[2] > 0
        of_mask = mask_strides(g) if FORMS[workload.operator].mask else ()
        return (
            members
            and all(
                all(stride >= 0 for stride in strides.batch) and (count <= 1 or step > 0)
                for strides, count, step in rows
            )
            and all(stride >= 0 for stride in of_mask)
        )

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the tiles of rows and keys, the head's tile, split, order, ring, polynomials, epilogue."""
        form = FORMS[workload.operator]
        return (
            LEVEL,
            Coordinate("block_q", cost.BLOCKS_Q, 0, "tile", "rows (query, head of a group) of a block's tile"),
            Coordinate("block_k", HEADS, 0, "tile", "keys of one main-loop step"),
            Coordinate("head_tile", HEADS, 0, "tile", "elements of a head with padding"),
            Coordinate("split_k", SPLITS, 0, "split", "blocks that share the keys of a tile", runtime=True),
            order.LONGEST_FIRST._replace(values=(0,) if form.ragged else order.LONGEST_FIRST.values),
            Coordinate("stages", cost.STAGES, 1, "stages", "shared tiles of K or V"),
            *([mask.STAGES] * mask.is_copied(workload)),
            cost.POLYNOMIALS._replace(values=(0,) if form.lse else cost.POLYNOMIALS.values),
            Coordinate("epilogue_staged", (0, 1), 2, "epilogue", "1: C leaves through shared memory"),
            EPILOGUE_FIXED,
            vector(workload, "vector_c", "c", 2),
            # Registers change hands only under a bound.
            MIN_BLOCKS._replace(values=(1, 2, 3)),
        )

    def known(self, workload: Workload) -> dict[str, object]:
        """Return whether there are a mask, a window and a soft cap, and whether sequences have different lengths."""
        e = sizes_of(workload)
        found: dict[str, object] = {"MASK": e.mask_bytes > 0, "RAGGED": e.form.ragged}
        found |= {"SLIDING": e.form.windowed, "SOFTCAP": e.form.capped}
        return found if mask.is_copied(workload) else found | {"MASK_STAGES": 0}

    def sizes(self, workload: Workload) -> dict[str, int]:
        """See attention.rules."""
        return super().sizes(workload) | {"GROUP": self.sized(workload).group}

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the shared bytes and the warps of a block."""
        return {"SHARED_BYTES": self._memory(columns), "WARPS": columns[column.WARPS]}

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """As many stages as fit, up to six, next to a tile of the mask, or two where three stages fit."""
        like = np.ones_like(columns["block_q"])
        tile = {name: columns[name] for name in ("block_q", "block_k", "head_tile")}
        none, one = (cost.ring_bytes(tile | {"stages": count * like}) for count in (0, 1))
        free, copied = arch.smem_per_block - cost.FRONT - none, mask.is_copied(workload)
        of_mask = mask.tile_bytes(tile, sizes_of(workload), cost.SPARE) * copied
        masks = np.where(free >= 3 * (one - none) + 2 * of_mask, 2, np.where(free >= 2 * (one - none) + of_mask, 1, 0))
        return ({"mask_stages": masks} if copied else {}) | {
            "stages": np.clip((free - masks * of_mask) // (one - none), 2, 6),
            cost.POLYNOMIALS.name: 0 * like,
            "epilogue_staged": like,
            "epilogue_fixed": 0 * like,
            "vector_c": 16 * like,
            "min_blocks": like,
        }

    # ---- numbers that depend on too many coordinates to be tabulated

    @staticmethod
    def _memory(c: Columns) -> np.ndarray:
        """Return the dynamic shared bytes of a block."""
        return cost.shared_bytes(c[column.RING] + c.get(mask.RING, 0.0), c[column.SLAB], c[wgmma.STORING])

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the registers that the launch gives every thread."""
        return columns[wgmma.ENTRY]

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c = columns
        touched = np.full_like(c[column.MATH], 2.0)
        loop = warpgroup_loop(c, self._memory(c), c["epilogue_staged"], touched, arch.heat("peak_f16"))
        loop.slot = 0.5  # keys, then values
        loop = cost.with_mask(c, loop)
        # The loops over cut tiles and over whole tiles have as many products: the first loop is read back.
        e = sizes_of(workload)
        return assemble(c, e, arch, facts, loop, c["block_k"] / 2 * CUT_ISSUE, cost.together(c, e))

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of attention_wgmma.cu."""
        ragged = int(FORMS[workload.operator].ragged)
        given = shared_constants(program, workload) | {"RAGGED": ragged, "KEYS_IN": ragged} | order.constants(program)
        eighths, masks = program.get(cost.POLYNOMIALS.name), program.get("mask_stages")
        return given | ({"POLYNOMIALS": eighths} if eighths else {}) | ({"MASK_STAGES": masks} if masks else {})

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the attention, whose operands are read by tensor copies, and for a split the combining launch."""
        p, e = program.by_name, self.sized(workload)
        rows = {"a": p["block_q"], "b": p["block_k"], "d": p["block_k"]}
        maps = tuple(TensorMap(operand, False, ELEMENT, rows[operand], heads=True) for operand in COPIED)
        if program.get("mask_stages"):
            maps += (TensorMap("e", False, e.mask_bytes, p["block_q"], heads=True),)
        tiles = int(e.tiles(rows_of(np.asarray(p["block_q"]), e, whole=True)))
        grid = e.batch * p["split_k"] * tiles
        first = Launch(self.name, grid, self.threads(p), self.launch_bytes(p, e), maps, writes=written(workload))
        return (first, *combining(program, workload))

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of whole queries, the parts of the keys, and how many units start together."""
        found = super().tiling(program, geometry)
        rows, group = geometry.sizes[0] * geometry.batch[2], max(geometry.batch[2], 1)
        each = max(program["block_q"] // group, 1) * group
        if geometry.ragged:
            return replace(found, tiles_m=ragged_tiles(rows, geometry.ragged, each))
        return replace(found, tiles_m=-(-rows // each), raster=order.taken_together(program, geometry, found))

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of attention, refilled buffers, and values of another sequence."""
        cleared = {"cleared"} if FORMS[workload.operator].ragged else set()
        refilled = {"mask_refill"} if program.get("mask_stages") else set()
        return super().branches(program, workload) | {"refill"} | cleared | refilled

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with stores as wide as the alignment class, staged."""
        return program.replace(vector_c=workload.align["c"], epilogue_staged=1)

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Products of 64 rows and 32 bytes of k that a warp takes part in: of all elements of a head, of all keys."""
        elements = program["head_tile"] + program["block_k"]
        return frozenset({"HGMMA"}), elements * ELEMENT // cost.PRODUCT_BYTES

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Default completions of some tiles, for many and for few queries, and of a split; all legal."""
        head = -(-max(workload.size["head"], 1) // 16) * 16
        kinds = ((128, 1), (192, 1), (64, 1), (64, 2))
        keys = (128, 176, 96, 80, 64, 48, 32, 16)
        first = int(workload.size["causal"] > 0 and not FORMS[workload.operator].ragged)
        wanted = [
            {"block_q": rows, "block_k": step, "head_tile": head, "split_k": split, "longest_first": first}
            for rows, split in kinds
            for step in keys
        ]
        return one_of_each(complete(self, wanted, workload, arch, np.inf), "block_q", "split_k")
