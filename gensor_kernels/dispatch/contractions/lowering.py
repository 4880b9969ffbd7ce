"""Contractions of two arrays as products of windows on them: what a first call finds out before it is planned."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import named_dtype
from gensor_kernels.operators.expression.subscripts import Subscripts, extents, spoken

from .axes import Layout, Window, strides_of
from .layout import Source, arrange
from .spec import VDOT, Form, conjugations, meaning

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.arguments import Call
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: Results whose sums of single operands are kept in float32 until the end.
NARROW = ("float16", "bfloat16")


@dataclass(frozen=True)
class Study:
    """A contraction as far as it is known without choosing a kernel.

    `reason` says why it is the library's whatever is stored; `layout` is None then, and where there is nothing to
    compute. `direct`: the caller's `out` is written by the product itself, not copied to. `conjugated`: which operands
    are, in the caller's order.
    """

    form: Form
    subscripts: Subscripts
    extents: dict[int, int]
    dtype: np.dtype[Any]
    given: np.dtype[Any] | None
    layout: Layout | None
    reason: str = ""
    direct: bool = False
    conjugated: tuple[bool, bool] = (False, False)

    def call(self, product: Call) -> Call:
        """The call of this contraction's product, with its operands conjugated; the library's vdot does that too."""
        if not any(self.conjugated):
            return product
        flags = self.conjugated[::-1] if self.layout is not None and self.layout.swapped else self.conjugated
        return replace(product, conjugated=flags, plain=False, one_call=self.form == VDOT)

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's."""
        return tuple(self.extents[label] for label in self.subscripts.output)


def study(runtime: Runtime, form: Form, a: Any, b: Any, out: Any, dtype: Any, *, turning: bool = True) -> Study:
    """What a call is; raises ValueError for shapes that do not fit and for an `out` that does not.

    Without `turning`, `a` is the product's first operand.
    """
    subscripts = meaning(form, a, b)
    sizes = extents(subscripts, (a.shape, b.shape))
    for label in subscripts.output:
        sizes.setdefault(label, 1)  # an axis of one element that a copy or a sum has dropped
    given = None if dtype is None else named_dtype(dtype)
    result = np.promote_types(a.dtype, b.dtype) if given is None else given
    flags = conjugations(form)
    conjugated = flags[0] and a.dtype.kind == "c", flags[1] and b.dtype.kind == "c"
    found = Study(form, subscripts, sizes, result, given, None, conjugated=conjugated)
    if out is not None and (out.dtype != result or out.shape != found.shape):
        raise ValueError(f"out is {out.dtype} {tuple(out.shape)}, the result {result} {found.shape}")
    if 0 in sizes.values():
        return found
    reason = _unfit(runtime, found, a, b)
    if reason:
        return replace(found, reason=reason)
    first, second = subscripts.operands
    sources = (
        Source(first, a.shape, a.strides, a.dtype.itemsize),
        Source(second, b.shape, b.strides, b.dtype.itemsize),
    )
    layout = None if out is None else arrange(sources, subscripts.output, sizes, result.itemsize, out.strides)
    direct = layout is not None and layout.staged == (None, None)
    layout = layout or arrange(sources, subscripts.output, sizes, result.itemsize, turning=turning)
    if not runtime.device.emulated and layout is not None and layout.c is not None and _is_dots(layout.c):
        reason = "one element per product: a block of a kernel would compute a whole tile for it"
        return replace(found, reason=reason)
    return replace(found, layout=layout, direct=direct)


def _is_dots(result: Window) -> bool:
    """Whether a product is nothing but many dot products."""
    return result.shape[-2:] == (1, 1) and math.prod(result.shape) > 1


def _unfit(runtime: Runtime, found: Study, a: Any, b: Any) -> str:
    """Why a contraction is none for kernels."""
    if any(not np.can_cast(each.dtype, found.dtype, "same_kind") for each in (a, b)):
        return f"operands of {a.dtype} and {b.dtype} as {found.dtype}"
    summed = {label for labels in found.subscripts.operands for label in labels} - set(found.subscripts.output)
    if not runtime.device.emulated and all(found.extents[label] == 1 for label in summed):
        return "nothing is summed: the library multiplies element by element"
    return ""


def views(runtime: Runtime, found: Study, a: Any, b: Any, out: Any) -> tuple[Any, Any, Any]:
    """The product's operands and its result, as windows on the caller's arrays and on `out`."""
    layout = found.layout
    assert layout is not None and layout.a and layout.b and layout.c
    first, second = (b, a) if layout.swapped else (a, b)
    windows = (first, layout.a), (second, layout.b), (out, layout.c)
    x, y, z = (window(runtime.device.xp, array, each) for array, each in windows)
    return x, y, z


def window(xp: Any, array: Any, found: Window) -> Any:
    """The view of an array that a Window describes."""
    return xp.lib.stride_tricks.as_strided(array, found.shape, found.strides)


def target(runtime: Runtime, found: Study, out: Any) -> Any:
    """The array the product is written to: `out` where that can be done, else a new one."""
    assert found.layout is not None
    return out if found.direct else runtime.device.empty(found.layout.allocated, found.dtype)


# ---- operands that are copied or summed first


def is_staged(found: Study) -> bool:
    """Whether something is done to an operand first."""
    return found.layout is not None and found.layout.staged != (None, None)


def staged_form(found: Study) -> tuple[Form, Any]:
    """(form, dtype) of the contraction of what staging gives."""
    layout = found.layout
    assert layout is not None
    pairs = zip(layout.staged, found.subscripts.operands, strict=True)
    first, second = (labels if staged is None else staged for staged, labels in pairs)
    late = layout.sums != ((), ()) and found.dtype.name in NARROW
    return ("labels", first, second, found.subscripts.output, found.conjugated), None if late else found.given


def stand_ins(runtime: Runtime, found: Study, a: Any, b: Any) -> tuple[Any, Any]:
    """Arrays like the ones that staging gives, their contents aside."""
    return stand_in(runtime, found, 0, a), stand_in(runtime, found, 1, b)


def stand_in(runtime: Runtime, found: Study, number: int, array: Any) -> Any:
    """An array like the one that staging operand `number` gives, its contents aside."""
    layout = found.layout
    assert layout is not None
    labels = layout.staged[number]
    if labels is None:
        return array
    shape = tuple(found.extents[label] for label in labels)
    return runtime.device.empty(shape, _wide(found) if layout.sums[number] else array.dtype)


def _wide(found: Study) -> np.dtype[Any]:
    """What elements of one operand are summed in: at least as wide as the result."""
    return np.dtype(np.float32) if found.dtype.name in NARROW else found.dtype


def stage(runtime: Runtime, found: Study, number: int, array: Any) -> Any:
    """Operand `number`, copied or summed as the Layout says; itself where it is taken as it lies."""
    layout, xp = found.layout, runtime.device.xp
    assert layout is not None
    kept, sums = layout.staged[number], layout.sums[number]
    if kept is None:
        return array
    strides = strides_of(found.subscripts.operands[number], array.shape, array.strides)
    labels = (*kept, *sums)
    shape = tuple(found.extents[label] for label in labels)
    view = window(xp, array, Window(shape, tuple(strides[label] for label in labels)))
    if not sums:
        return xp.array(view, order="C", copy=True)
    if view.dtype.name == "bfloat16":
        view = view.astype(np.float32)
    result = stand_in(runtime, found, number, array)
    axes = tuple(range(len(kept), len(labels)))
    return xp.sum(view, axis=axes, dtype=result.dtype, out=result)


def described(found: Study) -> str:
    """What happens to the operands first, in words; empty where they are taken as they lie."""
    if found.layout is None:
        return ""
    parts = []
    for number, name in enumerate(("first", "second")):
        sums = found.layout.sums[number]
        if sums:
            parts.append(f"the {name} operand is summed over {', '.join(map(spoken, sums))}")
        elif found.layout.staged[number] is not None:
            parts.append(f"the {name} operand is copied")
    return "; ".join(parts)
