"""Products with a prologue: by kernels, and by the array library.

Kernels take vectors along the axis that is summed. The array library computes other
prologues before a product without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operation, named_dtype, resolve
from gensor_kernels.dispatch.calls.fallback import apply_steps, product_dtype
from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.products import matmul_prologue
from gensor_kernels.operators.types.epilogue import MAX_SCALES, MAX_STEPS, MAX_VECTORS
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import View, Workload

from .base import AbstractCall, Copy, Function, KernelCall, LibraryCall, NeedsCopies, Result
from .gated import fold_axes, inputs_of

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


class Prepared(NamedTuple):
    """The operations of a prologue by name, the number of its scale, and the result's dtype where one is given: the
    parameters of a call, whose inputs are a, b and the vectors."""

    names: tuple[str, ...]
    scale: float
    dtype: np.dtype[Any] | None = None

    @staticmethod
    def of(steps: Sequence[Operation], dtype: Any = None) -> Prepared | None:
        """Return the parameters for these operations, or None if kernels take no such prologue."""
        vectors, scales = (sum(step.operand is not None for step in steps), [s for s in steps if s.name == "scale"])
        if vectors > MAX_VECTORS or len(scales) > MAX_SCALES or len(steps) > MAX_STEPS:
            return None
        scale = float(scales[0].scalar.real) if scales else 1.0
        return Prepared(tuple(step.name for step in steps), scale, None if dtype is None else named_dtype(dtype))

    def steps(self, vectors: Sequence[DeviceArray]) -> tuple[Operation, ...]:
        """Return the operations with their vectors."""
        found = prologue.steps_of(self.names, vectors, self.scale)
        return tuple(Operation(step.name, step.operand, step.scalar) for step in found)


@dataclass(frozen=True)
class PreparedProduct(Function):
    """f(a) b of a (..., m, k) or (k,), b (..., k, n) and vectors (k,)."""

    name: str = "matmul with a prologue"

    def result(self, inputs: Sequence[DeviceArray], parameters: Prepared) -> Result:
        """Return the Result of matmul; TypeError if it is not of real numbers."""
        call = resolve(inputs[0], inputs[1], None, (), parameters.dtype)
        if call.inputs.kind in "iub":
            raise TypeError(f"a prologue of {call.inputs}: expected floating-point arrays")
        return Result(call.shape, call.dtype)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides of a and b; convert arrays of another dtype."""
        a, b, *vectors = call.inputs
        assert a is not None and b is not None
        p: Prepared = call.parameters
        dtype = inputs_of(call.result.dtype, a, b)
        copies = [None if x.dtype == dtype else Copy(dtype, tuple(range(len(x.shape)))) for x in (a, b)]
        copies += [vector_copy(view, dtype) for view in vectors]
        if any(copies):
            raise NeedsCopies(*copies)
        folded = fold_axes(call, a, b)
        first, second, out = folded.matrices
        workload = matmul_prologue.workload_from_operands(
            *(p.names, first, second, out, [view for view in vectors if view is not None]),
            math="tf32" if dtype == "float32" and call.math == "tf32" else "ieee",
            epilogue=[step.name for step in call.steps],
        )
        geometry = Geometry(*folded.geometry)
        return KernelCall(
            workload,
            prologue.prologue_geometry(geometry, p.scale),
            operands=folded.operands,
        )

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with the scale of verification."""
        wide = None if arrays["c"].dtype == arrays["a"].dtype else arrays["c"].dtype
        vectors = [arrays[name] for name in prologue.VECTORS if name in arrays]
        parameters = Prepared(workload.prologue, prologue.VERIFIED_SCALE, wide)
        return LibraryCall((arrays["a"], arrays["b"], *vectors), parameters)

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Prepared, math: str | None) -> Any:
        """Element-wise operations on a in at least float32, rounded to its dtype, and a product."""
        a, b, *vectors = inputs
        call = resolve(a, b, None, (), parameters.dtype)
        a = apply_steps(device, a.astype(call.inputs, copy=False), parameters.steps(vectors), call.inputs, call.inputs)
        kind = product_dtype(call.inputs, call.dtype, bool(call.batch))
        return device.product(a.astype(kind, copy=False), b.astype(kind, copy=False), math)


PREPARED = PreparedProduct()


def vector_copy(view: View | None, dtype: str) -> Copy | None:
    """Return the copy of a vector for operands of a dtype, or None if it is used in place."""
    if view is None:
        return None
    types = prologue.vector_types(dtype)
    whole = view.shape[-1] == 1 or view.strides[-1] == 1
    return None if view.dtype in types and whole else Copy(view.dtype if view.dtype in types else types[-1], (0,))
