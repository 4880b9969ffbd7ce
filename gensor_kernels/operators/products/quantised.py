"""Products with quantised weights: C[m, n] = sum over k of A[m, k] (B[n, k] - zero[n, g]) scale[n, g], g = k // group.

B is int8, or "uint4x2": two numbers of 0 to 15 in a byte, the number of the even k in the lower half.  Zeros are int8,
of the same range; operators without zeros use 0, and 8 for uint4x2.  A ``group`` of 0 means one scale (and zero) per
row of B for all of k.

Or B has one of the FORMATS of block-scaled floats, without zeros: the MX formats of the OCP Microscaling Formats
Specification 1.0, or NVFP4 (NVIDIA, Pretraining Large Language Models with NVFP4, arXiv:2509.25149), whose scale of the
whole tensor is an operation of the epilogue.  A may have the same format, with scales E[m, g].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.declaration.operator import Arrays, Bounded, Conditions, Operand
from gensor_kernels.operators.types.dtypes import FLOAT4, PACKED, decode, product_type
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload, alignment_class, contiguous

from . import matmul
from .scaled import ScaledProduct, scaled_workload

if TYPE_CHECKING:
    from gensor_kernels.operators.expression.expression import Expression


#: Elements of k that may share a scale, of integers.
GROUPS = (0, 32, 64, 128)


class Format(NamedTuple):
    """A block-scaled format: the types of elements and scales, and the elements that share a scale."""

    element: str
    scale: str
    group: int

    @property
    def bits(self) -> int:
        """Bits of an element."""
        return 4 if self.element in PACKED else 8


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "mxfp8": Format("float8_e4m3fn", "float8_e8m0fnu", 32),
        "mxfp8_e5m2": Format("float8_e5m2", "float8_e8m0fnu", 32),
        "mxfp4": Format("float4_e2m1fn_x2", "float8_e8m0fnu", 32),
        "nvfp4": Format("float4_e2m1fn_x2", "float8_e4m3fn", 16),
    }
)
#: Types of scales of the FORMATS.
SCALES = frozenset(each.scale for each in FORMATS.values())
SIXTEEN_BITS = ("float16", "bfloat16")
#: Bytes of the widest access of scales of a format.
SCALE_WORD = 4


def groups_of(k: int, group: int) -> int:
    """Return the number of groups of ``group`` elements in ``k``."""
    return -(-k // group) if group else 1


def _shapes(m: int, n: int, k: int, bits: int, group: int, both: bool = False) -> dict[str, tuple[int, int]]:
    groups, stored = groups_of(k, group), k * bits // 8
    return {
        **{"a": (m, stored if both else k), "b": (n, stored)},
        **{"d": (n, groups), "e": (m if both else n, groups), "c": (m, n)},
    }


def numbers(dtype: str, stored: np.ndarray) -> np.ndarray:
    """Return the numbers of b, (..., k) float64, from its bytes."""
    if dtype not in PACKED:
        return decode(dtype, stored)
    halves = np.stack([stored & 15, stored >> 4], axis=-1)
    halves = halves.reshape(*stored.shape[:-1], 2 * stored.shape[-1])
    return halves.astype(np.float64) if dtype == "uint4x2" else np.asarray(FLOAT4[halves])


@dataclass(frozen=True)
class Quantised(ScaledProduct):
    """A product with 8-bit or 4-bit weights, with or without zeros, or in one of the FORMATS, as ``both`` may be."""

    bits: int = 8
    zeros: bool = False
    format: str = ""
    both: bool = False

    def shapes(self, size: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Return a (m, k), b (n, bytes of k), d and e (n, groups), c (m, n)."""
        return _shapes(size["m"], size["n"], size["k"], self.bits, size["group"], self.both)

    def peak_dtype(self, workload: Workload) -> str:
        """Return the name of two operands of one format."""
        return {8: "float8", 4: "float4"}[self.bits] if self.both else super().peak_dtype(workload)

    def operands(self, workload: Workload) -> tuple[Operand, ...]:
        """Return the operands; ValueError for another group than the class has, and for half bytes."""
        size = workload.size
        if workload.layouts["d"] != str(size["group"]) or size["k"] * self.bits % 8:
            raise ValueError(f"{self.name}: the layout of d is the group {size['group']}, and k is whole bytes")
        return super().operands(workload)

    def geometry(self, workload: Workload, strides: Mapping[str, tuple[int, ...]]) -> Geometry:
        """Return the kernel's view, with d transposed as b is."""
        found = super().geometry(workload, strides)
        together = 8 // self.bits if self.both else 1
        return replace(found, d=Strides(row=found.d.column, column=found.d.row), together=together)

    def scales(self, workload: Workload) -> tuple[int, int]:
        """Return whether there are zeros too, and the group."""
        return 1 + self.zeros, workload.size["group"]

    def resize(self, workload: Workload, wanted: Mapping[str, int]) -> Workload:
        """Return the Workload at the wanted sizes, k rounded up to whole bytes, and to whole words of scales."""
        whole = max(8 // self.bits, workload.align["d"] * FORMATS[self.format].group if self.format else 1)
        k = -(-wanted["k"] // whole) * whole
        return self.of_class(workload).with_sizes(m=wanted["m"], n=wanted["n"], k=k)

    def of_class(self, workload: Workload) -> Workload:
        """Return the Workload with its class's group, a compile-time constant of kernels."""
        group = int(workload.layouts["d"])
        groups = (FORMATS[self.format].group,) if self.format else GROUPS
        if group not in groups:
            raise ValueError(f"{self.name}: the layout of d is none of the groups {groups}")
        return workload.with_sizes(group=group)

    def draw(
        self, workload: Workload, name: str, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Return scales of one order of magnitude, and zeros over their full range."""
        if name == "d":
            return rng.uniform(0.25, 1.75, shape) / 16
        if name == "e" and self.both:
            return rng.uniform(0.25, 1.75, shape) / 4
        if name == "e" and self.bits == 4:
            return rng.integers(0, 16, shape).astype(np.float64)
        return None

    def result_and_bound(self, workload: Workload, arrays: Arrays, conditions: Conditions) -> Bounded:
        """Return the product with the dequantised weights in float64; see Operator.

        The bound is that of the products with numbers and with zeros, each scaled, and of two roundings more for each
        group.
        """
        from gensor_kernels.operators.tolerance import base as tolerance_base

        a, stored = numbers(workload.dtype["a"], arrays["a"]), workload.dtype["b"]
        centre = 8.0 if stored == "uint4x2" else 0.0  # kernels subtract this from numbers before summing
        number, zero = numbers(stored, arrays["b"]) - centre, self.spread(workload, None)
        if self.both:
            a = a * self.spread(workload, decode(workload.dtype["e"], arrays["e"]))
        if self.zeros:
            zero = self.spread(workload, arrays["e"]) - centre
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
            dtype=product_type(workload.dtype["a"], stored),
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


def _declare(bits: int, zeros: bool, form: str, both: bool, k: int, group: int) -> Expression:
    from gensor_kernels.operators.expression import expression as ex

    m, n = ex.axes("m n")
    groups = ex.Axis("groups", groups_of(k, group))
    inner, pair, half = ex.Axis("k", k), ex.Axis("pair", k // 2), ex.Axis("half", 2)
    place = ex.affine(inner) if bits == 8 else 2 * pair + half

    def read(name: str, row: ex.Axis) -> ex.Value:
        if bits == 8:
            return ex.tensor(name, row, inner)[row, inner]
        number = ex.nibble(ex.tensor(name, row, pair)[row, pair], ex.index(half))
        return ex.float4(number) if form else number if zeros else number - 8.0

    a = read("a", m) if both else ex.tensor("a", m, ex.Axis("inner", k))[m, place]
    which = place // group if group else 0
    weight: ex.Value = read("b", n) * ex.tensor("d", n, groups)[n, which]
    if both:
        weight = weight * ex.tensor("e", m, groups)[m, which]
    if zeros:
        weight = weight - ex.tensor("d", n, groups)[n, which] * ex.tensor("e", n, groups)[n, which]
    return ex.Expression("c", (m, n), a * weight, ex.SUM)


def name_of(bits: int, zeros: bool, form: str = "", both: bool = False) -> str:
    """Return the operator's name."""
    if form:
        return "scaled_" * both + f"matmul_{form}"
    return f"matmul_int{bits}" + "_zeros" * zeros


def _make_operator(bits: int, zeros: bool, form: str = "", both: bool = False) -> Quantised:
    def declare(k: int, group: int) -> Expression:
        return _declare(bits, zeros, form, both, k, group)

    sizes = (("m", 1), ("n", 1), ("k", 64), ("group", FORMATS[form].group if form else 32))
    return Quantised(name_of(bits, zeros, form, both), declare, ("k", "group"), sizes, bits, zeros, form, both)


_MADE = [
    *(_make_operator(bits, zeros) for bits in (8, 4) for zeros in (False, True)),
    *(_make_operator(each.bits, False, form, both) for form, each in FORMATS.items() for both in (False, True)),
]
OPERATORS = {each.name: each for each in _MADE}


def workload_from_views(
    views: Mapping[str, View], bits: int, k: int, group: int, epilogue: Sequence[str] = ()
) -> Workload:
    """Return the Workload of a (m, k), b (n, bytes), d and perhaps e (n, groups), c (m, n) in memory.

    UnsupportedError for types and groups that no kernel takes.
    """
    types = {name: view.dtype for name, view in views.items()} | {"b": "int8" if bits == 8 else "uint4x2"}
    if types["a"] not in SIXTEEN_BITS or types["d"] != types["a"] or types.get("e", "int8") != "int8":
        given = f"{types['a']} and {types['d']}"
        raise UnsupportedError(f"quantised weights take x and scales of float16 or bfloat16, got {given}: cast x")
    if group not in GROUPS:
        raise UnsupportedError(f"groups of {group}: kernels take {', '.join(map(str, GROUPS[1:]))}, or all of k")
    return _made(views, types, name_of(bits, "e" in views), k, group, epilogue)


def _made(
    views: Mapping[str, View], types: Mapping[str, str], name: str, k: int, group: int, epilogue: Sequence[str]
) -> Workload:
    m, n = views["c"].shape
    views = {each: view._replace(dtype=types[each]) for each, view in views.items()}
    sizes = (("m", m), ("n", n), ("k", k), ("group", group))
    return scaled_workload(name, sizes, views, {"c": "n", "d": str(group)}, epilogue)


def formatted_from_views(views: Mapping[str, View], form: str, k: int, epilogue: Sequence[str] = ()) -> Workload:
    """Return the Workload of b (n, bytes) and d (n, groups) in one of FORMATS, c (m, n), and a (m, k), which with
    e (m, groups) is in this format also.

    UnsupportedError for types that no kernel takes.
    """
    each, both = FORMATS[form], "e" in views
    types = {name: view.dtype for name, view in views.items()} | {"b": each.element, "d": each.scale}
    types |= {"a": each.element, "e": each.scale} if both else {}
    if not both and types["a"] not in SIXTEEN_BITS:
        raise UnsupportedError(f"{form} weights take x of float16 or bfloat16, got {types['a']}: cast x")
    made = _made(views, types, name_of(each.bits, False, form, both), k, each.group, epilogue)
    scales = {name: scale_class(views[name]) for name in "de"[: 1 + both]}
    return replace(made, alignment=(*{**made.align, **scales}.items(),))


def scale_class(view: View) -> int:
    """Return the alignment class of scales of a format: SCALE_WORD, where all are in whole words, or 1."""
    whole = view.strides[-1] == 1 and alignment_class(view._replace(dtype="int8"), -1) >= SCALE_WORD
    return SCALE_WORD if whole else 1


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


def formatted(
    m: int,
    n: int,
    k: int,
    form: str,
    *,
    dtype: str | None = None,
    out: str = "bfloat16",
    epilogue: Sequence[str] = (),
) -> Workload:
    """Return the same of operands in one of FORMATS: of b, and of a as well where it has no 16-bit ``dtype``."""
    shapes = _shapes(m, n, k, FORMATS[form].bits, FORMATS[form].group, dtype is None)
    types = {"a": dtype or "int8", "b": "int8", "d": "int8", "e": "int8", "c": out}
    names = ("a", "b", "d", *("e" * (dtype is None)), "c")
    return formatted_from_views({name: contiguous(shapes[name], types[name]) for name in names}, form, k, epilogue)
