"""Contractions of CuPy arrays behind a prologue: einsum, tensordot and operators of the user's own.

The first operand stays the product's a, whatever the order of the result's axes: what kernels write is seen through a
transposition where need be. The prologue's vectors run along the axes that are summed. What kernels do not take so is
computed by the array library in front of a contraction without a prologue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operation
from gensor_kernels.dispatch.contractions.lowering import Study, is_staged, study, target, views
from gensor_kernels.dispatch.contractions.pairs import pair
from gensor_kernels.dispatch.observe import dry_run

from .prologue_matmul import PREPARED, Prepared, checked, computed, listed

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.operators.expression.subscripts import Labels


@dataclass(frozen=True)
class Behind:
    """A contraction that kernels take with a prologue: its vectors come from the arrays of its operations."""

    study: Study
    parameters: Prepared

    def run(self, runtime: Runtime, a: Any, b: Any, before: Sequence[Operation], steps: tuple[Operation, ...]) -> Any:
        """The result, a new array or a transposed view of one; `steps` are the epilogue of its product."""
        from gensor_kernels.dispatch.plans.calls import call

        layout, shape = self.study.layout, a.shape
        assert layout is not None
        labels = self.study.subscripts.operands[0]
        arrays = [step.operand for step in before if step.operand is not None]
        vectors = [_vector(runtime.device.xp, x, labels, shape, layout.summed) for x in arrays]
        result = target(runtime, self.study, None)
        x, y, z = views(runtime, self.study, a, b, result)
        call(runtime, PREPARED, (x, y, *vectors), self.parameters, z, steps, None)
        return result if layout.order is None else result.transpose(layout.order)


def behind(
    runtime: Runtime, form: Any, a: Any, b: Any, before: Sequence[Operation], dtype: Any = None
) -> Behind | None:
    """How kernels take a contraction behind these operations; None where they do not."""
    laid = tuple((x.shape, x.strides, x.dtype) for x in (a, b))
    shapes = tuple(None if step.operand is None else step.operand.shape for step in before)
    key = ("behind", form, laid, dtype, tuple((step.name, step.scalar) for step in before), shapes)
    found: Any = runtime.plans.get(key)
    if found is None:
        found = (_behind(runtime, form, a, b, before, dtype),)
        if not runtime.device.capturing():
            runtime.plans[key] = found
    return found[0]


def _behind(runtime: Runtime, form: Any, a: Any, b: Any, before: Sequence[Operation], dtype: Any) -> Behind | None:
    arrays = [step.operand for step in before if step.operand is not None]
    if not before or "c" in (a.dtype.kind, b.dtype.kind):
        return None
    found = study(runtime, form, a, b, None, dtype, turning=False)
    if found.layout is None or is_staged(found):
        return None
    labels = found.subscripts.operands[0]
    if any(not _runs_along(x.shape, labels, found.layout.summed) for x in arrays):
        return None
    parameters = Prepared.of(before, found.given)
    return None if parameters is None else Behind(found, parameters)


def _runs_along(shape: Sequence[int], labels: Labels, summed: Labels) -> bool:
    """Whether an array that broadcasts to an operand with these labels is a vector along the axes that are summed."""
    own = [label for extent, label in zip(shape[::-1], labels[::-1], strict=False) if extent != 1]
    return len(set(own)) == len(own) and set(own) <= set(summed)


def _vector(xp: Any, array: Any, labels: Labels, shape: Sequence[int], summed: Labels) -> Any:
    """Such an array with an element for each of the axes' positions, the axes in the order of `summed`."""
    extents = dict(zip(labels, shape, strict=True))
    placed = {label: axis for axis, label in enumerate(labels[len(labels) - array.ndim :]) if array.shape[axis] != 1}
    kept = array.reshape([array.shape[axis] for axis in placed.values()])
    order = [label for label in summed if label in placed]
    turned = kept.transpose([list(placed).index(label) for label in order])
    wide = turned.reshape([extents[label] if label in placed else 1 for label in summed])
    return xp.broadcast_to(wide, [extents[label] for label in summed]).reshape(-1)


def contraction(runtime: Runtime, form: Any, a: Any, b: Any, asked: Any, dtype: Any = None) -> Any:
    """The contraction of `a` behind `prologue=` and `b` that `form` names (see `forms`)."""
    before = listed(asked)
    checked(runtime, a, before)
    runtime.check(a, b, None, (), None)
    found = behind(runtime, form, a, b, before, dtype)
    if found is not None:
        return found.run(runtime, a, b, before, ())
    if "c" not in (a.dtype.kind, b.dtype.kind):
        a = a.astype(np.promote_types(a.dtype, b.dtype), copy=False)
    a = computed(runtime, a, before)
    if dry_run.asking.get():
        raise dry_run.Question("contraction", form, a, b, dtype)
    return pair(runtime, form, a, b, None, dtype)
