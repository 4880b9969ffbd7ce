"""Step 2: every family on every dtype and layout, at the verifier's own cases, on the device.

What `gensor-tune --verify device` does to the kernels it chooses (`gensor_tuner.on_device`), done to the families'
default Programs of every class.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.source import flatten
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.library import code
from gensor_kernels.errors import BuildError, UnsupportedError
from gensor_kernels.operators import matmul
from gensor_kernels.operators.workload import View, Workload
from gensor_kernels.programs.space import Space
from gensor_tuner.on_device import verify_on
from gensor_tuner.pool import Candidate, candidate

from .session import Item, Session

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
COMPILED_AHEAD = 32
REHEARSED = {("float16", "kn", "contraction_mma"), ("float32", "kn", "contraction_simt")}


def items(session: Session) -> Iterator[Item]:
    """One item per family, dtype, layout, alignment and starter: first starters of all classes first."""
    found = sorted(_candidates(session), key=lambda each: each[0])
    if session.emulate:
        found = [each for each in found if (each[2].dtype["a"], each[1], each[3].program.family) in REHEARSED][:2]
    done = session.journal.finished(STEP, session.since)
    todo = [each for each in found if _name(each) not in done and session.wants(_name(each))]
    for start in range(0, len(todo), COMPILED_AHEAD):
        batch = todo[start : start + COMPILED_AHEAD]
        codes = compiled(session, [each[3] for each in batch])
        for each, made in zip(batch, codes, strict=True):
            yield Item(_name(each), lambda w=each[2], c=each[3], m=made: verify(session, c, m, w))  # type: ignore[misc]


def _name(each: tuple[Any, str, Workload, Candidate]) -> str:
    (rank, *_), layout, workload, found = each
    types = "tf32" if workload.math == "tf32" else workload.dtype["a"]
    aligned = "/".join(map(str, workload.align.values()))
    return f"{found.program.family} {types}>{workload.dtype['c']} {layout} {aligned} starter {rank}"


def _candidates(session: Session) -> Iterator[tuple[Any, str, Workload, Candidate]]:
    """(order, layout, workload, candidate) of every starter of every class the device is served for."""
    for order, (types, layout, aligned) in enumerate(itertools.product(TYPES, LAYOUTS, (True, False))):
        if layout == "ss" and aligned:
            continue
        seen: set[str] = set()
        # Families that serve products with few rows only get such a one.
        for rows in (None, SKINNY):
            workload = class_workload(*types, layout, aligned, rows)
            try:
                space = Space(workload, session.arch)
            except UnsupportedError:
                continue
            families = [served.family for served in space.families if served.family.name not in seen]
            seen |= {family.name for family in families}
            for family in families:
                for rank, program in enumerate(family.starters(workload, session.arch)):
                    place = (rank, not aligned, LAYOUTS.index(layout), order, family.name)
                    yield place, layout, workload, candidate(family, program, workload)


def class_workload(dtype: str, out: str, math: str, layout: str, aligned: bool, rows: int | None = None) -> Workload:
    """A workload of the class: 16-byte aligned, or with single elements only; square, or of this many rows (one less
    where single elements are wanted)."""
    less = 0 if aligned else 1
    m, n = (rows or CLASS_SIZE) - less, CLASS_SIZE - less
    if layout != "ss":
        return matmul.workload(
            m, n, n, dtype=dtype, out=out, math=math, trans_a=layout[0] == "m", trans_b=layout[1] == "k"
        )
    a, b, c = (
        View((1, *shape), (0, 2 * n, 2), kind) for shape, kind in (((m, n), dtype), ((n, n), dtype), ((m, n), out))
    )
    return matmul.workload_from_operands(a, b, c, math=math)


def compiled(session: Session, candidates: Sequence[Candidate]) -> list[Code | BuildError]:
    """What the device loads for each candidate; the emulator builds from the source when it loads."""
    sources = [flatten(each.family.source) for each in candidates]
    cubins: list[Any] = [None] * len(candidates)
    if not session.emulate:
        cubins = compile_many([(each.source(), session.arch.target) for each in candidates], session.jobs)
    made: list[Code | BuildError] = []
    for each, text, binary in zip(candidates, sources, cubins, strict=True):
        if binary is not None and binary.error is not None:
            made.append(BuildError("NVRTC refused the kernel", binary.error))
        else:
            cubin = binary.cubin if binary is not None else b""
            made.append(code(text, constants_of(each), session.arch.target, cubin))
    return made


def constants_of(found: Candidate) -> dict[str, int | str]:
    """The macros a candidate binds."""
    return dict(json.loads(found.constants))


def verify(session: Session, found: Candidate, made: Code | BuildError, workload: Workload) -> dict[str, Any]:
    """Execute one kernel at every verification case; the worst error over its tolerance."""
    if isinstance(made, BuildError):
        return {"outcome": "failed", "error": f"{made}: {made.log[:2000]}"}
    verdict = verify_on(session.device, found, made, workload)
    ended = {"outcome": verdict.outcome, "worst": verdict.worst, "cases": verdict.sizes}
    return ended | ({"error": verdict.detail} if verdict.detail else {"program": found.program.to_json()})
