"""Contractions of two arrays (einsum, tensordot, dot, ...): their lowering, and the same by the array library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gensor_kernels.arrays import ArrayLike, Dtype
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.calls.arguments import WIDER_RESULTS, Operands, check_operands, check_steps, math_of
from gensor_kernels.dispatch.calls.array import Backend, DeviceArray
from gensor_kernels.dispatch.calls.problem import multiply
from gensor_kernels.dispatch.contractions.axes import Strides, Window, strides_of
from gensor_kernels.dispatch.contractions.lowering import Lowered, StridedArray, lower
from gensor_kernels.dispatch.contractions.spec import VDOT, Form, library_call
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.expression.subscripts import Labels
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.operators.types.workload import View, contiguous

from .base import (
    SUMS_OF_NOTHING,
    AbstractCall,
    Copying,
    Function,
    Inputs,
    KernelCall,
    NeedsCopies,
    Result,
    Steps,
    convert,
    inverse,
    round_result,
)
from .complex_products import need_reals, of_labels, pays
from .matmul import check_int8_sum


class Spec(NamedTuple):
    """The parameters of a call: its form (contractions/spec.py), and the result's dtype where one is given."""

    form: Form
    dtype: Any = None


@dataclass(frozen=True)
class ContractionResult(Result):
    """The result of a contraction, and the product it becomes once its operands are staged."""

    lowered: Lowered = None  # type: ignore[assignment]
    product: Lowered = None  # type: ignore[assignment]

    @property
    def inputs(self) -> Dtype:
        """The dtype the product's operands are brought to."""
        return _inputs(self.lowered)


@dataclass(frozen=True)
class StridedCopy:
    """An operand that is copied to axes of these extents and strides (in elements), the last `sums` of them summed."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Dtype
    sums: int

    def view(self, view: View) -> View:
        """Return the View of the copy."""
        return contiguous(self.shape[: len(self.shape) - self.sums], self.dtype.name)

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Copy, or sum in at least float32."""
        xp = device.xp
        steps = tuple(stride * array.dtype.itemsize for stride in self.strides)
        bits = array.view(np.uint8) if array.dtype.itemsize == 1 else array  # NumPy cannot name float8_e5m2
        view = xp.lib.stride_tricks.as_strided(bits, self.shape, steps).view(array.dtype)
        if not self.sums:
            return xp.array(view, order="C", copy=True)
        if view.dtype.name == "bfloat16":
            view = view.astype(np.float32)
        kept = len(self.shape) - self.sums
        total = device.empty(self.shape[:kept], self.dtype)
        return xp.sum(view, axis=tuple(range(kept, len(self.shape))), dtype=self.dtype, out=total)


class Contraction(Function):
    """A sum of products over labelled axes; `parameters` is a Spec."""

    name = "contraction"
    arguments = ("a", "b")

    def result(self, inputs: Inputs, parameters: Spec) -> ContractionResult:
        """Return the shape that the form says, laid out in memory as the product writes it best."""
        lowered = product = lower(parameters.form, *map(strided, inputs), parameters.dtype)
        while product.is_staged:
            form, dtype = product.staged_form
            product = lower(form, *(_staging(product, number) for number in (0, 1)), dtype)
        order = None if product.layout is None else product.layout.order
        return ContractionResult(
            lowered.shape, lowered.dtype, None if order is None else inverse(order), lowered=lowered, product=product
        )

    def check(self, result: ContractionResult, out: DeviceArray, steps: Steps) -> None:
        """Raise ValueError for an `out` of another shape or dtype."""
        check_out(out, result)
        check_operands(steps, result.shape)
        check_steps(steps, result.dtype)

    def is_one_call(self, result: ContractionResult, steps: Steps) -> bool:
        """Return whether the library's function neither converts nor conjugates; its vdot conjugates by itself."""
        if steps or any(result.lowered.conjugated):
            return not steps and result.lowered.form == VDOT
        layout = result.product.layout
        batched = layout is not None and len(layout.c.shape) > 2
        # CuPy has no batched bfloat16, and converts batched float16 to float32 and back.
        return result.dtype == result.lowered.inputs and not (batched and result.dtype.name in ("float16", "bfloat16"))

    def is_substitute(self, result: ContractionResult) -> bool:
        """Return whether the library rounds no more often than a kernel."""
        return result.inputs.name not in ("float16", "bfloat16") or result.dtype == result.inputs

    def op(self, parameters: Spec) -> str:
        """Return einsum, whatever the function was called."""
        return "einsum"

    def nothing(self, inputs: Inputs, parameters: Spec) -> float | None:
        """Return 0 for sums without terms."""
        return 0.0 if lower(parameters.form, *map(strided, inputs), parameters.dtype).is_empty else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take windows on any strides; copy or sum operands with more axes than kernels take."""
        a, b = call.given
        spec: Spec = call.parameters
        out = None if call.fresh else _bytes(call.out)
        found = lower(spec.form, _view_layout(a), _view_layout(b), spec.dtype, out)
        reason = found.unfit or ("" if call.emulated else found.unworthy)
        if reason or found.is_empty:
            raise UnsupportedError(reason or SUMS_OF_NOTHING)
        if not call.fresh and found.dtype.name != call.out.dtype:
            raise UnsupportedError("a result that is rounded after the product")
        if found.is_staged:
            copies = [_gather(found, number) for number in (0, 1)]
            raise NeedsCopies(
                *copies,
                words=found.describe(),
                parameters=Spec(*found.staged_form),
                after=round_result if found.rounds_late else None,
            )
        inputs = _inputs(found)
        if a.dtype != inputs.name or b.dtype != inputs.name:
            form = ("labels", *found.subscripts.operands, found.subscripts.output, found.conjugated)
            copies_of = convert(a, inputs.name), convert(b, inputs.name)
            raise NeedsCopies(*copies_of, words="operands are converted", parameters=Spec(form, found.given))
        layout = found.layout
        if layout is not None and not call.steps:
            (*batch, m, k), n = layout.a.shape, layout.c.shape[-1]
            if pays((math.prod(batch), m, n, k), (inputs, found.dtype), call.math, call.arch):
                reals = of_labels(found, layout.swapped)
                if reals is not None:
                    raise need_reals(reals[0], Spec(reals[1]), found.shape)
        return self._product(call, found, inputs)

    def _product(self, call: AbstractCall, found: Lowered, inputs: Dtype) -> KernelCall:
        layout, (a, b) = found.layout, call.given
        assert layout is not None
        first, second = (b, a) if layout.swapped else (a, b)
        x, y = _window(first, layout.a), _window(second, layout.b)
        z = _window(call.out._replace(dtype=found.dtype.name), layout.c)
        check_int8_sum(inputs, found.dtype, x.shape[-1])
        flags = found.conjugated[::-1] if layout.swapped else found.conjugated
        operands = [None if view is None else _operand(view, found, z.shape) for view in call.operands]
        problem = multiply(x, y, z, operands, call.epilogue, math_of(inputs, call.math), flags)
        geometry = replace(problem.geometry, swapped=problem.geometry.swapped != layout.swapped)
        return KernelCall(problem.workload, geometry, operands=problem.operands, windows=(x, y, z))

    def library(
        self, device: Backend, inputs: Inputs, p: Spec, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Call the library's function of the same name."""
        return library_call(device.xp, p.form, inputs[0], inputs[1], None, p.dtype)

    def by_library(
        self, device: Backend, operands: Operands, parameters: Spec, result: ContractionResult, math: str | None
    ) -> DeviceArray:
        """Call the library's function, with its own `out` where it has one."""
        if operands.steps:
            return super().by_library(device, operands, parameters, result, math)
        (a, b), out = operands.inputs, operands.out
        # CuPy's dot takes contiguous results of the right dtype alone.
        fitting = out if out is not None and out.flags.c_contiguous and out.dtype == result.dtype else None
        found = library_call(device.xp, parameters.form, a, b, fitting, parameters.dtype)
        found = found if found.shape == result.shape else found.reshape(result.shape)
        return found if found is out else operands.give(found)

    def count_passes(
        self, device: Backend, operands: Operands, parameters: Spec, result: Any, math: str | None
    ) -> DeviceArray:
        """Multiply the windows: the library's functions transpose, and end in a product."""
        layout, (a, b) = result.product.layout, operands.inputs
        first, second = result.lowered.conjugated
        a, b = a.conj() if first else a, b.conj() if second else b
        a, b = (b, a) if layout.swapped else (a, b)
        a, b = device.xp.broadcast_to(a, layout.a.shape), device.xp.broadcast_to(b, layout.b.shape)
        value = device.product(a.astype(result.inputs, copy=False), b.astype(result.inputs, copy=False), math)
        return self.finish(device, value, operands.steps, parameters, result.dtype)


CONTRACTION = Contraction()


def _inputs(found: Lowered) -> Dtype:
    """Return the dtype that a product's operands are brought to."""
    wider = found.dtype.name in WIDER_RESULTS.get(found.inputs.name, ())
    return found.inputs if wider else found.dtype


def check_out(out: DeviceArray, result: Any) -> None:
    """Raise ValueError for an `out` of another shape or dtype than a result."""
    if out is not None and (out.dtype != result.dtype or tuple(out.shape) != tuple(result.shape)):
        said = f"{out.dtype} {tuple(out.shape)}, the result {result.dtype} {tuple(result.shape)}"
        raise ValueError(f"out is {said}")


def strided(array: ArrayLike | StridedArray) -> StridedArray:
    """Return shape, strides and dtype of an array."""
    return StridedArray(tuple(array.shape), tuple(array.strides), np.dtype(array.dtype))  # type: ignore[union-attr]


def _bytes(view: View) -> tuple[int, ...]:
    """Return the strides of a View in bytes."""
    size = array_dtype(view.dtype).itemsize
    return tuple(stride * size for stride in view.strides)


def _view_layout(view: View) -> StridedArray:
    return StridedArray(view.shape, _bytes(view), array_dtype(view.dtype))


def _window(view: View, window: Window) -> View:
    """Return the window on an array with this View."""
    size = array_dtype(view.dtype).itemsize
    return View(window.shape, tuple(stride // size for stride in window.strides), view.dtype, view.alignment)


def _gather(found: Lowered, number: int) -> Copying | None:
    """Return the copy or the sum that replaces an operand, or None for one that is used in place."""
    operand, kept, sums = found.operands[number], found.staging.labels[number], found.staging.sums[number]
    if kept is None:
        return None
    strides = strides_of(found.subscripts.operands[number], operand.shape, operand.strides)
    labels = (*kept, *sums)
    shape = tuple(found.extents[label] for label in labels)
    steps = tuple(strides[label] // operand.dtype.itemsize for label in labels)
    return StridedCopy(shape, steps, found.staged_dtype(number), len(sums))


def _staging(found: Lowered, number: int) -> StridedArray:
    """Return the layout of an operand after it was staged."""
    labels = found.staging.labels[number]
    if labels is None:
        return found.operands[number]
    dtype = found.staged_dtype(number)
    view = contiguous((found.extents[label] for label in labels), dtype.name)
    return StridedArray(view.shape, _bytes(view), dtype)


def _operand(view: View, found: Lowered, shape: tuple[int, ...]) -> View:
    """Return an epilogue operand along the axes of the product's result; UnsupportedError where it has gaps there."""
    return View(shape, steps_along(view.shape, view.strides, found), view.dtype, view.alignment)


def steps_along(shape: Sequence[int], strides: Sequence[int], found: Lowered) -> tuple[int, ...]:
    """Return the strides, along the axes of the product's result, of an array with the axes of the contraction's."""
    assert found.layout is not None
    named = strides_of(found.subscripts.output, shape, strides)
    return tuple(_step(run, named, found.extents) for run in found.layout.labels)


def _step(run: Labels, strides: Strides, extents: dict[int, int]) -> int:
    """Return the stride of several labels seen as one axis."""
    found, reach = None, 1
    for label in reversed([each for each in run if extents[each] != 1]):
        stride = strides.get(label, 0)
        if found is None:
            found = stride
        elif stride != found * reach:
            raise UnsupportedError("an epilogue operand with gaps along an axis of the product")
        reach *= extents[label]
    return found or 0
