"""The problems of rows Programs: every branch, at sizes that leave a partial step, block and part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Points
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators import operator
from gensor_kernels.operators.rows.rows import layout_of
from gensor_kernels.operators.types.dtypes import facts

from .cost import Shape, shared_bytes
from .shape import COPY, View, view

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

LATE, EARLY = "late", "early"


def pace(program: Program, by_columns: bool) -> int:
    """Return the elements of k between a thread's accesses."""
    return program["threads_k"] * (1 if by_columns else program["vector"])


def step(program: Program, by_columns: bool) -> int:
    """Return the elements of k that a block's threads hold at once."""
    return pace(program, by_columns) * program["items"]


def _granule(each: View) -> int:
    """Return the elements of which k is a multiple in this class."""
    return 1 if each.by_columns else max(1, each.align_a // each.bytes_a)


def partial(whole: Numbers, granule: int) -> np.ndarray:
    """Extent of k that leaves a step partial: about 5/8 of one; 0 where none can be."""
    most = np.maximum(granule, whole * 5 // 8 // granule * granule)
    return np.where(granule < whole, np.minimum(whole - granule, most), 0)


def longest(c: Points, whole: Numbers, granule: int) -> np.ndarray:
    """Return the largest k of a case: a partial step after several whole ones, and a last part shorter than the others.

    A row that stays in registers has one step only.
    """
    part = partial(whole, granule)
    return np.where(c["keep"] == 1, 0, 3 * c["split_k"] - 1) * whole + np.where(part > 0, part, whole)


def verified_bytes(c: Points, e: View, s: Shape) -> np.ndarray:
    """Return the most shared bytes of a case."""
    return shared_bytes(c, e, s, np.maximum(longest(c, s.step, _granule(e)), s.step))


def rows_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Cases of reductions, maps and element-wise Programs; a row that stays in registers has one step only."""
    each, split = view(workload), program["split_k"]
    if not each.epilogue:
        epilogue = ()
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    whole, granule = step(program, each.by_columns), _granule(each)
    part, long = int(partial(whole, granule)), int(longest(dict(program.values), whole, granule))
    one = program["keep"] == 1
    staged = program.get("staged")
    block = program["threads_m"] * (program["vector"] if each.by_columns else max(staged, 1))

    def case(name: str, batch: int, rows: int, k: int, steps: tuple[str, ...], *schedule: tuple[str, str | int]):
        # Staged rows are of one batch entry.
        sized = _sized(workload, 1, batch * rows, k) if staged else _sized(workload, batch, rows, k)
        return Case(name, sized.with_epilogue(steps), schedule)

    found = [
        case("blocks", 1, 2 * block + max(1, block * 5 // 8), long, epilogue, (LATE, "forward")),
        case("batch", 3, max(1, block // 2), part or whole, bare, (EARLY, 3)),
        case("corner", 1, 1, long, epilogue, (LATE, "reverse"), (EARLY, 1)),
        case("granule", 2, block + 1, granule if one else whole + granule, epilogue, (LATE, 2)),
        case("whole", 1, block + 1, whole, bare, (EARLY, "reverse")),
    ]
    if staged:
        # Rows without gaps, at the next boundary of 16 bytes and at one of their class; those above have gaps.
        rows = block + max(1, block * 5 // 8)
        for align in sorted({each.align_a, 16}):
            adjacent = case(f"adjacent at {align}", 1, rows, part or whole, bare, (LATE, "forward"))
            found.append(replace(adjacent, dense=align, dense_output=each.maps))
    if split > 1:
        found.append(case("empty parts", 1, 2, granule, bare, (LATE, "forward")))
    if each.rows.operation in ("sum", "prod"):
        found.append(Case("empty k", _sized(workload, 1, 3, 0).with_epilogue(bare), ((LATE, "forward"),)))
    return found


def _sized(workload: Workload, batch: int, rows: int, k: int) -> Workload:
    """``rows`` rows of at least ``k`` elements; three digits of k where the class has them."""
    along, digits = layout_of(workload)
    wanted = {"batch": batch, "m": rows, "n": 1, "k": k}
    if along == "n":
        wanted |= {"m": 2, "n": rows}
    if digits == 3:
        # An odd number of granules: the pace, a power of two, is no multiple of it, and carries into the next digit.
        granule = 1 if along == "n" else max(1, workload.align["a"] // facts(workload.dtype["a"]).itemsize)
        inner = max(3, -(-k // (15 * granule)) | 1) * granule if k else 1
        wanted |= {"k": inner, "i": 5 if k else 0, "j": 3}
    return operator(workload.operator).resize(workload, wanted)


def rows_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Coverage names that the cases must count."""
    each = view(workload)
    staged = program.get("staged") > 0
    names = {"whole_step", "rows_apart"} if staged else {"whole_step", "batch_entries"}
    if partial(step(program, each.by_columns), _granule(each)):
        names.add("partial_step")
    # Columns, which a thread reads by `vector`, come in multiples of the class's alignment.
    columns = max(1, each.align_a // each.bytes_a)
    if staged:
        names |= {"staged_edge"} if each.align_a < 16 else set()
    elif program["threads_m"] * program["vector"] > columns if each.by_columns else program["threads_m"] > 1:
        names.add("edge_rows")
    if program["split_k"] > 1 and each.form != COPY:
        names.add("split_reduce")
    if each.rows.digits == 3:
        names |= {"carry_inner", "carry_middle"}
    if each.scans and program["keep"] != 1:
        names.add("carried_step")
    return frozenset(names)
