"""Replay of one walk: the predicted time after every action, and the benefit g = ln Phi(s) - ln Phi(s')."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gensor_database.text import duration
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.search.trace import Trail, expand, visited

from .contents import UNREADABLE, Line, Part
from .drawing import LEFT, RIGHT, LogScale, Markup, chart, figure, join, lines, rungs, tag, upright
from .tables import table

CURVE, BARS, FOOT = (20, 270), (310, 410), 452
SHORTEST = 3  # actions: shorter walks are not drawn
LONGEST = 8  # walks that are examined


@dataclass(frozen=True)
class Step:
    """An action of a walk: its name, its change, the predicted time afterwards (microseconds), its benefit."""

    action: str
    change: str
    predicted_us: float
    benefit: float


def walk(part: Part) -> Markup:
    """Draw the part's walk that gained most within its own workload's space, as chart and table."""
    for line in _candidates(part):
        try:
            assert part.arch is not None and line.workload is not None
            steps = followed(line.record.walk, line.workload, part.arch)
        except UNREADABLE:
            continue
        return _draw(line, steps)
    return tag("p", "No record of this part carries a walk that can be followed again.", class_="absent")


def followed(text: str, workload: Workload, arch: Arch) -> list[Step]:
    """Return the steps of a record's walk, its start first; raise one of UNREADABLE where replay fails."""
    steps: list[Step] = []
    before: dict[str, int] = {}
    for space, action, point in visited(Space(workload, arch), text):
        values = {c.name: c.values[int(i)] for c, i in zip(space.coordinates, point, strict=True)}
        reached = {c.name for c in space.coordinates if c.level <= point[0]}
        time = float(space.potential(point[None])[0]) * 1e6
        benefit = math.log(steps[-1].predicted_us / time) if steps else 0.0
        known = [(name, value) for name, value in values.items() if name in reached]
        changes = [f"{name} {before[name]} → {value}" for name, value in known if before.get(name, value) != value]
        change = ", ".join(changes or [f"{name} {value}" for name, value in known if name != "level"])
        steps.append(Step(action or "start", change, time, benefit))
        before = values
    return steps


def _candidates(part: Part) -> list[Line]:
    """Return the LONGEST walks with the most actions, in descending order of gain."""
    lines = [line for line in part.lines if part.arch is not None and _own_actions(line) >= SHORTEST]
    ranked = sorted(lines, key=lambda line: (-_own_actions(line), line.record.key))[:LONGEST]
    return sorted(ranked, key=lambda line: -_gain(line, part.arch))


def _gain(line: Line, arch: Arch | None) -> float:
    """Return the predicted time at the walk's start over the record's; 0 where replay fails."""
    try:
        assert line.workload is not None and arch is not None and line.record.predicted_us
        space, _, point = next(visited(Space(line.workload, arch), line.record.walk))
        return float(space.potential(point[None])[0]) * 1e6 / line.record.predicted_us
    except UNREADABLE:
        return 0.0


def _own_actions(line: Line) -> int:
    """Count the actions of a walk whose legs are all in the record's own space; 0 for others (times not comparable)."""
    try:
        trail = Trail.from_json(line.record.walk, line.workload)
        own = all(leg.workload is None for leg in trail.legs)
        return sum(len(expand(leg.path)) for leg in trail.legs) if own else 0
    except UNREADABLE:
        return 0


def _draw(line: Line, steps: Sequence[Step]) -> Markup:
    gap = (RIGHT - LEFT) / max(len(steps) - 1, 1)
    bound = line.record.bound_us
    times = [step.predicted_us for step in steps] + ([bound] if bound else [])
    y = LogScale.around(times, CURVE[1], CURVE[0], 1.3)
    names = [upright(name, sum(band) / 2) for name, band in (("predicted", CURVE), ("benefit g", BARS))]
    marks = [tag("g", *rungs(y, "s", 1e-6), *names, aria_hidden="true")]
    if bound:
        marks.append(tag("line", class_="roof second", x1=LEFT, x2=RIGHT, y1=y(bound), y2=y(bound)))
        name = f"no kernel can be faster: {duration(bound)}"
        marks.append(tag("text", name, class_="roofname", x=RIGHT - 4, y=y(bound) + 18, text_anchor="end"))
    path = " ".join(f"{LEFT + place * gap:.1f},{y(step.predicted_us):.1f}" for place, step in enumerate(steps))
    marks.append(tag("polyline", class_="trail", points=Markup(path)))
    marks.append(_benefits(steps, gap))
    marks += [_mark(place, step, LEFT + place * gap, y) for place, step in enumerate(steps)]
    first, last = steps[0].predicted_us, steps[-1].predicted_us
    summary = f"{len(steps) - 1} actions, from {duration(first)} to {duration(last)}."
    drawn = chart(f"The walk to the kernel of {line.name}", summary, marks, FOOT)
    caption = (
        f"The walk constructed the kernel of {line.name} in {len(steps) - 1} actions, without its detours.",
        f"The predicted time falls from {duration(first)} to {duration(last)}.",
        "Each bar is the benefit of an action, g = ln(time before) - ln(time after).",
        "The walk draws an action with a probability that grows as exp(g / tau), so some benefits are negative.",
        "The last actions may accept a slightly longer prediction for full-width accesses or for a kernel that does "
        "not spill registers.",
    )
    return join([figure(drawn, *caption), _words(steps)])


def _benefits(steps: Sequence[Step], gap: float) -> Markup:
    most, worst = (max(sign * step.benefit for step in steps) for sign in (1, -1))  # the start has benefit 0
    unit = (BARS[1] - BARS[0]) / ((most + worst) or 1.0)
    zero = BARS[0] + most * unit
    width = min(gap * 0.6, 26.0)
    bars = []
    for place, step in enumerate(steps[1:], start=1):
        box = {"x": LEFT + place * gap - width / 2, "y": min(zero, zero - step.benefit * unit), "width": width}
        kind = "gain" if step.benefit >= 0 else "loss"
        bars.append(tag("rect", class_=kind, **box, height=max(abs(step.benefit) * unit, 1.0)))
    axis = tag("line", class_="zero", x1=LEFT, x2=RIGHT, y1=zero, y2=zero)
    top = tag("text", f"{most:.2f}", class_="tick", x=LEFT - 8, y=BARS[0] + 4, text_anchor="end")
    nil = tag("text", "0", class_="tick", x=LEFT - 8, y=zero + 4, text_anchor="end")
    ends = [("start", LEFT, "start"), ("kernel", RIGHT, "end")]
    feet = [tag("text", name, class_="axis", x=x, y=FOOT - 16, text_anchor=anchor) for name, x, anchor in ends]
    return tag("g", *bars, axis, top, nil, *feet, aria_hidden="true")


def _mark(place: int, step: Step, x: float, y: LogScale) -> Markup:
    time = f"predicted {duration(step.predicted_us)}, g = {step.benefit:+.3f}"
    said = tag("title", lines([f"{place}. {step.action}", step.change, time]))
    return tag("circle", said, class_="dot c0", cx=x, cy=y(step.predicted_us), r=5)


def _words(steps: Sequence[Step]) -> Markup:
    columns = ["step", "action", "what changes", "predicted", "benefit g"]
    rows = []
    for place, step in enumerate(steps):
        benefit = f"{step.benefit:+.3f}" if place else ""
        times = (duration(step.predicted_us), step.predicted_us), (benefit, step.benefit)
        rows.append([(place, place), step.action, step.change, *times])
    inside = table("The steps of the walk", columns, rows, filtered=False)
    return tag("details", tag("summary", "The steps in words"), inside)
