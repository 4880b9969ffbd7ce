"""The report of `accelerate(report=True)`: which of CuPy's functions were reached, and what served their calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_database.text import duration
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.api.explain import Gain, find_gain
from gensor_kernels.dispatch.observe import record
from gensor_kernels.tables import aligned

if TYPE_CHECKING:
    from gensor_kernels.dispatch.observe.dry_run import Question
    from gensor_kernels.dispatch.observe.record_file import Cells

#: The function whose call is being served in this thread or task, and the tiers of what has served it so far.
_now: ContextVar[tuple[str, list[int]] | None] = ContextVar("gensor_kernels_reached", default=None)
#: The calls of a kind at which its times are looked up: the second one may race.
_LOOKS = (1, 3)
#: Kinds of calls that the text lists.
MOST = 20
#: Columns of a recording that the name of a kind is not made of.
_OTHERS = ("tier", "part", "op", "dtype", "unsupported")


class Served(NamedTuple):
    """Calls of a function: by what served them.

    `kernels` were served by ours, `cupy` by CuPy after ours had looked for a kernel, and `unchanged` by CuPy because of
    their arguments.
    """

    kernels: int
    cupy: int
    unchanged: int


class Reached(record.Counts):
    """Calls of CuPy's functions that `accelerate` has reached; its text is a report.

    `counts` has the kinds of calls, as rows of a recording, by the function of CuPy that was called; `gains` their
    times where these are known.
    """

    def reset(self) -> None:
        """Clear all counts, and make a new lock."""
        super().reset()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.kinds: Counter[tuple[str, Cells]] = Counter()
        self.gains: dict[Cells, Gain] = {}

    def serve(self, name: str, serve: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Serve a call of CuPy's function `name` by ours, and count it."""
        tiers: list[int] = []
        token, by = _now.set((name, tiers)), "unchanged"
        try:
            found = serve(args, keywords)
            if found is not None:
                by = "kernels" if tiers and max(tiers) < 4 else "cupy"
            return found
        finally:
            _now.reset(token)
            with self.lock:
                self.calls[name, by] += 1

    def count(self, row: Cells, asked: Question | None = None) -> None:
        """Count a call of a kind, where it is of one of CuPy's functions."""
        within = _now.get()
        if within is None:
            return
        name, tiers = within
        tiers.append(int(dict(row)["tier"]) if "tier" in dict(row) else 0)
        with self.lock:
            self.kinds[name, row] += 1
            look = self.kinds[name, row] in _LOOKS
        if look and asked is not None:
            gain = find_gain(current_runtime(), asked)
            if gain is not None:
                self.gains[row] = gain

    # ---- the report

    @property
    def functions(self) -> dict[str, Served]:
        """Numbers of calls by the function of CuPy, the most frequent first."""
        with self.lock:
            calls = dict(self.calls)
        names: Counter[str] = Counter()
        for (name, _), count in calls.items():
            names[name] += count
        return {name: Served(*(calls.get((name, by), 0) for by in Served._fields)) for name, _ in names.most_common()}

    def __str__(self) -> str:
        functions = self.functions
        if not functions:
            return "accelerate: no call reached gensor_kernels"
        rows = [(name, sum(each), *each) for name, each in functions.items()]
        heads = ("function", "calls", "by kernels", "by CuPy", "unchanged")
        lines = ["accelerate: calls of CuPy's functions, and what served them", *aligned([heads, *rows])]
        with self.lock:
            kinds, gains = self.kinds.most_common(), dict(self.gains)
        if kinds:
            rest = f", {MOST} of {len(kinds)}" if len(kinds) > MOST else ""
            lines += ["", f"kinds of calls, the most frequent first{rest}"]
            titles = ("function", "kind", "calls", "by", "ours", "CuPy", "times")
            lines += aligned([titles, *(_row(*kind, gains) for kind in kinds[:MOST])])
        for how in ("measured", "predicted"):
            known = [(gains[row], count) for (_, row), count in kinds if row in gains and _tier(row) < 4]
            of_these = [(gain, count) for gain, count in known if gain.how == how]
            if of_these:
                ours = sum(gain.ours_us * count for gain, count in of_these)
                theirs = sum(gain.theirs_us * count for gain, count in of_these)
                times = f"{duration(ours)} in place of {duration(theirs)} by CuPy"
                lines.append(f"{sum(count for _, count in of_these)} calls by kernels, {how}: {times}")
        return "\n".join(lines)


def _tier(row: Cells) -> int:
    return int(dict(row).get("tier", 0))


def _row(place: tuple[str, Cells], count: int, gains: dict[Cells, Gain]) -> tuple[object, ...]:
    (name, cells), by = place, "CuPy" if _tier(place[1]) == 4 else "kernels"
    gain = gains.get(cells)
    times = ("", "", "not known") if gain is None else (duration(gain.ours_us), duration(gain.theirs_us), gain.how)
    return name, _words(cells), count, by, *times


def _words(cells: Cells) -> str:
    """Return a kind of call in a few words: its operator, dtype and sizes."""
    named = dict(cells)
    skipped = (*_OTHERS, "acc", "out", "trans_a", "trans_b")
    sizes = [
        value if name == "shapes" else f"{name}={value}"
        for name, value in cells
        if (name, value) not in (("batch", "1"), ("epilogue", "none"))
        and name not in skipped
        and not name.startswith(("layout_", "align_", "dtype_"))
    ]
    return " ".join((named.get("op", ""), named.get("dtype", ""), *sizes))
