"""Predictions against measurements, and our times against the vendor's; a sentence replaces charts without timings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .contents import Line, Part
from .drawing import BOTTOM, LEFT, RIGHT, TOP, WIDTH, LogScale, chart, dot, figure, frame, si
from .markup import Markup, lines, tag
from .roofline import describe

CELL, NAMES = 34, 312  # height of a row of the heat map, width of the rows' names
SHADES = ((0.8, "slow2"), (0.97, "slow1"), (1.03, "even"), (1.25, "fast1"), (math.inf, "fast2"))


def predicted_and_measured(part: Part) -> Markup:
    """Plot measured over predicted time of every timed workload."""
    timed = [line for line in part.measured if line.predicted_us]
    if not timed:
        return tag(
            "p",
            f"No kernel of {part.name} has been timed: everything above and below is a prediction. On a machine with "
            "this GPU, ",
            tag("code", "gensor-tune measure"),
            " adds times, and this page then compares them.",
            class_="absent",
        )
    pairs = [(line.predicted_us or 0.0, line.measured_us or 0.0) for line in timed]
    every = [value for pair in pairs for value in pair]
    x, y = LogScale.around(every, LEFT, RIGHT), LogScale.around(every, BOTTOM, TOP)
    ratios = sorted(measured / predicted for predicted, measured in pairs)
    middle = ratios[len(ratios) // 2]
    within = sum(0.5 <= ratio <= 2 for ratio in ratios)
    even = tag("line", class_="roof first", x1=x(x.low), y1=y(y.low), x2=x(x.high), y2=y(y.high))
    dots = [dot(x(us), y(real), 0, False, describe(line)) for (us, real), line in zip(pairs, timed, strict=True)]
    inner = [LogScale(each.low * 1e-6, each.high * 1e-6, each.start, each.end) for each in (x, y)]
    axes = frame(inner[0], inner[1], ("predicted", "measured"), ("s", "s"))
    summary = f"{len(timed)} workloads; measured over predicted is {middle:.2f} in the median."
    drawn = chart(f"Predicted and measured times on {part.name}", summary, [axes, even, *dots])
    return figure(
        drawn,
        "Marks on the line have an exact prediction; marks above it took longer than predicted.",
        f"Measured over predicted: median {middle:.2f}, {within} of {len(timed)} within a factor of two.",
    )


def speedups(part: Part) -> Markup:
    """Draw the heat map: classes by size, each cell the geometric mean of the vendor's time over ours."""
    timed = [line for line in part.measured if line.speedup and line.flops]
    if not timed:
        return tag("p", f"No vendor's call has been timed beside these kernels on {part.name}.", class_="absent")
    mean, vendors = _mean(timed), ", ".join(sorted({line.vendor for line in timed}))
    marks, height = _heat(timed)
    summary = f"{len(timed)} workloads, geometric mean {mean:.2f} over {vendors}."
    drawn = chart(f"Speed-up over the vendor on {part.name}", summary, marks, height)
    wins = sum((line.speedup or 0) > 1.02 for line in timed)
    return figure(
        drawn,
        f"Cells give the time of {vendors} over ours, by class and size: above 1 ours is faster.",
        f"The geometric mean is {mean:.2f}; {wins} of {len(timed)} workloads are faster by more than 2 %.",
    )


def _heat(timed: Sequence[Line]) -> tuple[list[Markup], int]:
    """Return cells and labels of the heat map, and its height."""
    cells: dict[tuple[str, int], list[Line]] = {}
    for line in timed:
        cells.setdefault((_row(line), math.floor(math.log10(line.flops or 1.0))), []).append(line)
    rows, columns = sorted({row for row, _ in cells}), sorted({column for _, column in cells})
    width, bottom = (WIDTH - NAMES - 8) / len(columns), len(rows) * CELL
    marks = []
    for (row, column), found in cells.items():
        marks.append(_cell(found, NAMES + columns.index(column) * width, rows.index(row) * CELL, width))
    for place, row in enumerate(rows):
        at = {"x": NAMES - 10, "y": place * CELL + 22, "text_anchor": "end"}
        marks.append(tag("text", row, class_="tick name", aria_hidden="true", **at))
    for place, column in enumerate(columns):
        kind = "tick wide" if place % 2 else "tick"  # phones have room for every second label
        at = {"x": NAMES + (place + 0.5) * width, "y": bottom + 20, "text_anchor": "middle"}
        marks.append(tag("text", si(10.0**column), class_=kind, aria_hidden="true", **at))
    at = {"x": (NAMES + WIDTH) / 2, "y": bottom + 46, "text_anchor": "middle"}
    return [*marks, tag("text", "operations of the workload", class_="axis", **at)], bottom + 60


def _row(line: Line) -> str:
    epilogue = "" if line.texts["epilogue"] == "none" else " fused"
    return f"{line.texts['operator']} {line.texts['dtype']}{epilogue}"


def _mean(found: Sequence[Line]) -> float:
    return math.exp(sum(math.log(line.speedup or 1.0) for line in found) / len(found))


def _cell(found: Sequence[Line], x: float, y: float, width: float) -> Markup:
    mean = _mean(found)
    shade = next(name for bound, name in SHADES if mean < bound)
    texts = [f"{_row(found[0])}: {mean:.2f} x over {len(found)} workloads"]
    texts += [f"{each.name}: {each.speedup:.2f}" for each in found[:8]]
    box = tag("rect", class_=f"cell {shade}", x=x + 1, y=y + 1, width=width - 2, height=CELL - 2, rx=3)
    number = tag("text", f"{mean:.2f}", class_="cellnumber", x=x + width / 2, y=y + 22, text_anchor="middle")
    return tag("g", tag("title", lines(texts)), box, number, class_="mark")
