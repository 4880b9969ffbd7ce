"""Prologues: operations on the first operand as kernels read it, from what a caller wrote to a Function's call.

Kernels take vectors along the axes that are summed, or along the channels of an image. The array library computes
other prologues before a call without one. The first operand of a contraction stays the product's a, whatever the order
of the result's axes: the result is a transposed view where necessary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.arrays import Namespace
from gensor_kernels.dispatch.calls.arguments import (
    FusedEpilogue,
    Operands,
    Operation,
    check_steps,
    named_dtype,
    operations,
    resolve,
)
from gensor_kernels.dispatch.calls.array import Items
from gensor_kernels.dispatch.calls.conv_parameters import IMAGES, Parameters
from gensor_kernels.dispatch.calls.fallback import apply_steps
from gensor_kernels.dispatch.contractions.axes import Window
from gensor_kernels.dispatch.contractions.lowering import Lowered, lower
from gensor_kernels.dispatch.contractions.spec import Form
from gensor_kernels.dispatch.functions.contraction import check_out, steps_along, strided
from gensor_kernels.dispatch.functions.fused_matmul import PROLOGUE, Prologue
from gensor_kernels.dispatch.functions.prologue_convolution import PrologueParameters, ones
from gensor_kernels.dispatch.key import key_of_several
from gensor_kernels.dispatch.observe import dry_run
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from gensor_kernels.operators.types.epilogue import PROLOGUES

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.dispatch.calls.arguments import Operation
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.operators.expression.subscripts import Labels


def read(runtime: Runtime, x: DeviceArray, items: Items | None) -> tuple[Operation, ...]:
    """Return the operations of `prologue=` on `x`, written as in an epilogue.

    ValueError for an operation that it cannot have, and as `check`.
    """
    steps = _parse(items)
    check(runtime, x, steps)
    return steps


def _parse(items: Items | None) -> tuple[Operation, ...]:
    try:
        steps = operations(epilogue=items)
    except FusedEpilogue:
        steps = (Operation("a gate or a norm"),)
    except (TypeError, ValueError) as error:
        words = str(error).replace("an epilogue", "a prologue").replace("epilogue", "prologue")
        raise (TypeError if isinstance(error, TypeError) else ValueError)(words) from None
    for step in steps:
        if step.name not in PROLOGUES:
            raise ValueError(f"prologue operation {step.name!r} is not one of {', '.join(PROLOGUES)}")
    return steps


def check(runtime: Runtime, x: DeviceArray, steps: Sequence[Operation]) -> None:
    """Raise TypeError or ValueError for operands that are no arrays or do not broadcast to `x`, and for integer `x`."""
    runtime.check(x, x, None, tuple(steps), None)
    if x.dtype.kind in "iub":
        raise TypeError(f"a prologue of {x.dtype}: expected a floating-point array")
    check_steps(tuple(steps), x.dtype)
    for step in steps:
        shape = () if step.operand is None else tuple(step.operand.shape)
        if len(shape) > x.ndim or any(n not in (1, m) for n, m in zip(shape[::-1], x.shape[::-1], strict=False)):
            raise ValueError(f"{step.name} of shape {shape} does not broadcast to the operand's shape {tuple(x.shape)}")


def vectors_of(steps: Sequence[Operation], channels: int, axes: int) -> list[DeviceArray] | None:
    """Return the arrays of a prologue as vectors over the channels, or None if an array is no such vector.

    Channels are the last axis of the operand except for `axes` after it.
    """
    arrays = [step.operand for step in steps if step.operand is not None]
    ones = (1,) * axes
    if any(x.size != channels or x.ndim <= axes or (channels, *ones) != tuple(x.shape[-1 - axes :]) for x in arrays):
        return None
    return [x.reshape(-1) for x in arrays]


# ---- by the array library


def compute(runtime: Runtime, x: DeviceArray, steps: Sequence[Operation]) -> DeviceArray:
    """Compute the prologue by the array library, in the dtype of `x`; in a dry run return an array like the result."""
    if not steps:
        return x
    if dry_run.asking.get():
        return runtime.device.empty(tuple(x.shape), x.dtype)
    return apply_steps(runtime.device, x, tuple(steps), x.dtype, x.dtype)


def apply_prologue(runtime: Runtime, x: DeviceArray, items: Items | None) -> DeviceArray:
    """Apply `prologue=` to `x`, for calls that no kernel with a prologue serves."""
    return compute(runtime, x, read(runtime, x, items))


def _first_operand(runtime: Runtime, a: DeviceArray, b: DeviceArray, steps: Sequence[Operation]) -> DeviceArray:
    """Return the first operand of a product after the prologue, in the promoted dtype of real operands."""
    return compute(runtime, a if _is_complex(a, b) else a.astype(np.promote_types(a.dtype, b.dtype), copy=False), steps)


def _is_complex(a: DeviceArray, b: DeviceArray) -> bool:
    return "c" in (a.dtype.kind, b.dtype.kind)


# ---- products


def product(
    runtime: Runtime,
    a: DeviceArray,
    b: DeviceArray,
    items: Items | None,
    out: DeviceArray,
    steps: tuple[Operation, ...],
    dtype: DTypeLike | None,
    precision: str | None,
) -> DeviceArray:
    """Compute a matmul or linear with a prologue; `steps` are its epilogue."""
    before = read(runtime, a, items)
    runtime.check(a, b, out, steps, precision)
    fits = before and b.ndim > 1 and not _is_complex(a, b)
    vectors = vectors_of(before, a.shape[-1], 0) if fits else None
    if dtype is None and out is not None:
        dtype = wider(a, b, out)
    parameters = Prologue.of(before, dtype)
    if vectors is None or parameters is None:
        return runtime.call(_first_operand(runtime, a, b, before), b, out, steps, dtype, precision)
    return runtime.serve(PROLOGUE, (a, b, *vectors), parameters, out, steps, precision)


def wider(a: DeviceArray, b: DeviceArray, out: DeviceArray) -> Any:
    """Return the dtype of `out` if it is a wider one that kernels write, as in matmul, else None."""
    found = resolve(a, b, out, ()).dtype
    return None if found == np.promote_types(a.dtype, b.dtype) else found


# ---- contractions


def contraction(
    runtime: Runtime,
    form: Form,
    a: DeviceArray,
    b: DeviceArray,
    items: Items | None,
    dtype: DTypeLike | None = None,
    out: DeviceArray = None,
) -> DeviceArray:
    """Compute the contraction of `a`, after `prologue=`, and `b` that `form` names (contractions/spec.py)."""
    before = read(runtime, a, items)
    runtime.check(a, b, out, (), None)
    return contract(runtime, form, a, b, before, (), dtype, out)


def contract(
    runtime: Runtime,
    form: Form,
    a: DeviceArray,
    b: DeviceArray,
    before: Sequence[Operation],
    steps: tuple[Operation, ...],
    dtype: DTypeLike | None = None,
    out: DeviceArray = None,
) -> DeviceArray:
    """Compute a contraction with the prologue `before` and the epilogue `steps`."""
    shapes = tuple(None if step.operand is None else step.operand.shape for step in before)
    scalars = tuple((step.name, step.scalar) for step in before)
    key = key_of_several("prologue", (a, b), form, dtype, scalars, shapes)
    (fused,) = runtime.remember(key, lambda: (_fuse(runtime, form, a, b, before, dtype),))
    if fused is not None:
        check_out(out, fused.lowered)
        return Operands((), out, ()).give(fused.run(runtime, a, b, before, steps))
    return runtime.contract(form, _first_operand(runtime, a, b, before), b, out, dtype, steps)


@dataclass(frozen=True)
class FusedContraction:
    """A contraction that kernels compute with its prologue, whose arrays become vectors along the summed axes."""

    lowered: Lowered
    parameters: Prologue

    def run(
        self,
        runtime: Runtime,
        a: DeviceArray,
        b: DeviceArray,
        before: Sequence[Operation],
        steps: tuple[Operation, ...],
    ) -> DeviceArray:
        """Return the result, a new array or a transposed view of one; `steps` are the epilogue of its product."""
        layout, xp = self.lowered.layout, runtime.device.xp
        assert layout is not None
        labels = self.lowered.subscripts.operands[0]
        arrays = [step.operand for step in before if step.operand is not None]
        vectors = [_vector(xp, x, labels, a.shape, layout.summed) for x in arrays]
        result = runtime.device.empty(layout.allocated, self.lowered.dtype)
        x, y, z = _window(xp, a, layout.a), _window(xp, b, layout.b), _window(xp, result, layout.c)
        aligned = tuple(
            step if step.operand is None else step._replace(operand=self._align(xp, step.operand)) for step in steps
        )
        runtime.serve(PROLOGUE, (x, y, *vectors), self.parameters, z, aligned)
        return result if layout.order is None else result.transpose(layout.order)

    def _align(self, xp: Namespace, array: DeviceArray) -> DeviceArray:
        """Return an epilogue's array as a window with the axes of the product's result; copied if it has gaps there."""
        found, layout = self.lowered, self.lowered.layout
        assert layout is not None
        full = xp.broadcast_to(array, found.shape)
        try:
            steps = steps_along(full.shape, full.strides, found)
        except UnsupportedError:
            order = layout.order or tuple(range(len(layout.allocated)))
            full = xp.ascontiguousarray(full.transpose([int(axis) for axis in np.argsort(order)]))
            scale = array.dtype.itemsize / found.dtype.itemsize
            steps = tuple(int(stride * scale) for stride in layout.c.strides)
        return _window(xp, full, Window(layout.c.shape, steps))


def _window(xp: Namespace, array: DeviceArray, found: Window) -> DeviceArray:
    """Return the view of an array that a Window describes."""
    return xp.lib.stride_tricks.as_strided(array, found.shape, found.strides)


def _fuse(
    runtime: Runtime, form: Form, a: DeviceArray, b: DeviceArray, before: Sequence[Operation], dtype: DTypeLike | None
) -> FusedContraction | None:
    """Return the contraction with this prologue as kernels compute it, or None if they do not."""
    arrays = [step.operand for step in before if step.operand is not None]
    if not before or _is_complex(a, b):
        return None
    if {a.dtype.name, b.dtype.name} & set(EIGHT_BIT_FLOATS):  # no kernel takes them, and NumPy cannot stride them
        return None
    found = lower(form, strided(a), strided(b), None if dtype is None else named_dtype(dtype), turning=False)
    unworthy = "" if runtime.device.emulated else found.unworthy
    if found.layout is None or unworthy:
        return None
    labels = found.subscripts.operands[0]
    if not set(labels).issuperset(found.layout.summed):  # axes of b alone are summed
        return None
    if any(not _runs_along(x.shape, labels, found.layout.summed) for x in arrays):
        return None
    parameters = Prologue.of(before, found.given)
    return None if parameters is None else FusedContraction(found, parameters)


def _runs_along(shape: Sequence[int], labels: Labels, summed: Labels) -> bool:
    """Return whether an array that broadcasts to an operand with these labels is a vector along the summed axes."""
    own = [label for extent, label in zip(shape[::-1], labels[::-1], strict=False) if extent != 1]
    return len(set(own)) == len(own) and set(own) <= set(summed)


def _vector(xp: Namespace, array: DeviceArray, labels: Labels, shape: Sequence[int], summed: Labels) -> DeviceArray:
    """Return a prologue's array with one element per position along the axes `summed`, in their order."""
    extents = dict(zip(labels, shape, strict=True))
    placed = {label: axis for axis, label in enumerate(labels[len(labels) - array.ndim :]) if array.shape[axis] != 1}
    kept = array.reshape([array.shape[axis] for axis in placed.values()])
    order = [label for label in summed if label in placed]
    turned = kept.transpose([list(placed).index(label) for label in order])
    wide = turned.reshape([extents[label] if label in placed else 1 for label in summed])
    return xp.broadcast_to(wide, [extents[label] for label in summed]).reshape(-1)


# ---- convolutions


def convolution(
    runtime: Runtime, x: DeviceArray, w: DeviceArray, items: Items | None, p: Parameters
) -> tuple[Any, tuple[Any, ...], PrologueParameters | None]:
    """Return (image, vectors, parameters) of a convolution with `prologue=`.

    If no kernel takes the prologue, it is applied to the image, and vectors and parameters are empty.
    """
    axes = len(ones(p))
    before = tuple(_per_channel(step, axes) for step in _parse(items))
    check(runtime, x, before)
    runtime.check(x, w, None, (), None)
    channels = x.shape[IMAGES[p.layout][3]] if x.ndim == 4 else 0
    vectors = vectors_of(before, channels, axes) if before and not _is_complex(x, w) else None
    found = Prologue.of(before)
    if vectors is None or found is None:
        return compute(runtime, x, before), (), None
    return x, tuple(vectors), PrologueParameters(found, p)


def _per_channel(step: Operation, axes: int) -> Operation:
    """Return an operation whose one-dimensional array is reshaped to one element per channel."""
    if getattr(step.operand, "ndim", 0) != 1:
        return step
    return step._replace(operand=step.operand.reshape(-1, *(1,) * axes))
