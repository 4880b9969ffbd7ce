"""What is computed: operators as declarations."""

from __future__ import annotations

from types import ModuleType

from ..errors import UnsupportedError
from . import matmul

#: Every operator by name: one declaration file, one line here.
OPERATORS: dict[str, ModuleType] = {module.NAME: module for module in (matmul,)}


def operator(name: str) -> ModuleType:
    """The declaration called ``name``; UnsupportedError lists the choices when there is none."""
    try:
        return OPERATORS[name]
    except KeyError:
        raise UnsupportedError(f"operator {name!r} is not one of {', '.join(OPERATORS)}") from None
