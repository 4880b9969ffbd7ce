"""The rows of shapes files that a Workload was tuned for: their names, order, calls and words.

A record keeps them in its provenance, by the name of the shapes file, so that `show`, `export` and the report can
speak of a model as its author does. A run replaces what earlier runs of a file of that name have left.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gensor_database.record import Record, canonical, now
from gensor_database.rows import batches
from gensor_database.store import Store
from gensor_database.text import duration, span
from gensor_database.timings import newest_first
from gensor_kernels.dispatch.plans.comparison import Comparison
from gensor_kernels.machine.expected import MEASURED_PART, expected_us
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.tables import TIMES, Column
from gensor_tuner.output import plural, sizes_text, window_text
from gensor_tuner.tasks.task import from_plain

if TYPE_CHECKING:
    from gensor_tuner.shapes.reader import Row

#: The key of a record's provenance: shapes file -> rows.
KEY = "rows"
#: Columns of a window in shapes files, with the value of an empty cell.
WINDOW = {name: 1 for name in ("n", "h", "w", "c", "k_out", "r", "s", "stride_h", "stride_w", "groups")}


@dataclass(frozen=True)
class Use:
    """A row of a shapes file. `model`: its column `model` or `set`, else the file's name."""

    file: str
    line: int
    name: str
    model: str
    calls: int
    op: str
    sizes: str

    @property
    def order(self) -> tuple[str, int]:
        """Where it stands among all rows."""
        return self.file, self.line


#: The columns of `compared`.
COMPARED = (*TIMES, Column("serves", 6))
#: Rows of one shapes file by Workload, as `Workload.key()`.
Uses = Mapping[str, Sequence[Use]]


def words(row: Row, workload: Workload | None = None) -> tuple[str, str]:
    """Return a row's operator and sizes as its author wrote them: a 1x1 convolution is not called a product.

    Examples
    --------
    >>> from gensor_tuner.shapes.reader import Row
    >>> cells = dict(op="conv2d", h="14", w="14", c="64", k_out="32", r="1", s="1")
    >>> words(Row(2, "conv", cells=cells))
    ('conv2d', '14x14x64 -> 32, 1x1')
    """
    workload = workload or row.workload
    cells = {name: text.strip() for name, text in row.cells.items() if text.strip()}
    op = cells.get("op", "").lower() or (workload.operator if workload else "")
    if "conv" in op and "k_out" in cells and "layout_c" not in cells:
        return op, window_text(WINDOW | {name: int(cells[name]) for name in WINDOW if cells.get(name, "").isdecimal()})
    if "shape" in cells and "layout_c" not in cells:
        return op, cells["shape"] + (f" over {cells['axes']}" if "axes" in cells else "")
    return op, sizes_text(workload) if workload else ""


def name_of(path: Path) -> str:
    """Return the name of a shapes file in databases, as resnet/shapes: many files are called shapes.csv."""
    return "stdin" if str(path) == "-" else "/".join(filter(None, (path.absolute().parent.name, path.stem)))


def model_of(row: Row, file: str) -> str:
    """Return the model that a row belongs to: its column `model` or `set`, else the file's name."""
    return row.notes.get("model", "").strip() or row.notes.get("set", "").strip() or file


def uses_of(rows: Iterable[Row], file: str) -> dict[str, list[Use]]:
    """Return the rows that have a Workload, by its key."""
    found: dict[str, list[Use]] = {}
    for row in rows:
        if row.workload is not None:
            use = Use(file, row.line, row.name, model_of(row, file), row.count, *words(row))
            found.setdefault(row.workload.key(), []).append(use)
    return found


def read(provenance: str) -> list[Use]:
    """Return the rows that a record names, in order; malformed ones of a foreign file are left out."""
    if f'"{KEY}"' not in provenance:
        return []
    found = []
    for file, uses in _items(_parse(provenance).get(KEY)):
        for values in uses if isinstance(uses, list) else ():
            with suppress(ValueError, TypeError):
                found.append(from_plain(Use, {"file": file, **values}))
    return sorted((use for use in found if use.calls > 0), key=lambda use: use.order)


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    yield from value.items() if isinstance(value, dict) else ()


def _parse(provenance: str) -> dict[str, Any]:
    try:
        found = json.loads(provenance)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def without(provenance: str) -> str:
    """Return a provenance without the rows: the part that says how a record was made."""
    if f'"{KEY}"' not in provenance:
        return provenance
    return canonical({name: value for name, value in _parse(provenance).items() if name != KEY})


def with_uses(provenance: str, before: str, file: str, uses: Sequence[Use]) -> str:
    """Return a provenance with the rows of `file`, and those of other files that the provenance `before` names."""
    known = {name: rows for name, rows in _items(_parse(before).get(KEY)) if name != file}
    if uses:
        known[file] = [{name: value for name, value in asdict(use).items() if name != "file"} for use in uses]
    made = {name: value for name, value in _parse(provenance).items() if name != KEY}
    return canonical(made | {KEY: known} if known else made)


def newest(store: Store, arch: str | None = None) -> list[Record]:
    """Return the newest record of each Workload and part, in the order of their rows; those without rows come last."""
    found: dict[tuple[str, str, str], Record] = {}
    for record in newest_first(store.rows(Record, **({"arch": arch} if arch else {}))):
        found.setdefault((record.arch, record.part, record.key), record)

    def order(record: Record) -> tuple[Any, ...]:
        uses = read(record.provenance)
        return record.arch, record.part, not uses, uses[0].order if uses else ("", 0), record.key

    return sorted(found.values(), key=order)


def name_records(store: Store, arch: str, part: str, file: str, uses: Uses) -> None:
    """Let the newest records of a part name the present rows of `file`, and none that the file has lost."""
    fresh = []
    for record in newest(store, arch):
        wanted = with_uses(record.provenance, record.provenance, file, uses.get(record.key, ()))
        if record.part == part and wanted != record.provenance:
            fresh.append(replace(record, provenance=wanted, created=max(now(), record.created + 1)))
    for batch in batches(fresh):
        store.add(*batch)


@dataclass(frozen=True)
class Call:
    """The calls of one row, with the times of one call in microseconds, or None, and those next to CuPy's calls."""

    count: int
    predicted_us: float | None
    bound_us: float | None
    both: Comparison | None = None
    family: str = ""


def totals(calls: Iterable[tuple[str, Call]], most: int | None = None) -> list[str]:
    """Return a sentence about each model, by the calls of its rows; about all together where there are over `most`."""
    models: dict[str, list[Call]] = {}
    for model, call in calls:
        models.setdefault(model, []).append(call)
    if most is not None and len(models) > most:
        models = {f"{len(models)} models": [call for each in models.values() for call in each]}
    return [sentence for name, each in models.items() if (sentence := _total(name, each))]


def _total(name: str, calls: Sequence[Call]) -> str | None:
    """Return a sentence with the times of all calls of a model, or None if no row has a kernel."""
    served = [each for each in calls if each.predicted_us is not None and each.bound_us]
    if not served:
        return None

    def sum_of(field: str) -> float | None:
        times = [(each.count, getattr(each, field)) for each in served]
        return None if any(us is None for _, us in times) else sum(count * us for count, us in times)

    count = sum(each.count for each in served)
    compared = [(each.count, each.both) for each in served if each.both is not None and each.both.theirs_us is not None]
    calls_take = "call takes" if count == 1 else "calls take"
    text = f"{name}: {count} {calls_take} {duration(sum_of('predicted_us'))} (predicted{_expected(served)}), "
    text += f"the bound is {duration(sum_of('bound_us'))}"
    for how in ("measured", "predicted"):
        text += _gain([each for each in compared if each[1].measured is (how == "measured")], how, count)
    missing = len(calls) - len(served)
    if missing:
        text += f"; without {missing} {plural('row', missing)} that {'have' if missing > 1 else 'has'} no kernel"
    return text


def _expected(served: Sequence[Call]) -> str:
    """Return between which times predicted ones are expected; "" where all were measured."""
    if all(each.both is not None and each.both.measured for each in served):
        return ""
    bands = [(each.count, *expected_us(each.predicted_us or 0.0, each.family)) for each in served]
    low, high = (sum(count * ends[place] for count, *ends in bands) for place in (0, 1))
    return f"; {span(low, high)} expected by times on {MEASURED_PART}"


def _gain(compared: Sequence[tuple[int, Comparison]], how: str, count: int) -> str:
    """Return a clause about the calls of `count` whose times next to CuPy's were found that way, with their numbers."""
    ours = sum(number * both.ours_us for number, both in compared)
    theirs = sum(number * (both.theirs_us or 0.0) for number, both in compared)
    if not ours:
        return ""
    calls = sum(number for number, _ in compared)
    some = f" of {calls} of them" if calls < count else ""
    ratio = f"{theirs / ours:.3g} times ours" + (f", {duration(ours)}" if some or how == "measured" else "")
    return f"; CuPy's calls{some} {duration(theirs)} ({how}), {ratio}"
