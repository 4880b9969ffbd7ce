"""Every family on every operator, dtype and layout, at the verifier's own cases, on the device.

The families' default Programs of every class go through the verification of `gensor-tune --verify device`
(`gensor_tuner.verify.on_device`): products of all types and layouts, and the rows of examples/every_operator.csv.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.selection.library import code
from gensor_kernels.errors import BuildError, UnsupportedError
from gensor_kernels.families.space import Space
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import View, Workload
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.output import class_text
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.verify.on_device import verify_on

from .harness.session import Item, Session
from .kernels.ordering import Known, order, shipped_kernels

STEP = "families"
TYPES = (
    ("float16", "float16", "ieee"),
    ("float32", "float32", "ieee"),
    ("bfloat16", "bfloat16", "ieee"),
    ("float32", "float32", "tf32"),
    ("int8", "int32", "ieee"),
    ("float64", "float64", "ieee"),
    ("float16", "float32", "ieee"),
    ("int8", "int8", "ieee"),
)
LAYOUTS = ("kn", "kk", "mn", "mk", "ss")  # unit-stride axes of a and b
CLASS_SIZE, SKINNY = 512, 16
COMPILED_AHEAD = 16
OPERATORS = Path(__file__).resolve().parents[2] / "examples" / "every_operator.csv"
#: Families of a rehearsal, and how the names of their classes begin.
REHEARSED = (
    ("contraction_mma", "float16>float16 kn 16/16/16"),
    ("contraction_packed", "conv2d bfloat16 nchw "),
    ("contraction_wgmma", "conv2d float16 nhwc krsc "),
    ("contraction_patch", "conv2d bfloat16 nchw "),
    ("contraction_strip", "conv2d float16 nhwc "),
    ("contraction_simt", "float32>float32 kn 16/16/16"),
    ("contraction_floats_wgmma", "matmul float32 k n "),
    ("gemv", "matmul bfloat16 k k "),
    ("rows", "softmax float16 k "),
    ("window", "max_pool2d float16 "),
    ("attention", "attention float16 "),
    ("attention_wgmma", "attention bfloat16 "),
)


def items(session: Session) -> Iterator[Item]:
    """Yield one item per kernel: a few with every family, type and launch form among them, one of every shipped class,
    the first starters of all classes, the other starters."""
    known = [] if session.emulate else shipped_kernels(session)
    found = list(order(known, starters(session)))
    done = session.journal.finished(STEP, session.since)
    todo = [each for each in found if each.name not in done and session.wants(each.name)]
    for start in range(0, len(todo), COMPILED_AHEAD):
        batch = todo[start : start + COMPILED_AHEAD]
        new = [each for each in batch if each.code is None]
        codes = dict(
            zip((each.name for each in new), compile_all(session, [each.candidate for each in new]), strict=True)
        )
        for each in batch:
            made = each.code or codes[each.name]
            yield Item(each.name, partial(verify, session, each.candidate, made, each.workload))


def starters(session: Session) -> list[Known]:
    """Return the default Programs of every class that the device serves, first starters first; one per family in a
    rehearsal."""
    found = sorted(_candidates(session), key=lambda each: each[0])
    if session.emulate:
        found = list({each.candidate.program.family: (place, each) for place, each in reversed(found)}.values())
    return [each for _, each in found]


def _candidates(session: Session) -> Iterator[tuple[tuple[Any, ...], Known]]:
    """Yield every starter of every class with its place; rows of one class may have different families."""
    seen = set()
    for position, (rank_of_class, named, workload) in enumerate(classes()):
        wanted = [family for family, begins in REHEARSED if named.startswith(begins)]
        if session.emulate and not wanted:
            continue
        try:
            space = Space(workload, session.arch)
        except UnsupportedError:
            continue
        for served in space.families:
            family = served.family
            if session.emulate and family.name not in wanted:
                continue
            for rank, program in enumerate(family.starters(workload, session.arch)):
                place = (rank, *rank_of_class, position, family.name)
                if (family.name, named, rank) not in seen:
                    seen.add((family.name, named, rank))
                    yield place, Known(f"{named} starter {rank}", workload, candidate(family, program, workload))


def classes() -> Iterator[tuple[tuple[Any, ...], str, Workload]]:
    """Yield (rank, name, a workload) of every class: operators in turn with aligned products, odd products last."""
    for types, layout, aligned in itertools.product(TYPES, LAYOUTS, (True, False)):
        if layout == "ss" and aligned:
            continue
        # Square, and with few rows for families that serve nothing else.
        for rows in (CLASS_SIZE, SKINNY):
            workload = class_workload(*types, layout, aligned, rows)
            kind = "tf32" if workload.math == "tf32" else workload.dtype["a"]
            widths = "/".join(map(str, workload.align.values()))
            yield (not aligned, LAYOUTS.index(layout)), f"{kind}>{workload.dtype['c']} {layout} {widths}", workload
    for row in read_shapes(OPERATORS):
        if row.workload is not None:
            yield (False, 0), class_text(row.workload), row.workload


def class_workload(dtype: str, out: str, math: str, layout: str, aligned: bool, rows: int = CLASS_SIZE) -> Workload:
    """Return a workload of the class: 16-byte aligned, or with each size one less and single elements only."""
    less = int(not aligned)
    m, n = rows - less, CLASS_SIZE - less
    if layout != "ss":
        return matmul.workload(
            m, n, n, dtype=dtype, out=out, math=math, trans_a=layout[0] == "m", trans_b=layout[1] == "k"
        )
    stepped = (0, 2 * n, 2)
    a, b, c = View((1, m, n), stepped, dtype), View((1, n, n), stepped, dtype), View((1, m, n), stepped, out)
    return matmul.workload_from_operands(a, b, c, math=math)


def compile_all(session: Session, candidates: Sequence[Candidate]) -> list[Code | BuildError]:
    """Return the code that the device loads for each candidate; the emulator builds from the source when it loads."""
    sources = [each.family.text for each in candidates]
    cubins: list[Any] = [None] * len(candidates)
    if not session.emulate:
        cubins = compile_many([(each.source(), session.arch.target) for each in candidates], usable_cores())
    made: list[Code | BuildError] = []
    for each, text, binary in zip(candidates, sources, cubins, strict=True):
        if binary is not None and binary.error is not None:
            made.append(BuildError("NVRTC refused the kernel", binary.error))
        else:
            cubin = binary.cubin if binary is not None else b""
            made.append(code(text, constants_of(each), session.arch.target, cubin))
    return made


def constants_of(found: Candidate) -> dict[str, int | str]:
    """Return the macros that a candidate binds."""
    return dict(json.loads(found.constants))


def verify(session: Session, found: Candidate, made: Code | BuildError, workload: Workload) -> dict[str, Any]:
    """Execute one kernel at every verification case and return the worst error over its tolerance."""
    if isinstance(made, BuildError):
        return {"outcome": "failed", "error": f"{made}: {made.log[:2000]}"}
    verdict = verify_on(session.device, found, made, workload)
    ended = {"outcome": verdict.outcome, "worst": verdict.worst, "cases": verdict.sizes}
    return ended | ({"error": verdict.detail} if verdict.detail else {"program": found.program.to_json()})
