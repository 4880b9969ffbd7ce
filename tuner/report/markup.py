"""HTML and SVG text that is escaped by construction: everything that is not Markup is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gensor_database.text import escaped
from gensor_tuner.output import printable

#: Elements that have no end tag.
VOID = frozenset({"meta", "input", "br", "wbr"})
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
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{round(value, 1) if isinstance(value, float) else text(value)}"'
