"""Products of 8-bit floats with scales per block: what a call means to kernels, and the same from the array library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators import operator
from gensor_kernels.operators.products.block_scaled import BLOCK, NAME, blocks_of, workload_from_views
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS, facts
from gensor_kernels.operators.types.workload import View, Workload, alignment_class

from .base import Asked, Called, Copy, Function, Result, Staged, Understood, convert
from .mixed_input import Stored, names, reinterpret, widen
from .quantised import plain, rows_of

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: Bytes that divide the addresses and the rows that tensor copies read.
COPIED = 16


class ScaledProduct(Function):
    """`(a * scales) @ (b * scales)` of (a, b, scales of a, scales of b); `parameters` is a Stored."""

    name = "scaled_matmul"

    def result(self, inputs: Sequence[DeviceArray], parameters: Stored) -> Result:
        """Return (..., n) of `dtype`, by default float32; ValueError or TypeError if operands do not fit."""
        a, b, *scales = inputs
        if a.ndim == 0 or b.ndim != 2 or a.shape[-1] != b.shape[0]:
            raise ValueError(f"scaled_matmul takes a (..., k) and b (k, n), not {tuple(a.shape)} and {tuple(b.shape)}")
        types = names((a, b), parameters)
        if not set(types) <= set(EIGHT_BIT_FLOATS):
            words = "scaled_matmul takes 8-bit floats, in uint8 arrays with dtype_a and dtype_b"
            raise TypeError(f"{words}, not {types[0]} and {types[1]}")
        (k, n), lead = b.shape, tuple(a.shape[:-1])
        shapes = (*lead, blocks_of(k)), (blocks_of(k), blocks_of(n))
        for name, scale, shape in zip(("scale_a", "scale_b"), scales, shapes, strict=True):
            if tuple(scale.shape) != shape:
                raise ValueError(f"{name} has the shape {tuple(scale.shape)}: blocks of {BLOCK} elements take {shape}")
            if scale.dtype.kind != "f" and scale.dtype.name != "bfloat16":
                raise TypeError(f"{name} holds floating-point numbers, not {scale.dtype}")
        dtype = np.dtype(np.float32) if parameters.dtype is None else parameters.dtype
        if dtype.kind != "f" and dtype.name != "bfloat16":
            raise TypeError(f"a product of {types[0]} and {types[1]} is no {dtype}")
        return Result((*lead, n), dtype)

    def op(self, parameters: Any) -> str:
        """Return the operator's name."""
        return NAME

    def nothing(self, inputs: Sequence[DeviceArray], parameters: Stored) -> float | None:
        """Return zero where rows have no elements."""
        return 0.0 if inputs[0].shape[-1] == 0 else None

    def understand(self, asked: Asked) -> Understood:
        """Rows along k that tensor copies read; others are copied, as are scales that are not float32."""
        a, b, scale_a, scale_b = asked.inputs
        assert a is not None and b is not None and scale_a is not None and scale_b is not None
        if a.shape[-1] % COPIED:
            raise UnsupportedError(f"scaled_matmul: kernels take multiples of {COPIED} as k, not {a.shape[-1]}")
        first, second = asked.parameters.dtype_a or a.dtype, asked.parameters.dtype_b or b.dtype
        left, right = reinterpret(a, first), reinterpret(_turn(b), second)
        copies = [None if _is_read(left) else plain(a), None if _is_read(right) else Copy(b.dtype, (1, 0))]
        copies.append(convert(scale_a, "float32") if _folds(scale_a) else plain(scale_a, "float32"))
        copies.append(convert(scale_b, "float32"))
        if any(copies):
            raise Staged(*copies)
        out = rows_of(asked.out)
        if out.strides[0] < 0:  # tensor copies, which would store aligned rows, only go forward
            out = out._replace(alignment=facts(out.dtype).itemsize)
        views = {"a": rows_of(left), "b": right, "d": rows_of(scale_a), "e": _turn(scale_b), "c": out}
        workload = workload_from_views(views, [step.name for step in asked.steps])
        declared = operator(NAME)
        geometry = declared.geometry(workload, {name: view.strides for name, view in views.items()})
        operands = tuple(None if v is None else declared.output(workload, rows_of(v).strides) for v in asked.operands)
        return Understood(workload, geometry, operands=operands)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> Called:
        """Return the arguments: b and its scales are declared transposed."""
        stored = [workload.dtype[name] if arrays[name].dtype.itemsize == 1 else None for name in "ab"]
        inputs = arrays["a"], arrays["b"].T, arrays["d"], arrays["e"].T
        return Called(inputs, Stored(stored[0], stored[1], arrays["c"].dtype))

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Stored, math: str | None) -> Any:
        """Multiply the operands, dequantised in float32, by the array library."""
        xp, (a, b, scale_a, scale_b) = device.xp, inputs
        types, wide = names((a, b), parameters), np.dtype(np.float32)
        if not set(types) <= set(EIGHT_BIT_FLOATS):  # numbers that were widened before
            wide = np.result_type(wide, a.dtype, b.dtype)
        step, panel = (xp.arange(extent) // BLOCK for extent in b.shape)
        along_k = (*(slice(None) for _ in a.shape[:-1]), step)
        a = widen(xp, a, types[0], wide) * scale_a.astype(wide, copy=False)[along_k]
        b = widen(xp, b, types[1], wide) * scale_b.astype(wide, copy=False)[step][:, panel]
        return device.product(a, b, math)


SCALED_PRODUCT = ScaledProduct()


def _turn(view: View) -> View:
    """Return the View of a transposed matrix."""
    return View(view.shape[::-1], view.strides[::-1], view.dtype, view.alignment)


def _folds(view: View) -> bool:
    """Whether the leading axes follow each other evenly, as rows."""
    try:
        return bool(rows_of(view))
    except UnsupportedError:
        return False


def _is_read(view: View) -> bool:
    """Whether tensor copies can read the rows of an array of 8-bit floats."""
    if not _folds(view):
        return False
    rows = rows_of(view)
    return rows.strides[1] == 1 and (rows.shape[0] == 1 or rows.strides[0] > 0) and alignment_class(rows, 1) == COPIED
