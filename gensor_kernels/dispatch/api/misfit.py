"""Which argument of a call that failed is of another kind than its parameter takes, by the function's signature.

Calls that succeed pay nothing for it.
"""

from __future__ import annotations

import inspect
import numbers
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from gensor_kernels.errors import ToolMissingError
from gensor_kernels.shown import is_array, is_masked, no_array, shown

from . import current

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device

#: Errors that functions raise for arguments that they did not check.
RAISED = (TypeError, ValueError, AttributeError, IndexError)
#: Elements of a sequence that are looked at.
FEW = 64
#: Annotations of parameters that take everything.
ANYTHING = ("Any", "Callable[..., Any]")


def misfit(error: Exception, function: Callable[..., Any], args: Any, keywords: Any) -> TypeError | None:
    """Return the exception to raise in place of `error`, or None if every argument has an accepted type.

    A ValueError speaks of its argument, and stays, unless an array is given where none belongs.
    """
    if not isinstance(error, RAISED):
        return None
    try:
        device = current.current_runtime().device
        given = _signature(function).bind(*args, **keywords).arguments
    except (ToolMissingError, TypeError):
        return None
    for name, value, kinds in _arguments(_signature(function), given):
        if is_masked(value):
            return TypeError(no_array(name, value, device.xp.__name__))
        if set(kinds) <= {"ArrayLike", "None"}:
            if not device.is_array(value) and not (value is None and "None" in kinds):
                return TypeError(no_array(name, value, device.xp.__name__))
            continue
        spoken_of = isinstance(error, ValueError) and not _holds_array(value)
        if not spoken_of and not any(_takes(kind, value, device) for kind in kinds):
            return TypeError(f"{name} must be {_words(kinds)}, not {shown(value)}")
    return None


@lru_cache(maxsize=128)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _arguments(signature: inspect.Signature, given: dict[str, Any]) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield (name, value, alternatives of the annotation) of every argument whose parameter has an annotation."""
    for name, value in given.items():
        parameter = signature.parameters[name]
        kinds = _alternatives(str(parameter.annotation))
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{place}]", each, kinds) for place, each in enumerate(value))
        elif parameter.kind is not parameter.VAR_KEYWORD and parameter.annotation is not parameter.empty:
            yield name, value, kinds


def _alternatives(annotation: str) -> list[str]:
    """Return the alternatives of an annotation; those of a sequence's elements stay with it."""
    return re.split(r" \| (?![^\[]*\])", annotation)


def _takes(kind: str, value: object, device: Device) -> bool:
    """Return whether a value is of the kind that an annotation names; of an unknown kind everything is."""
    if kind in ANYTHING:
        return True
    if kind == "None":
        return value is None
    if kind == "ArrayLike":
        return bool(device.is_array(value))
    if kind == "int":
        return not is_array(value) and hasattr(type(value), "__index__")
    if kind in ("float", "complex"):
        return not is_array(value) and (isinstance(value, numbers.Number) or hasattr(type(value), "__float__"))
    if kind in ("bool", "DTypeLike"):
        return not isinstance(value, (list, tuple)) and not is_array(value)
    if kind in ("str", "Activation", "Precision", "ConvolutionPrecision") or kind.startswith("Literal"):
        return isinstance(value, str)
    if kind.startswith("Sequence[") and not isinstance(value, str):
        inner = _alternatives(kind[len("Sequence[") : -1])
        if not isinstance(value, Iterable) or (is_array(value) and inner != ["int"]):
            return False
        return all(any(_takes(one, each, device) for one in inner) for each in islice(value, FEW))
    if kind == "Items":
        return not is_array(value)  # who reads the list says what is wrong with an item
    return not kind.startswith("Sequence[") and not _holds_array(value)


def _holds_array(value: object) -> bool:
    return is_array(value) or (isinstance(value, (list, tuple)) and any(is_array(each) for each in value))


def _words(kinds: list[str]) -> str:
    return " or ".join(dict.fromkeys(_word(kind) for kind in kinds if kind != "None"))


def _word(kind: str) -> str:
    """Return the words of an error for an annotation."""
    if kind.startswith("Sequence["):
        inner = _words(_alternatives(kind[len("Sequence[") : -1])).partition(" ")[2]
        return "a pair of pairs" if inner.startswith("sequence") else f"a sequence of {inner}s" if inner else "a list"
    if kind.startswith("Literal["):
        return kind[len("Literal[") : -1].replace(", ", " or ").replace('"', "'")
    known = {"ArrayLike": "an array", "int": "an integer", "float": "a number", "complex": "a number"}
    known |= {"bool": "True or False", "str": "a string", "DTypeLike": "a dtype", "Items": "a list of operations"}
    return known.get(kind, "a name")
