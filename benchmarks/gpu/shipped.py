"""Step 3: the kernels of a database, each executed on the device at the real sizes of its records.

Where no database has kernels for this capability they are made first: from the Programs another capability's
database holds, or by tuning the common shapes, without an emulator. Either way they count as verified only by what
this step finds.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_database import PRETUNED
from gensor_database.exchange import merge
from gensor_database.record import Kernel, Record, Verification
from gensor_database.store import Store
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.library import code
from gensor_kernels.errors import BuildError
from gensor_kernels.operators.workload import Workload
from gensor_kernels.programs.families import FAMILIES
from gensor_kernels.programs.program import Program
from gensor_tuner.construct import Options
from gensor_tuner.operands import Noise
from gensor_tuner.pool import Candidate
from gensor_tuner.shapes import read_shapes
from gensor_tuner.tune import Run

from .adopt import adopt
from .real_size import check, fitting
from .session import Item, Session

STEP = "shipped"
COMMON = Path(__file__).resolve().parents[2] / "examples" / "common_shapes.csv"
TOP = 8  # finalists per class where kernels have to be made here
TUNE_SHARE = 0.5  # of what is left of this step's time
REHEARSED = 4


@dataclass(frozen=True)
class Stored:
    """A kernel of the database, ready to be loaded, and a workload it is recorded for."""

    digest: str
    candidate: Candidate
    code: Code
    workload: Workload

    @property
    def name(self) -> str:
        """Item name: the kernel's short name and the workload."""
        sizes = "x".join(str(size) for _, size in self.workload.sizes)
        return f"{self.short} {sizes} {'_'.join(self.workload.epilogue) or 'none'}"

    @property
    def short(self) -> str:
        """The first digits of the digest."""
        return self.digest[:16]


def items(session: Session) -> Iterator[Item]:
    """Filling the database, then every kernel: on its first record, then on its others."""
    origin = session.db.name if session.db else "the package"
    yield Item(f"kernels of {origin}", lambda: fill(session), limit=max(60.0, session.left()))
    noise = Noise(session.device)
    yield from (
        Item(each.name, lambda each=each: verify(session, noise, each))  # type: ignore[misc]
        for each in ordered(stored(session))[: REHEARSED if session.emulate else None]
    )


def fill(session: Session) -> dict[str, Any]:
    """Bring kernels for this capability into the database of results; says where they came from."""
    sources = [session.db] if session.db else sorted(PRETUNED.glob("*.db"))
    with session.store() as store:
        for path in sources:
            with Store.open(path, readonly=True) as other:
                if any(other.rows(Kernel, arch=session.arch.name)):
                    # Whoever names a database on the command line vouches for it.
                    return {"from": str(path), "rows": dict(merge(store, other, binaries=True))}
        for path in sources:
            with Store.open(path, readonly=True) as other:
                made = adopt(session, other, store)
                if made:
                    return {"from": f"programs of {path}, legal here, compiled here", "kernels": made}
        return {"from": f"tuning of {COMMON.name}", "rows": tuned(session, store)}


def tuned(session: Session, store: Store) -> dict[str, int]:
    """Tune the common shapes, as far as the time goes, without verifying: that is what this step is for."""
    options = Options(top=TOP, jobs=session.jobs, verify="none")
    rows = read_shapes(COMMON)[: 2 if session.emulate else None]
    run = Run(session.arch, store, options, budget=session.left() * TUNE_SHARE)
    return dict(Counter(result.status for _, result in run.rows(rows)))


def stored(session: Session) -> list[Stored]:
    """Every record of this capability with its kernel, in the order of the records' keys."""
    found = []
    with session.store() as store:
        for record in sorted(store.rows(Record, arch=session.arch.name), key=lambda row: (row.key, row.digest)):
            kernel = store.get(Kernel, record.kernel_digest) if record.kernel_digest else None
            each = load(store, kernel, Workload.from_json(record.key)) if kernel is not None else None
            if each is not None:
                found.append(each)
    return list({each.name: each for each in found}.values())


def load(store: Store, kernel: Kernel, workload: Workload) -> Stored | None:
    """A kernel as it is stored: its own source, constants and cubin. None where this version cannot launch it."""
    family, binary = FAMILIES.get(kernel.family), store.binary(kernel)
    source = store.source(binary) if binary is not None else None
    if family is None or family.abi != kernel.abi or binary is None or source is None:
        return None
    made = code(source.text.decode("utf-8"), json.loads(binary.constants), binary.target, binary.cubin)
    return Stored(kernel.digest, Candidate(Program.from_json(kernel.program), family, binary.constants), made, workload)


def ordered(found: list[Stored]) -> list[Stored]:
    """Every kernel once before any kernel again."""
    seen: Counter[str] = Counter()
    ranked = []
    for each in found:
        ranked.append((seen[each.digest], each))
        seen[each.digest] += 1
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]


def verify(session: Session, noise: Noise, each: Stored) -> dict[str, Any]:
    """Execute one kernel on one workload; the verdict is stored beside the kernel."""
    workload = fitting(session, each.workload)
    try:
        found = check(session, noise, each.candidate, each.code, workload)
    except Exception as error:  # the driver's and the emulator's errors have no common base
        found = _fault(session, error)
    row = Verification(
        each.digest,
        session.method,
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
    """The outcome of a kernel the device stopped or refused; raises what is no fault of a kernel."""
    if isinstance(error, MemoryError) or not (isinstance(error, BuildError) or session.is_fault(error)):
        raise error
    return {"outcome": "failed", "error": f"{type(error).__name__}: {error}"}


def rejected(session: Session) -> set[str]:
    """Digests (their first digits, as items are named) of kernels that did not pass this step."""
    ends = session.journal.results(STEP)
    return {item.partition(" ")[0] for (_, item), end in ends.items() if end["outcome"] != "ok"}
