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
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Product
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import decode, facts
from gensor_kernels.operators.types.epilogue import GATES
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from . import matmul

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression, Value


BIASED = "bias_"
_TAIL = struct.Struct("<q")


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
class Gated(matmul.Matmul):
    """One gate, with or without a bias, for tuner and dispatch."""

    usual_sizes = MappingProxyType(
        {"batch": (1,), "m": (1, 16, 128, 1024), "n": (1408, 4096, 14336), "k": (2048, 4096)}
    )
    #: "half" is 0 for the gate and 1 for the other matrix; both may be any distance apart.
    axes: ClassVar[matmul.Axes] = {**matmul.Matmul.axes, "b": ("batch", "k", "half", "n"), "d": ("half", "n")}
    units: ClassVar[matmul.Axes] = {**matmul.Matmul.units, "c": ("n",), "d": ("n",)}
    extents: ClassVar[Mapping[str, int]] = {"half": 2}
    gate: str = "silu"
    biased: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """a, b, the bias d if any, c."""
        return ("a", "b", "d", "c") if self.biased else ("a", "b", "c")

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view with one batch axis: b and d are the gate's, d's rows the distance to the other
        bias."""
        size = workload.size
        batch, row, other, column = strides["b"]
        a, c = (self.output(workload, strides[name]) for name in "ac")
        b, d = Strides((0, 0, batch), row, column), Strides((0, 0, 0), *strides["d"]) if self.biased else Strides()
        return Geometry((size["m"], size["n"], size["k"]), (1, 1, size["batch"]), a, b, c, d, tail=params_tail(other))

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the gated product of both halves in float64; see Operator."""
        from gensor_kernels.operators.tolerance.fused import gated_bound

        a, b = (decode(workload.dtype[name], arrays[name]) for name in "ab")
        bias = decode(workload.dtype["d"], arrays["d"]) if self.biased else None
        gate, other = (
            matmul.product_and_bound(a, b[:, :, half], workload, workload.dtype["a"], structured=conditions.structured)
            for half in (0, 1)
        )
        return gated_bound(self.gate, gate, other, bias, workload.accumulator)

    def product(self, workload: Workload) -> Product | None:  # type: ignore[override]
        """Return a product with two matrices B, or None for integers and complex numbers, which have no gates."""
        if not workload.is_real:
            return None
        size = workload.size
        sides = self.sides(workload, b=2 * size["batch"] * size["n"] * size["k"])
        return Product(size["batch"], size["m"], size["n"], size["k"], *sides, gate=self.gate, biased=self.biased)


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


def params_tail(other: int) -> bytes:
    """Return the bytes of the operator's tail: the distance in elements from the gate's matrix to the other one."""
    return _TAIL.pack(other)


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
    a = matmul.stored_view((batch, m, k), dtype, trans_a)
    b = matmul.stored_view((batch, k, 2 * n), dtype, trans_b)
    c = contiguous((batch, m, n), out or dtype)
    d = contiguous((2 * n,), dtype) if name.startswith(BIASED) else None
    return workload_from_operands(name, a, b, c, d, math=math, epilogue=epilogue)


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
    if not base.is_real:
        raise UnsupportedError(f"{name} of {a.dtype}: gates are functions of real numbers")
    align = dict(base.align)
    align["b"] = matmul.matrices_alignment(align["b"], size, other * size)
    layout, types = dict(base.layout), dict(base.dtypes)
    if d is not None:
        if d.dtype != b.dtype:
            raise UnsupportedError(f"{name} with a bias of {d.dtype} beside {b.dtype}")
        align["d"], types["d"] = alignment_class(d, None), d.dtype
        layout["d"] = "n" if d.strides[-1] == 1 or d.shape[-1] <= 1 else "s"
    return replace(
        base, operator=name, dtypes=tuple(types.items()), layout=tuple(layout.items()), alignment=tuple(align.items())
    )


def parse(text: str) -> tuple[str, tuple[str, ...]]:
    """Return (operator, operations after it) of an epilogue as in shapes.csv, ``"swiglu_add"``; ("", ()) without a
    gate."""
    for name in sorted(OPERATORS, key=len, reverse=True):
        if text == name or text.startswith(name + "_"):
            return name, epilogues.parse(text[len(name) + 1 :])
    return "", ()
