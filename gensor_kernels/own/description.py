"""The description of a user's kernel, as plain values: its JSON is the class of the stored kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import ConfigError
from gensor_kernels.spelling import did_you_mean, near

from .expressions import Expressions, evaluate, extents, names_in

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

Value = int | float | str
#: Roles of an argument.
READ, WRITTEN, UPDATED, NUMBER = "in", "out", "inout", "scalar"


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel, or a __constant__ variable.

    Attributes
    ----------
    role : str
        "in", "out", "inout", or "scalar".
    dtype : str
        NumPy's name of its type.
    shape : tuple of str
        Extents as expressions of knobs and sizes; of a scalar its value.
    low, high : float
        Range of random numbers for verification; where both are equal, all elements have that value.
    name : str
        Of a __constant__ variable; else empty.
    """

    role: str
    dtype: str
    shape: tuple[str, ...]
    low: float = -1.0
    high: float = 1.0
    name: str = ""

    def extents(self, names: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the shape at these sizes and knobs."""
        return tuple(int(evaluate(text, names)) for text in self.shape)

    def draw(self, rng: np.random.Generator, names: Mapping[str, Any]) -> np.ndarray:
        """Return an array for verification: random numbers, or one value; what is only written is all ones in bits."""
        shape, dtype = self.extents(names), np.dtype(self.dtype)
        if self.role == WRITTEN:
            return np.full((*shape, dtype.itemsize), 0xFF, np.uint8).view(dtype)[..., 0]
        if self.low == self.high:
            return np.full(shape, self.low, dtype)
        if dtype.kind in "iu":
            return rng.integers(int(self.low), int(self.high), shape, dtype, endpoint=True)
        values = rng.uniform(self.low, self.high, shape)
        if dtype.kind == "c":
            values = values + 1j * rng.uniform(self.low, self.high, shape)
        return values.astype(dtype)

    def number(self, names: Mapping[str, Any]) -> bytes:
        """Return the bytes of a scalar."""
        return np.dtype(self.dtype).type(evaluate(self.shape[0], names)).tobytes()


def _argument(role: str, dtype: DTypeLike, shape: Expressions, low: float | None, high: float | None) -> Argument:
    kind = np.dtype(dtype)
    if kind.kind not in "biufc":
        raise ConfigError(f"an argument of {kind} is not supported")
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    texts = extents(shape, (), len(shape))
    least, most = (0, 127) if kind.kind in "biu" else (-1.0, 1.0)
    return Argument(role, kind.name, texts, least if low is None else low, most if high is None else high)


def In(dtype: DTypeLike, shape: Expressions, low: float | None = None, high: float | None = None) -> Argument:
    """Describe an array that the kernel reads.

    Parameters
    ----------
    dtype : dtype
        Of its elements.
    shape : int, str or tuple
        Extents, each a number or an expression of sizes and knobs.
    low, high : float, optional
        Range of the random numbers of verification: by default -1 to 1, of integers 0 to 127.

    Examples
    --------
    >>> In("f4", "(w + 14) * (h + 14)").extents({"w": 2, "h": 4})
    (288,)
    """
    return _argument(READ, dtype, shape, low, high)


def Out(dtype: DTypeLike, shape: Expressions) -> Argument:
    """Describe an array that the kernel writes, every element of it; see `In`."""
    return _argument(WRITTEN, dtype, shape, None, None)


def InOut(dtype: DTypeLike, shape: Expressions, low: float | None = None, high: float | None = None) -> Argument:
    """Describe an array that the kernel reads and writes; equal `low` and `high`: its elements before; see `In`."""
    return _argument(UPDATED, dtype, shape, low, high)


def Scalar(dtype: DTypeLike, value: Expressions) -> Argument:
    """Describe a number: an expression of sizes and knobs, or a constant.

    Examples
    --------
    >>> Scalar("i4", "w").number({"w": 258})
    b'\\x02\\x01\\x00\\x00'
    """
    return _argument(NUMBER, dtype, (value,), None, None)


@dataclass(frozen=True)
class Description:
    """A kernel with knobs.

    Attributes
    ----------
    name : str
        Of the __global__ function, or a name expression of a template, in which knobs may stand.
    source : str
        SHA-256 of its text.
    knobs : tuple of (str, tuple of values)
        In the order of the space.
    restrictions : tuple of str
        Expressions that hold for every configuration.
    block, grid : tuple of str
        Three extents each.
    shared : str
        Bytes of dynamic shared memory.
    arguments, constants : tuple of Argument
        In the order of the kernel's parameters; __constant__ variables.
    options : tuple of str
        Of the compiler.
    terms : str
        How many rounded numbers one result is made of, for error bounds.
    """

    name: str
    source: str
    knobs: tuple[tuple[str, tuple[Value, ...]], ...]
    restrictions: tuple[str, ...]
    block: tuple[str, ...]
    grid: tuple[str, ...]
    shared: str
    arguments: tuple[Argument, ...]
    constants: tuple[Argument, ...] = ()
    options: tuple[str, ...] = ()
    terms: str = "1"

    @property
    def names(self) -> frozenset[str]:
        """The names, of knobs and sizes, that a launch and its arguments read."""
        texts = [*self.grid, *self.block, self.shared, self.terms]
        texts += [text for each in (*self.arguments, *self.constants) for text in each.shape]
        return frozenset().union(*map(names_in, texts))

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names that are no knobs, in alphabetical order, also those of restrictions."""
        return tuple(sorted(self.names.union(*map(names_in, self.restrictions)) - dict(self.knobs).keys()))

    def to_json(self) -> str:
        """Return canonical JSON."""
        return json.dumps({"own": asdict(self)}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Description:
        """Return the Description of `to_json`; ConfigError for another text."""
        try:
            body = json.loads(text)["own"]
            made: dict[str, Any] = {name: tuple(body[name]) for name in ("restrictions", "block", "grid", "options")}
            made["knobs"] = tuple((name, tuple(values)) for name, values in body["knobs"])
            for name in ("arguments", "constants"):
                made[name] = tuple(Argument(**{**each, "shape": tuple(each["shape"])}) for each in body[name])
            made |= {name: str(body[name]) for name in ("name", "source", "shared", "terms")}
            return cls(**made)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not a user's kernel: {error}") from None

    def fits(self, names: Mapping[str, Any]) -> bool:
        """Return whether all restrictions hold, and grid and block can be launched."""
        try:
            self.launch(names)
        except ConfigError:
            return False
        return all(evaluate(text, names) for text in self.restrictions)

    def launch(self, names: Mapping[str, Any]) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
        """Return grid, block and bytes of dynamic shared memory."""
        grid, block = ([int(evaluate(text, names)) for text in texts] for texts in (self.grid, self.block))
        for word, values, most in (("grid", grid, (2**31 - 1, 65535, 65535)), ("block", block, (1024, 1024, 64))):
            if any(not 1 <= value <= limit for value, limit in zip(values, most, strict=True)):
                raise ConfigError(f"the {word} {tuple(values)} cannot be launched")
        return (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), int(evaluate(self.shared, names))


def checked(names: Sequence[str], sizes: Mapping[str, int], knobs: Iterable[str] = ()) -> dict[str, int]:
    """Return sizes as whole numbers; ConfigError where one is missing, unknown, not positive, or a knob's misspelt
    name."""
    read = f"the description reads {', '.join(names) or 'no size'}"
    if missing := [name for name in names if name not in sizes]:
        meant = near(missing[0], knobs)
        raise ConfigError(f"the size {missing[0]} is missing: {f'{did_you_mean(meant)} ' if meant else ''}{read}")
    if unknown := [name for name in sizes if name not in names]:
        raise ConfigError(f"there is no size {unknown[0]}: {read}")
    made = {name: int(value) for name, value in sizes.items()}
    if wrong := [name for name, value in made.items() if value < 1 or value != sizes[name]]:
        raise ConfigError(f"the size {wrong[0]} is {sizes[wrong[0]]}, not a positive whole number")
    return made
