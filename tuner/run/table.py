"""The table on stdout, in the order of the shapes file, and the sentences at the end of a run."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gensor_database.text import duration
from gensor_tuner.shapes.reader import Row
from gensor_tuner.store import uses
from gensor_tuner.store.uses import Call, model_of, words

from .result import NEAR_BOUND, Result

#: The most characters of a name, an operator and sizes.
WIDTHS = (40, 22, 40)
#: Models whose totals are printed one by one.
MOST_MODELS = 12
STATUSES = ("ok", "failed", "skipped", "unsupported")


class Table:
    """A table whose columns fit the rows of one shapes file."""

    def __init__(self, rows: Sequence[Row], archs: Sequence[str] = ()):
        self.arch = max((len(name) for name in archs), default=0) if len(archs) > 1 else 0
        titles = ("name", "op", "sizes")
        texts = [titles, *((row.name, *words(row)) for row in rows)]
        self.widths = [min(max(len(text[column]) for text in texts), most) for column, most in enumerate(WIDTHS)]
        self.counts = max(len("calls"), *(len(str(row.count)) for row in rows)) if rows else len("calls")

    def header(self) -> str:
        """Return the names of the columns."""
        return (
            f"{self._arch('arch')}{self._head('name', 'op', 'sizes')} {'calls':>{self.counts}} {'dtype':<13} "
            f"{'status':<11} {'family':<17} {'kernel':<10} {'predicted':>9} {'bound':>9} {'ratio':>6} "
            f"{'regs':>5} verified"
        )

    def line(self, row: Row, result: Result, arch: str = "") -> str:
        """Return a row; without a kernel, it ends with the reason."""
        dtype = result.workload.kind if result.workload else ""
        head = f"{self._arch(arch)}{self._head(row.name, *words(row, result.workload))} {row.count:>{self.counts}} "
        head += f"{dtype:<13} {result.status:<11} "
        if row.error is not None:
            return f"{head}bad row: the reason is on stderr"
        if result.status != "ok" or result.displayed_us is None or result.bound_us is None:
            return head + (result.error or "")
        displayed, bound = result.displayed_us, result.bound_us
        times = f"{duration(displayed):>9} {duration(bound):>9} {displayed / bound:>6.2f}"
        kernel = (result.kernel or "")[:10]
        return f"{head}{result.family:<17} {kernel:<10} {times} {result.registers or 0:>5} {result.verified}"

    def _arch(self, name: str) -> str:
        """Return the column of the arch, which only a table of several has."""
        return f"{name:<{self.arch}} " if self.arch else ""

    def _head(self, *texts: str) -> str:
        return " ".join(f"{text[:most]:<{width}}" for text, width, most in zip(texts, self.widths, WIDTHS, strict=True))


class InOrder:
    """Passes results on in the order of the shapes file, each as soon as all rows before it have one."""

    def __init__(self, rows: Sequence[tuple[int, Row]], notify: Callable[[int, Row, Result], None]):
        """Prepare for rows, each with the number of its run; `notify(run, row, result)` is called for each."""
        self.notify = notify
        self._lines = [(run, row.line) for run, row in rows]
        self._found: dict[tuple[int, int], tuple[int, Row, Result]] = {}
        self._next = 0

    def add(self, run: int, row: Row, result: Result) -> None:
        """Take a result."""
        self._found[run, row.line] = run, row, result
        while self._next < len(self._lines) and self._lines[self._next] in self._found:
            self.notify(*self._found.pop(self._lines[self._next]))
            self._next += 1

    def rest(self) -> None:
        """Pass on the results that wait for rows without one: the run has ended."""
        for line in sorted(self._found):
            self.notify(*self._found[line])
        self._found.clear()


def totals(results: Sequence[tuple[Row, Result]], file: str) -> list[str]:
    """Return a sentence about each model, or about all where they are many: the times of its calls."""
    return uses.totals(((model_of(row, file), _call(row, result)) for row, result in results), MOST_MODELS)


def _call(row: Row, result: Result) -> Call:
    return Call(row.count, result.displayed_us, result.bound_us, result.measured_us, result.vendor_us)


def summary(results: Sequence[Result]) -> list[str]:
    """Return sentences about a run: rows by status, kernels and classes, rows near their bound."""
    counts = Counter(result.status for result in results)
    counted = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    lines = [counted or "the shapes file has no rows"]
    served = [result for result in results if result.status == "ok" and result.workload is not None]
    if served:
        kernels = len({result.kernel for result in served})
        classes = len({result.workload.class_key() for result in served if result.workload is not None})
        lines[0] += f"; kernels: {kernels}, classes: {classes}"
        ratios = [r.displayed_us / r.bound_us for r in served if r.displayed_us and r.bound_us]
        near = sum(ratio <= NEAR_BOUND for ratio in ratios)
        spread = f"median ratio {float(np.median(ratios)):.2f}, worst {max(ratios):.2f}"
        lines.append(f"predicted within 2x of the bound: {near} of {len(served)} rows; {spread}")
        # The same calls without a dtype would give int8; convolutions give int32 anyway.
        products = [each.workload for each in served if each.workload and each.workload.operator == "matmul"]
        if any([each.dtype[name] for name in "abc"] == ["int8", "int8", "int32"] for each in products):
            lines.append('int8 products have int32 results here: call them with dtype="int32", else they give int8')
    return lines


def next_steps(db: Path, users: bool) -> str:
    """Return the next commands; `users`: whether programs read this database by default."""
    path = shlex.quote(str(db))
    read = "your programs use these kernels from now on" if users else f"GENSOR_DB={path} python your_program.py"
    return f"next: gensor-tune report --db {path}; {read}"
