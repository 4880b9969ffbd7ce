"""Time split: bars of the roofline resources' shares of the predicted time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .contents import Line, Part
from .drawing import WIDTH, chart, figure, legend
from .markup import Markup, tag
from .split import LAUNCH, MEANING, RESOURCES

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
    for place, ((family, dtype), lines) in enumerate(sorted(groups.items())):
        name = f"{family.removeprefix('contraction_')} {dtype}"
        marks.append(tag("text", name, class_="tick name", x=NAMES - 10, y=place * ROW + 22, text_anchor="end"))
        marks.append(_bar(mean_split(lines), place * ROW + 4, f"{family}, {dtype}, {len(lines)} workloads"))
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
    """Draw the bar for a table cell, with its values as accessible name."""
    if not split:
        return Markup("")
    said = ", ".join(f"{name} {share:.0%}" for name, share in split.items() if share >= 0.01)
    at, drawn = 0.0, []
    for place, resource in enumerate(ORDER):
        drawn.append(tag("rect", class_=f"r{place}", x=at, y=0, width=split[resource] * 160, height=12))
        at += split[resource] * 160
    return tag("svg", tag("title", said), *drawn, class_="smallbar", viewBox="0 0 160 12", role="img", aria_label=said)
