"""Arguments in the words of an error: never the elements of an array, which may be many, and on a device.

Imports little.
"""

from __future__ import annotations

from typing import Any

from .blocks import REMEDY, emulated

#: Characters of a value that is shown as it is written, and axes of a shape.
MOST, MOST_AXES = 60, 8
_SCALARS = (bool, int, float, complex, type(None))


def printable(text: str) -> str:
    """Return a text on one line: control characters, marks of text direction and other invisible ones are escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def kind(value: object) -> str:
    """Return the name of a value's type in errors: `list`, `numpy.ndarray`."""
    module = type(value).__module__
    return type(value).__name__ if module == "builtins" else f"{module}.{type(value).__name__}"


def is_array(value: object) -> bool:
    """Return whether a value is an array with axes, of any library."""
    return hasattr(value, "dtype") and bool(getattr(value, "shape", ())) and not isinstance(value, type)


def holds_numbers(array: Any) -> bool:
    """Return whether an array is of numbers: not of objects, texts, dates or records."""
    return array.dtype.kind not in "OSUmM" and array.dtype.type.__name__ != "void"


def is_masked(value: object) -> bool:
    """Return whether a value is an array of `numpy.ma`, whose mask every computation would ignore."""
    return any(each.__module__.startswith("numpy.ma") for each in type(value).__mro__)


def shown(value: Any) -> str:
    """Return a short scalar or a short list of scalars as it is written, an array by type, shape and dtype.

    Any other value is shown by its type.
    """
    if is_array(value):
        first = ", ".join(map(str, value.shape[:MOST_AXES]))
        rest = ", ..." if len(value.shape) > MOST_AXES else "," * (len(value.shape) == 1)
        return f"{kind(value)} of shape ({first}{rest}) and dtype {value.dtype}"[: 2 * MOST]
    if isinstance(value, str):
        return repr(value if len(value) <= MOST else f"{value[:MOST]}...")
    plain = isinstance(value, _SCALARS)
    if type(value) in (list, tuple) and len(value) <= MOST:
        plain = bool(value) and all(isinstance(each, _SCALARS) for each in value)
    text = repr(value) if plain else ""
    return text if 0 < len(text) <= MOST else kind(value)


def no_array(name: str, value: Any, library: str) -> str:
    """Return the words of a TypeError for the argument ``name``, which is no array of the device's library."""
    if is_masked(value):
        return f"{name} must be a {library} array, not {kind(value)}, whose mask would be ignored: fill it first"
    if is_array(value) and hasattr(value.dtype, "kind") and not holds_numbers(value):
        return f"{name} must be an array of numbers, not {shown(value)}"
    given = kind(value).partition(".")[0]
    remedy = {
        ("numpy", "cupy"): f": cupy.asarray({name}) copies it to the GPU",
        ("cupy", "numpy"): f": inside emulated(...), cupy.asnumpy({name})",
    }.get((given, library), "")
    if remedy and library == "cupy" and emulated.open:
        remedy += f"; another thread is inside emulated(...): {REMEDY}"
    found = shown(value) if value is None or is_array(value) else kind(value)
    return f"{name} must be a {library} array, not {found}{remedy}"
