"""Docstrings of public functions without the parameters and errors that they share, and with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def sections_of(text: str) -> tuple[str, dict[str, str]]:
    """Return what comes before the first title of a docstring in NumPy's format, and the sections by title."""
    summary, *parts = re.split(r"\n\n(?=\w+\n-+\n)", text)
    return summary, dict(re.split(r"\n-+\n", part, maxsplit=1) for part in parts)


def described(section: str) -> dict[str, str]:
    """Return the entries of a section by the names before the colon."""
    return {entry.partition(" : ")[0]: entry for entry in re.split(r"\n(?=\w)", section)}


def complete(text: str | None, names: Iterable[str], shared: Mapping[str, str], raises: str) -> str | None:
    """Return a docstring with all parameters, in their order, and with errors: its own, or else the shared ones."""
    if text is None:  # python -OO
        return None
    summary, sections = sections_of(text)
    known = {**shared, **described(sections.pop("Parameters", ""))}
    entries = {name: entry for entry in known.values() for name in entry.partition(" : ")[0].split(", ")}
    parameters = "\n".join(dict.fromkeys(entries[name] for name in names))
    first = {"Parameters": parameters, "Returns": "", "Raises": raises}
    return "\n\n".join(
        [summary, *(f"{title}\n{'-' * len(title)}\n{body}" for title, body in (first | sections).items())]
    )
