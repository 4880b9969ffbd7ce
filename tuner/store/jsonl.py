"""A database as JSON lines: `gensor-tune export --json` and `gensor-tune import`."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from gensor_database.exchange import merge
from gensor_database.record import TABLES, Binary, Kernel, Row, Source, Verification
from gensor_database.rows import batches
from gensor_database.store import Store
from gensor_kernels.errors import ConfigError, GensorError
from gensor_tuner.output import beside, note, output, say

from .validation import CODE, row_of, to_json

#: The most bytes of a line without and with code: rows with code contain a cubin.
LONGEST, LONGEST_CODE = 2**22, 2**24
#: Bytes after which the search for the end of an overlong line is given up.
ENDLESS = 2**28


def export_lines(store: Store, out: Path, arch: str | None, binaries: bool) -> int:
    """Write rows as JSON lines to `out` (stdout for "-"); code and verdicts only with `binaries`."""
    counts: Counter[str] = Counter()
    with output(out) as file:
        for row in _rows(store, arch, binaries):
            file.write(to_json(row) + "\n")
            counts[row.TABLE] += 1
    say(_summary(counts) or "no rows", file=beside(out))
    return 0


def _summary(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {table}" for table, count in sorted((+counts).items()))


def _rows(store: Store, arch: str | None, binaries: bool) -> Iterator[Row]:
    """Yield rows before the rows that refer to them; for one capability, its rows and the rows they refer to."""
    chosen: dict[type[Row], set[str]] = {}
    if arch is not None:
        kernels = list(store.rows(Kernel, arch=arch))
        chosen[Kernel] = {row.digest for row in kernels}
        chosen[Binary] = {row.binary_digest for row in kernels}
        if binaries:
            chosen[Source] = {row.source_digest for row in store.rows(Binary) if row.digest in chosen[Binary]}
    for kind in TABLES:
        if kind in CODE and not binaries:
            continue
        for row in store.rows(kind):
            named = row.kernel_digest if isinstance(row, Verification) else row.digest
            wanted = chosen.get(Kernel if isinstance(row, Verification) else kind)
            if arch is None or (named in wanted if wanted is not None else getattr(row, "arch", arch) in (arch, "")):
                yield row


def import_lines(source: Path, target: Path, binaries: bool) -> int:
    """Add the rows of a file (stdin for "-"); return 1 where a line was refused, without effect on other lines."""
    seen: Counter[str] = Counter()
    with ExitStack() as stack:
        file = stack.enter_context(_read(source))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gensor-import-"))
        # Rows pass through a scratch database, so that they are merged like any other database's.
        scratch = stack.enter_context(Store.open(Path(folder) / "rows.db", trusted=binaries))
        rows = _accept(file, source, binaries, seen)
        for batch in batches(rows):
            scratch.add(*batch)
        added = merge(stack.enter_context(Store.open(target)), scratch, binaries)
    say(_summary(added) or "nothing new")
    if seen["refused"]:
        note(f"{seen['refused']} lines were refused")
    if seen["left"]:
        note(f"{seen['left']} lines with sources, machine code or verdicts were left out: --binaries takes them")
    if (kernels := added["kernel"]) and not binaries:
        note(f"{kernels} kernels came without cubins and verdicts, so none is usable yet: tune their shapes here")
    return 1 if seen["refused"] else 0


def _accept(file: BinaryIO, source: Path, binaries: bool, seen: Counter[str]) -> Iterator[Row]:
    """Yield rows of well-formed lines; `seen` counts refused lines, and lines left out because they contain code."""
    for number, line in _lines(file, LONGEST_CODE if binaries else LONGEST):
        try:
            row = row_of(line)
        except ValueError as error:
            seen["refused"] += 1
            note(f"{source}:{number}: {error}")
            continue
        if isinstance(row, CODE) and not binaries:
            seen["left"] += 1
        else:
            yield row


def _lines(file: BinaryIO, longest: int) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines that are not blank, the beginning of overlong ones; GensorError without an end."""
    number = 0
    while line := file.readline(longest):
        number += 1
        if len(line) == longest and not line.endswith(b"\n"):
            size = longest
            while (rest := file.readline(longest)) and not rest.endswith(b"\n"):
                size += len(rest)
                if size > ENDLESS:
                    large = f"line {number} has more than {ENDLESS >> 20} MB"
                    raise GensorError(f"{large}: this is not a file of export --json")
        if line.strip():
            yield number, line


@contextmanager
def _read(source: Path) -> Iterator[BinaryIO]:
    if str(source) == "-":
        yield sys.stdin.buffer
        return
    try:
        with source.open("rb") as file:
            yield file
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror or error}") from None
