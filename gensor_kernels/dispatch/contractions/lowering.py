"""Contractions of two arrays as products of windows on them: labels, extents and strides, before planning."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import named_dtype
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.expression.subscripts import Subscripts, extents, label_text

from .axes import NOT_STAGED, Layout, Staging
from .layout import Source, arrange
from .spec import Form, conjugations, meaning

#: Results whose sums of single operands are kept in float32 until the end.
NARROW = ("float16", "bfloat16")


@dataclass(frozen=True)
class StridedArray:
    """An operand: shape, strides in bytes, dtype."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype

    @property
    def ndim(self) -> int:
        """The number of its axes."""
        return len(self.shape)


@dataclass(frozen=True)
class Lowered:
    """A contraction as far as it is known without choosing a kernel.

    `layout` is None where there is nothing to compute, where kernels could not take the operands' dtypes, and where
    operands are staged first. `conjugated`: which operands are, in the caller's order; `given` is the caller's `dtype`.
    """

    form: Form
    operands: tuple[StridedArray, StridedArray]
    subscripts: Subscripts
    extents: dict[int, int]
    dtype: Dtype
    given: Dtype | None
    conjugated: tuple[bool, bool]
    layout: Layout | None = None
    staging: Staging = NOT_STAGED

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.extents[label] for label in self.subscripts.output)

    @property
    def is_staged(self) -> bool:
        """Return whether an operand is copied or summed first."""
        return self.staging != NOT_STAGED

    @property
    def is_empty(self) -> bool:
        """Whether an axis has no elements."""
        return 0 in self.extents.values()

    @property
    def inputs(self) -> Dtype:
        """The operands' common dtype."""
        return np.promote_types(self.operands[0].dtype, self.operands[1].dtype)

    @property
    def staged_form(self) -> tuple[Form, Dtype | None]:
        """(form, dtype) of the contraction of the staged operands."""
        pairs = zip(self.staging.labels, self.subscripts.operands, strict=True)
        first, second = (labels if staged is None else staged for staged, labels in pairs)
        form = ("labels", first, second, self.subscripts.output, self.conjugated)
        return form, None if self.rounds_late else self.given

    @property
    def rounds_late(self) -> bool:
        """Whether sums of a staged operand stay in float32 until the product is computed."""
        return self.staging.sums != ((), ()) and self.dtype.name in NARROW

    def staged_dtype(self, number: int) -> Dtype:
        """Return the dtype of a staged operand: sums are at least as wide as the result."""
        if not self.staging.sums[number]:
            return self.operands[number].dtype
        return np.dtype(np.float32) if self.dtype.name in NARROW else self.dtype

    @property
    def unfit(self) -> str:
        """Why the operands' dtypes are none for kernels; empty where they are."""
        if all(np.can_cast(each.dtype, self.dtype, "same_kind") for each in self.operands):
            return ""
        first, second = self.operands
        return f"operands of {first.dtype} and {second.dtype} as {self.dtype}"

    @property
    def unworthy(self) -> str:
        """Why the contraction is the array library's whatever kernels are stored; empty where it is not."""
        summed = {label for labels in self.subscripts.operands for label in labels} - set(self.subscripts.output)
        if all(self.extents[label] == 1 for label in summed):
            return "nothing is summed: the library multiplies element by element"
        if self.layout is not None and self.layout.c.shape[-2:] == (1, 1) and math.prod(self.layout.c.shape) > 1:
            return "one element per product: a block of a kernel would compute a whole tile for it"
        return ""

    def describe(self) -> str:
        """Return a description of the operations on the operands before the launch."""
        parts = []
        for name, labels, sums in zip(("first", "second"), self.staging.labels, self.staging.sums, strict=True):
            if sums:
                parts.append(f"the {name} operand is summed over {', '.join(map(label_text, sums))}")
            elif labels is not None:
                parts.append(f"the {name} operand is copied")
        return "; ".join(parts)


@lru_cache(maxsize=4096)
def lower(
    form: Form,
    a: StridedArray,
    b: StridedArray,
    dtype: Dtype | None = None,
    out: tuple[int, ...] | None = None,
    turning: bool = True,
) -> Lowered:
    """Lower a contraction to windows; `out` are the strides in bytes of a result that exists already.

    Without `turning`, `a` is the product's first operand. Raises ValueError for shapes that do not fit, and
    UnsupportedError where a product cannot write such a result.
    """
    subscripts = meaning(form, a, b)
    sizes = extents(subscripts, (a.shape, b.shape))
    for label in subscripts.output:
        sizes.setdefault(label, 1)  # an axis of one element that a copy or a sum has dropped
    given = None if dtype is None else named_dtype(dtype)
    result = np.promote_types(a.dtype, b.dtype) if given is None else given
    flags = conjugations(form)
    conjugated = flags[0] and a.dtype.kind == "c", flags[1] and b.dtype.kind == "c"
    found = Lowered(form, (a, b), subscripts, sizes, result, given, conjugated)
    if found.is_empty or found.unfit:
        return found
    sources = [
        Source(labels, each.shape, each.strides, each.dtype.itemsize)
        for labels, each in zip(subscripts.operands, (a, b), strict=True)
    ]
    layout = arrange((sources[0], sources[1]), subscripts.output, sizes, result.itemsize, out, turning=turning)
    if layout is None:
        raise UnsupportedError("a result whose axes kernels have too few of")
    return replace(found, staging=layout) if isinstance(layout, Staging) else replace(found, layout=layout)
