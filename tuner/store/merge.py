"""`gensor-tune merge`: several databases into one, with a report of conflicts."""

from __future__ import annotations

import shlex
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from gensor_database import Conflict, Store, StoreError, conflicts, union
from gensor_database.exchange import merge as add_to
from gensor_kernels.errors import MALFORMED, GensorError
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.output import counts_text, note, say, sizes_text, write_json

#: Seconds to wait for locks of a source, per table; commits take milliseconds.
SOURCE_TIMEOUT = 5.0


def merge(sources: list[Path], into: Path, new: bool, binaries: bool, lines: TextIO | None) -> int:
    """Add the rows of `sources` to the database `into`, created if `new`; code and verdicts only with `binaries`."""
    with ExitStack() as stack:
        others = [stack.enter_context(_source(path)) for path in sources]
        if new and not into.exists():
            found = conflicts(others, binaries)
            added = union(others, into, binaries)
        else:
            store = stack.enter_context(Store.open(into))
            found = conflicts([store, *(other for other in others if other.path != store.path)], binaries)
            added = sum((add_to(store, other, binaries) for other in others), Counter[str]())
    say(counts_text(dict(sorted(added.items()))) if +added else "nothing new")
    for conflict in found:
        note(_describe(conflict))
        write_json(lines, asdict(conflict))
    if added["kernel"] and not binaries:
        note(
            f"{added['kernel']} kernels came without cubins and verdicts, so none is usable yet: run gensor-tune "
            f"refresh --db {shlex.quote(str(into))}, or merge again with --binaries if you trust everybody who could "
            "write those files"
        )
    return 0


def _source(path: Path) -> Store:
    """Open a source; raise GensorError, because a StoreError would add advice about `--db`, which is another file."""
    try:
        store = Store.open(path, readonly=True, timeout=SOURCE_TIMEOUT)
        if not any(store.counts().values()):
            note(f"{path} has no rows")
        return store
    except StoreError as error:
        raise GensorError(f"cannot merge: {error}") from None


def _describe(conflict: Conflict) -> str:
    said = ", ".join(f"{Path(path).name} says {choice[:12]}" for path, choice in conflict.choices)
    if conflict.part is None:
        return f"conflict: kernel {conflict.subject[:12]}: {said}; {conflict.winner}: {conflict.reason}"
    try:
        workload = Workload.from_json(conflict.subject)
        subject = f"{workload.operator} {sizes_text(workload)} {workload.kind}"
    except MALFORMED:  # from a newer version; its rows are merged all the same
        subject = ascii(conflict.subject[:60])
    return f"conflict: {subject} on {conflict.part}: {said}; {conflict.winner[:12]} counts: {conflict.reason}"
