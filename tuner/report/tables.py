"""Tables that sort by heading and filter by words; without scripts they are plain tables."""

from __future__ import annotations

from collections.abc import Sequence

from gensor_database.text import duration, span
from gensor_kernels.dispatch.plans.comparison import Comparison
from gensor_kernels.tables import MARK

from .charts import mean_split, small_bar
from .contents import Line, Part
from .drawing import Markup, breakable, tag

#: Columns that are aligned to the right and sorted by value: that of a cell is its text or its sort value.
NUMBERS = frozenset({"calls", "predicted", "bound", "x bound", "measured", "CuPy", "gain", "share, %", "workloads"})
NUMBERS |= {"registers", "spilled", "step", "benefit g"}
#: A cell: text, or (text, sort value or None).
Cell = object


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], filtered: bool = True) -> Markup:
    """Draw a table in a scrolling frame; `filtered` puts a search box above it."""
    head = tag("tr", *(tag("th", tag("button", c, type="button"), scope="col", class_=_kind(c)) for c in columns))
    body = [tag("tr", *(_cell(c, cell) for c, cell in zip(columns, row, strict=True))) for row in rows]
    words = tag("label", "Filter ", tag("input", type="search", placeholder="words, such as float16 DRAM"))
    search = tag("p", words, tag("span", f"{len(rows)} rows", class_="count", role="status"), class_="filter")
    inner = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    frame = tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("div", search if filtered else "", frame, class_="sortable")


def _kind(column: str) -> str | None:
    return "n" if column in NUMBERS else None


def _cell(column: str, cell: Cell) -> Markup:
    if isinstance(cell, tuple):
        shown, value = cell
        number = None if value is None else f"{value:.4g}"
        return tag("td", breakable(shown), class_=_kind(column), data_v=None if number == str(shown) else number)
    return tag("td", breakable(cell), class_=_kind(column))


def records(part: Part) -> Markup:
    """Draw the table of a part's workloads, those first whose calls take most of the time."""
    timed, failed = bool(part.measured), any(line.record.outcome != "ok" for line in part.lines)
    named = any(line.uses for line in part.lines)
    columns = ["name", "calls"] if named else []
    columns += ["operator", "sizes", "dtype", "epilogue", "predicted", "expected", "bound", "x bound"]
    columns += [*(["measured"] if timed else []), "CuPy", "gain", "serves", "share, %"]
    columns += ["limited by", "family", "kernel", "verified", *(["outcome"] if failed else [])]
    whole = sum(line.model_us for line in part.lines)
    ordered = sorted(part.lines, key=lambda line: -line.model_us)
    rows = [_record(line, whole, named, timed, failed) for line in ordered]
    return table(f"Workloads of {part.name}", columns, rows)


def _record(line: Line, whole: float, named: bool, timed: bool, failed: bool) -> list[Cell]:
    predicted, bound = line.predicted_us, line.record.bound_us
    ratio = predicted / bound if predicted and bound else None
    cells: list[Cell] = [line.called, ("" if line.calls is None else line.calls, line.calls)] if named else []
    cells += [line.texts["operator"], (line.texts["sizes"], line.flops), line.texts["dtype"]]
    both, share = line.both, line.model_us / whole if whole else 0.0
    band = both.expected_us if both else None
    cells += [line.texts["epilogue"], _time(predicted), (span(*band), band[1]) if band else ("", None)]
    cells += [_time(bound), _ratio(ratio)]
    cells += [_time(line.measured_us)] if timed else []
    cells += [_theirs(both), _ratio(both.gain if both else None), both.serves if both else ""]
    cells += [f"{100 * share:.1f}", line.limit, line.family, tag("code", line.digest), line.verified]
    outcome = line.record.outcome + (f": {line.record.error}" if line.record.error else "")
    return cells + ([outcome] if failed else [])


def _time(us: float | None) -> Cell:
    return duration(us), us


def _theirs(both: Comparison | None) -> Cell:
    """Return CuPy's time, marked if it is predicted."""
    if both is None or both.theirs_us is None:
        return "", None
    return ("" if both.measured else MARK) + duration(both.theirs_us), both.theirs_us


def _ratio(value: float | None) -> Cell:
    return ("", None) if value is None else f"{value:.2f}"


def kernels(part: Part) -> Markup:
    """Draw the table of a part's kernels, with the time split of each kernel's workloads."""
    groups: dict[str, list[Line]] = {}
    for line in part.lines:
        if line.kernel is not None:
            groups.setdefault(line.kernel.digest, []).append(line)
    columns = ["kernel", "family", "dtype", "workloads", "registers", "spilled", "limited by", "time split"]
    rows = [_kernel(found) for found in sorted(groups.values(), key=lambda lines: -len(lines))]
    return table(f"Kernels of {part.name}", columns, rows)


def _kernel(lines: Sequence[Line]) -> list[Cell]:
    first, split = lines[0], mean_split(lines)
    limit = max(split, key=lambda name: split[name]) if split else ""
    spilled = "" if first.spill_bytes is None else f"{first.spill_bytes} B"
    registers = "" if first.registers is None else first.registers
    cells: list[Cell] = [tag("code", first.digest), first.family, first.texts["dtype"], (len(lines), len(lines))]
    cells += [(registers, first.registers), (spilled, first.spill_bytes), limit, (small_bar(split), split.get(limit))]
    return cells
