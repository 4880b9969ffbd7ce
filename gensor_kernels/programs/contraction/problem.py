"""A contraction's sizes and element widths, as the vectorised code needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration.lowered import Prologue
from gensor_kernels.operators.types.dtypes import element_bytes, facts, product_type
from gensor_kernels.operators.types.epilogue import OPERATIONS

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


@dataclass(frozen=True)
class Extents:
    """A contraction's sizes (an empty axis counts as 1) and element bytes; ``extra`` are epilogue operand bytes.

    ``unit`` and ``align`` are an operand's axis of stride 1 and the bytes of its alignment class; ``whole_a`` and
    ``whole_b`` the bytes of all elements of one batch entry.  ``window`` and ``order``: see operators' Product.
    ``conjugated`` says which operands are conjugated, ``is_complex`` whether all operands are complex.  ``multiplied``
    is the type in which the elements of a and b are multiplied, ``element`` its bytes: one of them may be stored
    narrower. ``scaled`` and ``group``: see operators' Side.  ``gate``, ``biased``, ``rows``, ``norm`` and ``prologue``:
    see Product.
    """

    batch: int
    m: int
    n: int
    k: int
    bytes_a: int
    bytes_b: float
    bytes_c: int
    bytes_acc: int
    extra: int
    steps: int
    whole_a: float
    whole_b: float
    unit: Mapping[str, str]
    align: Mapping[str, int]
    dtype: Mapping[str, str]
    window: str
    order: int
    conjugated: Mapping[str, bool]
    is_complex: bool
    multiplied: str
    element: int
    scaled: int
    group: int
    gate: str
    biased: bool
    rows: int
    norm: str
    prologue: Prologue | None

    @property
    def prepared(self) -> str:
        """The operand that passes through the prologue: "a", "b", or "" for none."""
        return (self.window or "a") if self.prologue else ""

    @property
    def is_plain(self) -> bool:
        """Whether a step of the main loop is the same for every size: nothing is read through a window, prepared,
        scaled, normalised, or of groups."""
        return not (self.window or self.prologue or self.scaled or self.norm or self.rows)

    @property
    def matrices(self) -> int:
        """Matrices B of one product: two where one of them is a gate."""
        return 2 if self.gate else 1

    @property
    def moved_b(self) -> float:
        """Bytes of b per element, with its share of scales and zeros."""
        return self.bytes_b + (1 + self.scaled) / self.group if self.group else self.bytes_b

    @property
    def is_widened(self) -> bool:
        """Whether an operand is stored narrower than it is multiplied."""
        return self.element != min(self.bytes_a, self.bytes_b)


@lru_cache(maxsize=4096)
def extents(workload: Workload) -> Extents:
    """The numbers of a Workload that is a matrix product; UnsupportedError for any other."""
    p = operator(workload.operator).product(workload)
    if p is None:
        raise UnsupportedError(f"{workload.operator} is no matrix product")
    sides = {"a": p.a, "b": p.b, "c": p.c}
    width = {name: element_bytes(side.dtype) for name, side in sides.items()}
    batch, m, n, k = (max(1, extent) for extent in (p.batch, p.m, p.n, p.k))
    multiplied, extra = product_type(p.a.dtype, p.b.dtype), 0
    for name in workload.epilogue:
        operand = OPERATIONS[name].operand
        extra += {"": 0, "n": n, "mn": batch * m * n}[operand] * (1 if name == "mask" else int(width["c"]))
    scales = (1.0 + p.b.scaled) / p.b.group if p.b.group else 0.0
    return Extents(
        *(batch, m, n, k, int(width["a"]), width["b"], facts(p.c.dtype).itemsize, facts(workload.accumulator).itemsize),
        extra=extra,
        steps=len(workload.epilogue),
        whole_a=float(m * k if p.a.elements is None else p.a.elements / batch) * width["a"],
        whole_b=float(n * k if p.b.elements is None else p.b.elements / batch) * (width["b"] + scales),
        unit={name: side.unit for name, side in sides.items()},
        align={name: side.align for name, side in sides.items()},
        dtype={name: side.dtype for name, side in sides.items()},
        window=p.window,
        order=p.order,
        conjugated={name: side.conjugated for name, side in sides.items()},
        is_complex=facts(workload.accumulator).is_complex,
        multiplied=multiplied,
        element=facts(multiplied).itemsize,
        scaled=p.b.scaled,
        group=p.b.group,
        gate=p.gate,
        biased=p.biased,
        rows=p.rows,
        norm=p.norm,
        prologue=p.prologue,
    )


def power_of_two_in(value: np.ndarray) -> np.ndarray:
    """The largest power of two that divides each integer (0 for 0)."""
    return value & -value
