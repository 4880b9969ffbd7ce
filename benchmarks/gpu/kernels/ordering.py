"""The order in which kernels are verified, so that a short run covers every kind of failure.

A few kernels with every family, type and launch form among them come first, then one of every shipped class.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.gpu.harness.session import Session
from gensor_database import PRETUNED
from gensor_database.record import Kernel, Record
from gensor_database.store import Store
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.selection.load import class_workload
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.output import class_text

from .stored import load


class Known(NamedTuple):
    """A kernel to verify at the cases of `workload`'s class; `code` where it need not be compiled."""

    named: str
    workload: Workload
    candidate: Candidate
    code: Code | None = None

    @property
    def name(self) -> str:
        """The item's name."""
        return f"{self.candidate.program.family} {self.named}"


def shipped_kernels(session: Session) -> list[Known]:
    """Return the database's kernels for this capability: one of every class, then one of its other families."""
    path = session.db or PRETUNED / f"{session.arch.name}.db"
    found: dict[tuple[str, str], Known] = {}
    if not path.exists():
        return []
    with Store.open(path, readonly=True) as store:
        served = {row.kernel_digest: row.key for row in store.rows(Record, arch=session.arch.name)}
        for kernel in sorted(store.rows(Kernel, arch=session.arch.name), key=lambda row: (row.class_key, row.digest)):
            if (kernel.class_key, kernel.family) in found:
                continue
            key = served.get(kernel.digest)
            workload = Workload.from_json(key) if key else class_workload(kernel.class_key)
            each = load(store, kernel, workload)
            if each is not None:
                named = f"{class_text(workload)} shipped {each.short}"
                found[kernel.class_key, kernel.family] = Known(named, workload, each.candidate, each.code)
    first = dict(reversed([(class_key, family) for class_key, family in found]))  # the first family of each class
    return [found[pair] for pair in sorted(found, key=lambda pair: (first[pair[0]] != pair[1], *pair))]


def forms(candidate: Candidate, workload: Workload) -> set[str]:
    """Return the forms of launch and of storing results that a kernel has."""
    values = dict(candidate.program.values)
    launches = candidate.family.launches(candidate.program, workload)
    found = {
        "split": max(values.get("split_k", 1), values.get("split", 1)) > 1,
        "stream": values.get("stream", 0) > 0,
        "cluster": any(launch.cluster > 1 for launch in launches),
        "dependent": any(launch.dependent for launch in launches),
        "staged epilogue": values.get("epilogue_staged", 0) > 0,
        "tensor maps": any(launch.maps for launch in launches),
    }
    return {name for name, there in found.items() if there} or {"plain"}


def traits(each: Known) -> set[Hashable]:
    """Return the family, the types and the launch forms of a kernel."""
    workload = each.workload
    types = {("dtype", dtype) for dtype in (*workload.dtype.values(), workload.math)}
    return {("family", each.candidate.program.family), *types, *forms(each.candidate, workload)}


def order(known: Sequence[Known], rest: Sequence[Known]) -> Iterator[Known]:
    """Yield a cover of all traits, the rest of `known`, the rest of `rest`."""
    found = [*known, *rest]
    of = [traits(each) for each in found]
    missing, chosen = set().union(*of), []
    while missing:
        best = max(range(len(found)), key=lambda place: (len(of[place] & missing), -place))
        missing -= of[best]
        chosen.append(best)
    yield from (found[place] for place in chosen)
    yield from (each for place, each in enumerate(found) if place not in chosen)
