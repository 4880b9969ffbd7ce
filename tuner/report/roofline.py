"""The roofline: every kernel at its arithmetic intensity under the ceilings of its part (Williams et al., 2009)."""

from __future__ import annotations

import math

from gensor_database.text import duration
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import arithmetic_peak

from .contents import Line, Part
from .drawing import BOTTOM, LEFT, RIGHT, TOP, LogScale, chart, dot, figure, frame, legend, series, si, spread
from .markup import Markup, join, tag

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
