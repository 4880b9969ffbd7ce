"""Subscripts of `einsum` as written by a caller, turned into one label per axis.

The rules are NumPy's (the reference of numpy.einsum): letters are labels; an ellipsis stands for broadcast axes;
without an arrow the output has the ellipsis first and then every letter that occurs once, in the order of the alphabet
with capitals first.  Labels are integers: the code of a letter, or -1 for the last axis of an ellipsis, -2 for the
axis before it, and so on.  Subscripts that do not fit raise ValueError.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

#: Letters for the numbers 0 to 51 of the sublist form.
LETTERS = string.ascii_uppercase + string.ascii_lowercase
_ELLIPSIS = "@"

Labels = tuple[int, ...]


class Subscripts(NamedTuple):
    """One label per axis of every operand, and of the output."""

    operands: tuple[Labels, ...]
    output: Labels


def from_sublists(arguments: Sequence[Any]) -> tuple[str, list[object]]:
    """Return (subscripts as text, operands) of the form `einsum(a, [0, 1], b, [1, 2], [0, 2])`."""
    rest, operands, texts = list(arguments), [], []
    while len(rest) >= 2:
        operands.append(rest.pop(0))
        texts.append(_letters(rest.pop(0)))
    if not operands:
        raise ValueError(
            "must specify the einstein sum subscripts string and at least one operand, or at least one operand and "
            "its corresponding subscripts list"
        )
    return ",".join(texts) + (f"->{_letters(rest[0])}" if rest else ""), operands


def _letters(sublist: Iterable[Any]) -> str:
    text = ""
    for item in sublist:
        if item is Ellipsis:
            text += "..."
            continue
        try:
            number = operator.index(item)
        except TypeError:
            raise TypeError("each subscript must be either an integer or an ellipsis") from None
        if not 0 <= number < len(LETTERS):
            raise ValueError(f"subscript is not within the valid range [0, {len(LETTERS)})")
        text += LETTERS[number]
    return text


@lru_cache(maxsize=1024)
def parse(text: str, axes: tuple[int, ...]) -> Subscripts:
    """Return the labels of `text` for operands with `axes` axes each."""
    for letter in text:
        if letter not in ".,-> " and letter not in LETTERS:
            raise ValueError(
                f"invalid subscript {letter!r} in einstein sum subscripts string, subscripts must be letters"
            )
    inputs, output = _split(text)
    if len(inputs) != len(axes):
        many = "more" if len(axes) > len(inputs) else "fewer"
        raise ValueError(f"{many} operands provided to einstein sum function than specified in the subscripts string")
    operands = tuple(
        _operand(part, count, number) for number, (part, count) in enumerate(zip(inputs, axes, strict=True))
    )
    return Subscripts(operands, _implicit(operands) if output is None else _output(output, operands))


def _split(text: str) -> tuple[list[str], str | None]:
    """Return (text of each operand, text of the output), ellipses as one character."""
    text = text.replace("...", _ELLIPSIS).replace(" ", "")
    if "." in text:
        raise ValueError(
            "einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...') in the operands"
        )
    inputs, arrow, output = text.partition("->")
    if any(mark in part for part in (inputs, output) for mark in "->") or "," in output:
        raise ValueError("einstein sum subscript string does not contain proper '->' output specified")
    return inputs.split(","), output if arrow else None


def _operand(part: str, axes: int, number: int) -> Labels:
    before, ellipsis, after = part.partition(_ELLIPSIS)
    if _ELLIPSIS in after:
        raise ValueError(
            f"einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...') in operand {number}"
        )
    missing = axes - len(before) - len(after)
    if missing < 0:
        raise ValueError(f"einstein sum subscripts string contains too many subscripts for operand {number}")
    if missing and not ellipsis:
        raise ValueError(
            f"operand {number} has more dimensions than subscripts given in einstein sum, but no '...' ellipsis "
            "provided to broadcast the extra dimensions."
        )
    return (*map(ord, before), *range(-missing, 0), *map(ord, after))


def _implicit(operands: tuple[Labels, ...]) -> Labels:
    every = [label for labels in operands for label in labels]
    return tuple(label for label in sorted(set(every)) if label < 0 or every.count(label) == 1)


def _output(part: str, operands: tuple[Labels, ...]) -> Labels:
    known = {label for labels in operands for label in labels}
    broadcast = sum(label < 0 for label in known)
    before, ellipsis, after = part.partition(_ELLIPSIS)
    if _ELLIPSIS in after:
        raise ValueError(
            "einstein sum subscripts string contains a '.' that is not part of an ellipsis ('...') in the output"
        )
    if broadcast and not ellipsis:
        raise ValueError(
            "output has more dimensions than subscripts given in einstein sum, but no '...' ellipsis provided to "
            "broadcast the extra dimensions."
        )
    for letter in before + after:
        if ord(letter) not in known:
            raise ValueError(
                f"einstein sum subscripts string included output subscript {letter!r} which never appeared in an input"
            )
        if (before + after).count(letter) > 1:
            raise ValueError(f"einstein sum subscripts string includes output subscript {letter!r} multiple times")
    return (*map(ord, before), *range(-broadcast, 0), *map(ord, after))


def extents(subscripts: Subscripts, shapes: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the extent of every label.  An extent of 1 is broadcast against other operands, not within one operand."""
    found: dict[int, int] = {}
    for number, (labels, shape) in enumerate(zip(subscripts.operands, shapes, strict=True)):
        own: dict[int, int] = {}
        for label, extent in zip(labels, shape, strict=True):
            if own.setdefault(label, extent) != extent:
                raise ValueError(
                    f"dimensions in operand {number} for collapsing index {label_text(label)!r} don't match "
                    f"({own[label]} != {extent})"
                )
        for label, extent in own.items():
            before = found.get(label, 1)
            if before != 1 and extent not in (1, before):
                raise ValueError(
                    f"operands could not be broadcast together: label {label_text(label)!r} has extent {extent} in "
                    f"operand {number}, and {before} before it"
                )
            found[label] = extent if before == 1 else before
    return found


def label_text(label: int) -> str:
    """Return a label as text: its letter, or which axis of the ellipsis it is."""
    return chr(label) if label >= 0 else f"...[{label}]"


def subscripts_text(operands: Sequence[Labels], output: Labels) -> str:
    """Return subscripts as text for any labels, with new letters, as array libraries accept them."""
    names: Mapping[int, str] = {
        label: letter
        for label, letter in zip(
            dict.fromkeys(label for labels in operands for label in labels), LETTERS[26:] + LETTERS[:26], strict=False
        )
    }
    parts = ["".join(names[label] for label in labels) for labels in operands]
    return f"{','.join(parts)}->{''.join(names[label] for label in output if label in names)}"
