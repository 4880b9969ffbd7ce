"""The workloads of claims.csv, whose predictions only a GPU can settle: each kernel verified, then all of them timed
together with the vendors' calls.

The kernels of a workload are the best stored ones of its class, a default Program of each family that serves it and
has none, and the best one with other values of the coordinates that the row varies: a stream of blocks or whole waves,
staged stores or direct ones, say. A kernel that fails costs itself, not the row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gensor_database.record import Kernel, Record
from gensor_database.store import Store
from gensor_kernels.build.nvrtc import compile_many
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.shapes.reader import Row, read_shapes
from gensor_tuner.store.kernel_rows import kernel_rows

from .harness.session import Item, Session
from .kernels.fitting import fitting
from .kernels.ordering import forms
from .kernels.stored import Stored, load
from .shipped import fill, origin, verify
from .timing import Bench, predictions
from .vendors.registry import CUPY, EAGER

STEP = "claims"
FILE = Path(__file__).with_name("claims.csv")
TUNE_SHARE = 0.25  # of this step's remaining time, for untuned rows
SECONDS = 180.0  # after which compiling or timing the kernels of a row counts as hanging
COMPARING = 0.4  # seconds of comparison per kernel: a row has up to a dozen
STORED = 3  # kernels of a row that the database has
VALUES = 2  # other values of a coordinate
FAR = 3.0  # a family is not timed above this multiple of the best predicted time
REHEARSED = ("attention_causal", "fp8_4096", "softmax_4096")
REHEARSED_KERNELS = 2
#: What Programs also need where a coordinate has another value than 0.
TOGETHER = {"stream": {"split_k": 1, "persistent": 1, "cluster": 0}}
#: Coordinates that follow from others: the family's default where they are not stated.
FOLLOWING = ("min_blocks",)


@dataclass(frozen=True)
class Claim:
    """A row of claims.csv."""

    name: str
    row: Row
    workload: Workload
    vary: tuple[str, ...]  # coordinates whose other values are timed next to the best kernel's
    published_us: float | None  # that another library's authors have published, on their GPU


def claims(file: Path = FILE) -> list[Claim]:
    """Return the rows, those to be timed again first; ValueError for a row that is no workload."""
    found = []
    for row in read_shapes(file):
        if row.workload is None:
            raise ValueError(f"{file.name}: {row.error or row.unsupported}")
        vary, published = tuple(row.notes.get("vary", "").split()), row.notes.get("published_us")
        found.append(Claim(row.name, row, row.workload, vary, float(published) if published else None))
    return sorted(found, key=lambda claim: int(claim.row.notes.get("again") or len(found)))


def again() -> str:
    """Return a regular expression for the items of rows that are to be timed again."""
    return rf"\b({'|'.join(re.escape(each.name) for each in claims() if each.row.notes.get('again'))})\b"


def items(session: Session) -> Iterator[Item]:
    """Yield an item that fills the database; then for every row one that makes its kernels, one for each of these, and
    one that times the correct ones."""
    bench, chosen = Bench(session), [each for each in claims() if not session.emulate or each.name in REHEARSED]
    wanted = partial(lacking, chosen)
    limit = max(60.0, session.left())
    yield Item(origin(session), partial(fill, session, wanted, TUNE_SHARE), limit=limit, always=True)
    for claim in chosen:
        made = f"{claim.name}: kernels"
        yield Item(made, partial(gather, session, claim), limit=SECONDS)
        kernels = _ends(session).get(made, {}).get("kernels", {})
        names = {digest: f"{digest[:16]} {claim.name} {how}" for digest, how in kernels.items()}
        for digest, name in names.items():
            yield Item(name, partial(check, bench, claim, digest))
        if kernels:
            yield Item(f"{claim.name}: times", partial(times, bench, claim, kernels, names), limit=SECONDS)


def lacking(chosen: Sequence[Claim], session: Session, store: Store) -> list[Row]:
    """Return the rows without a record; none in a rehearsal, which takes default Programs."""
    recorded = {record.key for record in store.rows(Record, arch=session.arch.name)}
    return [] if session.emulate else [each.row for each in chosen if each.workload.key() not in recorded]


def _ends(session: Session) -> dict[str, dict[str, Any]]:
    return {item: end for (_, item), end in session.journal.results(STEP).items()}


# ---- the kernels of a row


def gather(session: Session, claim: Claim) -> dict[str, Any]:
    """Bring the kernels of a row into the database; return what each is by its digest, and what was refused."""
    try:
        served = Space(claim.workload, session.arch).names
    except UnsupportedError as error:
        return {"outcome": "skipped", "reason": str(error)}
    with session.store() as store:
        known = best_stored(session, store, claim.workload)
        new = [*_starters(session, claim.workload, set(served) - {each.candidate.program.family for each in known})]
        every = {each.candidate: f"stored {each.candidate.program.family}" for each in known}
        every |= {each: f"default {each.program.family}" for each in new}
        ranked = _rank(session, claim.workload, [*every])
        if not ranked:
            return {"outcome": "skipped", "reason": "no Program is legal"}
        near = {each: every[each] for seconds, each in ranked if seconds <= FAR * ranked[0][0]}
        near |= {each: how for each, how in vary(session, claim, ranked[0][1]).items() if each not in near}
        if session.emulate:
            near = dict([*near.items()][:REHEARSED_KERNELS])
        digests = {each.candidate: each.digest for each in known}
        added, refused = _add(session, store, claim.workload, {e: how for e, how in near.items() if e not in digests})
    kernels = {digests.get(each) or added.get(each): how for each, how in near.items()}
    found = {"kernels": {digest: how for digest, how in kernels.items() if digest}, "refused": refused}
    found["families"] = {name: family.serves(claim.workload, session.arch) for name, family in FAMILIES.items()}
    return found if found["kernels"] else found | {"outcome": "failed", "error": str(refused)}


def best_stored(session: Session, store: Store, workload: Workload) -> list[Stored]:
    """Return the database's best predicted kernels for a workload, and its best of each other family."""
    rows = store.rows(Kernel, arch=session.arch.name, class_key=workload.class_key())
    found = [each for row in rows if (each := load(store, row, workload)) is not None]
    by_candidate = {each.candidate: each for each in found}
    ranked = [by_candidate[each] for _, each in _rank(session, workload, [*by_candidate])]
    first = {each.candidate.program.family: each for each in reversed(ranked)}
    return [each for place, each in enumerate(ranked) if place < STORED or each in first.values()]


def _rank(session: Session, workload: Workload, found: Sequence[Candidate]) -> list[tuple[float, Candidate]]:
    """Return candidates that can serve a workload with their predicted seconds, the fastest first."""
    seconds = predictions(session, workload, found)
    pairs = [pair for pair in zip(seconds, found, strict=True) if math.isfinite(pair[0])]
    return sorted(pairs, key=lambda pair: (pair[0], pair[1].name))


def _starters(session: Session, workload: Workload, names: set[str]) -> Iterator[Candidate]:
    """Yield the default Program with the least predicted time of each family."""
    for name in sorted(names):
        family = FAMILIES[name]
        programs = family.starters(workload, session.arch)
        ranked = _rank(session, workload, [candidate(family, each, workload) for each in programs])
        yield from (each for _, each in ranked[:1])


def vary(session: Session, claim: Claim, best: Candidate) -> dict[Candidate, str]:
    """Return the Programs that differ from the best one in a coordinate that the row varies, and what it is there: the
    values with the least predicted times."""
    family, workload, own = best.family, claim.workload, dict(best.program.values)
    found: dict[Candidate, str] = {}
    for coordinate in family.coordinates(workload, session.arch):
        if coordinate.name not in claim.vary:
            continue
        kept = {name: value for name, value in own.items() if name not in FOLLOWING}
        others = [value for value in coordinate.values if value != own.get(coordinate.name, 0)]
        more = {value: TOGETHER.get(coordinate.name, {}) if value else {} for value in others}
        wanted = [kept | {n: v for n, v in more[each].items() if n in own} | {coordinate.name: each} for each in others]
        programs = complete(family, wanted, workload, session.arch, math.inf)
        alone = [candidate(family, each, workload) for each in programs if each[coordinate.name] in others]
        for _, each in _rank(session, workload, alone)[:VALUES]:
            found.setdefault(each, f"{coordinate.name}={each.program[coordinate.name]}")
    return found


def _add(
    session: Session, store: Store, workload: Workload, new: Mapping[Candidate, str]
) -> tuple[dict[Candidate, str], dict[str, str]]:
    """Compile candidates and store them; return their digests, and why others have none."""
    arch = session.arch
    binaries = compile_many([(each.source(), arch.target) for each in new], usable_cores())
    digests, refused = dict[Candidate, str](), dict[str, str]()
    for (each, how), binary in zip(new.items(), binaries, strict=True):
        if binary.error is not None:
            refused[how] = binary.error[:300]
            continue
        parts = kernel_rows(each, binary, workload, arch)
        store.add(*parts)
        digests[each] = parts[-1].digest
    return digests, refused


# ---- execution


def _load(session: Session, claim: Claim, digests: Sequence[str]) -> list[Stored]:
    with session.store() as store:
        rows = [store.get(Kernel, digest) for digest in digests]
        found = [load(store, row, claim.workload) for row in rows if row is not None]
    return [each for each in found if each is not None]


def check(bench: Bench, claim: Claim, digest: str) -> dict[str, Any]:
    """Execute one kernel at the row's sizes and compare it with float64."""
    (each,) = _load(bench.session, claim, [digest])
    return verify(bench.session, bench.timer.noise, each, COMPARING)


def times(bench: Bench, claim: Claim, kernels: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    """Time the kernels that verified, together with the vendors' calls."""
    session, ends = bench.session, _ends(bench.session)
    verdicts = {digest: ends.get(name, {}) for digest, name in names.items()}
    right = _load(session, claim, [digest for digest in kernels if verdicts[digest].get("outcome") == "ok"])
    if not right:
        return {"outcome": "skipped", "reason": "no kernel of the row was right"}
    workload = fitting(session, claim.workload, right[0].candidate)
    seconds = predictions(session, workload, [each.candidate for each in right])
    pairs = sorted(zip(seconds, range(len(right)), strict=True))
    serving = [(value, right[at]) for value, at in pairs if math.isfinite(value)] or [(math.inf, right[0])]
    timed = [each for _, each in serving]
    found = bench.time_together(workload, timed, [value * 1e6 for value, _ in serving], vendors_of(workload))
    return {
        **found,
        "asked": claim.workload.key(),
        "claim": claim.name,
        "what": [kernels[each.digest] for each in timed],
        "programs": [each.candidate.program.to_json() for each in timed],
        "forms": [sorted(forms(each.candidate, workload)) for each in timed],
        "worst": [verdicts[each.digest].get("worst") for each in timed],
        "tflops": workload.flops() / found["best_us"] / 1e6,
        "gb_s": workload.bytes_moved() / found["best_us"] / 1e3,
        "published_us": claim.published_us,
    }


def vendors_of(workload: Workload) -> list[str]:
    """Return the vendors of a row: CuPy multiplies integers without tensor cores, which takes seconds at its sizes."""
    whole = facts(workload.dtypes[0][1]).is_integer
    return [name for name in EAGER if name != CUPY or not whole]
