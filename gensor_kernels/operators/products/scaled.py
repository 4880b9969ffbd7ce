"""The base of products with scales: C[m, n] = sum over k of A[m, k] B[n, k] with scales D and scales or zeros E."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.lowered import Product, Side
from gensor_kernels.operators.declaration.operator import Operand, Operator
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class

_TAIL = struct.Struct("<Q 2q")


@dataclass(frozen=True)
class ScaledProduct(Operator):
    """A product of rows that are contiguous, without a batch."""

    def shapes(self, size: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return the shape of every operand."""
        raise NotImplementedError

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return matrices in C order."""
        shapes = self.shapes(workload.size)
        return tuple(Operand(name, shapes[name], (0, 1)) for name in self.names)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view: no batch, b transposed, the strides of e in the tail."""
        if any(strides[name][1] != 1 and workload.layouts[name] != "s" for name in "abc"):
            raise UnsupportedError(f"{self.name} of arrays whose rows are no runs")
        a, b, c, d = (strides[name] for name in "abcd")
        return Geometry(
            (workload.size["m"], workload.size["n"], workload.size["k"]),
            a=Strides(row=a[0], column=a[1]),
            b=Strides(row=b[1], column=b[0]),
            c=Strides(row=c[0], column=c[1]),
            d=Strides(row=d[0], column=d[1]),
            tail=_TAIL.pack(0, *strides.get("e", (0, 0))),
        )

    def output(self, workload: Workload, strides: tuple[int, ...]) -> Strides:
        """Return strides of rows and columns."""
        return Strides(row=strides[0], column=strides[1])

    def scales(self, workload: Workload) -> tuple[int, int]:
        """Return (Side.scaled, Side.group) of b."""
        raise NotImplementedError

    def product(self, workload: Workload) -> Product:
        """Return the product; its side b has the scales of both."""
        size, own = workload.size, {name: workload.layouts[name] for name in "abc"}
        a, b, c = (Side(workload.dtype[name], unit, workload.align[name]) for name, unit in own.items())
        scaled, group = self.scales(workload)
        return Product(1, size["m"], size["n"], size["k"], a, replace(b, scaled=scaled, group=group), c)

    def flops(self, workload: Workload) -> int:
        """Return the operations of the product alone, without scales."""
        return 2 * workload.size["m"] * workload.size["n"] * workload.size["k"]


def scaled_workload(
    operator: str,
    sizes: Iterable[tuple[str, int]],
    views: Mapping[str, View],
    layouts: Mapping[str, str],
    epilogue: Iterable[str],
) -> Workload:
    """Return the Workload of arrays in memory; the layout of those that ``layouts`` lacks is k."""
    return Workload(
        operator=operator,
        sizes=tuple(sizes),
        dtypes=tuple((name, view.dtype) for name, view in views.items()),
        accumulator="float32",
        math="ieee",
        layout=tuple((name, layouts.get(name, "k")) for name in views),
        # Scales and zeros are read one by one, from any address, if not of formats (quantised.py).
        alignment=tuple((name, alignment_class(view, -1 if name in "abc" else None)) for name, view in views.items()),
        epilogue=tuple(epilogue),
    )
