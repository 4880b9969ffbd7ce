"""Products of operands in block-scaled formats (MXFP8, MXFP4, NVFP4), and the conversion to and from them.

Dequantising has no kernel: it is made of the array library's operations, for NumPy too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels import spelling
from gensor_kernels.arrays import Dtype, Namespace
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.pointwise import block_formats
from gensor_kernels.operators.pointwise.block_formats import LARGEST
from gensor_kernels.operators.products import quantised
from gensor_kernels.operators.products.quantised import FORMATS, Format
from gensor_kernels.operators.types.dtypes import FLOAT4, PACKED, facts, float8_values
from gensor_kernels.operators.types.workload import View, Workload, alignment_class
from gensor_kernels.shown import shown

from .base import (
    AbstractCall,
    Copy,
    Function,
    Inputs,
    KernelCall,
    LibraryCall,
    NeedsCopies,
    Result,
    compact,
    multiply_into,
)
from .low_precision_matmul import folds, row_strides, rows_of

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: Bytes that divide the addresses and the rows that kernels copy to shared memory.
COPIED = 4


def format_of(name: str) -> Format:
    """Return the Format of a name; ValueError with similar names for another."""
    if not isinstance(name, str) or name not in FORMATS:
        raise ValueError(f"format {spelling.unknown(name, FORMATS) if isinstance(name, str) else shown(name)}")
    return FORMATS[name]


# ---- conversions


def dequantise(xp: Namespace, elements: DeviceArray, scales: DeviceArray, form: Format, dtype: Dtype) -> DeviceArray:
    """Return the numbers (..., k), of a floating-point dtype, of bytes and their scales (..., groups)."""
    stored = elements.view(np.uint8)
    if form.element in PACKED:
        stored = xp.stack([stored & 15, stored >> 4], axis=-1).reshape(*stored.shape[:-1], 2 * stored.shape[-1])
    table = FLOAT4 if form.element in PACKED else float8_values(form.element)
    factors = xp.asarray(float8_values(form.scale).astype(dtype))[scales.view(np.uint8)]
    which = xp.arange(stored.shape[-1]) // form.group
    with np.errstate(over="ignore", invalid="ignore"):
        return xp.asarray(table.astype(dtype))[stored] * factors[..., which]


def tensor_scale(xp: Namespace, x: DeviceArray) -> DeviceArray:
    """Return NVFP4's scale of float32 numbers, which brings the largest finite number to the largest scale and element;
    1 for zeros."""
    finite = xp.where(xp.isfinite(x), xp.abs(x), np.float32(0))
    largest = finite.max() if x.size else xp.zeros((), np.float32)
    scale = largest / np.float32(LARGEST["float4_e2m1fn_x2"] * LARGEST["float8_e4m3fn"])
    return xp.where(scale > 0, scale, np.float32(1))


@dataclass(frozen=True)
class Rounded:
    """The name of the format that numbers are rounded to."""

    format: str

    @property
    def operator(self) -> str:
        """The operator's name."""
        return f"quantise_{self.format}"


class Quantisation(Function):
    """The elements of (x, scale of the tensor of NVFP4, scales); the scales are written, and x has whole blocks."""

    name = "quantize"
    stands_in = False  # there is no product in it at which the library could be faster

    def result(self, inputs: Inputs, parameters: Rounded) -> Result:
        """Return the bytes of elements."""
        *rows, k = inputs[0].shape
        return Result((*rows, k * FORMATS[parameters.format].bits // 8), np.dtype(np.uint8))

    def written(self, inputs: Inputs, parameters: Rounded) -> Inputs:
        """Return the scales."""
        return inputs[-1:]

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take x without gaps; copy others."""
        x = call.inputs[0]
        if x is not None and x.strides != compact(x).view(x).strides:
            raise NeedsCopies(compact(x), *[None] * len(call.inputs[1:]))
        name = call.parameters.operator
        views = dict(zip(operator(name).names, (*call.given, call.out), strict=True))
        return KernelCall.of_views(block_formats.workload_from_views(name, views), views)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return operands in the order of the arguments."""
        inputs = tuple(arrays[name] for name in "abl" if name in arrays)
        return LibraryCall(inputs, Rounded(workload.operator.partition("_")[2]), lambda bits: bits.view(np.int8))

    def library(
        self, device: Backend, inputs: Inputs, p: Rounded, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Compute elements and scales by operations on whole arrays."""
        x, *alpha, scales = inputs
        x, factor = x.astype(np.float32, copy=False), alpha[0].reshape(()) if alpha else np.float32(1)
        elements, found = block_formats.quantise(device.xp, x, FORMATS[p.format], factor)
        scales[...] = found.reshape(scales.shape).view(np.int8)  # into arrays of uint8, and those of a Workload
        return elements


QUANTISATION = Quantisation()


# ---- products


@dataclass(frozen=True)
class Formatted:
    """The name of a product's format, and the dtype of its result where it is not x's."""

    format: str
    dtype: Dtype | None = None

    def check(self, function: str, inputs: Inputs) -> None:
        """Raise ValueError and TypeError for (x, w, scales of w, scales of x or None) that do not fit together."""
        (x, w, scales, own), form = inputs, format_of(self.format)
        check_stored(f"{function}: {self.format} weights", w, scales, form)
        k = w.shape[1] * 8 // form.bits
        if own is None:
            if x.ndim == 0 or x.shape[-1] != k or x.dtype.kind not in "fV":
                raise ValueError(
                    f"{function}: x is (..., {k}) of floating-point numbers, not {x.dtype}{tuple(x.shape)}"
                )
            return
        check_stored(f"{function}: {self.format} operands", x, own, form)
        if x.shape[-1] != w.shape[-1]:
            raise ValueError(f"{function}: rows of {x.shape[-1]} and {w.shape[-1]} bytes have different numbers of k")


def check_stored(what: str, elements: DeviceArray, scales: DeviceArray, form: Format) -> None:
    """Raise TypeError and ValueError for arrays that are no elements (..., bytes of k) and scales (..., groups)."""
    for name, array, held in (("elements", elements, form.element), ("scales", scales, form.scale)):
        if array.dtype.name not in ("uint8", held):
            raise TypeError(f"{what} have {name} of uint8 or {held}, not {array.dtype}")
    if elements.ndim == 0:
        raise ValueError(f"{what} have an axis at least")
    k = elements.shape[-1] * 8 // form.bits
    wanted = (*elements.shape[:-1], quantised.groups_of(k, form.group))
    if tuple(scales.shape) != wanted:
        raise ValueError(f"{what} of {k} numbers have scales {wanted}, not {tuple(scales.shape)}")


class FormattedProduct(Function):
    """`x @ w.T` of (x, w, scales of w, scales of x or None); `parameters` is a Formatted."""

    def __init__(self, name: str) -> None:
        """Make the implementation of a public function."""
        self.name = name

    def result(self, inputs: Inputs, parameters: Formatted) -> Result:
        """Return (..., out); ValueError and TypeError for operands that do not fit."""
        parameters.check(self.name, inputs)
        x, w = inputs[:2]
        dtype = np.dtype(x.dtype) if parameters.dtype is None else parameters.dtype
        if dtype.kind != "f" and dtype.name != "bfloat16":
            raise TypeError(f"a product of {parameters.format} is no {dtype}")
        return Result((*x.shape[:-1], w.shape[0]), dtype)

    def op(self, parameters: Formatted) -> str:
        """Return the operator's name."""
        return quantised.name_of(0, False, parameters.format, self.name == "scaled_matmul")

    def nothing(self, inputs: Inputs, parameters: Formatted) -> float | None:
        """Return zeros where rows have no elements."""
        return 0.0 if inputs[0].shape[-1] == 0 else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take rows that are runs in memory, at multiples of 4 bytes; copy others."""
        x, w, scales, *own = call.given
        copies = [_copied(x), _copied(w), None, compact(own[0]) if own and not folds(own[0]) else None]
        if any(copies):
            raise NeedsCopies(*copies)
        views = {"a": rows_of(x), "b": w, "d": scales}
        views |= {"e": rows_of(own[0])} if own else {}
        views["c"] = rows_of(call.out)
        form = call.parameters.format
        k = w.shape[1] * 8 // FORMATS[form].bits
        workload = quantised.formatted_from_views(views, form, k, call.epilogue)
        return KernelCall.of_views(workload, views, declared=partial(row_strides, call.out))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return operands in the order of the arguments."""
        inputs = (arrays["a"], arrays["b"], arrays["d"], arrays.get("e"))
        form = workload.operator.rpartition("matmul_")[2]
        return LibraryCall(inputs, Formatted(form, arrays["c"].dtype))

    def library(
        self, device: Backend, inputs: Inputs, p: Formatted, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Dequantise in float32, or the wider type of x or of the result, and multiply."""
        (x, w, scales, own), form = inputs, FORMATS[p.format]
        wider = x.dtype if own is None else p.dtype or np.float32
        wide = np.result_type(np.float32, wider)
        weights = dequantise(device.xp, w, scales, form, wide)
        x = x.astype(wide, copy=False) if own is None else dequantise(device.xp, x, own, form, wide)
        return multiply_into(device, x, weights.T, math, out)


#: By the name of the public function.
FORMATTED = {name: FormattedProduct(name) for name in ("linear", "scaled_matmul")}


def _copied(view: View) -> Copy | None:
    """Return the copy whose rows kernels can read, or None; UnsupportedError where no copy helps."""
    known = view._replace(dtype="int8") if view.dtype == "uint8" else view
    if view.shape[-1] * facts(known.dtype).itemsize % COPIED:
        raise UnsupportedError(f"kernels read rows of whole {COPIED} bytes, not {view.shape[-1]} of {view.dtype}")
    reads = view.strides[-1] == 1 and folds(known) and alignment_class(rows_of(known), 1) >= COPIED
    return None if reads else compact(view)
