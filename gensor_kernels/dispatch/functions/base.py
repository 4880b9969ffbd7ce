"""The contract of a Function: how a public call is lowered to kernels, and computed by the array library.

A Function lowers a call to a Workload (`lower`) and computes it with the array library (`library`). The plan stack
(dispatch/plans) does the rest: keys, tiers, copies, races, launches, and the library where no kernel serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.calls.arguments import Operands, Operation, check_operands, check_steps
from gensor_kernels.dispatch.calls.array import Backend, DeviceArray
from gensor_kernels.dispatch.calls.fallback import apply_steps
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import View, Workload

if TYPE_CHECKING:
    from gensor_kernels.machine.arch import Arch

#: Why no kernel serves a sum over an axis of extent 0.
SUMS_OF_NOTHING = "the sums have no terms"

Steps = tuple[Operation, ...]
Inputs = Sequence[DeviceArray]


@dataclass(frozen=True)
class Result:
    """Shape and dtype of a call's result; ``order`` lists the axes of a new one from the outermost to the innermost."""

    shape: tuple[int, ...]
    dtype: Dtype
    order: tuple[int, ...] | None = None

    @property
    def allocated(self) -> tuple[int, ...]:
        """The shape in the order of memory, in which a new result is allocated."""
        return self.shape if self.order is None else tuple(self.shape[axis] for axis in self.order)

    @property
    def transposition(self) -> tuple[int, ...] | None:
        """The axes that transpose an allocated array into the result, or None if nothing is to be transposed."""
        return None if self.order is None else inverse(self.order)

    def new(self, device: Device) -> DeviceArray:
        """Allocate a new array, not initialised."""
        array = device.empty(self.allocated, self.dtype)
        return array if self.order is None else array.transpose(inverse(self.order))

    def view(self) -> View:
        """Return the View that such an array is to a kernel."""
        strides, step = [0] * len(self.shape), 1
        for axis in reversed(self.order or range(len(self.shape))):
            strides[axis] = step
            step *= self.shape[axis]
        return View(self.shape, tuple(strides), self.dtype.name)


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


@dataclass(frozen=True)
class AbstractCall:
    """A call with Views in place of arrays.

    ``operands`` are those of the epilogue, broadcast to the result's shape. ``fresh``: the output is a new array with
    the layout of the result. ``emulated``: the device has no array library. ``arch``: the part, where it is known.
    """

    inputs: tuple[View | None, ...]
    out: View
    parameters: Any
    steps: Steps
    operands: tuple[View | None, ...]
    result: Any
    math: str
    fresh: bool = True
    emulated: bool = False
    arch: Arch | None = None

    @property
    def given(self) -> tuple[View, ...]:
        """The inputs that the call has, without those it leaves out."""
        return tuple(view for view in self.inputs if view is not None)

    @property
    def epilogue(self) -> list[str]:
        """Names of the epilogue's operations."""
        return [step.name for step in self.steps]

    def math_of_floats(self, dtype: str) -> str:
        """Return the mode of products of real floats of this dtype: TF32 is for float32 alone."""
        return "tf32" if dtype == "float32" and self.math == "tf32" else "ieee"


@dataclass(frozen=True)
class KernelCall:
    """A call as kernels compute it: a Workload and the strides of its operands.

    ``declared`` maps strides along the result's axes to strides along the axes that the operator declares; it also
    gives the strides of the epilogue's operands, unless ``operands`` has them. ``windows`` are the matrices that a
    contraction reads and writes, for `explain`.
    """

    workload: Workload
    geometry: Geometry
    declared: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda strides: strides
    operands: tuple[Strides | None, ...] | None = None
    windows: tuple[View, ...] = ()

    @classmethod
    def of_views(
        cls,
        workload: Workload,
        views: Mapping[str, View],
        *more: Any,
        declared: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda strides: strides,
    ) -> KernelCall:
        """Return the call of arrays by operand name; `more` are arguments of the operator's geometry."""
        find_geometry: Any = operator(workload.operator).geometry
        geometry = find_geometry(workload, {name: view.strides for name, view in views.items()}, *more)
        return cls(workload, geometry, declared)


class Copying(Protocol):
    """A copy of an input whose layout no kernel takes."""

    def view(self, view: View) -> View:
        """Return the View of the copy of an input with this View."""

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Make the copy."""


@dataclass(frozen=True)
class Copy:
    """A copy with a dtype and an order of axes in memory, the outermost first; broadcast to ``shape`` if given."""

    dtype: str
    order: tuple[int, ...]
    shape: tuple[int, ...] | None = None

    def view(self, view: View) -> View:
        """Return the View of the copy."""
        return Result(view.shape if self.shape is None else self.shape, array_dtype(self.dtype), self.order).view()

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Make the copy."""
        whole = array if self.shape is None else device.xp.broadcast_to(array, self.shape)
        copied = device.xp.array(whole.transpose(self.order), dtype=array_dtype(self.dtype), order="C", copy=True)
        return copied.transpose(inverse(self.order))


def compact(view: View, dtype: str | None = None) -> Copy:
    """Return the Copy without gaps and with the last axis innermost."""
    return Copy(dtype or view.dtype, tuple(range(len(view.shape))))


def convert(view: View, dtype: str) -> Copy | None:
    """Return the Copy that converts an input and keeps the order of its axes in memory, or None for the same dtype."""
    return None if view.dtype == dtype else Copy(dtype, memory_order(view.strides))


def memory_order(strides: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of an array from the outermost to the innermost in memory."""
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


@dataclass(frozen=True)
class Spread:
    """A copy of an epilogue operand: axes of the result, the outermost first in memory, which of them it keeps, and its
    dtype."""

    order: tuple[int, ...]
    own: tuple[bool, ...]
    dtype: Dtype

    def result(self, shape: Sequence[int]) -> Result:
        """Return shape and layout of the copy, for a result of `shape`."""
        extents = tuple(extent if own else 1 for extent, own in zip(shape, self.own, strict=True))
        return Result(extents, self.dtype, self.order)

    def view(self, shape: tuple[int, ...]) -> View:
        """Return the View of the copy, broadcast to `shape`."""
        copy = self.result(shape).view()
        strides = tuple(stride if own else 0 for stride, own in zip(copy.strides, self.own, strict=True))
        return View(shape, strides, copy.dtype, copy.alignment)

    def make(self, device: Device, operand: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
        """Make the copy of an operand that broadcasts to `shape`."""
        copy = self.result(shape).new(device)
        cut = tuple(slice(None) if own else slice(1) for own in self.own)
        copy[...] = device.xp.broadcast_to(operand, shape)[cut]
        return copy


class NeedsCopies(Exception):
    """Raised by `Function.lower` for inputs that must be copied before the call is lowered again.

    ``copies`` has one entry per input, None for those that are not copied. ``parameters`` replace those of the call,
    unless they are None. ``after`` makes the result of this call of that of the new one, whose View is ``out`` unless
    it is None.
    """

    def __init__(
        self,
        *copies: Copying | None,
        words: str = "operands are copied",
        parameters: Any = None,
        after: After | None = None,
        out: View | None = None,
    ):
        super().__init__(words)
        self.copies, self.words, self.parameters, self.after, self.out = copies, words, parameters, after, out


#: After(device, value, result, out) returns the result of a call, in `out` where there is one.
After = Callable[[Device, Any, Result, DeviceArray], Any]


def round_result(device: Device, value: DeviceArray, result: Result, out: DeviceArray) -> DeviceArray:
    """Round the result of a call with a wider dtype; see NeedsCopies."""
    return Operands((), out, ()).give(value.astype(result.dtype, copy=False))


@dataclass(frozen=True)
class LibraryCall:
    """Arguments with which a Function computes a Workload, and the map from its result's axes to the declared ones.

    `own` is the inverse map, of an array that the library can write to.
    """

    inputs: tuple[Any, ...]
    parameters: Any
    declared: Callable[[Any], Any] = lambda value: value
    own: Callable[[Any], Any] = lambda output: output


def multiply_into(device: Backend, a: DeviceArray, b: DeviceArray, math: str | None, out: DeviceArray) -> DeviceArray:
    """Return the library's product of operands of one dtype, in an `out` of this dtype."""
    return device.product(a, b, math, out if out is not None and out.dtype == a.dtype else None)


def given_dtype(arrays: Mapping[str, DeviceArray]) -> Dtype | None:
    """Return the dtype of the result c as a caller gives it: None if it is that of the operand a."""
    return None if arrays["c"].dtype == arrays["a"].dtype else arrays["c"].dtype


class Function:
    """The implementation of a public function."""

    name: str
    #: names of the inputs in error messages, where the public function has them
    arguments: tuple[str, ...] = ()
    #: whether it is one call of the array library
    one_call = False
    #: whether the library's calls serve where a kernel is predicted to take longer (plans/unfused.py)
    stands_in = True
    #: whether the library's calls wait for the device, which this function promises not to do: they have no predicted
    #: time
    waits = False

    def result(self, inputs: Inputs, parameters: Any) -> Any:
        """Return the Result of a call; ValueError and TypeError for arguments that do not fit."""
        raise NotImplementedError

    def check(self, result: Any, out: DeviceArray, steps: Steps) -> None:
        """Raise ValueError or TypeError for an `out` or an epilogue that does not fit the result."""
        check_operands(steps, result.shape)
        check_steps(steps, result.dtype)
        if out is not None:
            if tuple(out.shape) != result.shape:
                raise ValueError(f"out has shape {tuple(out.shape)}, the result {result.shape}")
            if not np.can_cast(result.dtype, out.dtype, "same_kind"):
                raise TypeError(f"out has dtype {out.dtype}, to which the result's {result.dtype} cannot be cast")

    def is_one_call(self, result: Any, steps: Steps) -> bool:
        """Return whether this call is one call of the array library."""
        return self.one_call and not steps

    def is_substitute(self, result: Any) -> bool:
        """Return whether the library's calls may serve where a kernel is predicted to take longer."""
        return self.stands_in and not self.waits

    def timing_name(self, library: str) -> str:
        """Return the name under which times of the array library's calls are stored."""
        return f"{library}: {self.name}"

    def op(self, parameters: Any) -> str:
        """Return the operator a call is of, as shapes files name it, whatever its arrays."""
        named = getattr(parameters, "operator", None)
        return named if isinstance(named, str) else self.name

    def cells(self, result: Any) -> dict[str, object]:
        """Return the sizes and dtypes of a call that forms no Workload, for recordings; empty for shapes alone."""
        return {}

    def written(self, inputs: Inputs, parameters: Any) -> Inputs:
        """Return the inputs that a call writes beyond its result: the last one, or none."""
        return ()

    def fill(self, inputs: Inputs, parameters: Any) -> None:
        """Write what a call computes beyond its result, where `nothing` says what that is."""

    def lower(self, call: AbstractCall) -> KernelCall:
        """Lower a call; raise NeedsCopies, or UnsupportedError if no kernel takes it."""
        raise NotImplementedError

    def nothing(self, inputs: Inputs, parameters: Any) -> float | None:
        """Return the value of every element of the result where there is nothing to compute it from, else None.

        A Function whose calls have an epilogue sums, and returns 0.
        """
        return None

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the call that computes a Workload of arrays in their declared axes: the inverse of `lower`."""
        raise NotImplementedError

    def library(
        self, device: Backend, inputs: Inputs, p: Any, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Compute the result without an epilogue by the array library, in the dtype an epilogue is applied in.

        `p` are the parameters of the call, `math` the mode of its products, as public functions take it. `out` is an
        array of the result's shape and dtype that shares no memory with the inputs. Where the library can
        write to it, it is what is returned.
        """
        raise NotImplementedError

    def finish(
        self,
        device: Backend,
        value: DeviceArray,
        steps: Steps,
        parameters: Any,
        dtype: Dtype,
        out: DeviceArray = None,
    ) -> DeviceArray:
        """Apply the epilogue to what `library` returned, and convert to the result's dtype; into `out` if given."""
        if not steps and out is None and value.dtype == dtype:
            return value
        return apply_steps(device, value, steps, dtype, value.dtype, out)

    def by_library(
        self, device: Backend, operands: Operands, parameters: Any, result: Any, math: str | None
    ) -> DeviceArray:
        """Compute a whole call by the array library, into `out` where there is one: it shares no memory with the rest.

        The library itself writes to an `out` of the result's dtype; for other dtypes the result is rounded first.
        """
        out = operands.out if operands.out is not None and operands.out.dtype == result.dtype else None
        value = self.library(device, operands.inputs, parameters, math, None if operands.steps else out)
        if out is None or value is not out:
            value = self.finish(device, value, operands.steps, parameters, result.dtype, out)
        return value if operands.out is None else operands.give(value)

    def first_rows(self, operands: Operands, parameters: Any, count: int) -> Operands | None:
        """Return the operands of the call that computes the first `count` entries of the result's first axis, each of
        which takes as long; None where there is no such call."""
        return None

    def count_passes(
        self, device: Backend, operands: Operands, parameters: Any, result: Any, math: str | None
    ) -> DeviceArray:
        """Do what `by_library` does on arrays without memory that count operations (plans/unfused.py)."""
        return self.by_library(device, operands, parameters, result, math)
