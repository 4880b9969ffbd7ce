"""Gated products: C[b, m, n] = f(A G)[b, m, n] (A U)[b, m, n], the feed-forward layer of Llama and similar models.

B holds both matrices: G, the gate, followed by U, along its columns (k, 2n) or, as in PyTorch's layers, along its
rows (2n, k).  Each gate has an operator without and another with a bias, named as in the epilogue column of a shapes
file; the bias D (2, n) is added to both products first.  GLU variants: Shazeer 2020, arXiv 2002.05202.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Product, Side
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand, Operator, grid
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import decode, facts, peak_type
from gensor_kernels.operators.types.epilogue import GATES
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from . import matmul

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression, Value

BIASED = "bias_"
#: Axes of each operand in the declared order; "half" is 0 for the gate and 1 for the other matrix.
AXES = {"a": ("batch", "m", "k"), "b": ("batch", "k", "half", "n"), "d": ("half", "n"), "c": ("batch", "m", "n")}
#: Orders in memory of B's axes, the outermost first, by its layout.
_ORDERS = {"n": (0, 1, 2, 3), "s": (0, 1, 2, 3), "k": (0, 2, 3, 1)}
_TOLD = struct.Struct("<q")
#: Sizes of a portfolio's grid: rows, columns of C, k.
USUAL = ((1, 16, 128, 1024), (1408, 4096, 14336), (2048, 4096))


def declare(gate: str, biased: bool) -> tuple[Expression, Expression]:
    """Declare h[batch, m, half, n] = sum over k of a b (+ d), and c = f(h[.., 0, n]) h[.., 1, n]."""
    from gensor_kernels.operators.expression.expression import SUM, Axis, Expression, axes, tensor

    batch, m, n, k = axes("batch m n k")
    both = Axis("half", 2)
    a, b, d = tensor("a", batch, m, k), tensor("b", batch, k, both, n), tensor("d", both, n)
    products = Expression("h", (batch, m, both, n), a[batch, m, k] * b[batch, k, both, n], SUM)
    sides: list[Value] = [products[batch, m, 0, n], products[batch, m, 1, n]]
    if biased:
        sides = [side + d[half, n] for half, side in enumerate(sides)]
    return products, Expression("c", (batch, m, n), _curve(gate, sides[0]) * sides[1])


def _curve(gate: str, v: Value) -> Value:
    from gensor_kernels.operators.expression.expression import erf, maximum, sigmoid, tanh

    if gate == "silu":
        return v * sigmoid(v)
    if gate == "relu":
        return maximum(v, 0.0)
    if gate == "gelu":
        return 0.5 * v * (1.0 + erf(v * 0.5**0.5))
    return 0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)))


@dataclass(frozen=True)
class Gated(Operator):
    """One gate, with or without a bias, for tuner and dispatch."""

    gate: str = "silu"
    biased: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """a, b, the bias d if any, c."""
        return ("a", "b", "d", "c") if self.biased else ("a", "b", "c")

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return operands with the axes of AXES; the two halves of b may be any distance apart."""
        size, found = {**workload.size, "half": 2}, []
        for name in self.names:
            axes, unit = AXES[name], workload.layouts[name]
            if unit not in (*axes, "s") or unit in ("half", "batch") or (name == "c" and unit == "m"):
                raise ValueError(f"'layout' of {name} is one of its axes or s, not {unit!r}")
            orders = {"m": (0, 2, 1)} if name == "a" else _ORDERS if name == "b" else {}
            order = orders.get(unit, tuple(range(len(axes))))
            shape = tuple(size[axis] for axis in axes)
            found.append(Operand(name, shape, order, 1, 2 if unit == "s" else 1))
        return tuple(found)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view with one batch axis."""
        size = workload.size
        batch, row, other, column = strides["b"]
        b = Strides((0, 0, batch), row, column)
        a, c = (self.output(workload, strides[name]) for name in "ac")
        d = Strides((0, 0, 0), *strides["d"]) if self.biased else Strides()
        return gated_geometry((size["m"], size["n"], size["k"]), (1, 1, size["batch"]), a, b, c, d, other)

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return strides of batch, rows and columns."""
        batch, row, column = strides
        return Strides((0, 0, batch), row, column)

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the gated product of both halves in float64; see Operator."""
        from gensor_kernels.operators.tolerance.gated import gated_bound

        a, b = (decode(workload.dtype[name], arrays[name]) for name in "ab")
        bias = decode(workload.dtype["d"], arrays["d"]) if self.biased else None
        gate, other = (
            matmul.product_and_bound(a, b[:, :, half], workload, workload.dtype["a"], structured=conditions.structured)
            for half in (0, 1)
        )
        return gated_bound(self.gate, gate, other, bias, workload.accumulator)

    def product(self, workload: Workload) -> Product | None:
        """Return a product with two matrices B, or None for integers and complex numbers, which have no gates."""
        kind = facts(workload.accumulator)
        if kind.is_integer or kind.is_complex:
            return None
        size, types, units, align = workload.size, workload.dtype, workload.layouts, workload.align
        count = 2 * size["batch"] * size["n"] * size["k"]
        a, b, c = (Side(types[x], units[x], align[x], count if x == "b" else None) for x in "abc")
        return Product(size["batch"], size["m"], size["n"], size["k"], a, b, c, gate=self.gate, biased=self.biased)

    def peak_dtype(self, workload: Workload) -> str:
        """Return dtypes.peak_type of the operands."""
        return peak_type(workload.dtype["a"], workload.dtype["b"])

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the Workload at exactly the wanted sizes."""
        return workload.with_sizes(**wanted)

    def usual(self, workload: Workload) -> list[Workload]:
        """Return a grid of sizes of language models."""
        return grid(workload, batch=(1,), m=USUAL[0], n=USUAL[1], k=USUAL[2])


OPERATORS = {
    prefix + name: Gated(
        prefix + name,
        partial(declare, gate, bool(prefix)),
        smallest=(("batch", 1), ("m", 1), ("n", 1), ("k", 1)),
        gate=gate,
        biased=bool(prefix),
    )
    for name, gate in GATES.items()
    for prefix in ("", BIASED)
}


def gated_geometry(
    sizes: tuple[int, int, int],
    batch: tuple[int, int, int],
    a: Strides,
    b: Strides,
    c: Strides,
    d: Strides,
    other: int,
) -> Geometry:
    """Return the kernel's view of a gated product.

    b and d are the gate's matrix and bias, ``other`` is the distance in elements to the second matrix, and d's row
    stride the distance to the second bias.
    """
    return Geometry(sizes, batch, a, b, c, d, _TOLD.pack(other))


def workload(
    name: str,
    m: int,
    n: int,
    k: int,
    *,
    batch: int = 1,
    dtype: str = "float16",
    out: str | None = None,
    math: str = "ieee",
    trans_a: bool = False,
    trans_b: bool = False,
    epilogue: str | Iterable[str] = (),
) -> Workload:
    """Return the Workload of contiguous operands at 16-byte aligned addresses; ``name`` is one of OPERATORS.

    C is (batch, m, n), so B has 2n columns: it is stored (batch, k, 2n), or (batch, 2n, k) with ``trans_b``; the rest
    is as in matmul.workload.
    """
    rows, columns = (k, m) if trans_a else (m, k)
    a, c = contiguous((batch, rows, columns), dtype), contiguous((batch, m, n), out or dtype)
    b = contiguous((batch, 2 * n, k) if trans_b else (batch, k, 2 * n), dtype)
    a, b = (transpose_view(view) if flag else view for view, flag in ((a, trans_a), (b, trans_b)))
    d = contiguous((2 * n,), dtype) if name.startswith(BIASED) else None
    return workload_from_operands(name, a, b, c, d, math=math, epilogue=epilogue)


def transpose_view(view: View) -> View:
    """Return the view with its last two axes exchanged."""
    shape, strides = (([*x[:-2], x[-1], x[-2]]) for x in (view.shape, view.strides))
    return view._replace(shape=tuple(shape), strides=tuple(strides))


def halves(view: View) -> tuple[View, int]:
    """Return the gate's half of (..., 2n) and the distance in elements to the other half; ValueError for odd
    extents."""
    if view.shape[-1] % 2:
        raise ValueError(f"the last axis of {view.shape} is a gate and another half of as many columns")
    n = view.shape[-1] // 2
    return view._replace(shape=(*view.shape[:-1], n)), n * view.strides[-1]


def workload_from_operands(
    name: str, a: View, b: View, c: View, d: View | None, *, math: str = "ieee", epilogue: str | Iterable[str] = ()
) -> Workload:
    """Return the Workload of arrays in memory: a (..., m, k), b (..., k, 2n), c (..., m, n), d (2n,).

    Raises as matmul.workload_from_operands.
    """
    gate, other = halves(b)
    base = matmul.workload_from_operands(a, gate, c, math=math, epilogue=epilogue)
    size = facts(b.dtype).itemsize
    if facts(base.accumulator).is_integer or facts(base.accumulator).is_complex:
        raise UnsupportedError(f"{name} of {a.dtype}: gates are functions of real numbers")
    align = dict(base.align)
    align["b"] = next(width for width in (align["b"], 8, 4, size) if width <= align["b"] and other * size % width == 0)
    layout, types = dict(base.layout), dict(base.dtypes)
    if d is not None:
        if d.dtype != b.dtype:
            raise UnsupportedError(f"{name} with a bias of {d.dtype} beside {b.dtype}")
        align["d"], types["d"] = alignment_class(d, None), d.dtype
        layout["d"] = "n" if d.strides[-1] == 1 or d.shape[-1] <= 1 else "s"
    return replace(
        base,
        operator=name,
        dtypes=tuple(types.items()),
        layout=tuple(layout.items()),
        alignment=tuple(align.items()),
    )


def parse(text: str) -> tuple[str, tuple[str, ...]]:
    """Return (operator, operations after it) of an epilogue as in shapes.csv, ``"swiglu_add"``; ("", ()) without a
    gate."""
    for name in sorted(OPERATORS, key=len, reverse=True):
        if text == name or text.startswith(name + "_"):
            return name, epilogues.parse(text[len(name) + 1 :])
    return "", ()
