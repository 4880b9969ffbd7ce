"""Products of groups that differ in their rows: their lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import WIDER_RESULTS
from gensor_kernels.operators.products import ragged
from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.operators.types.workload import Workload

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
    given_dtype,
)

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


class GroupedMatmul(Function):
    """x (m, k) by w (groups, k, n), the rows of a group by its matrix; `ends` (groups,) say where groups end."""

    name = "grouped_matmul"
    waits = True

    def result(self, inputs: Inputs, parameters: Any) -> Result:
        """Return (m, n) of the promoted dtype, or of the wider one in `parameters`; ValueError for misfits."""
        x, w, ends = inputs
        if x.ndim != 2 or w.ndim != 3 or x.shape[1] != w.shape[1]:
            raise ValueError(
                f"grouped_matmul takes x (m, k) and w (groups, k, n), not {tuple(x.shape)}, {tuple(w.shape)}"
            )
        if tuple(ends.shape) != (w.shape[0],) or ends.dtype.kind not in "iu":
            what = f"{ends.dtype} of the shape {tuple(ends.shape)}"
            raise ValueError(f"w has {w.shape[0]} groups: offsets and sizes have as many integers, not {what}")
        dtype = np.promote_types(x.dtype, w.dtype)
        if parameters is not None and parameters != dtype:
            if parameters.name not in WIDER_RESULTS.get(dtype.name, ()):
                raise TypeError(f"grouped_matmul of {dtype} gives no {parameters}")
            dtype = parameters
        return Result((x.shape[0], w.shape[2]), dtype)

    def nothing(self, inputs: Inputs, parameters: Any) -> float | None:
        """Return zeros where there are no groups, or no k."""
        return 0.0 if 0 in inputs[1].shape[:2] else None

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides; convert operands to the dtype of the product, and ends to int32."""
        x, w, ends = call.given
        own = np.promote_types(array_dtype(x.dtype), array_dtype(w.dtype)).name
        copies = [None if each.dtype == own else compact(each, own) for each in (x, w)]
        copies.append(None if ends.dtype == "int32" else Copy("int32", (0,)))
        if any(copies):
            raise NeedsCopies(*copies)
        views = {"a": x, "b": w, "c": call.out, "d": ends}
        math = call.math_of_floats(own)
        workload = ragged.workload_from_operands(*views.values(), math=math, epilogue=call.epilogue)
        return KernelCall.of_views(workload, views)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the operands as they are declared."""
        return LibraryCall((arrays["a"], arrays["b"], arrays["d"]), given_dtype(arrays))

    def library(
        self, device: Backend, inputs: Inputs, p: Any, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Compute one product per group, after reading the ends, which waits for the device."""
        x, w, ends = inputs
        own = np.promote_types(x.dtype, w.dtype)
        if p is not None and own == np.int8:
            own = np.dtype(np.int32)  # exact products, as the kernels' are
        x, w = x.astype(own, copy=False), w.astype(own, copy=False)
        value = out
        if value is None:
            value = device.xp.zeros((x.shape[0], w.shape[2]), own)
        else:
            value[...] = 0
        for group, (begin, end) in enumerate(ragged.spans(ends.tolist(), x.shape[0])):
            if end > begin:
                value[begin:end] = device.product(x[begin:end], w[group], math)
        return value


GROUPED_MATMUL = GroupedMatmul()
