"""griffe: the reStructuredText of NumPy's docstrings, definitions and references, as Markdown."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import griffe

#: The sections of free text: title, its line, and everything up to the next title.
FREE = re.compile(r"^(Notes|References)\n-+\n.*?(?=^\w+\n-{3,}$|\Z)", re.MULTILINE | re.DOTALL)
#: A line without an indent, and the indented lines under it: a term and its definition.
DEFINITION = re.compile(r"^(?P<term>[A-Z][^\n]*[^\n:.,])\n(?P<body>(?: {4}[^\n]*\n?)+)", re.MULTILINE)
#: The type of an optional parameter that takes one of several words: griffe would read the first as its default.
CHOICES = re.compile(r"^(?P<names>[\w, ]+ : )\{(?P<words>[^}\n]+), (?P<last>[^},\n]+)\}(?=, optional$)", re.MULTILINE)


def markdown(text: str) -> str:
    """Return a docstring, without its indent, as Markdown."""
    text = FREE.sub(lambda found: DEFINITION.sub(definition, found[0]), text)
    text = CHOICES.sub(r"\g<names>\g<words> or \g<last>", text)
    text = re.sub(r"^\.\. \[(\d+)\] ", r"\n\\[\1\\] ", text, flags=re.MULTILINE)
    return re.sub(r"\[(\d+)\]_", r"\\[\1\\]", text)


def definition(found: re.Match[str]) -> str:
    """Return a term and its definition as a paragraph."""
    return f"**{found['term']}.** {' '.join(found['body'].split())}\n"


class NumpyDoc(griffe.Extension):
    """Rewrite docstrings before they are parsed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(complete(obj))


def complete(obj: griffe.Object) -> str:
    """Return a docstring as `help` prints it: decorators add what functions share (dispatch/calls/docstrings.py)."""
    decorators = [str(each.value) for each in obj.decorators] if isinstance(obj, griffe.Function) else []
    if any(each == "reduction" or each.startswith("like(") for each in decorators):
        return inspect.getdoc(getattr(import_module(obj.module.path), obj.name)) or ""
    return obj.docstring.value if obj.docstring else ""
