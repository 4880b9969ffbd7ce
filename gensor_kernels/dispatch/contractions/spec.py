"""Each product function as a contraction of two arrays, and as a call of the array library.

A form is the hashable part of a call that is no array: the subscripts of einsum as text, or the function's name with
what else it was given. Shapes that do not fit raise ValueError, with NumPy's sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from gensor_kernels.arrays import Dtype, Namespace
from gensor_kernels.operators.expression.subscripts import Labels, Subscripts, parse, subscripts_text
from gensor_kernels.operators.types.workload import normal_axis

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

Form = Any
Shape = tuple[int, ...]
Flags = tuple[bool, bool]
VDOT = ("vdot",)


def meaning(form: Form, a: DeviceArray, b: DeviceArray) -> Subscripts:
    """Return a label per axis of the operands and of the result of `form`, for operands of these shapes."""
    if isinstance(form, str):
        return parse(form, (a.ndim, b.ndim))
    if form[0] == "einsum":
        return parse(form[1], (a.ndim, b.ndim))
    return _READERS[form[0]](a.shape, b.shape, *form[1:])


def einsum_form(text: str, flags: Flags) -> Form:
    """Return the form of an einsum of two operands, of which some are conjugated."""
    return ("einsum", text, flags) if any(flags) else text


def conjugations(form: Form) -> Flags:
    """Which operands a form conjugates, if they are complex."""
    if form == VDOT:
        return True, False
    return form[-1] if form[0] in ("einsum", "labels") and not isinstance(form, str) else (False, False)


def _labels(
    a: Shape, b: Shape, first: Labels, second: Labels, output: Labels, flags: Flags = (False, False)
) -> Subscripts:
    return Subscripts((first, second), output)


def _pair(a: Shape, b: Shape, pairs: Iterable[tuple[int, int]]) -> Subscripts:
    """Return the axes of `a`, then those of `b`, without the pairs that are summed over."""
    first, second = list(range(len(a))), list(range(len(a), len(a) + len(b)))
    for one, other in pairs:
        second[other] = first[one]
    output = tuple(each for each in first + second if (first + second).count(each) == 1)
    return Subscripts((tuple(first), tuple(second)), output)


def _tensordot(a: Shape, b: Shape, axes: Any) -> Subscripts:
    first, second = _axes_of(axes, a, b)
    pairs = [(normal_axis(one, len(a)), normal_axis(other, len(b))) for one, other in zip(first, second, strict=False)]
    if len(first) != len(second) or any(a[one] != b[other] for one, other in pairs):
        raise ValueError(f"shape-mismatch for sum: axes {axes} of shapes {a} and {b}")
    if any(len(set(each)) < len(pairs) for each in zip(*pairs, strict=True)):
        raise ValueError("an axis is summed over twice")
    return _pair(a, b, pairs)


def _axes_of(axes: Any, a: Shape, b: Shape) -> tuple[Labels, Labels]:
    """Return the axes of both operands that a number or a pair of tuples names; ValueError for more than they have."""
    if isinstance(axes, tuple):
        return axes
    if axes > min(len(a), len(b)):
        raise ValueError(f"shape-mismatch for sum: {axes} axes of shapes {a} and {b}")
    return tuple(range(len(a) - axes, len(a))) if axes > 0 else (), tuple(range(axes))


def _dot(a: Shape, b: Shape) -> Subscripts:
    if not a or not b:
        return _pair(a, b, ())
    axis = max(len(b) - 2, 0)
    if a[-1] != b[axis]:
        raise ValueError(f"shapes {a} and {b} not aligned: {a[-1]} (dim {len(a) - 1}) != {b[axis]} (dim {axis})")
    return _pair(a, b, [(len(a) - 1, axis)])


def _inner(a: Shape, b: Shape) -> Subscripts:
    if not a or not b:
        return _pair(a, b, ())
    if a[-1] != b[-1]:
        raise ValueError(f"shapes {a} and {b} not aligned: {a[-1]} (dim {len(a) - 1}) != {b[-1]} (dim {len(b) - 1})")
    return _pair(a, b, [(len(a) - 1, len(b) - 1)])


def _vdot(a: Shape, b: Shape) -> Subscripts:
    if a != b:
        raise ValueError(f"cannot take the product of vectors of sizes {math.prod(a)} and {math.prod(b)}")
    labels = tuple(range(len(a)))
    return Subscripts((labels, labels), ())


_READERS: dict[str, Callable[..., Subscripts]] = {
    "labels": _labels,
    "tensordot": _tensordot,
    "dot": _dot,
    "inner": _inner,
    "vdot": _vdot,
    "outer": partial(_pair, pairs=()),
}


def library_call(
    xp: Namespace, form: Form, a: DeviceArray, b: DeviceArray, out: DeviceArray, dtype: Dtype | None
) -> DeviceArray:
    """Return the same by the array library's own function; into `out` where there is one."""
    if isinstance(form, str):
        return xp.einsum(form, a, b, dtype=dtype)
    name, *more = form
    if name in ("labels", "einsum"):
        first, second = conjugations(form)
        text = subscripts_text(more[:2], more[2]) if name == "labels" else more[0]
        return xp.einsum(text, a.conj() if first else a, b.conj() if second else b, dtype=dtype)
    function = getattr(xp, name)
    return function(a, b, *more) if out is None else function(a, b, *more, out=out)
