"""rows: reductions, softmax, norms and element-wise maps (rows.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import ROWS, Columns, Coordinate, Facts, Launch
from gensor_kernels.families.core.lattice import Lattice
from gensor_kernels.families.core.macros import epilogue_codes, macro_token
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.rules import Ruled
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms

from . import rules
from .cases import rows_branches, rows_cases, verified_bytes
from .cost import registers, shape, shared_bytes, terms
from .shape import COPY, HELD_BYTES, MAP_COLUMNS, OPERATIONS, REDUCE_COLUMNS, STAGED, TWO_FORMS, view

if TYPE_CHECKING:
    from gensor_kernels.operators.types.geometry import Geometry
    from gensor_kernels.operators.types.workload import Workload

POWERS = tuple(2**p for p in range(11))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
#: Threads of a row, rows of a block and parts of k whose default completions are the starters.
STARTERS = (
    *((256, 1, 1), (32, 8, 1), (128, 1, 1), (8, 32, 1), (1024, 1, 1), (128, 2, 4)),
    *((64, 4, 1), (16, 16, 1), (4, 64, 3), (32, 32, 1), (1, 128, 1), (32, 4, 2)),
    *((256, 1, 16), (512, 1, 64), (128, 2, 128)),
)
#: Threads of a block and staged rows of each: the starters of short rows.
STAGED_STARTERS = ((128, 4), (256, 8), (256, 16), (128, 1))
_OUTER = ("split_k", "epilogue_fixed", "min_blocks")


class RowsFamily(Ruled):
    """Rows folded into one result each, or mapped with the result of the fold."""

    name = "rows"
    abi = 3
    source = "rows.cu"
    rules = rules.RULES
    names = (
        *("level", "form", "threads_k", "threads_m", "split_k", "staged"),
        *("vector", "items", "keep", "online", "epilogue_fixed", "min_blocks"),
    )
    needs = (ROWS,)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve operators that have rows of real numbers; integers without an epilogue."""
        if workload.is_complex:
            return f"rows of {workload.accumulator} are not folded: give the real and the imaginary part apart"
        e = view(workload)
        if workload.epilogue and not e.epilogue:
            return f"{workload.operator} of {e.rows.a.dtype} has no epilogue: cast to float32"
        return None

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the threads of a row and rows of a block, parts of k, accesses, where rows stay, one pass or two."""
        e = view(workload)
        width = max(1, e.align_a // e.bytes_a) if e.rows.along != "s" else 1
        kept = (0, 1, 2) if e.many_passes else (0, 1) if e.staged else (0,)
        online = (0, 1) if e.rows.operation in TWO_FORMS else (1,)
        fixed = (0, 1) if e.epilogue else (0,)
        return (
            Coordinate("level", (0, 1, 2), 0, "cache", "memory level the construction has reached"),
            Coordinate("form", (e.form,), 0, "layout", "reduction, map (+1); of columns (+2); element-wise (4)"),
            Coordinate("threads_k", POWERS, 0, "tile", "threads that share a row"),
            Coordinate("threads_m", POWERS, 0, "tile", "rows (groups of adjacent columns) of a block"),
            Coordinate("split_k", SPLITS if e.form != COPY else (1,), 0, "split", "blocks of a row", runtime=True),
            *([Coordinate("staged", STAGED, 0, "tile", "rows of a thread in shared memory, 0: none")] * e.staged),
            Coordinate("vector", tuple(w for w in POWERS if w <= width), 1, "copy_width", "elements per access of x"),
            Coordinate("items", (1, 2, 4, 8), 1, "tile", "accesses of a thread that are under way at once"),
            Coordinate("keep", kept, 1, "layout", "between passes: 0 read x again, 1 registers, 2 shared memory"),
            Coordinate("online", online, 1, "instruction", "1: one pass that rescales, 0: two passes"),
            Coordinate("epilogue_fixed", fixed, 2, "epilogue", "1: the list of operations is compiled in"),
            Coordinate("min_blocks", (0, 1, 2, 3, 4, 6, 8), 2, "launch_bounds", "blocks per SM promised"),
        )

    def known(self, workload: Workload) -> dict[str, object]:
        """See rules.py."""
        return rules.names(workload)

    def sizes(self, workload: Workload) -> dict[str, int]:
        """Return the extents of the batch and k."""
        return {"BATCH": workload.size["batch"], "K": view(workload).k}

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        e = view(workload)
        s = shape(columns, e)
        return {
            "SHARED_BYTES": shared_bytes(columns, e, s),
            "VERIFIED_BYTES": verified_bytes(columns, e, s),
            "WARPS": s.threads / 32,
            "BLOCKS": s.tiles * s.parts,
            "STEP": s.step,
            "STEPS": s.steps,
        }

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the widest accesses, enough of them to hold a row where it fits, else four."""
        e, c = view(workload), columns
        width = max(1, e.align_a // e.bytes_a) if e.rows.along != "s" else 1
        like = np.ones_like(c["threads_k"])
        pace = c["threads_k"] * (1 if e.by_columns else width)
        most = max(1, HELD_BYTES // (e.bytes_acc * width))
        wanted = np.minimum(2 ** np.ceil(np.log2(np.maximum(e.k / pace, 1))), min(8, most)).astype(np.int32)
        staged = c["staged"] > 0 if e.staged else like == 0
        fits = (pace * wanted >= e.k) & (c["split_k"] == 1) & (e.many_passes | staged)
        items = np.where(fits | staged, wanted, np.minimum(wanted, 4))
        return {
            "vector": width * like,
            "items": items,
            "keep": np.where(fits, 1, 0),
            "online": np.where(fits | staged, 0, 1) if e.rows.operation in TWO_FORMS else like,
            "epilogue_fixed": 0 * like,
            "min_blocks": 0 * like,
        }

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """See cost.py."""
        return terms(columns, view(workload), arch, facts)

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """See cost.py."""
        e = view(workload)
        return registers(columns, e, shape(columns, e))

    # ---- one Program

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Return the loads of x: a step's instructions differ too much between operations to be distinguished."""
        return frozenset({"LDG"}), program["items"]

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of rows.cu."""
        e = view(workload)
        names = ("threads_k", "threads_m", "items", "keep", "online", "min_blocks")
        return {
            "IN_TYPE": macro_token(e.rows.a.dtype),
            "OUT_TYPE": macro_token(e.rows.c.dtype),
            "ACC_TYPE": macro_token(workload.accumulator),
            "OPERATION": OPERATIONS[e.rows.operation],
            "LAYOUT": int(e.by_columns),
            "A_UNIT": int(e.rows.along != "s"),
            "C_UNIT": int(e.rows.c.unit != "s"),
            "DIGITS": e.rows.digits,
            "VECTOR": program["vector"] * e.bytes_a,
            "C_VECTOR": max(e.align_c, e.bytes_c),
            "SPLIT": int(program["split_k"] > 1),
            "EPILOGUE_CODES": epilogue_codes(program, workload),
            **{name.upper(): program[name] for name in names},
            # Kernels from before this coordinate have no such constant.
            **({"STAGED": program["staged"]} if program.get("staged") else {}),
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the folds, and for a split the launch that joins its parts: with all its blocks again for a map."""
        e = view(workload)
        c = {name: np.array([value]) for name, value in program.values}
        s = shape(c, e)
        tiles, parts, threads = int(s.tiles[0]), int(s.parts[0]), int(s.threads[0])
        memory = int(shared_bytes(c, e, s)[0])
        found = [Launch(self.name, tiles * parts, threads, memory)]
        if program["split_k"] > 1:
            found.append(Launch("rows_reduce", tiles * (parts if e.maps else 1), threads, memory, dependent=True))
        return tuple(found)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of the states of a split's parts; nothing needs to be zero."""
        e, split = view(workload), program["split_k"]
        if split == 1:
            return 0, False
        return e.words(True)[0] * split * e.lines * e.columns * e.bytes_acc, False

    def tile(self, program: Program) -> dict[str, int]:
        """Return the rows (columns) of a block, elements of k per step and between a thread's accesses."""
        columns = program["form"] in (REDUCE_COLUMNS, MAP_COLUMNS)
        pace = program["threads_k"] * (1 if columns else program["vector"])
        rows = program["threads_m"] * (program["vector"] if columns else max(program.get("staged"), 1))
        return {"rows": rows, "pace": pace, "step": pace * program["items"], "split": program["split_k"]}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of rows; parts of k, whole steps each, or one step each where nothing is folded."""
        m, n, k = geometry.sizes
        tile, form = self.tile(program), program["form"]
        entries = geometry.batch[0] * geometry.batch[1] * geometry.batch[2]
        lines = entries * (1 if form == MAP_COLUMNS else m)
        steps = -(-k // tile["step"])
        split = max(steps, 1) if form == COPY else tile["split"]
        columns = form in (REDUCE_COLUMNS, MAP_COLUMNS)
        middle, inner = geometry.k_digits
        rest, last = divmod(tile["pace"], max(inner, 1))
        return Tiling(
            tiles_m=lines if columns else -(-lines // tile["rows"]),
            tiles_n=-(-n // tile["rows"]) if columns else 1,
            split=split,
            k_per_split=max(1, -(-steps // split)) * tile["step"],
            raster=1,
            advance=(*divmod(rest, max(middle, 1)), last),
        )

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See cases.py."""
        return rows_cases(program, workload, epilogue)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """See cases.py."""
        return rows_branches(program, workload)

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with as many elements per access as the alignment class of x allows."""
        e = view(workload)
        width = max(1, e.align_a // e.bytes_a) if e.rows.along != "s" else 1
        return program.replace(vector=width)

    def shared(self, program: Program) -> Program:
        """Return the Program with the run-time epilogue and no promise to the compiler."""
        return program.replace(epilogue_fixed=0, min_blocks=0)

    def main_loop(self, program: Program) -> Hashable:
        """Return whether k is split, and every coordinate except epilogue and launch bounds."""
        return program["split_k"] > 1, tuple(value for name, value in program.values if name not in _OUTER)

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of some block tiles, two of them split; at most 8, all legal."""
        lattice = Lattice(self, workload, arch)
        points = []
        e = view(workload)
        short = [(1, threads, 1, rows) for threads, rows in STAGED_STARTERS * e.staged]
        short += [(1, 256, 1, 0)] * e.by_columns
        for threads_k, threads_m, split, rows in short + [(*each, 0) for each in STARTERS]:
            chosen = {"threads_k": threads_k, "threads_m": threads_m, "split_k": split, "staged": rows}
            if split in lattice.coordinates[4].values:
                points.append([c.values.index(chosen.get(c.name, c.values[0])) for c in lattice.coordinates])
        whole = lattice.complete(np.array(points))
        whole = whole[self.legal(lattice.columns(whole), workload, arch)]
        return list(dict.fromkeys(map(lattice.program, whole)))[:8]
