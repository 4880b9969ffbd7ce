"""Products with quantised weights: C[m, n] = sum over k of A[m, k] (B[n, k] - zero[n, g]) scale[n, g], g = k // group.

B is int8, or "uint4x2": two numbers of 0 to 15 in a byte, the number of the even k in the lower half.  Zeros are int8,
of the same range; operators without zeros use 0, and 8 for uint4x2.  A ``group`` of 0 means one scale (and zero) per
row of B for all of k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand
from gensor_kernels.operators.types.dtypes import decode
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from . import matmul
from .scaled import ScaledProduct, scaled_workload

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


#: Elements of k that may share a scale.
GROUPS = (0, 32, 64, 128)


def groups_of(k: int, group: int) -> int:
    """Return the number of groups of ``group`` elements in ``k``."""
    return -(-k // group) if group else 1


def _shapes(m: int, n: int, k: int, bits: int, group: int) -> dict[str, tuple[int, int]]:
    scales = n, groups_of(k, group)
    return {"a": (m, k), "b": (n, k * bits // 8), "d": scales, "e": scales, "c": (m, n)}


def numbers(bits: int, stored: np.ndarray) -> np.ndarray:
    """Return the numbers of b, (..., k) float64, from its bytes."""
    if bits == 8:
        return stored.astype(np.float64)
    halves = np.stack([stored & 15, stored >> 4], axis=-1)
    return halves.reshape(*stored.shape[:-1], 2 * stored.shape[-1]).astype(np.float64)


@dataclass(frozen=True)
class Quantised(ScaledProduct):
    """A product with 8-bit or 4-bit weights, with or without zeros."""

    bits: int = 8
    zeros: bool = False

    def shapes(self, size: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return a (m, k), b (n, bytes of k), d and e (n, groups), c (m, n)."""
        return _shapes(size["m"], size["n"], size["k"], self.bits, size["group"])

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the operands; ValueError for another group than the class has, and for half bytes."""
        size = workload.size
        if workload.layouts["d"] != str(size["group"]) or size["k"] * self.bits % 8:
            raise ValueError(f"{self.name}: the layout of d is the group {size['group']}, and k is whole bytes")
        return super().operands(workload)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view, with d transposed as b is."""
        found = super().geometry(workload, strides)
        return replace(found, d=Strides(row=found.d.column, column=found.d.row))

    def scales(self, workload: Workload) -> tuple[int, int]:
        """Return whether there are zeros too, and the group."""
        return 1 + self.zeros, workload.size["group"]

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the Workload at the wanted sizes, k rounded up to whole bytes."""
        k = wanted["k"] + (self.bits == 4 and wanted["k"] % 2)
        return self.of_class(workload).with_sizes(m=wanted["m"], n=wanted["n"], k=k)

    def of_class(self, workload: Workload) -> Workload:
        """Return the Workload with its class's group, a compile-time constant of kernels."""
        group = int(workload.layouts["d"])
        if group not in GROUPS:
            raise ValueError(f"{self.name}: the layout of d is none of the groups {GROUPS}")
        return workload.with_sizes(group=group)

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return scales of one order of magnitude, and zeros over their full range."""
        if name == "d":
            return rng.uniform(0.25, 1.75, shape) / 16
        if name == "e" and self.bits == 4:
            return rng.integers(0, 16, shape).astype(np.float64)
        return None

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product with the dequantised weights in float64; see Operator.

        The bound is that of the products with numbers and with zeros, each scaled, and of two roundings more for each
        group.
        """
        from gensor_kernels.operators.tolerance import base as tolerance_base

        a = decode(workload.dtype["a"], arrays["a"])
        centre = 8.0 if self.bits == 4 else 0.0  # kernels subtract this from numbers before summing
        number, zero = numbers(self.bits, arrays["b"]) - centre, self.spread(workload, arrays.get("e"))
        zero = zero - centre if self.zeros else zero
        scale = self.spread(workload, decode(workload.dtype["d"], arrays["d"]))
        product = matmul.reference(a, ((number - zero) * scale).T)
        size = [matmul.magnitude(a, (each * scale).T) for each in (number, zero)]
        both = tolerance_base.Magnitude(size[0].total + size[1].total, np.hypot(size[0].norm, size[1].norm))
        # Partial sums are as large as the zeros' products, which are subtracted.
        uncentred = matmul.reference(np.abs(a), np.abs(zero * scale).T)
        terms = workload.size["k"] * (1 + self.zeros) + 2 * groups_of(workload.size["k"], workload.size["group"])
        bound = tolerance_base.accumulation_bound(
            np.abs(product) + (uncentred if self.zeros else 0.0),
            both,
            terms,
            dtype=workload.dtype["a"],
            accumulator=workload.accumulator,
            structured=conditions.structured,
        )
        return product, bound

    def spread(self, workload: Workload, per_group: np.ndarray | None) -> np.ndarray:
        """Return values (n, groups) repeated for each element of k; zeros for None."""
        k, group = workload.size["k"], workload.size["group"]
        if per_group is None:
            return np.zeros((workload.size["n"], k))
        which = np.arange(k) // group if group else np.zeros(k, dtype=np.int64)
        return per_group.astype(np.float64)[:, which]


def _declare(bits: int, zeros: bool, k: int, group: int) -> Expression:
    from gensor_kernels.operators.expression import expression as ex

    number: ex.Value
    m, n = ex.axes("m n")
    groups = ex.Axis("groups", groups_of(k, group))
    if bits == 8:
        inner = ex.Axis("k", k)
        number, place = ex.tensor("b", n, inner)[n, inner], ex.affine(inner)
    else:
        pair, half = ex.Axis("pair", k // 2), ex.Axis("half", 2)
        number, place = ex.nibble(ex.tensor("b", n, pair)[n, pair], ex.index(half)), 2 * pair + half
        number = number if zeros else number - 8.0
    which = place // group if group else 0
    weight: ex.Value = number * ex.tensor("d", n, groups)[n, which]
    if zeros:
        weight = weight - ex.tensor("d", n, groups)[n, which] * ex.tensor("e", n, groups)[n, which]
    return ex.Expression("c", (m, n), ex.tensor("a", m, ex.Axis("inner", k))[m, place] * weight, ex.SUM)


def name_of(bits: int, zeros: bool) -> str:
    """Return the operator's name."""
    return f"matmul_int{bits}" + "_zeros" * zeros


def _make_operator(bits: int, zeros: bool) -> Quantised:
    def declare(k: int, group: int) -> Expression:
        return _declare(bits, zeros, k, group)

    sizes = (("m", 1), ("n", 1), ("k", 64), ("group", 32))
    return Quantised(name_of(bits, zeros), declare, ("k", "group"), sizes, bits, zeros)


OPERATORS = {name_of(bits, zeros): _make_operator(bits, zeros) for bits in (8, 4) for zeros in (False, True)}


def workload_from_views(
    views: Mapping[str, View], bits: int, k: int, group: int, epilogue: Sequence[str] = ()
) -> Workload:
    """Return the Workload of a (m, k), b (n, bytes), d and perhaps e (n, groups), c (m, n) in memory.

    UnsupportedError for types and groups that no kernel takes.
    """
    types = {name: view.dtype for name, view in views.items()} | {"b": "int8" if bits == 8 else "uint4x2"}
    if types["a"] not in ("float16", "bfloat16") or types["d"] != types["a"] or types.get("e", "int8") != "int8":
        given = f"{types['a']} and {types['d']}"
        raise UnsupportedError(f"quantised weights take x and scales of float16 or bfloat16, got {given}: cast x")
    if group not in GROUPS:
        raise UnsupportedError(f"groups of {group}: kernels take {', '.join(map(str, GROUPS[1:]))}, or all of k")
    m, n = views["c"].shape
    views = {**views, "b": views["b"]._replace(dtype=types["b"])}
    sizes = (("m", m), ("n", n), ("k", k), ("group", group))
    return scaled_workload(name_of(bits, "e" in views), sizes, views, {"c": "n", "d": str(group)}, epilogue)


def workload(
    m: int,
    n: int,
    k: int,
    *,
    bits: int = 4,
    group: int = 128,
    zeros: bool = False,
    dtype: str = "float16",
    out: str | None = None,
    epilogue: Sequence[str] = (),
) -> Workload:
    """Return the Workload of contiguous arrays at 16-byte aligned addresses."""
    shapes = _shapes(m, n, k, bits, group)
    types = {"a": dtype, "b": "int8", "d": dtype, "e": "int8", "c": out or dtype}
    views = {name: contiguous(shapes[name], types[name]) for name in ("a", "b", "d", *("e" * zeros), "c")}
    return workload_from_views(views, bits, k, group, epilogue)
