"""What all charts share: their frame, their marks, and how they are announced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .figures import LogScale, si
from .markup import Markup, lines, tag

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 84, 704, 16, 380
COLOURS = 6  # classes c0 to c5 of page.css; further series share the last


def frame(x: LogScale, y: LogScale, labels: tuple[str, str], units: tuple[str, str]) -> Markup:
    """Grid, tick labels and axis titles of a chart on two logarithmic scales."""
    marks = rungs(y, units[1])
    for value in x.ticks():
        marks.append(tag("line", class_="grid", x1=x(value), x2=x(value), y1=TOP, y2=BOTTOM))
        anchor = "end" if x(value) > RIGHT - 20 else "middle"  # on phones letters are large
        marks.append(tag("text", si(value, units[0]), class_="tick", x=x(value), y=BOTTOM + 22, text_anchor=anchor))
    below = tag("text", labels[0], class_="axis", x=(LEFT + RIGHT) / 2, y=BOTTOM + 50, text_anchor="middle")
    beside = upright(labels[1], (TOP + BOTTOM) / 2)
    return tag("g", *marks, below, beside, aria_hidden="true")


def rungs(y: LogScale, unit: str, scale: float = 1.0) -> list[Markup]:
    """Horizontal grid lines with their values times `scale` beside them."""
    marks = []
    for value in y.ticks():
        marks.append(tag("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y(value), y2=y(value)))
        name = si(value * scale, unit)
        marks.append(tag("text", name, class_="tick", x=LEFT - 8, y=y(value) + 4, text_anchor="end"))
    return marks


def upright(name: str, middle: float) -> Markup:
    """The title of a vertical axis, around this height; phones have no room for it."""
    turned = f"translate(16 {middle:.0f}) rotate(-90)"
    return tag("text", name, class_="axis wide", transform=turned, text_anchor="middle")


def dot(x: float, y: float, colour: int, hollow: bool, told: Sequence[str]) -> Markup:
    """A mark with what is told of it, line by line, when it is pointed at."""
    kind = f"dot c{min(colour, COLOURS - 1)}{' hollow' if hollow else ''}"
    return tag("circle", tag("title", lines(told)), class_=kind, cx=x, cy=y, r=5)


def chart(name: str, summary: str, marks: Iterable[Markup], height: int = HEIGHT) -> Markup:
    """The SVG: a group that the arrow keys visit mark by mark; its summary is what a screen reader says first."""
    return tag(
        "svg",
        *marks,
        class_="chart",
        viewBox=f"0 0 {WIDTH} {height}",
        role="group",
        tabindex="0",
        aria_roledescription="chart",
        aria_label=f"{name}. {summary} The arrow keys visit its marks; the tables below have the same figures.",
    )


def figure(drawn: Markup, caption: object, legend: object = "") -> Markup:
    """A chart with its legend and the sentence that says how to read it."""
    return tag("figure", legend, tag("div", drawn, class_="canvas"), tag("figcaption", caption))


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Swatches with their names; an entry is (classes of its swatch, name)."""
    return tag("ul", *(tag("li", tag("span", class_=f"swatch {css}"), name) for css, name in entries), class_="legend")


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights of labels, moved up where they would come closer to each other than `gap`."""
    moved, last = list(heights), float("inf")
    for place in sorted(range(len(moved)), key=lambda each: -moved[each]):
        last = moved[place] = min(moved[place], last - gap)
    return moved
