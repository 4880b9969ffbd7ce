"""The kernels of a database, each executed on the device at the real sizes of its records.

Operators without any record are tuned first, without the emulator; such kernels are verified only by this step.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gensor_database import PRETUNED
from gensor_database.exchange import merge
from gensor_database.record import Kernel, Record, Verification
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.errors import BuildError
from gensor_kernels.families.space import Space
from gensor_kernels.machine.roofline import bound_us
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.budget.run import BudgetedRun
from gensor_tuner.build.pool import Pool
from gensor_tuner.measure.operands import Noise
from gensor_tuner.run.class_run import Options
from gensor_tuner.shapes.reader import Row, read_shapes
from gensor_tuner.store.kernel_rows import kernel_rows

from .families import OPERATORS
from .harness.session import Item, Session
from .kernels.fitting import fitting
from .kernels.real_size import check
from .kernels.stored import Stored, load

STEP = "shipped"
VERIFYING = (STEP, "claims")  # steps whose items begin with the digest of the kernel that they verify
TOP = 8  # finalists per class of tuned rows
TUNE_SHARE = 0.5  # share of a step's remaining time
ENOUGH = 0.5  # share of that time after which a row without a kernel counts as out of time
REHEARSED = 4
REHEARSED_OPERATORS = ("softmax", "max_pool2d", "attention")


def items(session: Session) -> Iterator[Item]:
    """Yield an item that fills the database, then every kernel: on its first record, then on its others. Repeat where
    the time did not suffice for tuning; a run that resumes begins with the remaining tuning."""
    noise, seen, left = Noise(session.device), set[str](), True

    def filling() -> dict[str, Any]:
        nonlocal left
        found = fill(session)
        left = bool(found.get("left"))
        return found

    while left:
        left = False  # an error ends the loop
        yield Item(origin(session), filling, limit=max(60.0, session.left()), always=True)
        fresh = [each for each in for_rehearsal(session, order(stored_kernels(session))) if each.name not in seen]
        seen |= {each.name for each in fresh}
        yield from (Item(each.name, partial(verify, session, noise, each)) for each in fresh)


def origin(session: Session) -> str:
    """Return the name of the item that fills the database."""
    return f"kernels of {session.db.name if session.db else 'the package'}"


def for_rehearsal(session: Session, found: Sequence[Stored]) -> Sequence[Stored]:
    """Return all of them; in a rehearsal a few, and one of every family."""
    if not session.emulate:
        return found
    first = {each.candidate.program.family: each for each in reversed(found)}
    return [*dict.fromkeys([*found[:REHEARSED], *first.values()])]


def fill(
    session: Session, missing_from: Callable[[Session, Store], list[Row]] | None = None, share: float = TUNE_SHARE
) -> dict[str, Any]:
    """Bring kernels for this capability into the database of results, and tune the rows that are `missing_from` it, of
    `lacking` by default, in a share of the time; return their origin, and in `left` how many another call must tune."""
    with session.store() as store:
        found = given(session, store)
        missing = (missing_from or lacking)(session, store)
        if missing and session.emulate:
            workloads = [fitting(session, row.workload) for row in missing if row.workload]
            found["default Programs"] = add_starters(session, workloads, store)
        elif missing:
            found["rows tuned here"] = tune(session, store, missing, share)
        told = [each for each in found.values() if isinstance(each, dict)]
        return found | {"left": sum(each.pop("left", 0) for each in told)}


def given(session: Session, store: Store) -> dict[str, Any]:
    """Add the kernels of the named database, or of the package's where that has none for this capability."""
    for path in filter(None, (session.db, PRETUNED / f"{session.arch.name}.db")):
        with Store.open(path, readonly=True) as other:
            if any(other.rows(Kernel, arch=session.arch.name)):
                # Naming a database on the command line is a statement of trust.
                return {"from": str(path), "rows": dict(merge(store, other, binaries=True))}
    return {"from": "nothing"}


def lacking(session: Session, store: Store) -> list[Row]:
    """Return a row of each operator without a record; in a rehearsal for a few operators only."""
    recorded = {json.loads(record.key)["operator"] for record in store.rows(Record, arch=session.arch.name)}
    rows = [row for row in read_shapes(OPERATORS) if row.workload and row.workload.operator not in recorded]
    if not session.emulate:
        return rows
    first = {row.workload.operator: row for row in reversed(rows) if row.workload}
    return [first[name] for name in REHEARSED_OPERATORS if name in first]


def tune(session: Session, store: Store, rows: Sequence[Row], share: float = TUNE_SHARE) -> dict[str, int]:
    """Tune rows while the time lasts, without verification, which is the step's own work. `left`: rows without enough
    time."""
    options, seconds = Options(top=TOP, jobs=usable_cores(), verify="none"), session.left() * share
    run = BudgetedRun(session.arch, store, options, budget=seconds)
    counts = dict(Counter(result.status for _, result in run.rows(rows)))
    # A failure with most of the time left would repeat.
    return counts | ({"left": counts["failed"]} if counts.get("failed") and run.elapsed > ENOUGH * seconds else {})


def add_starters(session: Session, workloads: Sequence[Workload], store: Store) -> int:
    """Compile the default Program with the least predicted time of each workload; return the number of kernels."""
    arch, made = session.arch, 0
    for workload in workloads:
        space, pool = Space(workload, arch), Pool([workload])
        pool.add(space, (each.family.starters(workload, arch)[0] for each in space.families))
        seconds = pool.seconds([space])[0]
        best = pool.candidates[int(np.argmin(seconds))]
        (binary,) = compile_many([(best.source(), arch.target)], usable_cores())
        if binary.error is None:
            parts = kernel_rows(best, binary, workload, arch)
            place = (workload.key(), arch.name, arch.part, parts[-1].abi, parts[-1].digest)
            store.add(*parts, Record(*place, float(seconds.min()) * 1e6, bound_us(workload, arch), "ok"))
            made += 1
    return made


def stored_kernels(session: Session) -> list[Stored]:
    """Return every record of this capability with its kernel, in the order of the records' keys."""
    found = []
    loaded: dict[str, Stored | None] = {}  # kernels are shared by many records
    with session.store() as store:
        for record in sorted(store.rows(Record, arch=session.arch.name), key=lambda row: (row.key, row.digest)):
            name, workload = record.kernel_digest, Workload.from_json(record.key)
            if name and name not in loaded:
                kernel = store.get(Kernel, name)
                loaded[name] = None if kernel is None else load(store, kernel, workload)
            each = loaded.get(name) if name else None
            if each is not None:
                found.append(replace(each, workload=workload))
    return list({each.name: each for each in found}.values())


def order(found: list[Stored]) -> list[Stored]:
    """Return every kernel once before any kernel again."""
    seen: Counter[str] = Counter()
    ranked = []
    for each in found:
        ranked.append((seen[each.digest], each))
        seen[each.digest] += 1
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


def verify(session: Session, noise: Noise, each: Stored, seconds: float | None = None) -> dict[str, Any]:
    """Execute one kernel on one workload, and compare its result for `seconds` at most (real_size.SECONDS by default);
    store the verdict with the kernel."""
    workload = fitting(session, each.workload, each.candidate)
    try:
        found = check(session, noise, each.candidate, each.code, workload, seconds=seconds)
    except Exception as error:  # the driver's and the emulator's errors have no common base
        found = _fault(session, error)
    row = Verification(
        each.digest,
        "emulator" if session.emulate else "device",
        found["outcome"],
        found.get("error"),
        found.get("worst"),
        json.dumps([dict(workload.sizes) | {"epilogue": "_".join(workload.epilogue) or "none"}], sort_keys=True),
        "{}",
        json.dumps({"checked": found.get("checked", 0.0), "part": session.part}, sort_keys=True),
    )
    with session.store() as store:
        store.add(row)
    return found | {"kernel": each.digest}


def _fault(session: Session, error: Exception) -> dict[str, Any]:
    """Return the outcome of a kernel that the device stopped or refused; raise any other error."""
    if isinstance(error, MemoryError) or not (isinstance(error, BuildError) or session.is_fault(error)):
        raise error
    return {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}


def rejected_kernels(session: Session) -> set[str]:
    """Return the digests (first digits, as in items' names) of kernels that did not pass this step or `claims`."""
    ends = session.journal.results()
    return {
        item.partition(" ")[0] for (step, item), end in ends.items() if step in VERIFYING and end["outcome"] != "ok"
    }
