"""Gated products of CuPy arrays, swiglu and its like: what a call means to kernels, and the array library's way."""

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

from .base import Asked, Called, Copy, Function, Result, Staged, Understood

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


@dataclass(frozen=True)
class GatedProduct(Function):
    """f(a G + g) * (a U + u) of arrays a (..., m, k) or (k,), b = [G, U] (..., k, 2n) and bias = [g, u] (2n,) or None.

    The name is that of the gate in gated.GATES.
    """

    name: str

    def result(self, inputs: Sequence[DeviceArray], parameters: Any) -> Result:
        """(..., m, n); ValueError for shapes that do not fit, TypeError for what are no real numbers."""
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

    def understand(self, asked: Asked) -> Understood:
        """Any strides; arrays of another dtype are converted first."""
        a, b, bias = asked.inputs
        assert a is not None and b is not None
        dtype = inputs_of(asked.result.dtype, a, b)
        if any(x is not None and x.dtype != dtype for x in asked.inputs):
            raise Staged(*(None if x is None else Copy(dtype, tuple(range(len(x.shape)))) for x in asked.inputs))
        gate, other = gated.halves(b)
        folded = fold_axes(asked, a, gate)
        first, second, out = folded.matrices
        # The two halves of B side by side again, as the Workload has them: of n columns, 2 n of the same stride.
        whole = second._replace(shape=(*second.shape[:-1], 2 * folded.axes.n))
        workload = gated.workload_from_operands(
            ("" if bias is None else gated.BIASED) + self.name,
            *(first, whole, out, bias),
            math=asked.math if dtype == "float32" and asked.math == "tf32" else "ieee",
            epilogue=[step.name for step in asked.steps],
        )
        d = Strides()
        if bias is not None:
            d = Strides((0, 0, 0), bias.shape[0] // 2 * bias.strides[0], bias.strides[0])
        geometry = gated.gated_geometry(*folded.geometry, d, other)
        return Understood(workload, geometry, operands=folded.operands)

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> Called:
        """Both matrices side by side."""
        a, b, d = arrays["a"], arrays["b"], arrays.get("d")
        wide = None if arrays["c"].dtype == a.dtype else arrays["c"].dtype
        return Called((a, b.reshape(*b.shape[:2], -1), None if d is None else d.reshape(-1)), wide)

    def library(self, device: Backend, inputs: Sequence[DeviceArray], parameters: Any, math: str | None) -> Any:
        """One product with both, and element-wise operations in at least float32."""
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
    """The dtype operands are brought to: their own where the result's is a wider one that kernels write."""
    own = a.dtype if a.dtype == b.dtype else ""
    return own if result.name in WIDER_RESULTS.get(own, ()) else result.name


class Folded(NamedTuple):
    """A product with merged axes: Views of a, b and the result, the first arguments of Geometry, operands' strides."""

    axes: Axes
    matrices: tuple[View, ...]
    geometry: tuple[tuple[int, int, int], tuple[int, int, int], Strides, Strides, Strides]
    operands: tuple[Strides | None, ...]


def fold_axes(asked: Asked, a: View, gate: View) -> Folded:
    """Merge the axes of a product (with the gate alone). Batch entries become no columns: a bias has n."""
    rank, out = len(a.shape), asked.out
    c = result_matrix(out, rank, 2)
    lead, (m, n), k = c.shape[:-2], c.shape[-2:], a.shape[-1]
    views = [broadcast(matrix(a, True), (*lead, m, k)), broadcast(gate, (*lead, k, n)), c]
    views += [result_matrix(broadcast(view, out.shape), rank, 2) for view in asked.operands if view is not None]
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
        tuple(None if view is None else axes.strides(next(numbers)) for view in asked.operands),
    )
