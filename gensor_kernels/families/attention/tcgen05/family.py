"""attention_tcgen05: softmax(Q K^T) V fused, on Blackwell's products in tensor memory (attention_tcgen05.cu)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gensor_kernels.families.attention.cost import CUT_ISSUE, assemble
from gensor_kernels.families.attention.family import one_of_each
from gensor_kernels.families.attention.wgmma.cost import together, with_mask
from gensor_kernels.families.attention.wgmma.family import AttentionWgmma
from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.tcgen05.cost import MEMORY_START
from gensor_kernels.families.contraction.wgmma.cost import warpgroup_loop
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import Columns, Coordinate, Facts, feature, operators
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.attention.attention import MASK_AXES, part_heads
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import cost, rules


class AttentionTcgen05(AttentionWgmma):
    """Fused attention in tensor memory."""

    name = "attention_tcgen05"
    abi = 2
    source = "attention_tcgen05.cu"
    parts = staticmethod(cost.parts)
    threads = staticmethod(cost.threads)
    launch_bytes = staticmethod(cost.launch_bytes)
    rules = rules.RULES
    sized = staticmethod(cost.parted_sizes)
    names = (*AttentionWgmma.names, cost.SCORE_TILES.name)
    needs = (operators(FORMS, "is no attention"), feature("tcgen05", "tensor memory"))

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the coordinates of warpgroups, of which a block has one or two, and the tiles of scores."""
        values = {"block_q": cost.BLOCKS_Q, "stages": cost.STAGES, "min_blocks": (1, 2)}
        found = super().coordinates(workload, arch)
        return (*(each._replace(values=values.get(each.name, each.values)) for each in found), cost.SCORE_TILES)

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """As many stages as fit, up to six, as warpgroups have them."""
        return super().defaults(columns, workload, arch) | {cost.SCORE_TILES.name: np.ones_like(columns["block_q"])}

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c, e = columns, self.sized(workload)
        touched = np.full_like(c[column.MATH], 2.0)
        loop = warpgroup_loop(c, self._memory(c), 2 * c["epilogue_staged"], touched, arch.heat("peak_f16"))
        loop.slot = 0.5  # keys, then values
        loop.start = loop.start + MEMORY_START
        loop = with_mask(c, loop, cost.GROUP_ROWS)
        return assemble(c, e, arch, facts, loop, c["block_k"] * CUT_ISSUE, together(c, e))

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of attention_tcgen05.cu."""
        return super().constants(program, workload) | {"SCORE_TILES": program["score_tiles"]}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of whole queries in all heads of a part of their group."""
        (queries, *_), (*_, group) = geometry.sizes, geometry.batch
        parts = cost.parts_of(-(-queries * group // max(geometry.ragged, 1)) // max(group, 1), max(group, 1))
        found = super().tiling(program, part_heads(geometry, parts))
        return replace(found, parted=parts, advance=(parts, 0, 0))

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the problems of warpgroups, one whose largest score grows from tile to tile, and one of groups in
        parts."""
        found = super().cases(program, workload, epilogue)
        named = {each.name: each for each in found}
        given = named.get("both sides", named["shared heads"])
        group, kv_heads, own = 24, 2, 8  # heads of a part
        sizes = {"heads": kv_heads * group, "kv_heads": kv_heads, "keys": 3 * program["block_k"]}
        sizes["queries"] = program["block_q"] // own + 5
        if FORMS[workload.operator].ragged:  # the first sequence has three fifths
            sizes["queries"] = 5 * cost.GROUP_ROWS // own
        else:
            sizes["batch"] = 2
        if "mask_axes" in workload.size:
            sizes["mask_axes"] = given.workload.size["mask_axes"] | MASK_AXES["heads"] | MASK_AXES["queries"]
        return [
            *found,
            replace(found[0], name="growing scores", magnitude=2, schedule=(("early", "reverse"),)),
            replace(
                given, name="parts of groups", workload=given.workload.with_sizes(**sizes), schedule=(("late", 8),)
            ),
        ]

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of warpgroups, groups in parts, and rescaled sums, unless a soft cap bounds the
        growth of scores."""
        found = super().branches(program, workload) | {"parted"}
        return found | (set() if FORMS[workload.operator].capped else {"rescaled"})

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Return none: the loop that multiplies is that of one thread, the loop that weighs is another."""
        return frozenset(), 0

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Default completions of some tiles, for many and for few queries, and of a split; all legal."""
        head = -(-max(workload.size["head"], 1) // 16) * 16
        # Rows, parts of the keys, blocks of a multiprocessor, tiles of scores.
        kinds = ((256, 1, 1, 1), (256, 1, 1, 2), (128, 1, 2, 1), (128, 1, 2, 2), (128, 1, 1, 2), (128, 2, 1, 2))
        first = int(workload.size["causal"] > 0 and not FORMS[workload.operator].ragged)
        wanted = [
            {"block_q": rows, "block_k": step, "head_tile": head, "split_k": split, "longest_first": first}
            | {"score_tiles": tiles}
            | ({"min_blocks": 2, "stages": 2} if blocks == 2 else {})
            for rows, split, blocks, tiles in kinds
            for step in (128, 96, 64, 32, 16)
        ]
        found = complete(self, wanted, workload, arch, np.inf)
        return one_of_each(found, "block_q", "split_k", "min_blocks", "score_tiles")
