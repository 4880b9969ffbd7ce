"""Grouped matrix products with different rows: C[i, n] = sum over k of A[i, k] B[g(i), k, n], where group g has the
rows from ends[g - 1] to ends[g].

The experts of a mixture multiply their tokens like this.  The ends D (groups,) are int32 on the device, as the offsets
of torch._grouped_mm, and unknown when a kernel is chosen or launched.  Ends ascend; an end beyond the rows counts as
the number of rows.  Rows after the last end belong to no group, and their product is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Product
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand
from gensor_kernels.operators.types.dtypes import decode, facts, product_type
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from . import matmul

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


NAME = "ragged_matmul"


def declare() -> Expression:
    """Declare sums over k and groups; only the row's own group contributes."""
    from gensor_kernels.operators.expression.expression import SUM, Expression, axes, index, tensor, where
    from gensor_kernels.operators.expression.values import apply

    groups, m, n, k = axes("groups m n k")
    a, b, d = tensor("a", m, k), tensor("b", groups, k, n), tensor("d", groups)
    begun, ended = (apply("less_equal", end, index(m)) for end in (d.pad()[groups - 1], d[groups]))
    body = where(begun, where(ended, 0.0, a[m, k] * b[groups, k, n]), 0.0)
    return Expression("c", (m, n), body, SUM)


@dataclass(frozen=True)
class Ragged(matmul.Matmul):
    """The product of groups, for tuner and dispatch."""

    usual_sizes = MappingProxyType(
        {"groups": (8, 64), "m": (64, 512, 4096, 16384), "n": (2048, 4096), "k": (2048, 7168)}
    )
    axes: ClassVar[matmul.Axes] = {"a": ("m", "k"), "b": ("groups", "k", "n"), "d": ("groups",), "c": ("m", "n")}
    units: ClassVar[matmul.Axes] = {**matmul.Matmul.units, "c": ("n",), "d": ("groups",)}

    @property
    def names(self) -> tuple[str, ...]:
        """Rows of A, the matrices, the ends, rows of C."""
        return ("a", "b", "d", "c")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the operands; ValueError for rows of A that are aligned along m."""
        if workload.layouts["a"] == "m" and workload.align["a"] > facts(workload.dtype["a"]).itemsize:
            raise ValueError("groups start at any row: a along m is aligned to its elements only")
        return super().operands(workload)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view: groups are the batch, along which only B has a stride."""
        size = workload.size
        group, row, column = strides["b"]
        b, d = Strides((0, 0, group), row, column), Strides((0, 0, 0), 0, strides["d"][0])
        a, c = (self.output(workload, strides[name]) for name in "ac")
        groups = size["groups"]
        return Geometry((size["m"], size["n"], size["k"]), (1, 1, groups), a, b, c, d, ragged=groups)

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return strides of rows and columns."""
        return Strides((0, 0, 0), *strides)

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product of each group in float64; see Operator."""
        a, b = (decode(workload.dtype[name], arrays[name]) for name in "ab")
        size = workload.size
        product = np.zeros((size["m"], size["n"]), np.result_type(a, b))
        bound = np.zeros_like(product)
        for group, (begin, end) in enumerate(spans(arrays["d"], size["m"])):
            product[begin:end], bound[begin:end] = matmul.product_and_bound(
                a[begin:end], b[group], workload, workload.dtype["a"], structured=conditions.structured
            )
        return product, bound

    def product(self, workload: Workload) -> Product:
        """Return a batch of groups with the mean number of rows."""
        size = workload.size
        rows, groups = size["m"], size["groups"]
        sides = self.sides(workload, a=rows * size["k"])
        return Product(groups, -(-rows // max(groups, 1)), size["n"], size["k"], *sides, rows=max(rows, 1))

    def flops(self, workload: Workload) -> int:
        """Return the operations: every row is multiplied once, 2 per multiply-add."""
        size = workload.size
        return 2 * size["m"] * size["n"] * size["k"]

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the Workload with m rows in all; a wanted batch of three has 32 groups, as many as a warp counts at
        once."""
        groups = {1: 3, 2: 5}.get(wanted["batch"], 32)
        return workload.with_sizes(groups=groups, m=wanted["m"], n=wanted["n"], k=wanted["k"])

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return ends with half of the rows in the first group, empty groups, followed by rows of no group.

        With three groups, the last end is beyond the rows.
        """
        if name != "d":
            return None
        groups, m = workload.size["groups"], workload.size["m"]
        counts = np.zeros(groups, dtype=np.int64)
        left = m - -(-m // 2)
        for group, rows in ((0, m - left), (min(groups // 3 + 1, groups - 1), left // 3), (groups - 1, left // 3)):
            counts[group] += rows
        ends = np.cumsum(counts)
        if groups == 3:
            ends[-1] = m + 3
        return ends.astype(np.float64)


OPERATOR = Ragged(NAME, declare, smallest=(("groups", 1), ("m", 1), ("n", 1), ("k", 1)))


def spans(ends: np.ndarray, rows: int) -> list[tuple[int, int]]:
    """Return (first row, past the last row) of each group, cut off at ``rows``; empty where ends do not ascend."""
    cut = [min(max(int(end), 0), rows) for end in ends]
    return [(begin, max(begin, end)) for begin, end in zip([0, *cut[:-1]], cut, strict=True)]


def workload(
    groups: int,
    m: int,
    n: int,
    k: int,
    *,
    dtype: str = "float16",
    out: str | None = None,
    math: str = "ieee",
    trans_b: bool = False,
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses, with ``m`` rows of all groups together.

    B is stored (groups, k, n), or (groups, n, k) with ``trans_b``; other parameters are as in matmul.workload.
    """
    a, c = contiguous((m, k), dtype), contiguous((m, n), out or matmul.default_output(dtype))
    b = matmul.stored_view((groups, k, n), dtype, trans_b)
    return workload_from_operands(a, b, c, contiguous((groups,), "int32"), math=math, epilogue=epilogue)


def workload_from_operands(
    a: View, b: View, c: View, d: View, *, math: str = "ieee", epilogue: str | Iterable[str] = ()
) -> Workload:
    """Return the Workload of arrays in memory: a (m, k), b (groups, k, n), c (m, n) and the ends d (groups,) of int32.

    Raises as matmul.workload_from_operands, and UnsupportedError for complex numbers.
    """
    if facts(product_type(a.dtype, b.dtype)).is_complex:
        raise UnsupportedError(f"groups of different rows of {a.dtype}: give the real and the imaginary part apart")
    one = b._replace(shape=b.shape[1:], strides=b.strides[1:])
    base = matmul.workload_from_operands(a, one, c, math=math, epilogue=epilogue)
    size, align = facts(b.dtype).itemsize, dict(base.align)
    if base.layouts["a"] == "m":  # groups start at any row
        align["a"] = facts(a.dtype).itemsize
    align["b"] = matmul.matrices_alignment(align["b"], size, b.strides[0] * size if b.shape[0] > 1 else 0)
    axes = {name: extent for name, extent in base.sizes if name != "batch"}
    unit = "groups" if d.strides[0] == 1 or d.shape[0] <= 1 else "s"
    return replace(
        base,
        operator=NAME,
        sizes=tuple((axes | {"groups": b.shape[0]}).items()),
        dtypes=(*base.dtypes, ("d", d.dtype)),
        layout=(*base.layout, ("d", unit)),
        alignment=tuple((align | {"d": alignment_class(d, None)}).items()),
    )
