"""Markup that is escaped by construction, and common parts of charts: scales, frames, marks, descriptions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gensor_database.text import escaped
from gensor_tuner.output import printable

#: Elements that have no end tag.
VOID = frozenset({"meta", "input", "br", "wbr"})
#: Shapes, which in an <svg> may end as in XML; those without a title do, as a page has thousands.
SHAPES = frozenset({"rect", "circle", "line", "path", "polyline"})
WHOLE = 10  # characters that stay on one line
LONGEST = 400  # characters of one text: a database may hold megabytes


class Markup(str):
    """Text that is HTML; made only by `tag`, `join` and readers of this package's own files."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Return a value as HTML text or attribute: escaped, without control characters, shortened."""
    if isinstance(value, Markup):
        return value
    return Markup(escaped(printable(str(value), LONGEST)))


def join(parts: Iterable[object]) -> Markup:
    """Join parts, escaped where they are not Markup."""
    return Markup("".join(text(part) for part in parts))


def breakable(value: object) -> Markup:
    """Return a value as HTML text; a browser may break long texts after "x", "_" and "," in a narrow cell."""
    if isinstance(value, Markup) or len(str(value)) <= WHOLE:
        return text(value)
    return Markup(re.sub(r"(?<=\d)x(?=\d)|[_,]", r"\g<0><wbr>", text(value)))


def lines(texts: Iterable[object]) -> Markup:
    """Return texts, one per line."""
    return Markup("\n".join(text(each) for each in texts))


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return an element. `class_` is class, `data_x` data-x. False or None omits an attribute, True its value."""
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in VOID:
        return Markup(f"<{name}{written}>")
    if name in SHAPES and not children:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{round(value, 1) if isinstance(value, float) else text(value)}"'


PREFIXES = {-2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}


def si(value: float, unit: str = "") -> str:
    """Format a number with an SI prefix: 1.84e12, "FLOP/s" -> "1.84 TFLOP/s"."""
    if not math.isfinite(value) or value <= 0:
        return f"{value:g} {unit}".strip()
    group = max(min(math.floor(math.log10(value) / 3 + 1e-9), max(PREFIXES)), min(PREFIXES))
    number = f"{value / 1000.0**group:.3g}"
    return f"{number if 'e' not in number else f'{float(number):.0f}'} {PREFIXES[group]}{unit}".strip()


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale from positive numbers in [low, high] to pixels in [start, end]."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Iterable[float], start: float, end: float, room: float = 1.25) -> LogScale:
        """Return the scale for these values, with a factor of `room` at each end; at least one decade."""
        found = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
        low, high = min(found) / room, max(found) * room
        if high / low < 10:
            middle = math.sqrt(low * high)
            low, high = middle / math.sqrt(10), middle * math.sqrt(10)
        return cls(low, high, start, end)

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return powers of ten in range; a narrow scale also has 2 and 5 times these."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        wide = math.log10(self.high / self.low) >= 2.5
        marks = [m * 10.0**d for d in decades for m in ((1,) if wide else (1, 2, 5))]
        return [mark for mark in marks if self.low * 0.999 <= mark <= self.high * 1.001]


WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 84, 704, 16, 380
COLOURS = 8  # classes c0 to c7 of page.css; further series share the last


def frame(x: LogScale, y: LogScale, labels: tuple[str, str], units: tuple[str, str]) -> Markup:
    """Draw grid, tick labels and axis titles of a chart on two logarithmic scales."""
    marks = rungs(y, units[1], right=x.end)
    for value in x.ticks():
        marks.append(tag("line", class_="grid", x1=x(value), x2=x(value), y1=TOP, y2=BOTTOM))
        anchor = "end" if x(value) > x.end - 40 else "middle"  # letters are large on phones
        marks.append(tag("text", si(value, units[0]), class_="tick", x=x(value), y=BOTTOM + 22, text_anchor=anchor))
    below = tag("text", labels[0], class_="axis", x=(x.start + x.end) / 2, y=BOTTOM + 50, text_anchor="middle")
    beside = upright(labels[1], (TOP + BOTTOM) / 2)
    return tag("g", *marks, below, beside, aria_hidden="true")


def rungs(y: LogScale, unit: str, scale: float = 1.0, right: float = RIGHT) -> list[Markup]:
    """Draw horizontal grid lines as far as `right`, labelled with their values times `scale`."""
    marks = []
    for value in y.ticks():
        marks.append(tag("line", class_="grid", x1=LEFT, x2=right, y1=y(value), y2=y(value)))
        name = si(value * scale, unit)
        marks.append(tag("text", name, class_="tick", x=LEFT - 8, y=y(value) + 4, text_anchor="end"))
    return marks


def upright(name: str, middle: float) -> Markup:
    """Draw the title of a vertical axis around this height; hidden on phones."""
    turned = f"translate(16 {middle:.0f}) rotate(-90)"
    return tag("text", name, class_="axis wide", transform=turned, text_anchor="middle")


def series(place: int) -> str:
    """Return the CSS class of a series: the same for its marks, its line and its swatch."""
    return f"c{min(place, COLOURS - 1)}"


def dot(x: float, y: float, colour: int, hollow: bool, texts: Sequence[str]) -> Markup:
    """Draw a mark with a tooltip of the given lines."""
    kind = f"dot {series(colour)}{' hollow' if hollow else ''}"
    return tag("circle", tag("title", lines(texts)), class_=kind, cx=x, cy=y, r=5)


def chart(name: str, summary: str, marks: Iterable[Markup], height: int = HEIGHT) -> Markup:
    """Draw the SVG group; arrow keys visit its marks, and screen readers read its summary first."""
    label = f"{name}. {summary} The arrow keys visit its marks; the tables below have the same figures."
    spoken = {"role": "group", "tabindex": "0", "aria_roledescription": "chart", "aria_label": label}
    return tag("svg", *marks, class_="chart", viewBox=f"0 0 {WIDTH} {height}", **spoken)


def figure(drawn: Markup, *caption: str, legend: object = "") -> Markup:
    """Draw a chart with its legend and the sentences that explain how to read it; each is shortened by itself."""
    sentences = tag("figcaption", *(f"{sentence} " for sentence in caption))
    return tag("figure", legend, tag("div", drawn, class_="canvas"), sentences)


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Draw swatches with their names; an entry is (CSS classes of its swatch, name)."""
    return tag("ul", *(tag("li", tag("span", class_=f"swatch {css}"), name) for css, name in entries), class_="legend")


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return heights of labels, moved down where the distance would be less than `gap`."""
    moved, last = list(heights), -math.inf
    for place in sorted(range(len(moved)), key=lambda each: moved[each]):
        last = moved[place] = max(moved[place], last + gap)
    return moved
