"""From arrays as they lie to the view of rows.py: axes merged, digits named, a Workload and its Geometry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..errors import UnsupportedError
from . import epilogue as epilogues
from . import operator
from .dtypes import ACCUMULATORS, facts
from .geometry import Geometry, RowsTail, Strides
from .rows import RowOperator, checked
from .workload import View, Workload, alignment_class, contiguous

#: Operations that integers are folded by, and what they are folded in.
INTEGERS = {"sum": "int64", "max": "int32", "min": "int32", "argmax": "int32", "argmin": "int32"}
BATCH_DIGITS, K_DIGITS = 3, 3


@dataclass(frozen=True)
class Digit:
    """Axes merged into one: its extent, and its stride in elements of x, of C and of each further operand."""

    extent: int
    strides: tuple[int, ...]

    def over(self, inner: Digit) -> Digit | None:
        """This and ``inner`` as one axis, where every operand's strides allow it."""
        if any(mine != its * inner.extent for mine, its in zip(self.strides, inner.strides, strict=True)):
            return None
        return Digit(self.extent * inner.extent, inner.strides)


@dataclass(frozen=True)
class RowPlan:
    """A call on arrays as they lie: its Workload, what kernels are told, and where epilogue operands lie."""

    workload: Workload
    geometry: Geometry
    operands: tuple[Strides, ...] = ()


def workload(
    name: str,
    shape: Sequence[int],
    axes: Iterable[int],
    dtype: str,
    *,
    out: str | None = None,
    epilogue: str | Iterable[str] = (),
    ddof: int = 0,
) -> Workload:
    """The Workload of a C-contiguous x of ``shape`` at a 16-byte aligned address, and a contiguous C.

    ``axes`` are reduced (softmax and norms: normalised; element-wise: none), negative ones counted from the end;
    ``out`` is C's dtype, by default NumPy's.  UnsupportedError for what no kernel takes, ValueError for wrong axes.
    """
    places = normal_axes(axes, len(shape))
    given = operator(name)
    kept = tuple(shape) if is_map(name) else tuple(s for axis, s in enumerate(shape) if axis not in places)
    assert isinstance(given, RowOperator)
    a, c = contiguous(shape, dtype), contiguous(kept, out or default_output(given.operation, dtype))
    return workload_from_views(name, a, c, places, epilogue=epilogue, ddof=ddof).workload


def is_map(name: str) -> bool:
    """Whether C has the shape of x."""
    given = operator(name)
    return isinstance(given, RowOperator) and given.maps


def default_output(operation: str, dtype: str) -> str:
    """C's dtype where the caller names none: int64 for positions and sums of integers, else that of x."""
    positions = operation in ("argmax", "argmin")
    return "int64" if positions or (operation == "sum" and facts(dtype).is_integer) else dtype


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """``axes`` from 0 up, in order; ValueError for one that is out of range or stands twice."""
    given = list(axes)
    places = sorted(axis + rank if axis < 0 else axis for axis in given)
    if any(not 0 <= axis < rank for axis in places) or len(set(places)) != len(places):
        raise ValueError(f"axes {tuple(given)} of an array of {rank} axes")
    return tuple(places)


def workload_from_views(
    name: str,
    a: View,
    c: View,
    axes: Iterable[int],
    operands: Sequence[tuple[int, ...]] = (),
    *,
    epilogue: str | Iterable[str] = (),
    value: float | None = None,
    ddof: int = 0,
) -> RowPlan:
    """The plan of ``name`` on arrays as they lie.

    ``c`` has x's shape for maps, else the kept axes in x's order.  ``operands`` are strides in elements, by C's axes,
    of the epilogue's operands, which were broadcast to C's shape.  ``value`` is a norm's eps.  Strides may be zero or
    negative.  ValueError where shapes do not fit, UnsupportedError for what no kernel takes.
    """
    given = operator(name)
    assert isinstance(given, RowOperator)
    places = normal_axes(axes, len(a.shape))
    columns = _columns(a, c, places, operands, given.maps)
    accumulator = accumulator_of(given.operation, a.dtype, c.dtype)
    steps = epilogues.parse(epilogue) if isinstance(epilogue, str) else tuple(epilogue)
    reduced = [columns[axis] for axis in places]
    kept = [digit for axis, digit in enumerate(columns) if axis not in places]
    ordered = given.operation in ("argmax", "argmin")
    kept, reduced = _merged(kept, True), _merged(reduced, not ordered)
    if given.operation == "copy":
        kept, reduced = kept[:-1], kept[-1:]
    view = _Layout(given, a, c, kept, reduced)
    sizes = view.sizes | ({"ddof": ddof} if "ddof" in given.parameters else {})
    found = Workload(
        operator=name,
        sizes=tuple(sizes.items()),
        dtypes=(("a", a.dtype), ("c", c.dtype)),
        accumulator=accumulator,
        math="ieee",
        layout=(("a", view.layout), ("c", view.c_layout)),
        alignment=(("a", view.align(0)), ("c", view.align(1))),
        epilogue=steps,
    )
    geometry = checked(view.geometry())
    tail = RowsTail(given.value_of(found) if value is None else value, view.k_strides, view.k_extents)
    places_of = tuple(view.strides(2 + number) for number in range(len(operands)))
    return RowPlan(found, replace(geometry, tail=tail.pack()), places_of)


def accumulator_of(operation: str, dtype: str, out: str) -> str:
    """What rows of ``dtype`` are folded in; UnsupportedError where no kernel folds them."""
    if facts(dtype).is_integer:
        if operation not in INTEGERS or dtype not in ("int8", "int32"):
            raise UnsupportedError(f"{operation} of {dtype}: integers have {', '.join(INTEGERS)}")
        if out != default_output(operation, dtype):
            raise UnsupportedError(f"{operation} of {dtype} into {out}: expected {default_output(operation, dtype)}")
        return INTEGERS[operation]
    if facts(out).is_integer != (operation in ("argmax", "argmin")) or (facts(out).is_integer and out != "int64"):
        raise UnsupportedError(f"{operation} of {dtype} into {out}")
    return ACCUMULATORS[dtype]


def _columns(a: View, c: View, places: Sequence[int], operands: Sequence[tuple[int, ...]], maps: bool) -> list[Digit]:
    """Every axis of x with its strides in x, C and the operands (0 in C where it is reduced)."""
    kept = [axis for axis in range(len(a.shape)) if maps or axis not in places]
    if tuple(a.shape[axis] for axis in kept) != tuple(c.shape):
        raise ValueError(f"an output of shape {c.shape} for {a.shape} reduced over the axes {tuple(places)}")
    number = {axis: place for place, axis in enumerate(kept)}
    others = (c.strides, *operands)
    return [
        Digit(extent, (stride, *(each[number[axis]] if axis in number else 0 for each in others)))
        for axis, (extent, stride) in enumerate(zip(a.shape, a.strides, strict=True))
    ]


def _merged(digits: list[Digit], free: bool) -> list[Digit]:
    """The digits without axes of one element, those that lie in line merged; sorted where their order is free."""
    long = [digit for digit in digits if digit.extent != 1]
    if free:
        long.sort(key=lambda digit: -(abs(digit.strides[0]) or 2**62))
    found: list[Digit] = []
    for digit in long:
        together = found[-1].over(digit) if found else None
        found = [*found[:-1], together] if together else [*found, digit]
    return found


class _Layout:
    """Which digits are batch, m, n, i, j and k."""

    def __init__(self, given: RowOperator, a: View, c: View, kept: list[Digit], reduced: list[Digit]):
        self.given, self.views = given, (a, c)
        one = Digit(1, (0,) * len((kept + reduced or [Digit(1, (0, 0))])[0].strides))
        self.none = one
        if reduced and reduced[-1].strides[0] == 1:
            self.along = "k"
        elif kept and kept[-1].strides[0] == 1 and given.operation != "copy":
            self.along = "n"
        else:
            self.along = "s"
        if not reduced and self.along != "n":
            self.along = "k"  # rows of one element have no stride worth the name
        self.n = kept.pop() if self.along == "n" else one
        columns_map = given.maps and self.along == "n"
        self.m = kept.pop() if kept and not columns_map else one
        if len(kept) > BATCH_DIGITS or len(reduced) > (1 if given.maps else K_DIGITS):
            raise UnsupportedError(f"{given.name} of {len(kept) + 1} kept and {len(reduced)} reduced axes apart")
        self.batch = [one] * (BATCH_DIGITS - len(kept)) + kept
        self.k = [one] * (K_DIGITS - len(reduced)) + reduced
        self.columns_map = columns_map

    @property
    def layout(self) -> str:
        """Of x."""
        return ("ij" if self.k[1].extent != 1 or self.k[0].extent != 1 else "") + self.along

    @property
    def c_layout(self) -> str:
        """Of C: the axis of its adjacent outputs, "m" where rows have one each."""
        if not self.given.maps and self.along != "n":
            return "m"
        inner = self.n if self.along == "n" else self.k[2]
        return ("n" if self.along == "n" else "k") if inner.strides[1] == 1 or inner.extent == 1 else "s"

    @property
    def sizes(self) -> dict[str, int]:
        """Of the Workload."""
        batch = self.batch[0].extent * self.batch[1].extent * self.batch[2].extent
        m = self.m.extent
        if self.columns_map:  # all kept axes are batch digits; the Workload's m is the innermost of them
            batch, m = self.batch[0].extent * self.batch[1].extent, self.batch[2].extent
        sizes = {"batch": batch, "m": m, "n": self.n.extent, "k": self.k[2].extent}
        return sizes if self.given.maps else sizes | {"i": self.k[0].extent, "j": self.k[1].extent}

    def align(self, place: int) -> int:
        """Alignment class of x (0) or C (1)."""
        view = self.views[place]
        letter = (self.layout if place == 0 else self.c_layout)[-1]
        if letter in "ms":
            return alignment_class(view, None)
        inner = self.n if letter == "n" else self.k[2]
        rest = [self.m, *self.batch, *self.k, self.n]
        digits = [digit for digit in rest if digit is not inner] + [inner]
        flat = View(
            tuple(digit.extent for digit in digits), tuple(digit.strides[place] for digit in digits), view.dtype,
            view.alignment,
        )  # fmt: skip
        # Reduced axes are none of C's: their stride 0 divides everything.
        return alignment_class(flat, -1)

    def strides(self, place: int) -> Strides:
        """Where C (1) or an operand of the epilogue (2 ..) lies."""
        batch = (self.batch[0].strides[place], self.batch[1].strides[place], self.batch[2].strides[place])
        if not self.given.maps:
            return Strides(batch, self.m.strides[place], self.n.strides[place])
        k, n = self.k[2].strides[place], self.n.strides[place]
        return Strides(batch, k, n) if self.columns_map else Strides(batch, self.m.strides[place], k)

    @property
    def k_strides(self) -> tuple[int, int]:
        """Of x, of the outer and the middle digit of k."""
        return self.k[0].strides[0], self.k[1].strides[0]

    @property
    def k_extents(self) -> tuple[int, int]:
        """Of the middle and the inner digit of k."""
        return self.k[1].extent, self.k[2].extent

    def geometry(self) -> Geometry:
        """All but the tail."""
        k = self.k[0].extent * self.k[1].extent * self.k[2].extent
        batch = (self.batch[0].extent, self.batch[1].extent, self.batch[2].extent)
        starts = tuple(digit.strides[0] for digit in self.batch)
        a = Strides((starts[0], starts[1], starts[2]), self.m.strides[0], self.k[2].strides[0])
        if self.columns_map:
            sizes = (k, self.n.extent, k)
        else:
            sizes = (self.m.extent, k if self.given.maps else self.n.extent, k)
        return Geometry(sizes, batch, a, c=self.strides(1), k_digits=self.k_extents)
