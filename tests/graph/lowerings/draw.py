"""Calls of ONNX operators, drawn for one version of the standard: inputs, attributes and the number of outputs.

Every function draws whatever any version has; `Draw.case` leaves out the attributes that the version lacks, and `moved`
gives as an attribute what later versions have as an input.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from onnx import defs

#: dtypes that are drawn, where an operator takes them; the first is drawn more often than all others.
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8", "bool")


def type_name(dtype: str) -> str:
    return f"tensor({dict(float32='float', float64='double').get(dtype, dtype)})"


@dataclass
class Case:
    operator: str
    #: Version of the standard that the model has.
    version: int
    #: Arrays, or None for an input that is left out.
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    #: Places of inputs that are constants of the model.
    known: set[int] = field(default_factory=set)
    #: Whether the sizes of other inputs are names in the model.
    free: bool = False

    def __str__(self) -> str:
        inputs = [None if each is None else f"{each.dtype}{list(each.shape)}" for each in self.inputs]
        small = {i: x.tolist() for i, x in enumerate(self.inputs) if x is not None and x.ndim < 2 and x.size < 9}
        return (
            f"{self.operator}-{self.version} {self.attributes} of {inputs}, elements {small}, constants {self.known}, "
            f"{self.outputs} outputs{', sizes by name' if self.free else ''}"
        )


class Draw:
    def __init__(self, operator: str, version: int, seed: str):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(self.random.getrandbits(64))
        self.operator, self.version = operator, version
        self.schema = defs.get_schema(operator, version, "")
        self.attributes: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.known: set[int] = set()
        self.outputs = 1

    def case(self) -> Case:
        DRAWS[self.operator](self)
        taken = {name: value for name, value in self.attributes.items() if name in self.schema.attributes}
        known = {place for place in range(1, len(self.inputs)) if self.maybe(0.3)} | self.known
        free = self.maybe(0.3)
        return Case(self.operator, self.version, self.inputs, taken, self.outputs, known, free)

    def maybe(self, share: float = 0.5) -> bool:
        return self.random.random() < share

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def within(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def number(self) -> float:
        """Return the value of an attribute: 0 and negative ones are frequent."""
        return self.pick(0.0, -0.75, 0.3, 1.0, 2.5, -2.0)

    def shape(self, low: int = 1, high: int = 4, empty: bool = False) -> tuple[int, ...]:
        least = 0 if empty and self.maybe(0.1) else 1
        return tuple(self.within(least, 5) for _ in range(self.within(low, high)))

    def dtype(self, place: int = 0, *wanted: str) -> str:
        inputs = self.schema.inputs
        types = inputs[min(place, len(inputs) - 1)].types
        allowed = [each for each in wanted or DTYPES if type_name(each) in types]
        return allowed[0] if self.maybe(0.6) else self.pick(*allowed)

    def array(self, shape: Sequence[int], dtype: str = "float32", scale: float = 1.5) -> np.ndarray:
        if dtype == "bool":
            return self.numbers.random(shape) < 0.5
        if "int" in dtype:
            return self.numbers.integers(0 if dtype[0] == "u" else -6, 7, shape).astype(dtype)
        found = self.numbers.standard_normal(shape) * scale
        return np.asarray(found, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def give(self, low: int = 1, high: int = 4, empty: bool = False) -> tuple[int, ...]:
        shape = self.shape(low, high, empty)
        self.inputs = [self.array(shape, self.dtype())]
        return shape

    def option(self, name: str, value: Any, share: float = 0.5) -> None:
        if self.maybe(share):
            self.attributes[name] = value

    def default(self, name: str, value: Any, default: Any) -> None:
        """Give an attribute, which may be left out where it has its default."""
        self.option(name, value, 0.5 if value == default else 1)

    def flags(self, *names: str) -> None:
        for name in names:
            self.option(name, self.within(0, 1))

    def axis(self, rank: int, since: int = 11) -> int:
        """Return an axis, negative ones where the version allows them."""
        return self.within(-rank if self.version >= since else 0, rank - 1)

    def axes(self, rank: int, most: int | None = None, since: int = 11) -> list[int]:
        found = self.random.sample(range(rank), self.within(1, most or rank))
        return [each - rank if self.version >= since and self.maybe(0.3) else each for each in found]

    def moved(self, name: str, values: Any, place: int, dtype: str = "int64") -> None:
        """Give something as an attribute, or as the input that it became."""
        if name in self.schema.attributes:
            self.attributes[name] = values
        else:
            self.inputs += [None] * (place + 1 - len(self.inputs))
            self.inputs[place] = np.asarray(values, dtype)
            if self.maybe(0.8):
                self.known.add(place)

    def part(self, shape: Sequence[int]) -> tuple[int, ...]:
        found = [extent if self.maybe(0.7) else 1 for extent in shape]
        return tuple(found[self.within(0, len(found)) :])


DRAWS: dict[str, Callable[[Draw], None]] = {}


def draws(operators: str) -> Callable[[Callable[[Draw], None]], Callable[[Draw], None]]:

    def register(function: Callable[[Draw], None]) -> Callable[[Draw], None]:
        DRAWS.update(dict.fromkeys(operators.split(), function))
        return function

    return register
