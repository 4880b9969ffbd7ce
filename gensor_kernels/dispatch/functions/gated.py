"""Gated matrix products (swiglu, geglu, reglu): their lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.dispatch.calls.arguments import WIDER_RESULTS, Operation, resolve
from gensor_kernels.dispatch.calls.fallback import apply_steps, product_dtype
from gensor_kernels.dispatch.calls.problem import Axes, broadcast, matrix, result_matrix
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.products import gated
from gensor_kernels.operators.types.geometry import BATCH_AXES, Strides
from gensor_kernels.operators.types.workload import View, Workload

from .base import AbstractCall, Copy, Function, KernelCall, LibraryCall, NeedsCopies, Result

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


@dataclass(frozen=True)
class GatedProduct(Function):
    """f(a G + g) * (a U + u) of arrays a (..., m, k) or (k,), b = [G, U] (..., k, 2n) and bias = [g, u] (2n,) or None.

    The name is that of the gate in gated.GATES.
    """

    name: str

    def result(self, inputs: Sequence[DeviceArray], parameters: Any) -> Result:
        """Return the Result, (..., m, n); ValueError if shapes do not fit, TypeError if it is not of real floats."""
        a, b, bias = inputs
        if b.ndim < 2 or b.shape[-1] % 2:
            raise ValueError(
                f"{self.name} takes weights (..., k, 2 n), gate and other side by side, not {tuple(b.shape)}"
            )
        if bias is not None and tuple(bias.shape) != (b.shape[-1],):
            raise ValueError(f"{self.name}: a bias has the shape ({b.shape[-1]},), not {tuple(bias.shape)}")
        call = resolve(a, b, None, (), parameters)
        if call.dtype.kind in "iubc":
            raise TypeError(f"{self.name} of {call.dtype}: expected real floating-point arrays")
        return Result((*call.shape[:-1], call.shape[-1] // 2), call.dtype)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides; convert arrays of another dtype."""
        a, b, bias = call.inputs
        assert a is not None and b is not None
        dtype = inputs_of(call.result.dtype, a, b)
        if any(x is not None and x.dtype != dtype for x in call.inputs):
            raise NeedsCopies(*(None if x is None else Copy(dtype, tuple(range(len(x.shape)))) for x in call.inputs))
        gate, other = gated.halves(b)
        folded = fold_axes(call, a, gate)
        first, second, out = folded.matrices
        # The two halves of B side by side again, as the Workload has them: of n columns, 2 n of the same stride.
        whole = second._replace(shape=(*second.shape[:-1], 2 * folded.axes.n))
        workload = gated.workload_from_operands(
            ("" if bias is None else gated.BIASED) + self.name,
            *(first, whole, out, bias),
            math=call.math if dtype == "float32" and call.math == "tf32" else "ieee",
            epilogue=[step.name for step in call.steps],
        )
        d = Strides()
        if bias is not None:
            d = Strides((0, 0, 0), bias.shape[0] // 2 * bias.strides[0], bias.strides[0])
        geometry = gated.gated_geometry(*folded.geometry, d, other)
        return KernelCall(workload, geometry, operands=folded.operands)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with both matrices in one array."""
        a, b, d = arrays["a"], arrays["b"], arrays.get("d")
        wide = None if arrays["c"].dtype == a.dtype else arrays["c"].dtype
        return LibraryCall((a, b.reshape(*b.shape[:2], -1), None if d is None else d.reshape(-1)), wide)

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Any, math: str | None) -> Any:
        """Compute one product with both matrices, and element-wise operations in at least float32."""
        a, b, bias = inputs
        call = resolve(a, b, None, (), parameters)
        wide = np.promote_types(call.dtype, np.float32)
        kind = product_dtype(call.dtype, call.dtype, bool(call.batch))
        both = device.product(a.astype(kind, copy=False), b.astype(kind, copy=False), math).astype(wide, copy=False)
        if bias is not None:
            both = both + bias.astype(wide, copy=False)
        n = both.shape[-1] // 2
        step = (Operation(gated.GATES[self.name]),)
        return apply_steps(device, both[..., :n], step, wide, wide) * both[..., n:]


#: By the operation that is applied to the gate.
FUNCTIONS = {gate: GatedProduct(name) for name, gate in gated.GATES.items()}


def inputs_of(result: np.dtype[Any], a: View, b: View) -> str:
    """Return the dtype that operands are converted to: their own if kernels write the wider dtype of the result."""
    own = a.dtype if a.dtype == b.dtype else ""
    return own if result.name in WIDER_RESULTS.get(own, ()) else result.name


class Folded(NamedTuple):
    """A product with merged axes: Views of a, b and c, the first arguments of Geometry, strides of its operands."""

    axes: Axes
    matrices: tuple[View, ...]
    geometry: tuple[tuple[int, int, int], tuple[int, int, int], Strides, Strides, Strides]
    operands: tuple[Strides | None, ...]


def fold_axes(call: AbstractCall, a: View, gate: View) -> Folded:
    """Merge the axes of the product with the gate; batch axes stay apart from columns, because the bias has n."""
    rank, out = len(a.shape), call.out
    c = result_matrix(out, rank, 2)
    lead, (m, n), k = c.shape[:-2], c.shape[-2:], a.shape[-1]
    views = [broadcast(matrix(a, True), (*lead, m, k)), broadcast(gate, (*lead, k, n)), c]
    views += [result_matrix(broadcast(view, out.shape), rank, 2) for view in call.operands if view is not None]
    axes = Axes(views, (m, n, k))
    axes.fold(columns=False)
    if len(axes.batch) > BATCH_AXES:
        raise UnsupportedError(f"{len(axes.batch)} batch axes that cannot be merged; kernels take {BATCH_AXES}")
    batch = (1, 1, 1, *(extent for extent, _ in axes.batch))[-BATCH_AXES:]
    numbers = iter(range(3, len(views)))
    return Folded(
        axes,
        tuple(axes.view(index, views[index]) for index in range(3)),
        ((axes.m, axes.n, axes.k), batch, axes.strides(0), axes.strides(1), axes.strides(2)),  # type: ignore[arg-type]
        tuple(None if view is None else axes.strides(next(numbers)) for view in call.operands),
    )
