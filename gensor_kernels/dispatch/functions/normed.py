"""Matrix products with normalised rows: their lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operation, resolve
from gensor_kernels.dispatch.calls.fallback import apply_steps, product_dtype
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import normed
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from .base import AbstractCall, Copy, Function, KernelCall, LibraryCall, NeedsCopies, Result
from .gated import fold_axes, inputs_of

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


class Norm(NamedTuple):
    """Parameters of a call: a norm and its eps, the number of operations before it, and the dtype of the result."""

    name: str
    eps: float
    before: int
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True)
class NormedProduct(Function):
    """after(norm(before(a b))) over the rows of the product of a (..., m, k) or (k,) and b (..., k, n)."""

    name: str = "matmul with a norm"

    def result(self, inputs: Sequence[DeviceArray], parameters: Norm) -> Result:
        """Return the Result of matmul; ValueError if b has no columns, TypeError if it is not of real floats."""
        a, b = inputs
        if b.ndim < 2:
            raise ValueError(f"{parameters.name} normalises rows of a product: b has columns, not {tuple(b.shape)}")
        call = resolve(a, b, None, (), parameters.dtype)
        if call.dtype.kind in "iubc":
            raise TypeError(f"{parameters.name} of {call.dtype}: expected real floating-point arrays")
        return Result(call.shape, call.dtype)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides; convert arrays of another dtype."""
        a, b = call.inputs
        assert a is not None and b is not None
        p: Norm = call.parameters
        dtype = inputs_of(call.result.dtype, a, b)
        if a.dtype != dtype or b.dtype != dtype:
            raise NeedsCopies(*(Copy(dtype, tuple(range(len(x.shape)))) for x in (a, b)))
        folded = fold_axes(call, a, b)
        first, second, out = folded.matrices
        workload = normed.workload_from_operands(
            *(p.name, first, second, out, p.before),
            math="tf32" if dtype == "float32" and call.math == "tf32" else "ieee",
            epilogue=[step.name for step in call.steps],
        )
        geometry = Geometry(*folded.geometry, tail=normed.params_tail(p.eps, p.before))
        return KernelCall(workload, geometry, operands=folded.operands)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments of a product with the norm of a Workload; eps is that of verification."""
        declared: Any = operator(workload.operator)
        wide = None if arrays["c"].dtype == arrays["a"].dtype else arrays["c"].dtype
        norm = Norm(declared.norm, VERIFIED_EPS, workload.size["before"], wide)
        return LibraryCall((arrays["a"], arrays["b"]), norm)

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Norm, math: str | None) -> Any:
        """Compute the product in at least float32, without the norm, which `finish` applies."""
        a, b = inputs
        call = resolve(a, b, None, (), parameters.dtype)
        wide = np.promote_types(call.dtype, np.float32)
        kind = product_dtype(call.dtype, call.dtype, bool(call.batch))
        return device.product(a.astype(kind, copy=False), b.astype(kind, copy=False), math).astype(wide, copy=False)

    def finish(
        self, device: Backend, value: Any, steps: tuple[Operation, ...], parameters: Norm, dtype: np.dtype[Any]
    ) -> Any:
        """Apply the operations before the norm, the norm, and the operations after it."""
        value = apply_steps(device, value, steps[: parameters.before], value.dtype, value.dtype)
        if parameters.name == "layernorm":
            value = value - value.mean(axis=-1, keepdims=True)
        square = (value * value).mean(axis=-1, keepdims=True)
        value = value / device.xp.sqrt(square + value.dtype.type(parameters.eps))
        return apply_steps(device, value, steps[parameters.before :], dtype, value.dtype)


NORMED = NormedProduct()
