"""Matrix multiplication, plain and batched: C[b, m, n] = sum over k of A[b, m, k] B[b, k, n].

Declaration and tolerance are imported where they are used: a call of a stored kernel needs neither, and the
runtime's import time is budgeted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Product, Side
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator, even
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import (
    ACCUMULATORS,
    decode,
    default_output,
    facts,
    join_parts,
    peak_type,
    product_type,
    round_to,
)
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import CONJUGATED, View, Workload, alignment_class, contiguous, unit_axis

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression
    from gensor_kernels.operators.tolerance.base import Expected, Magnitude


NAME = "matmul"
Axes: TypeAlias = "Mapping[str, tuple[str, ...]]"


def declare() -> Expression:
    """C[batch, m, n] = sum over k of A[batch, m, k] B[batch, k, n]."""
    from gensor_kernels.operators.expression.expression import SUM, Expression, axes, tensor

    batch, m, n, k = axes("batch m n k")
    a, b = tensor("a", batch, m, k), tensor("b", batch, k, n)
    return Expression("c", (batch, m, n), a[batch, m, k] * b[batch, k, n], SUM)


#: Logarithms to base 2 of the least m, n and k for which portfolios are chosen, and of the largest of each.
USUAL_LEAST, USUAL_MOST = (3, 3, 5), (13, 13, 13)
#: The number of these sizes, and one in how many has a batch.
USUAL, USUAL_BATCHED, USUAL_BATCH = 96, 8, 16


class Matmul(Operator):
    """Matrix multiplication for tuner and dispatch, and the base of products with more in the same kernel."""

    #: Axes of each operand in the declared order, and those of them that may have stride 1.
    axes: ClassVar[Axes] = {"a": ("batch", "m", "k"), "b": ("batch", "k", "n"), "c": ("batch", "m", "n")}
    units: ClassVar[Axes] = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}
    #: Axes that are no sizes of a Workload.
    extents: ClassVar[Mapping[str, int]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Both factors and the product."""
        return ("a", "b", "c")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the operands that have ``axes``: the axis of stride 1 is the innermost one, others are in order."""
        size, found = {**workload.size, **self.extents}, []
        for name in filter(self.axes.__contains__, self.names):
            axes, unit, units = self.axes[name], workload.layouts[name], self.units[name]
            if unit not in (*units, "s") or (name == "c" and workload.conjugated[name]):
                given = dict(workload.layout)[name]
                raise ValueError(f"'layout' of {name} is one of {', '.join(units)}, s, not {given!r}")
            order = sorted(range(len(axes)), key=lambda axis: (axes[axis] == unit, axis))
            shape = tuple(size[axis] for axis in axes)
            found.append(Operand(name, shape, tuple(order), 1, 2 if unit == "s" else 1))
        return tuple(found)

    def sides(self, workload: Workload, **elements: int) -> tuple[Side, Side, Side]:
        """Return a, b and c for kernel families, with the ``elements`` of those that are no single matrix."""
        types, units, align, flags = workload.dtype, workload.layouts, workload.align, workload.conjugated
        a, b, c = [Side(types[x], units[x], align[x], elements.get(x), flags[x]) for x in "abc"]
        return a, b, c

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view: one batch axis, rows and columns unchanged."""
        size = workload.size
        a, b, c = (self.output(workload, strides[name]) for name in "abc")
        return Geometry((size["m"], size["n"], size["k"]), (1, 1, size["batch"]), a, b, c)

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return strides of batch, rows and columns."""
        batch, row, column = strides
        return Strides((0, 0, batch), row, column)

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product in float64; see Operator."""
        a, b = (decode(workload.dtype[name], arrays[name]) for name in "ab")
        a, b = (np.conj(each) if workload.conjugated[name] else each for name, each in (("a", a), ("b", b)))
        multiplied = product_type(workload.dtype["a"], workload.dtype["b"])
        product, bound = product_and_bound(a, b, workload, multiplied, structured=conditions.structured)
        if conditions.away is not None:
            from gensor_kernels.operators.tolerance.fused import spread

            bound = bound + spread(conditions.away, b)
        return product, bound

    def product(self, workload: Workload) -> Product:
        """Return the product itself."""
        size = workload.size
        return Product(size["batch"], size["m"], size["n"], size["k"], *self.sides(workload))

    def peak_dtype(self, workload: Workload) -> str:
        """Return dtypes.peak_type of the operands."""
        return peak_type(workload.dtype["a"], workload.dtype["b"])

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the Workload at exactly the wanted sizes."""
        return workload.with_sizes(**wanted)

    def usual(self, workload: Workload) -> list[Workload]:
        """Return products whose sizes fill their range evenly in logarithms, one in eight with a batch; of a product
        with more in the same kernel, its own sizes."""
        if self.usual_sizes:
            return super().usual(workload)
        sizes = np.round(even(USUAL, USUAL_LEAST, USUAL_MOST) / 8).astype(int) * 8
        return [
            workload.with_sizes(batch=1 if i % USUAL_BATCHED else USUAL_BATCH, m=m, n=n, k=k)
            for i, (m, n, k) in enumerate(sizes.tolist())
        ]


OPERATOR = Matmul(NAME, declare, smallest=(("batch", 1), ("m", 1), ("n", 1), ("k", 1)))


def workload(
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    dtype: str = "float16",
    dtype_b: str | None = None,
    out: str | None = None,
    math: str = "ieee",
    trans_a: bool = False,
    trans_b: bool = False,
    conjugate: str = "",
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses.

    Parameters
    ----------
    m, n, k : int
        Rows of A, columns of B, columns of A.
    batch : int
        Number of products.
    dtype, dtype_b : str
        Types of A and B; ``dtype_b`` is ``dtype`` by default (types/dtypes.py lists mixed types).
    out : str, optional
        Type of C; by default the wider operand type (int32 for int8 inputs, float32 for 8-bit floats).
    math : str
        "ieee"; "tf32" allows TF32 products of float32, "3m" three real products instead of four for complex types,
        "ozaki" products of 8-bit slices for float64.
    trans_a, trans_b : bool
        A is stored (batch, m, k), or (batch, k, m) with ``trans_a``; B (batch, k, n), or (batch, n, k) with
        ``trans_b``.
    conjugate : str
        Operands that are read conjugated: "a", "b" or "ab".
    epilogue : str or Iterable[str]
        Operation names, or text as in shapes.csv.

    Raises
    ------
    UnsupportedError
        For types and operations that are not served.

    Examples
    --------
    >>> workload(64, 32, 16, epilogue="bias_relu").flops()
    65536
    """
    a = stored_view((batch, m, k), dtype, trans_a)
    b = stored_view((batch, k, n), dtype_b or dtype, trans_b)
    c = contiguous((batch, m, n), out or default_output(dtype, dtype_b or dtype))
    return workload_from_operands(a, b, c, math=math, conjugate=conjugate, epilogue=epilogue)


def stored_view(shape: tuple[int, ...], dtype: str, transposed: bool) -> View:
    """Return the View of contiguous matrices, or of matrices that are stored transposed."""
    if not transposed:
        return contiguous(shape, dtype)
    *lead, rows, columns = shape
    view = contiguous((*lead, columns, rows), dtype)
    return view._replace(shape=shape, strides=(*view.strides[:-2], view.strides[-1], view.strides[-2]))


def workload_from_operands(
    a: View, b: View, c: View, *, math: str = "ieee", conjugate: str = "", epilogue: str | Iterable[str] = ()
) -> Workload:
    """Return the Workload of three arrays in memory.

    Parameters
    ----------
    a, b, c : View
        Shapes (batch axes..., m, k), (batch axes..., k, n) and (batch axes..., m, n); batch axes are broadcast already
        (stride 0 where an operand is repeated).  Strides may be zero or negative.
    math, conjugate, epilogue
        As in :func:`workload`.

    Raises
    ------
    ValueError
        For shapes that do not fit together.
    UnsupportedError
        For types that are not served.
    """
    (m, k), n = a.shape[-2:], b.shape[-1]
    lead = c.shape[:-2]
    if (*lead, m, k) != a.shape or (*lead, k, n) != b.shape or (*lead, m, n) != c.shape:
        raise ValueError(f"matmul operands do not fit: {a.shape} and {b.shape} into {c.shape}")
    multiplied = product_type(a.dtype, b.dtype)
    if math == "tf32" and {a.dtype, b.dtype} != {"float32"}:
        raise UnsupportedError(f"math 'tf32' needs float32 operands, not {a.dtype} and {b.dtype}")
    if math == "ozaki" and {view.dtype for view in (a, b, c)} != {"float64"}:
        raise UnsupportedError(f"math 'ozaki' is for products of float64, not {a.dtype}, {b.dtype} into {c.dtype}")
    views = {"a": a, "b": b, "c": c}
    axes = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")}
    layout = {name: unit_axis(view, axes[name], "k" if name == "a" else "n") for name, view in views.items()}
    if layout["c"] == "m":
        # Kernels store rows: for vectorised stores a caller transposes a column-major C (C^T = B^T A^T).  A single
        # column needs no transposition: the row-major store serves any row stride.
        layout["c"] = "n" if n == 1 else "s"
    alignment = {
        name: alignment_class(view, None if layout[name] == "s" else axes[name].index(layout[name]) - 2)
        for name, view in views.items()
    }
    return Workload(
        operator=NAME,
        sizes=(("batch", int(np.prod(lead, dtype=np.int64))), ("m", m), ("n", n), ("k", k)),
        dtypes=tuple((name, view.dtype) for name, view in views.items()),
        accumulator=ACCUMULATORS[multiplied],
        math=math,
        layout=tuple((name, axis + CONJUGATED * (name in conjugate)) for name, axis in layout.items()),
        alignment=tuple(alignment.items()),
        epilogue=epilogues.parse(epilogue) if isinstance(epilogue, str) else tuple(epilogue),
    )


def matrices_alignment(align: int, itemsize: int, step: int) -> int:
    """Return the alignment class of a matrix that is one of several, ``step`` bytes apart; ``align`` is its own."""
    return next(width for width in (align, 8, 4, itemsize) if width <= align and step % width == 0)


def expect(
    a: np.ndarray,
    b: np.ndarray,
    workload: Workload,
    steps: Sequence[Step] = (),
    *,
    structured: bool = False,
    integer_steps: int = 0,
) -> Expected:
    """Return the result that a kernel of ``workload`` should store for A and B; see Operator.expect."""
    arrays = {"a": a, "b": b}
    return OPERATOR.expect(workload, arrays, steps, structured=structured, integer_steps=integer_steps)


def reference(a: np.ndarray, b: np.ndarray, steps: Sequence[Step] = (), out: str = "float64") -> np.ndarray:
    """Return A B in float64 with every epilogue step applied, not yet rounded to ``out`` (see dtypes.round_to).

    ``a`` and ``b`` are arrays (..., m, k) and (..., k, n) of any type.  Integer products are summed exactly and wrap
    around as an int32 accumulator does.  Complex products are summed part by part, so that a NaN or infinity in one
    part of the sums does not reach the other part.
    """
    a, b = np.asarray(a), np.asarray(b)
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        return epilogues.apply(_complex_product(a, b), steps, out)
    with np.errstate(all="ignore"):
        product = np.matmul(a.astype(np.float64), b.astype(np.float64))
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":
            product = round_to("int32", product)  # sums of int8 products are exact in float64
    return epilogues.apply(product, steps, out)


def _complex_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    ar, ai, br, bi = (np.asarray(part, dtype=np.float64) for part in (a.real, a.imag, b.real, b.imag))
    with np.errstate(all="ignore"):
        pairs = [ar @ br - ai @ bi, ar @ bi + ai @ br]
    return join_parts(np.stack(pairs, axis=-1))


def magnitude(a: np.ndarray, b: np.ndarray) -> Magnitude:
    """Scale of the products that are summed: sum |a b| and sqrt(sum (a b)^2), float64 (..., m, n)."""
    from gensor_kernels.operators.tolerance.base import Magnitude

    a, b = np.abs(np.asarray(a, dtype=np.float64)), np.abs(np.asarray(b, dtype=np.float64))
    with np.errstate(all="ignore"):
        total = np.matmul(a, b)
        norm = np.sqrt(np.matmul(a * a, b * b))
        # Squares may overflow or underflow; the norm is always between these two limits.
        return Magnitude(total, np.clip(norm, total / np.sqrt(max(a.shape[-1], 1)), total))


def product_and_bound(
    a: np.ndarray, b: np.ndarray, workload: Workload, dtype: str, *, structured: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return (a b, bound on a kernel's error) in float64, for matrices of ``dtype`` accumulated as in ``workload``.

    For complex matrices both are complex: the parts of the bound belong to the parts of the product.
    """
    from gensor_kernels.operators.tolerance import base as tolerance_base

    product = reference(a, b)
    if facts(workload.accumulator).is_complex:
        return product, tolerance_base.complex_bound(a, b, magnitude, workload.accumulator, workload.math, structured)
    if workload.accumulator == "int32":
        product = round_to("int32", product)
    bound = tolerance_base.accumulation_bound(
        product,
        magnitude(a, b),
        a.shape[-1],
        dtype=dtype,
        accumulator=workload.accumulator,
        math=workload.math,
        structured=structured,
    )
    return product, bound
