"""What is computed: operators as declarations over expression.py, one file each."""

from __future__ import annotations

from ..errors import UnsupportedError
from . import matmul
from .declaration import Operator

#: Every operator by name: one declaration file, one line here.
OPERATORS: dict[str, Operator] = {
    "matmul": matmul.OPERATOR,
}


def operator(name: str) -> Operator:
    """The declaration called ``name``; UnsupportedError lists the choices when there is none."""
    try:
        return OPERATORS[name]
    except KeyError:
        raise UnsupportedError(f"operator {name!r} is not one of {', '.join(OPERATORS)}") from None
