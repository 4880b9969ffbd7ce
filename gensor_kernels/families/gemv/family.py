"""gemv: products with a small m or n, whose large operand is streamed (gemv.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import prologue as contraction_prologue
from gensor_kernels.families.contraction.base import SPLITS, reduce_launch, workspace_bytes
from gensor_kernels.families.contraction.cases import contraction_cases, impossible_edges
from gensor_kernels.families.contraction.complex import RATES
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import EPILOGUE_FIXED, LEVEL, PRODUCTS, Columns, Coordinate, Launch
from gensor_kernels.families.core.macros import epilogue_codes, macro_token
from gensor_kernels.families.core.params import Tiling, tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.core.rules import Ruled
from gensor_kernels.machine.arch import DEPENDENT_LAUNCH, Arch
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import rules
from .cost import registers, terms
from .shape import (
    A_COLUMNS,
    A_ROWS,
    B_COLUMNS,
    EARLY,
    INPUT_BYTES,
    MOST_SMALL,
    SUM_BYTES,
    forms,
    long_tile,
    shape,
    step_of,
)

POWERS = tuple(2**p for p in range(11))
SMALLS = (1, 2, 3, 4, 6, 8, 12, 16)
#: Threads of an output, threads along the long axis and parts of k whose default completions are the starters: of
#: weights along k, and of weights along the long axis.
ROW_STARTERS = ((32, 8, 1), (16, 8, 1), (32, 1, 1), (128, 2, 1), (256, 1, 1), (32, 4, 2), (256, 1, 4), (1024, 1, 16))
COLUMN_STARTERS = ((16, 8, 1), (8, 32, 1), (16, 4, 1), (32, 8, 1), (64, 4, 1), (8, 16, 4), (16, 8, 4), (4, 16, 16))


class Gemv(Ruled):
    """Products with at most 16 rows, or at most 16 columns."""

    name = "gemv"
    abi = 3
    source = "gemv.cu"
    known = staticmethod(rules.names)
    terms = staticmethod(terms)
    rules = rules.RULES
    ends = ("epilogue_fixed", "min_blocks")
    unbound = MappingProxyType({"epilogue_fixed": 0, "min_blocks": 0})
    names = (
        *("level", "form", "threads_k", "threads_l", "small", "split_k"),
        *("vector", "items", "rows", "x_shared", "epilogue_fixed", "min_blocks", EARLY),
    )
    needs = (PRODUCTS,)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Every matrix product with a skinny side, but for operands that are read through a window or widened."""
        e = extents(workload)
        if e.window:
            return f"{workload.operator} reads its operand through a window"
        if e.gate or e.rows or e.norm:
            return f"{workload.operator} is more than a matrix product"
        if e.is_widened:
            return "an operand is stored narrower than it is multiplied"
        few = "neither m nor n is" if not e.prologue else "with a prologue, m is not"
        return None if forms(workload) else f"{few} at most {MOST_SMALL}"

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the streamed operand and its layout, threads of an output, tiles, accesses, where x is read from."""
        e, possible = extents(workload), forms(workload)
        width = max((e.align["ab"[form < A_ROWS]] // e.bytes_a for form in possible), default=1)
        by_rows = any(form in (0, A_ROWS) for form in possible)
        return (
            LEVEL,
            Coordinate("form", possible, 0, "layout", "streamed operand: 0 B, 2 A; +1: contiguous along the long axis"),
            Coordinate("threads_k", POWERS, 0, "tile", "threads that share an output"),
            Coordinate("threads_l", POWERS, 0, "tile", "threads, or groups of them, along the long axis"),
            Coordinate("small", SMALLS, 0, "tile", "entries of the small axis per block"),
            Coordinate("split_k", SPLITS, 0, "split", "blocks that share one tile's k range", runtime=True),
            Coordinate(
                "vector", tuple(w for w in POWERS if w <= max(width, 1)), 1, "copy_width", "elements per access"
            ),
            Coordinate("items", (1, 2, 4, 8), 1, "tile", "accesses of a thread and row that are under way at once"),
            Coordinate("rows", (1, 2, 4, 8) if by_rows else (1,), 1, "tile", "rows of the streamed operand per thread"),
            Coordinate(
                "x_shared",
                (0, 1) if by_rows and not e.prologue else (1,),
                1,
                "layout",
                "1: x comes through shared memory",
            ),
            EPILOGUE_FIXED,
            Coordinate("min_blocks", (0, 1, 2, 3, 4, 6, 8), 2, "launch_bounds", "blocks per SM promised"),
            Coordinate(
                EARLY,
                (0, 1) if DEPENDENT_LAUNCH in arch.features else (0,),
                2,
                "stages",
                "1: starts, and fetches weights, before the launch before it has ended",
            ),
        )

    def sizes(self, workload: Workload) -> dict[str, int]:
        """Return the extent of k."""
        return {"K": extents(workload).k}

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        e = extents(workload)
        s = shape(columns, e)
        names = ("step", "steps", "long", "x_elements", "x_loads", "c_width")
        return {
            **{name.upper(): getattr(s, name) for name in names},
            "SHARED_BYTES": s.memory,
            "WARPS": s.threads / 32,
            "BLOCKS": s.tiles_small * s.tiles_long * s.split * e.batch,
        }

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Choose the widest accesses, 128 bytes of weights in flight; x in shared memory where threads share it."""
        e, c = extents(workload), columns
        s = shape({**{name: c[name] for name in self.names[:6]}, **_least(c)}, e)
        by_columns, like = c["form"] % 2 == 1, np.ones_like(c["form"])
        most = np.maximum(SUM_BYTES // (e.bytes_acc * c["small"]), 1)
        # With many sums a thread has few registers left for more of each row of them.
        entries = np.minimum(_power_below(most), np.maximum(4, _power_below(np.maximum(32 // c["small"], 1))))
        vector = np.where(by_columns, np.minimum(s.width, entries), s.width).astype(np.int32)
        loads = np.clip(128 // (vector * e.bytes_a), 1, 32)
        rows = np.where(by_columns, 1, np.minimum(np.minimum(loads, np.where(c["small"] > 8, 2, 4)), entries))
        # A step of x for many rows takes much shared memory.
        items = np.clip(np.where(by_columns, loads, np.minimum(loads // rows, 8 // c["small"])), 1, 8)
        shared = by_columns | (c["threads_l"] * c["threads_k"] > np.maximum(c["threads_k"], 32))
        direct = c["small"] * items * vector * e.bytes_a <= INPUT_BYTES
        return {
            "vector": vector,
            "items": items,
            "rows": rows,
            "x_shared": np.where(shared | ~direct, 1, 0),
            "epilogue_fixed": 0 * like,
            "min_blocks": 0 * like,
            EARLY: 0 * like,
        }

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """See cost.py."""
        e = extents(workload)
        return registers(columns, e, shape(columns, e))

    # ---- one Program

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Multiply-adds of a thread's step."""
        count = program["small"] * program["rows"] * program["items"] * program["vector"]
        opcode = {"fma_f32": "FFMA", "fma_f64": "DFMA"}.get(RATES[workload.accumulator], "IMAD")
        return frozenset({opcode}), count * (4 if extents(workload).is_complex else 1)

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of gemv.cu."""
        e, form = extents(workload), program["form"]
        weights, x = ("a", "b") if form >= A_ROWS else ("b", "a")
        s = shape({name: np.array([value]) for name, value in program.values}, e)
        names = ("threads_k", "threads_l", "rows", "small", "items", "x_shared", "min_blocks")
        own = {EARLY.upper(): program[EARLY]} if program.get(EARLY) else {}
        return {
            "IN_TYPE": macro_token(e.dtype["a"]),
            "OUT_TYPE": macro_token(e.dtype["c"]),
            "ACC_TYPE": macro_token(workload.accumulator),
            "FORM": 4 if e.is_complex else 1,
            "A_CONJUGATE": int(e.conjugated["a"]),
            "B_CONJUGATE": int(e.conjugated["b"]),
            "WEIGHTS": int(form >= A_ROWS),
            "W_COLUMNS": form % 2,
            "W_UNIT": int(e.unit[weights] != "s"),
            "X_UNIT": int(e.unit[x] == "k"),
            "C_UNIT": int(e.unit["c"] != "s"),
            "W_VECTOR": program["vector"] * e.bytes_a,
            "X_VECTOR": int(s.x_elements[0]) * e.bytes_a,
            "C_VECTOR": int(s.c_width[0]) * e.bytes_c,
            "SPLIT": int(program["split_k"] > 1),
            "EPILOGUE_CODES": epilogue_codes(program, workload),
            **{name.upper(): program[name] for name in names},
            **own,
            **contraction_prologue.constants(program, e),
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the product, and for a split the reduction."""
        e = extents(workload)
        s = shape({name: np.array([value]) for name, value in program.values}, e)
        blocks = e.batch * int(s.split[0] * s.tiles_small[0] * s.tiles_long[0])
        main = Launch(self.name, blocks, int(s.threads[0]), int(s.memory[0]), dependent=bool(program.get(EARLY)))
        return (main, reduce_launch(e, int(s.c_width[0]))) if program["split_k"] > 1 else (main,)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of a split's partial sums; nothing needs to be zero."""
        return workspace_bytes(program, workload), False

    def tile(self, program: Program) -> dict[str, int]:
        """m, n, k, stages, split, raster: numbers of a Program that arguments and cases need."""
        p = program.by_name
        small, wide = p["small"], int(long_tile(p))
        m, n = (wide, small) if p["form"] >= A_ROWS else (small, wide)
        return {"m": m, "n": n, "k": int(step_of(p)), "stages": 1, "split": p["split_k"], "raster": 1}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of C and parts of k."""
        return tiling(self.tile(program), geometry)

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the problems of contraction_cases."""
        return contraction_cases(workload, self.tile(program), epilogue)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names that runs at verification sizes must count."""
        names = {"full_tile", "edge_m", "edge_n", "edge_k"} | ({"split_reduce"} if program["split_k"] > 1 else set())
        names |= contraction_prologue.branches(program, extents(workload))
        return frozenset(names) - impossible_edges(workload, self.tile(program))

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with accesses as wide as the alignment class of the streamed operand."""
        e = extents(workload)
        return program.replace(vector=max(1, e.align["ab"[program["form"] < A_ROWS]] // e.bytes_a))

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of some block tiles for the smallest tile that holds the small axis; at most 8."""
        e, wanted = extents(workload), []
        for place in range(len(ROW_STARTERS)):
            for form in forms(workload):
                tiles = COLUMN_STARTERS if form in (B_COLUMNS, A_COLUMNS) else ROW_STARTERS
                lanes, wide, split = tiles[place]
                small = next(x for x in (1, 2, 4, 8, 16) if x >= min(e.n if form >= A_ROWS else e.m, 16))
                wanted.append({"form": form, "threads_k": lanes, "threads_l": wide, "small": small, "split_k": split})
        return complete(self, wanted, workload, arch, 192)[:8]


def _least(c: Columns) -> dict[str, np.ndarray]:
    like = np.ones_like(c["form"])
    return {name: like for name in ("vector", "items", "rows", "x_shared")}


def _power_below(value: np.ndarray) -> np.ndarray:
    """Return the largest power of two that is at most each positive integer."""
    return 2 ** np.floor(np.log2(value)).astype(np.int64)
