"""Axes of x merged into digits, and which of them are batch, m, n, i, j and k of the view of rows.py."""

from __future__ import annotations

from dataclasses import dataclass

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, alignment_class

from .rows import RowOperator

BATCH_DIGITS, K_DIGITS = 3, 3


@dataclass(frozen=True)
class Digit:
    """Axes merged into one: its extent, and its stride in elements of x, of C and of each further operand."""

    extent: int
    strides: tuple[int, ...]

    def over(self, inner: Digit) -> Digit | None:
        """Return this and ``inner`` as one axis, where every operand's strides allow it."""
        if any(mine != its * inner.extent for mine, its in zip(self.strides, inner.strides, strict=True)):
            return None
        return Digit(self.extent * inner.extent, inner.strides)


def merge_digits(digits: list[Digit], free: bool) -> list[Digit]:
    """Return the digits of more than one element, adjacent digits with one common stride merged; sorted if their order
    is free."""
    long = [digit for digit in digits if digit.extent != 1]
    if free:
        long.sort(key=lambda digit: -(abs(digit.strides[0]) or 2**62))
    found: list[Digit] = []
    for digit in long:
        together = found[-1].over(digit) if found else None
        found = [*found[:-1], together] if together else [*found, digit]
    return found


class Layout:
    """Which digits, of strides in `arrays` arrays, are batch, m, n, i, j and k."""

    def __init__(self, given: RowOperator, a: View, c: View, kept: list[Digit], reduced: list[Digit], arrays: int):
        self.given, self.views = given, (a, c)
        one = Digit(1, (0,) * arrays)
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
        """Layout of x."""
        return ("ij" if self.k[1].extent != 1 or self.k[0].extent != 1 else "") + self.along

    @property
    def c_layout(self) -> str:
        """Layout of C: the axis of its adjacent outputs, "m" for one output per row."""
        if not self.given.maps and self.along != "n":
            return "m"
        inner = self.n if self.along == "n" else self.k[2]
        return ("n" if self.along == "n" else "k") if inner.strides[1] == 1 or inner.extent == 1 else "s"

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the Workload."""
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
        """Return the Strides of C (1) or of an operand of the epilogue (2 ..)."""
        batch = (self.batch[0].strides[place], self.batch[1].strides[place], self.batch[2].strides[place])
        if not self.given.maps:
            return Strides(batch, self.m.strides[place], self.n.strides[place])
        k, n = self.k[2].strides[place], self.n.strides[place]
        return Strides(batch, k, n) if self.columns_map else Strides(batch, self.m.strides[place], k)

    @property
    def k_strides(self) -> tuple[int, int]:
        """Strides of x along the outer and the middle digit of k."""
        return self.k[0].strides[0], self.k[1].strides[0]

    @property
    def k_extents(self) -> tuple[int, int]:
        """Extents of the middle and the inner digit of k."""
        return self.k[1].extent, self.k[2].extent

    def geometry(self) -> Geometry:
        """Return all but the tail."""
        k = self.k[0].extent * self.k[1].extent * self.k[2].extent
        batch = (self.batch[0].extent, self.batch[1].extent, self.batch[2].extent)
        starts = tuple(digit.strides[0] for digit in self.batch)
        a = Strides((starts[0], starts[1], starts[2]), self.m.strides[0], self.k[2].strides[0])
        if self.columns_map:
            sizes = (k, self.n.extent, k)
        else:
            sizes = (self.m.extent, k if self.given.maps else self.n.extent, k)
        return Geometry(sizes, batch, a, c=self.strides(1), k_digits=self.k_extents)
