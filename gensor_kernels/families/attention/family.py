"""attention: softmax(Q K^T) V fused, through mma.sync with an online softmax (attention.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.base import WORKSPACE_GROUP
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import (
    EPILOGUE_FIXED,
    LEVEL,
    MIN_BLOCKS,
    Columns,
    Coordinate,
    Facts,
    Launch,
    Need,
    access_widths,
    operators,
)
from gensor_kernels.families.core.macros import epilogue_codes, macro_token
from gensor_kernels.families.core.params import Tiling, ragged_tiles, tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.core.rules import Ruled
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators import operator
from gensor_kernels.operators.attention.attention import SINKS
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import column as own
from . import cost, rules
from .cases import attention_cases, has_partial_keys
from .cost import assemble, loop_of
from .sequence_cases import sequence_cases
from .shape import sizes_of

EPILOGUE_NAMES = ("epilogue_staged", "epilogue_fixed", "vector_c", "min_blocks")
OUTPUTS = ("float16", "bfloat16", "float32")
#: Starters stay well below the registers that a thread may hold.
MOST_STARTING_REGISTERS = 248.0
MASKS = {"int8", "float16", "bfloat16", "float32"}

#: The remedy where no kernel of attention serves.
COMPOSE = "or compose it of two products and a softmax"

COMBINE_THREADS = 256
#: MASK of the kernels by kind of mask.
MASK_CODES = {"": 0, "bool": 1, "added": 2}


class Attention(Ruled):
    """Fused attention on tensor cores."""

    name = "attention"
    abi = 3
    source = "attention.cu"
    parts = staticmethod(cost.parts)
    sizes = staticmethod(rules.sizes)
    rules = rules.RULES
    ends = EPILOGUE_NAMES
    #: all registers for one block
    unbound = MappingProxyType({"epilogue_fixed": 0, "min_blocks": 1})
    names: tuple[str, ...] = (
        *("level", "block_q", "block_k", "head_tile", "split_k"),
        *("stages", "copy", "vector_k", "vector_v", "swizzle"),
        *("warp_q", "instruction", "q_registers"),
        *EPILOGUE_NAMES,
    )
    needs: tuple[Need, ...] = (operators(FORMS, "is no attention"),)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """float16 and bfloat16, heads of up to 256 elements."""
        types, head = workload.dtype, workload.size["head"]
        if not cost.kind(workload):
            return f"attention takes float16 or bfloat16, got {types['a']}: cast q, k and v, {COMPOSE}"
        if not cost.choices(workload, arch):
            return f"{arch.name} has no tensor cores for {types['a']}: cast q, k and v to float16, {COMPOSE}"
        if types["c"] not in OUTPUTS:
            return f"attention writes {', '.join(OUTPUTS)}, not {types['c']}: cast the result"
        if types.get("s", "float32") not in SINKS:
            return f"the sinks of attention are of {', '.join(SINKS)}, not {types['s']}: cast them"
        if types.get("e", "int8") not in MASKS:
            return f"the mask of attention is of {', '.join(sorted(MASKS))}, not {types['e']}: cast the mask"
        if head > cost.HEADS[-1]:
            return (
                f"attention takes heads of up to {cost.HEADS[-1]} elements, got {head}: {COMPOSE.removeprefix('or ')}"
            )
        return None

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the tiles of rows and keys, the head's tile, split, ring and copies, rows of a warp, epilogue."""
        codes = tuple(i.code for i in cost.choices(workload, arch))
        asynchronous = self._asynchronous(workload, arch)
        return (
            LEVEL,
            Coordinate("block_q", cost.BLOCKS, 0, "tile", "rows (query, head of a group) per block"),
            Coordinate("block_k", cost.BLOCKS, 0, "tile", "keys of one main-loop step"),
            Coordinate("head_tile", cost.HEADS, 0, "tile", "elements of a head with padding"),
            Coordinate("split_k", cost.SPLITS, 0, "split", "blocks that share the keys of a tile", runtime=True),
            Coordinate("stages", (1, 2, 3, 4) if asynchronous else (1,), 1, "stages", "pairs of tiles of K and V"),
            Coordinate("copy", (0, 1) if asynchronous else (0,), 1, "layout", "1: cp.async, 0: through registers"),
            vector(workload, "vector_k", "b", 1),
            vector(workload, "vector_v", "d", 1),
            Coordinate("swizzle", (0, 1), 1, "layout", "1: shared rows permuted by 16-byte chunks"),
            Coordinate("warp_q", cost.WARP_ROWS, 2, "tile", "rows per warp"),
            Coordinate("instruction", codes, 2, "instruction", "INSTRUCTION macro: the mma shape"),
            Coordinate("q_registers", (0, 1), 2, "layout", "1: a warp's rows of Q stay in its registers"),
            Coordinate("epilogue_staged", (0, 1), 2, "epilogue", "1: C leaves through shared memory"),
            EPILOGUE_FIXED,
            vector(workload, "vector_c", "c", 2),
            MIN_BLOCKS._replace(values=(1, 2, 3, 4)),
        )

    @staticmethod
    def _asynchronous(workload: Workload, arch: Arch) -> bool:
        """cp.async moves 4 bytes or more."""
        return "cp_async" in arch.features and min(workload.align[x] for x in "bd") >= 4

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        found = {"SHARED_BYTES": self._memory(columns), "WARPS": columns[column.WARPS]}
        for x in "kv":
            copies = columns[own.COPIES[x]]
            found |= {f"{x.upper()}_PIECES_PER_THREAD": copies, f"{x.upper()}_COLUMNS": copies / columns[own.PASSES[x]]}
        return found

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """One pair of tiles, two where they fit twice; warps of 16 rows that keep Q where it is small."""
        like = np.ones_like(columns["block_q"])
        ring = 4 * columns["block_k"] * columns["head_tile"] * 4 + columns["block_q"] * columns["head_tile"] * 2
        slabs = columns["block_q"] * columns["head_tile"] * 4  # of warps of 16 rows
        asynchronous = self._asynchronous(workload, arch)
        return {
            "stages": np.where(ring <= arch.smem_per_sm // 2, 2, 1) if asynchronous else like,
            "copy": like * int(asynchronous),
            "vector_k": 16 * like,
            "vector_v": 16 * like,
            "swizzle": like,
            "warp_q": 16 * like,
            "instruction": like * cost.choices(workload, arch)[0].code,
            "q_registers": np.where(columns["head_tile"] + columns["block_k"] <= 192, 1, 0),
            "epilogue_staged": np.where(slabs <= arch.smem_per_block, 1, 0),
            "epilogue_fixed": 0 * like,
            "vector_c": 16 * like,
            "min_blocks": like,
        }

    # ---- numbers that depend on too many coordinates to be tabulated

    @staticmethod
    def _memory(c: Columns) -> np.ndarray:
        """Return the dynamic shared bytes of a block: Q and the ring, or the slabs of a staged epilogue."""
        return np.maximum(c[column.RING], c[column.SLAB] * c[column.WARPS])

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Count sums, scores, weights, Q where it is kept, pieces on their way, addresses, numbers of pages."""
        copies = columns[own.COPIES["k"]] + columns[own.COPIES["v"]]
        pages = columns[own.PASSES["k"]] + columns[own.PASSES["v"]] if FORMS[workload.operator].paged else 0.0
        return columns[column.BASE_REGISTERS] + copies * columns[own.HOLD] + pages

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        loop = loop_of(columns, self.registers(columns, workload, arch), self._memory(columns))
        return assemble(columns, sizes_of(workload), arch, facts, loop, cost.cut_issue(columns))

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of attention.cu."""
        layouts, form = workload.layouts, FORMS[workload.operator]
        units = {f"{macro}_UNIT": int(layouts[name] != "s") for macro, name in zip("QKV", "abd", strict=True)}
        return {
            **shared_constants(program, workload),
            **units,
            "Q_VECTOR": workload.align["a"],
            **{f"{name.upper()}_VECTOR": program[f"vector_{name}"] for name in "kv"},
            **{name.upper(): program[name] for name in ("instruction", "swizzle", "warp_q", "q_registers")},
            "RAGGED": int(form.ragged),
            "KEYS_IN": 2 if form.paged else int(form.ragged),
            "ASYNC": program["copy"],
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the attention, and for a split the launch that combines its parts (its grid: attention_finish.cuh)."""
        p, e = program.by_name, sizes_of(workload)
        warps, split = p["block_q"] // p["warp_q"], p["split_k"]
        memory = max(cost.ring_bytes(p), cost.slab_bytes(p) * warps)
        grid = e.batch * split * int(e.tiles(np.asarray(p["block_q"])))
        first = Launch("attention", grid, 32 * warps, memory, writes=written(workload))
        return (first, *combining(program, workload))

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of a split's parts: sums in rows of whole groups of four, and two numbers a row."""
        e, split = sizes_of(workload), program["split_k"]
        columns = -(-e.n // WORKSPACE_GROUP) * WORKSPACE_GROUP
        return (split * e.batch * e.m * (columns + 2) * e.bytes_acc if split > 1 else 0), False

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of rows and parts of the keys."""
        found = tiling({**self.tile(program), "m": 1, "n": max(geometry.sizes[1], 1)}, geometry)
        rows, block = geometry.sizes[0] * geometry.batch[2], program["block_q"]
        tiles = ragged_tiles(rows, geometry.ragged, block) if geometry.ragged else -(-rows // block)
        return Tiling(tiles, 1, found.split, found.k_per_split, 1)

    def tile(self, program: Program) -> dict[str, int]:
        """Rows, elements of a head, keys, stages, split: numbers of a Program that arguments and cases need."""
        names = {"m": "block_q", "n": "head_tile", "k": "block_k", "stages": "stages", "split": "split_k"}
        return {name: program[coordinate] for name, coordinate in names.items()} | {"raster": 1}

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the problems of cases.py and sequence_cases.py."""
        sequences = FORMS[workload.operator].sequences
        return (sequence_cases if sequences else attention_cases)(program, workload, epilogue)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names that runs at verification sizes must count."""
        names = {"full_q", "edge_q", "full_block", "edge_k", "diagonal", "skipped"}
        if program["split_k"] > 1:
            names.add("split_reduce")
        form = FORMS[workload.operator]
        if form.windowed:
            names |= {"window", "skipped_window"}
        if form.ragged:
            names |= {"spare", "rest"}
        names |= {"sink", "sink_alone"} if form.sinks else set()
        names |= {"lse"} if form.lse else set()
        names |= {"lse_of_nothing"} if form.lse and not form.sinks else set()
        return frozenset(names) - (frozenset() if has_partial_keys(program, workload) else {"edge_k"})

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with accesses as wide as the alignment class of each operand, staged."""
        align = workload.align
        return program.replace(vector_k=align["b"], vector_v=align["d"], vector_c=align["c"], epilogue_staged=1)

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Matrix instructions of both products."""
        needed = next(i.needed for i in cost.INSTRUCTIONS[cost.kind(workload)] if i.code == program["instruction"])
        units = program["warp_q"] * program["block_k"] * program["head_tile"] // 1024
        return frozenset({"HMMA"}), int(units * needed)

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Default completions of some tiles, for long and for few queries, and of a split; all legal."""
        head = -(-max(workload.size["head"], 1) // 16) * 16
        kinds = ((64, 16, 1), (128, 32, 1), (16, 16, 1), (16, 16, 2), (128, 16, 1))
        wanted = [
            {"block_q": rows, "block_k": keys, "head_tile": head, "split_k": split, "warp_q": warp}
            | ({"q_registers": 0} if warp > 16 else {})
            for rows, warp, split in kinds
            for keys in (64, 32, 16)
        ]
        found = complete(self, wanted, workload, arch, MOST_STARTING_REGISTERS)
        return one_of_each(found or complete(self, wanted, workload, arch, np.inf), "block_q", "warp_q", "split_k")


def one_of_each(found: list[Program], *kind: str) -> list[Program]:
    """Return at most 8 Programs: the first of each kind, which has the longest step, then the others."""
    first = {tuple(program[name] for name in kind): program for program in reversed(found)}
    return list(dict.fromkeys([*(program for program in found if program in first.values()), *found]))[:8]


def combining(program: Program, workload: Workload) -> tuple[Launch, ...]:
    """Return the launch that combines the parts of the keys, for a split (its grid: attention_finish.cuh)."""
    e = sizes_of(workload)
    if program["split_k"] == 1:
        return ()
    width = program["vector_c"] // e.bytes_c if workload.layouts["c"] != "s" else 1
    groups = e.batch * e.m * -(-e.n // width)
    blocks = -(-groups // COMBINE_THREADS)
    return (Launch("attention_combine", blocks, COMBINE_THREADS, 0, dependent=True, writes=written(workload)),)


def written(workload: Workload) -> tuple[int, ...]:
    """Return the places among the inputs of those that are written."""
    declared = operator(workload.operator)
    return tuple(declared.names.index(name) for name in declared.written)


def shared_constants(program: Program, workload: Workload) -> dict[str, int | str]:
    """Return the macro bindings that the kernels of all attention families have."""
    return {
        "IN_TYPE": macro_token(workload.dtype["a"]),
        "OUT_TYPE": macro_token(workload.dtype["c"]),
        "ACC_TYPE": macro_token(workload.accumulator),
        "C_UNIT": int(workload.layouts["c"] != "s"),
        "C_VECTOR": program["vector_c"],
        **_mask_constants(workload),
        "SLIDING": int(FORMS[workload.operator].windowed),
        "SOFTCAP": int(FORMS[workload.operator].capped),
        **_denominator_constants(workload),
        **{name.upper(): program[name] for name in ("stages", "block_q", "epilogue_staged", "min_blocks")},
        "HEAD": program["head_tile"],
        "BLOCK_KEYS": program["block_k"],
        "SPLIT": int(program["split_k"] > 1),
        "EPILOGUE_CODES": epilogue_codes(program, workload),
    }


def vector(workload: Workload, name: str, operand: str, level: int) -> Coordinate:
    """Return the bytes of one global access of an operand: at least an element, at most its alignment class."""
    widths = access_widths(facts(workload.dtype[operand]).itemsize, workload.align[operand])
    return Coordinate(name, widths, level, "copy_width", f"bytes per global access of {name[-1].upper()}")


def _denominator_constants(workload: Workload) -> dict[str, int | str]:
    """Return the macros of sinks and of logarithms, where a form has them."""
    sinks: dict[str, int | str] = {"SINKS": 1, "SINK_TYPE": macro_token(workload.dtype.get("s", "float32"))}
    form = FORMS[workload.operator]
    return (sinks if form.sinks else {}) | ({"LSE": 1} if form.lse else {})


def _mask_constants(workload: Workload) -> dict[str, int | str]:
    """Return the macros of reading the mask: two adjacent elements at a time where their address allows it."""
    kind = FORMS[workload.operator].mask
    if not kind:
        return {"MASK": 0, "MASK_TYPE": "float", "MASK_UNIT": 1, "MASK_VECTOR": 4}
    size, pair = facts(workload.dtype["e"]).itemsize, sizes_of(workload).mask_pair
    return {
        "MASK": MASK_CODES[kind],
        "MASK_TYPE": macro_token(workload.dtype["e"]),
        "MASK_UNIT": int(workload.layouts["e"] != "s"),
        "MASK_VECTOR": size * (1 + pair),
    }
