"""Charts: the time split, the roofline (Williams et al., 2009), and times against predictions and the vendor's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from gensor_database.text import duration
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import arithmetic_peak

from .contents import LAUNCH, MEANING, RESOURCES, Line, Part
from .drawing import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    LogScale,
    Markup,
    chart,
    dot,
    figure,
    frame,
    join,
    legend,
    lines,
    series,
    si,
    spread,
    tag,
)

ORDER = (*RESOURCES, LAUNCH)
ROW, NAMES = 34, 256
LEAST = 0.09  # narrower shares have no room for their name


def mean_split(lines: Iterable[Line]) -> dict[str, float]:
    """Return the shares of the total time of several workloads; {} where none has a prediction."""
    found = [line for line in lines if line.split and line.predicted_us]
    total = sum(line.predicted_us or 0.0 for line in found)
    names = ORDER if found else ()
    return {name: sum(line.split[name] * (line.predicted_us or 0.0) for line in found) / total for name in names}


def time_split(part: Part) -> Markup:
    """Draw one bar per family and element type."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in part.served:
        if line.split:
            groups.setdefault((line.family, line.texts["dtype"]), []).append(line)
    if not groups:
        return tag("p", "None of these kernels can be predicted by this version.", class_="absent")
    marks = []
    for place, ((family, dtype), own) in enumerate(sorted(groups.items())):
        name = f"{family.removeprefix('contraction_')} {dtype}"
        marks.append(tag("text", name, class_="tick name", x=NAMES - 10, y=place * ROW + 22, text_anchor="end"))
        marks.append(_bar(mean_split(own), place * ROW + 4, f"{family}, {dtype}, {len(own)} workloads"))
    drawn = chart(f"Time split on {part.name}", f"{len(groups)} groups of kernels.", marks, len(groups) * ROW + 8)
    swatches = legend((f"r{place}", f"{name}: {MEANING[name]}") for place, name in enumerate(ORDER))
    return figure(
        drawn,
        "Bars show shares of the predicted time.",
        "Resources overlap: the share of a resource is the time that it adds, averaged over every order of adding the "
        "resources, so that the shares sum to the whole.",
        legend=swatches,
    )


def _bar(split: Mapping[str, float], y: float, name: str) -> Markup:
    width, at, drawn = WIDTH - NAMES - 8, float(NAMES), []
    for place, resource in enumerate(ORDER):
        size = split[resource] * width
        said = tag("title", f"{name}: {resource} {split[resource]:.0%} ({MEANING[resource]})")
        kind = "inbar wide" if split[resource] < 2 * LEAST else "inbar"
        name_of = tag("text", resource, class_=kind, x=at + size / 2, y=y + 18, text_anchor="middle")
        label = name_of if split[resource] >= LEAST else ""
        box = tag("rect", class_=f"r{place}", x=at, y=y, width=max(size - 1, 0.0), height=ROW - 8)
        drawn.append(tag("g", said, box, label, class_="mark"))
        at += size
    return tag("g", *drawn)


def small_bar(split: Mapping[str, float]) -> Markup:
    """Draw the bar for a table cell, with its values as title, which is its accessible name."""
    if not split:
        return Markup("")
    said = ", ".join(f"{name} {share:.0%}" for name, share in split.items() if share >= 0.01)
    at, drawn = 0.0, []
    for place, resource in enumerate(ORDER):
        if (width := split[resource] * 160) >= 0.05:
            drawn.append(tag("rect", class_=f"r{place}", x=at, width=width))
        at += width
    return tag("svg", tag("title", said), *drawn, class_="smallbar", viewBox="0 0 160 12", role="img")


EDGE = RIGHT - 140  # of the plot: the names of the arithmetic limits stand to its right
SUMS = " (long sums)"
LONG = "Products with long sums may use a faster exact method, so their element type has two limits."


def roofline(part: Part) -> Markup:
    """Draw the roofline of a part that archs.toml lists."""
    arch, lines = part.arch, part.served
    assert arch is not None
    peaks = ceilings(lines, arch)
    x = LogScale.around([_intensity(line) for line in lines], LEFT, EDGE, 2.0)
    rates = [_rate(line) for line in lines]
    y = LogScale.around([*rates, *peaks], BOTTOM, TOP, 1.6)
    order = list(peaks)
    dots = []
    for line in sorted(lines, key=_intensity):
        at, colour = (x(_intensity(line)), y(_rate(line))), order.index(_peak(line, arch))
        dots.append(dot(*at, colour, line.measured_us is None, describe(line)))
    limits = ", ".join(f"{si(peak, _unit(kinds))} for {', '.join(kinds)}" for peak, kinds in peaks.items())
    summary = f"{len(lines)} workloads; memory gives {si(arch.dram_gb_s * 1e9, 'B/s')}; arithmetic {limits}."
    axes = frame(x, y, ("arithmetic intensity: operations per byte of DRAM", "FLOP/s, or integer OP/s"), ("", ""))
    drawn = chart(f"Roofline of {part.name}", summary, [axes, _roofs(arch, peaks, x, y), *dots])
    swatches = [(series(place), ", ".join(kinds)) for place, kinds in enumerate(peaks.values())]
    measured = len(part.measured)
    swatches += [("hollow", "ring: predicted"), ("full", "disc: measured")] if measured else []
    rings = "Rings are predictions, discs measurements." if measured else "Every mark is a prediction."
    return figure(
        drawn,
        "Each mark is a workload: its operations over its least DRAM traffic, and the rate at which its kernel "
        "computes them.",
        rings,
        f"Lines are the limits of {part.name}: its memory, its L2, and the arithmetic of each element type.",
        *([LONG] if any(SUMS in kind for kinds in peaks.values() for kind in kinds) else []),
        legend=legend(swatches),
    )


def ceilings(lines: list[Line], arch: Arch) -> dict[float, list[str]]:
    """Return arithmetic peaks in FLOP/s, largest first, each with its element types."""
    found: dict[float, set[str]] = {}
    for line in lines:
        assert line.workload is not None
        found.setdefault(_peak(line, arch), set()).add(line.workload.kind)
    lowest: dict[str, float] = {}
    for peak in sorted(found, reverse=True):
        lowest |= dict.fromkeys(found[peak], peak)

    def kinds(peak: float) -> list[str]:
        return sorted(kind if peak == lowest[kind] else f"{kind}{SUMS}" for kind in found[peak])

    return {peak: kinds(peak) for peak in sorted(found, reverse=True)}


def _unit(kinds: list[str]) -> str:
    return "OP/s" if all(kind.startswith("int") for kind in kinds) else "FLOP/s"


def describe(line: Line) -> list[str]:
    """Return the tooltip lines of a workload's mark."""
    text = [line.name]
    if line.predicted_us:
        ratio = f", {line.predicted_us / line.record.bound_us:.2f} x its bound" if line.record.bound_us else ""
        text.append(f"predicted {duration(line.predicted_us)}{ratio}")
    if line.measured_us:
        text.append(f"measured {duration(line.measured_us)}")
    if line.vendor_us:
        text.append(f"{line.vendor}: {duration(line.vendor_us)}")
    if line.limit:
        text.append(f"limited by {line.limit}: {line.split[line.limit]:.0%} of the predicted time")
    return [*text, f"kernel {line.digest}, {line.family}"]


def _intensity(line: Line) -> float:
    assert line.flops is not None and line.moved
    return line.flops / line.moved


def _rate(line: Line) -> float:
    assert line.flops is not None and line.time_us
    return line.flops / (line.time_us * 1e-6)


def _peak(line: Line, arch: Arch) -> float:
    assert line.workload is not None
    return arithmetic_peak(line.workload, arch)


def _roofs(arch: Arch, peaks: dict[float, list[str]], x: LogScale, y: LogScale) -> Markup:
    """Draw DRAM and L2 as diagonals up to the highest ceiling, and the ceilings with their names next to the plot."""
    dram, l2 = arch.dram_gb_s * 1e9, arch.l2_bytes_per_clk * arch.clock_ghz * 1e9
    drawn = [_diagonal(dram, f"DRAM {si(dram, 'B/s')}", max(peaks), x, y)]
    drawn.append(_diagonal(l2, f"L2 {si(l2, 'B/s')}", max(peaks), x, y, "second"))
    heights = spread([y(peak) for peak in peaks], 20)
    for place, (peak, kinds) in enumerate(peaks.items()):
        colour, left, level = series(place), min(max(x(peak / l2), LEFT), EDGE), y(peak)
        path = Markup(f"{left:.1f},{level:.1f} {EDGE},{level:.1f} {EDGE + 12},{heights[place]:.1f}")
        drawn.append(tag("polyline", class_=f"roof {colour}", points=path))
        name = si(peak, _unit(kinds))
        drawn.append(tag("text", name, class_=f"roofname {colour}", x=EDGE + 16, y=heights[place] + 5))
    return tag("g", join(drawn), aria_hidden="true")


def _diagonal(rate: float, name: str, top: float, x: LogScale, y: LogScale, kind: str = "first") -> Markup:
    """Draw the line y = rate * x from the edge of the plot to the arithmetic ceiling, with its name along it."""
    low = max(x.low, y.low / rate)
    high = min(x.high, top / rate)
    if high <= low:
        return Markup("")
    ends = x(low), y(rate * low), x(high), y(rate * high)
    angle = math.degrees(math.atan2(ends[3] - ends[1], ends[2] - ends[0]))
    at = low * (high / low) ** 0.3
    place = f"translate({x(at):.1f} {y(rate * at) - 7:.1f}) rotate({angle:.1f})"
    line = tag("line", class_=f"roof {kind}", x1=ends[0], y1=ends[1], x2=ends[2], y2=ends[3])
    return join([line, tag("text", name, class_="roofname", transform=place, text_anchor="middle")])


CELL, ROW_NAMES = 34, 312  # height of a row of the heat map, width of the rows' names
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
    width, bottom = (WIDTH - ROW_NAMES - 8) / len(columns), len(rows) * CELL
    marks = []
    for (row, column), found in cells.items():
        marks.append(_cell(found, ROW_NAMES + columns.index(column) * width, rows.index(row) * CELL, width))
    for place, row in enumerate(rows):
        at = {"x": ROW_NAMES - 10, "y": place * CELL + 22, "text_anchor": "end"}
        marks.append(tag("text", row, class_="tick name", aria_hidden="true", **at))
    for place, column in enumerate(columns):
        kind = "tick wide" if place % 2 else "tick"  # phones have room for every second label
        at = {"x": ROW_NAMES + (place + 0.5) * width, "y": bottom + 20, "text_anchor": "middle"}
        marks.append(tag("text", si(10.0**column), class_=kind, aria_hidden="true", **at))
    at = {"x": (ROW_NAMES + WIDTH) / 2, "y": bottom + 46, "text_anchor": "middle"}
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
