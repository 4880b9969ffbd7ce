"""Records and kernels as text: `gensor-tune show`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gensor_database.connection import translated
from gensor_database.record import Kernel, Record, RowType, Source, Timing, Verification
from gensor_database.store import Store
from gensor_database.text import duration
from gensor_database.timings import Winner, newest_first, winner
from gensor_kernels.dispatch.plans.comparison import Comparison, compare, compared, json_fields
from gensor_kernels.errors import MALFORMED, GensorError
from gensor_kernels.families.core.source import bind
from gensor_kernels.machine.arch import stored
from gensor_kernels.machine.roofline import sustained_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.own.stored import name_of, sizes_of
from gensor_kernels.tables import Column, Layout, wrapped
from gensor_tuner.output import counts_text, json_text, printable, sizes_text

from .uses import COMPARED, Call, Use, newest, read, totals

WORDS = ("operator", "sizes", "dtype", "epilogue", "part", "outcome")
#: The most characters to which columns of the table are aligned, and the ranks of those that a terminal may lack.
WIDEST, RANKS = 40, {"epilogue": 1, "operator": 2}
WORKLOAD = ("model", "name", "operator", "sizes", "dtype", "epilogue", "calls", "arch", "part", "outcome")
TIMED = ("predicted_us", "bound_us", "measured_us", "vendor_us")
FIELDS = (*WORKLOAD, *TIMED, *json_fields(None), "family", "kernel")


@dataclass(frozen=True)
class Shown:
    """A record with its predicted time as displayed, and its times next to those of CuPy's calls."""

    fields: dict[str, Any]
    displayed_us: float | None
    both: Comparison | None

    @property
    def cells(self) -> dict[str, str]:
        """The cells of its times."""
        return compared(self.both, self.displayed_us, self.fields["bound_us"])

    @property
    def call(self) -> Call:
        """The calls of its row, with their times."""
        calls, bound, family = (self.fields[name] for name in ("calls", "bound_us", "family"))
        return Call(calls, self.displayed_us, bound, self.both, family or "")


def records(store: Store, arch: str | None) -> Iterator[dict[str, Any]]:
    """Yield the newest record of each Workload and part as a flat dictionary: the fields of `shown_records`."""
    yield from (each.fields for each in shown_records(store, arch))


def shown_records(store: Store, arch: str | None) -> Iterator[Shown]:
    """Yield the newest record of each Workload and part, once for each row that it is for.

    Rows of shapes files come in their order; Workloads without a row come last. `measured_us` and `vendor_us` are the
    median times of the record's kernel on its part and of the array library's call.
    """
    timed = timings(store, arch)
    families: dict[str | None, str] = {row.digest: row.family for row in store.rows(Kernel)}
    found: list[tuple[Record, Use | None]] = []
    for record in newest(store, arch):
        uses = read(record.provenance)
        found += [(record, use) for use in uses] if uses else [(record, None)]
    # A Workload that serves several rows stands at each of them.
    found.sort(key=lambda each: (each[0].arch, each[0].part, each[1] is None, each[1].order if each[1] else ("", 0)))
    for record, use in found:
        ours, theirs = best_times(record, timed.get((record.key, record.part), ()))
        ours_us, theirs_us = (each.median_us if each else None for each in (ours, theirs))
        family = families.get(record.kernel_digest)
        workload = readable(record.key)
        displayed = displayed_us(workload, record.part, record.predicted_us)
        both = comparison(workload, record.part, displayed, ours_us, theirs_us, family)
        fields = {
            **{name: getattr(use, name, None) for name in ("model", "name", "calls")},
            **described(workload, use, record.key),
            **{name: getattr(record, name) for name in ("arch", "part", "outcome", "predicted_us", "bound_us")},
            **{"measured_us": ours_us, "vendor_us": theirs_us},
            **json_fields(both),
            "family": family,
            "kernel": record.kernel_digest,
            **{name: getattr(record, name) for name in ("key", "walk", "provenance", "error")},
        }
        yield Shown(fields, displayed, both)


def timings(store: Store, arch: str | None) -> dict[tuple[str, str], list[Timing]]:
    """Return every timing by the Workload's key and the part."""
    found: dict[tuple[str, str], list[Timing]] = {}
    for row in store.rows(Timing, **({"arch": arch} if arch else {})):
        found.setdefault((row.key, row.part), []).append(row)
    return found


def best_times(record: Record, rows: Iterable[Timing]) -> tuple[Winner | None, Winner | None]:
    """Return the best times of the record's own kernel and of the array library's call."""
    rows = list(rows)
    mine = (row for row in rows if row.kernel_digest is not None and row.kernel_digest == record.kernel_digest)
    return winner(mine), winner(row for row in rows if row.vendor is not None)


def readable(key: str) -> Workload | None:
    """Return the Workload of a record, or None if this version cannot read it."""
    with suppress(*MALFORMED, GensorError):
        return Workload.from_json(key)
    return None


def displayed_us(workload: Workload | None, part: str, predicted_us: float | None) -> float | None:
    """Return a record's predicted time, not below the part's sustained rate where this version knows both."""
    with suppress(*MALFORMED, GensorError):
        if workload is not None and predicted_us:
            return max(predicted_us, sustained_us(workload, stored(part)))
    return predicted_us


def comparison(
    workload: Workload | None,
    part: str,
    displayed: float | None,
    measured_us: float | None,
    vendor_us: float | None,
    family: str | None,
) -> Comparison | None:
    """Return the times of a record next to those of CuPy's calls, or None if this version cannot."""
    with suppress(*MALFORMED, GensorError):
        if workload is not None and displayed is not None:
            return compare(workload, stored(part), displayed, measured_us, vendor_us, family or "")
    return None


def described(workload: Workload | None, use: Use | None = None, key: str = "") -> dict[str, str]:
    """Return the columns that describe a Workload, in the words of `use` where given; "unknown" if unreadable.

    `key` is that of a record, which may be of a user's kernel.
    """
    mine = {"operator": use.op, "sizes": use.sizes} if use else {}
    own = dict.fromkeys(WORDS[:4], "unknown")
    with suppress(*MALFORMED):
        if workload is None:
            sizes = " ".join(f"{name}={size}" for name, size in sizes_of(key).items())
            own = dict(zip(own, (name_of(key), sizes, "", ""), strict=True))
        else:
            texts = (workload.operator, sizes_text(workload), workload.kind, "_".join(workload.epilogue) or "none")
            own = dict(zip(own, texts, strict=True))
    return own | mine


def record_lines(store: Store, arch: str | None, as_json: bool, width: int | None = None) -> Iterator[str]:
    """Yield records as JSON lines, or as a table with the totals of models and the row counts of the database."""
    every_record = list(shown_records(store, arch))
    found = [each.fields for each in every_record]
    if as_json:
        yield from map(json_text, found)
        return
    named = any(each["name"] for each in found)
    several = len({each["model"] for each in found}) > 1
    columns = (*(("model",) if several else ()), *(("name",) if named else ()), *WORDS[:4])
    every = {each["part"] for each in found}
    columns += ("part",) if len(every) > 1 else ()
    columns += ("outcome",) if any(each["outcome"] != "ok" for each in found) else ()
    texts = [{name: _cell(each[name]) for name in columns} for each in found]
    widths = {name: min(max([len(name), *(len(each[name]) for each in texts)]), WIDEST) for name in columns}
    counted = any(each["calls"] not in (None, 1) for each in found)
    layout = Layout(
        [
            *(Column(name, widths[name], shrinks=True, rank=RANKS.get(name, 0)) for name in columns),
            *([Column("calls", 6, right=True, rank=0 if counted else 3)] if named else []),
            *COMPARED,
            Column("kernel", 10, rank=4),
        ],
        width,
    )
    yield layout.header()
    for each, cells in zip(every_record, texts, strict=True):
        kernel = (each.fields["kernel"] or "")[:10]
        yield layout.line({**cells, "calls": _cell(each.fields["calls"]), **each.cells, "kernel": kernel})
    models = [each for each in every_record if each.fields["model"] is not None]
    sentences = list(totals((f"{each.fields['model']} on {each.fields['part']}", each.call) for each in models))
    if arch is not None and not found:
        others = sorted({each.arch for each in newest(store)})
        known = f": the database has records of {', '.join(others)}" if others else ""
        sentences.append(f"no record is of {arch}{known}")
    only = f", for {every.pop()}" if len(every) == 1 else ""
    sentences.append(f"{store.path.name} has {counts_text(store.counts(), empty=True)}{only}")
    yield from wrapped("\n".join(sentences), width)


def _cell(value: object) -> str:
    return "" if value is None else printable(str(value))


def kernels(store: Store, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield all details of the kernels whose digest begins with `prefix`, for JSON.

    Coordinates of the Program are as stored: another ABI has other ones.
    """
    for kernel in beginning(store, Kernel, prefix):
        binary = store.binary(kernel)
        mine = newest_first(store.rows(Record, kernel_digest=kernel.digest))
        served = {(record.key, record.part): record for record in reversed(mine)}
        yield {
            "kernel": kernel.digest,
            **{name: getattr(kernel, name) for name in ("family", "abi", "arch")},
            "class": _parsed(kernel.class_key),
            "program": _parsed(kernel.program),
            "binary": binary
            and {
                **{name: getattr(binary, name) for name in ("digest", "target", "toolchain")},
                **{"bytes": len(binary.cubin), "registers": binary.registers, "spill_bytes": binary.spill_bytes},
                **{"constants": _parsed(binary.constants), "facts": _parsed(binary.facts)},
            },
            "verified": [
                {
                    **{name: getattr(each, name) for name in ("method", "outcome", "error", "worst")},
                    **{"cases": _parsed(each.cases), "counters": _parsed(each.counters)},
                }
                for each in store.rows(Verification, kernel_digest=kernel.digest)
            ],
            "serves": [
                {
                    "names": [*dict.fromkeys(use.name for use in read(each.provenance))],
                    "sizes": described(readable(each.key), key=each.key)["sizes"],
                    **{"part": each.part, "predicted_us": each.predicted_us, "walk": _parsed(each.walk)},
                }
                for each in sorted(served.values(), key=lambda each: (each.part, each.key))
            ],
            "timed": [
                {
                    "sizes": described(readable(each.key), key=each.key)["sizes"],
                    **{name: getattr(each, name) for name in ("part", "median_us", "device")},
                }
                for each in store.rows(Timing, kernel_digest=kernel.digest)
            ],
        }


def kernel_lines(store: Store, prefix: str, as_json: bool = False, width: int | None = None) -> Iterator[str]:
    """Yield all details of the kernels whose digest begins with `prefix`: as JSON lines, or as text."""
    for found in kernels(store, prefix):
        if as_json:
            yield json_text(found)
            continue
        for title, text in _kernel_texts(found):
            yield from wrapped(f"{title:<10}{printable(text, None)}", width, rest=" " * 10)


def _kernel_texts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the details of a kernel as titles and texts."""
    yield "kernel", found["kernel"]
    yield "family", f"{found['family']}, ABI {found['abi']}, {found['arch']}"
    yield "class", _pairs("", found["class"])
    yield "program", _coordinates(found["program"])
    if binary := found["binary"]:
        size = f"{binary['bytes']} bytes, {binary['registers']} registers, {binary['spill_bytes']} bytes spilled"
        yield "binary", f"{binary['digest'][:12]} for {binary['target']} by {binary['toolchain']}: {size}"
        yield "constants", _pairs("", binary["constants"])
        yield "facts", _pairs("", binary["facts"])
    for each in found["verified"]:
        outcome = f"{each['method']}: {each['outcome']} {each['error'] or ''}"
        yield "verified", f"{outcome} worst error / tolerance {each['worst']}"
        yield "", _pairs("", each["cases"])
        yield "", _pairs("", each["counters"])
    for each in found["serves"]:
        names = f"{', '.join(each['names'])}: " if each["names"] else ""
        predicted = f"predicted {duration(each['predicted_us'])}; walk {_pairs('', each['walk'])}"
        yield "serves", f"{names}{each['sizes']} on {each['part']}: {predicted}"
    for each in found["timed"]:
        yield "timed", f"{each['sizes']} on {each['part']}: {duration(each['median_us'])} {each['device']}"


def source_lines(store: Store, prefix: str) -> list[str]:
    """Return the CUDA source of the one kernel whose digest begins with `prefix`, after its constants."""
    found = list(beginning(store, Kernel, prefix))
    if len(found) != 1:
        several = f"{len(found)} kernels" if found else "no kernel"
        raise GensorError(f"{store.path} has {several} whose digest begins with '{printable(prefix, 64)}'")
    (kernel,) = found
    binary = store.binary(kernel)
    source = store.get(Source, binary.source_digest) if binary is not None else None
    if binary is None or source is None:
        refresh = f"gensor-tune refresh --db {shlex.quote(str(store.path))}"
        raise GensorError(f"{store.path} does not have the source of this kernel: {refresh} adds it")
    try:
        text = bind(source.text.decode("utf-8"), json.loads(binary.constants))
    except MALFORMED as error:
        raise GensorError(f"the source of this kernel cannot be shown: {error}") from None
    head = [f"// kernel {kernel.digest}: {kernel.family} for {binary.target}, ABI {kernel.abi}"]
    head.append(f"// program: {_coordinates(_parsed(kernel.program))}")
    head.append("// constants of the Program, then the source of the family:")
    return [*head, *text.replace("// ---- ", "\n// ---- ").expandtabs(4).splitlines()]


def in_words(text: str) -> str:
    """Return JSON as people read it: name=value, dots between nested names, `;` between objects of a list."""
    return _pairs("", _parsed(text))


def _parsed(text: str) -> Any:
    """Return JSON as Python's objects, or a sentence where it is none."""
    try:
        found = json.loads(text)
        _pairs("", found)  # not nested too deeply either
        return found
    except MALFORMED:
        return f"unknown: {printable(text, 200)}"


def _pairs(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(_pairs(f"{name}.{key}" if name else key, each) for key, each in value.items())
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        return "; ".join(_pairs(name, each) for each in value)
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{name}={text}" if name else text


def _coordinates(program: Any) -> str:
    if not isinstance(program, Mapping):
        return str(program)
    return " ".join(f"{name}={value}" for name, value in program.items() if name != "family")


def beginning(store: Store, kind: type[RowType], prefix: str) -> Iterator[RowType]:
    """Yield the rows of a table whose digest begins with `prefix`, in the order of digests."""
    import sqlite_utils  # takes longer to import than most commands take

    with translated(store.path):
        table = sqlite_utils.Database(store.connection)[kind.TABLE]
        # Digits end with f. LIKE would be a function, which this connection does not allow.
        between = "digest >= :first and digest < :last"
        where = {"first": prefix, "last": f"{prefix}g"}
        digests = [row["digest"] for row in table.rows_where(between, where, select="digest", order_by="digest")]
    yield from (row for digest in digests if (row := store.get(kind, digest)) is not None)
