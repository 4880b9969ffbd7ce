"""Products with a gate, a norm or a prologue in the same kernel: their lowering, and the same by the array library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import WIDER_RESULTS, Operation, Product, named_dtype, resolve
from gensor_kernels.dispatch.calls.fallback import apply_steps, holds, product_dtype
from gensor_kernels.dispatch.calls.problem import Axes, fold
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration import prologue
from gensor_kernels.operators.products import gated, matmul_prologue, normed
from gensor_kernels.operators.rows.norms import VERIFIED_EPS
from gensor_kernels.operators.types.epilogue import MAX_SCALES, MAX_STEPS, MAX_VECTORS
from gensor_kernels.operators.types.geometry import Strides
from gensor_kernels.operators.types.workload import View, Workload

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
    multiply_into,
)

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray


class GatedMatmul(Function):
    """f(a G + g) * (a U + u) of arrays a (..., m, k) or (k,), b = [G, U] (..., k, 2n) and bias = [g, u] (2n,) or None.

    The name is that of the gate in gated.GATES; `parameters` is the result's dtype or None.
    """

    def __init__(self, name: str):
        self.name = name

    def result(self, inputs: Inputs, parameters: Dtype | None) -> Result:
        """Return the Result, (..., m, n); ValueError if shapes do not fit, TypeError if it is not of real floats."""
        a, b, bias = inputs
        if b.ndim < 2 or b.shape[-1] % 2:
            raise ValueError(
                f"{self.name} takes weights (..., k, 2 n), gate and other side by side, not {tuple(b.shape)}"
            )
        if bias is not None and tuple(bias.shape) != (b.shape[-1],):
            raise ValueError(f"{self.name}: a bias has the shape ({b.shape[-1]},), not {tuple(bias.shape)}")
        product = _product_of_floats(self.name, a, b, parameters)
        return Result((*product.shape[:-1], product.shape[-1] // 2), product.dtype)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides; copy all arrays where one has another dtype."""
        a, b, *bias = call.given
        dtype = _inputs(call.result.dtype, a, b)
        if any(x.dtype != dtype for x in call.given):
            raise NeedsCopies(*(None if x is None else compact(x, dtype) for x in call.inputs))
        gate, other = gated.halves(b)
        axes, (first, second, out) = _fold(call, a, gate)
        # The two halves of B side by side again, as the Workload has them: of n columns, 2 n of the same stride.
        whole = second._replace(shape=(*second.shape[:-1], 2 * axes.n))
        workload = gated.workload_from_operands(
            (gated.BIASED if bias else "") + self.name,
            *(first, whole, out, bias[0] if bias else None),
            math=call.math_of_floats(dtype),
            epilogue=call.epilogue,
        )
        d = Strides()
        if bias:
            d = Strides((0, 0, 0), bias[0].shape[0] // 2 * bias[0].strides[0], bias[0].strides[0])
        geometry = replace(axes.geometry(), d=d, tail=gated.params_tail(other))
        return KernelCall(workload, geometry, operands=axes.epilogue_strides(call.operands))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with both matrices in one array."""
        a, b, d = arrays["a"], arrays["b"], arrays.get("d")
        bias = None if d is None else d.reshape(-1)
        return LibraryCall((a, b.reshape(*b.shape[:2], -1), bias), given_dtype(arrays))

    def library(
        self, device: Backend, inputs: Inputs, p: Any, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Compute one product with both matrices, and element-wise operations in at least float32."""
        a, b, bias = inputs
        both = _wide_product(device, a, b, p, math)
        wide = both.dtype
        if bias is not None:
            both = both + bias.astype(wide, copy=False)
        n = both.shape[-1] // 2
        step = (Operation(gated.GATES[self.name]),)
        gate, other = apply_steps(device, both[..., :n], step, wide, wide), both[..., n:]
        return device.xp.multiply(gate, other, out=out) if holds(out, gate) else gate * other


class Norm(NamedTuple):
    """Parameters of a call: a norm and its eps, the number of operations before it, and the dtype of the result."""

    name: str
    eps: float
    before: int
    dtype: Dtype | None = None


class NormedMatmul(Function):
    """after(norm(before(a b))) over the rows of the product of a (..., m, k) or (k,) and b (..., k, n)."""

    name = "matmul with a norm"

    def result(self, inputs: Inputs, parameters: Norm) -> Result:
        """Return the Result of matmul; ValueError if b has no columns, TypeError if it is not of real floats."""
        a, b = inputs
        if b.ndim < 2:
            raise ValueError(f"{parameters.name} normalises rows of a product: b has columns, not {tuple(b.shape)}")
        product = _product_of_floats(parameters.name, a, b, parameters.dtype)
        return Result(product.shape, product.dtype)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides; copy both arrays where one has another dtype."""
        (a, b), p = call.given, call.parameters
        dtype = _inputs(call.result.dtype, a, b)
        if a.dtype != dtype or b.dtype != dtype:
            raise NeedsCopies(compact(a, dtype), compact(b, dtype))
        axes, (first, second, out) = _fold(call, a, b)
        workload = normed.workload_from_operands(
            p.name, first, second, out, p.before, math=call.math_of_floats(dtype), epilogue=call.epilogue
        )
        geometry = replace(axes.geometry(), tail=normed.params_tail(p.eps, p.before))
        return KernelCall(workload, geometry, operands=axes.epilogue_strides(call.operands))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments of a product with the norm of a Workload; eps is that of verification."""
        declared: Any = operator(workload.operator)
        norm = Norm(declared.norm, VERIFIED_EPS, workload.size["before"], given_dtype(arrays))
        return LibraryCall((arrays["a"], arrays["b"]), norm)

    def library(
        self, device: Backend, inputs: Inputs, p: Norm, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Compute the product in at least float32, without the norm, which `finish` applies."""
        return _wide_product(device, inputs[0], inputs[1], p.dtype, math)

    def finish(
        self,
        device: Backend,
        value: DeviceArray,
        steps: tuple[Operation, ...],
        parameters: Norm,
        dtype: Dtype,
        out: DeviceArray = None,
    ) -> DeviceArray:
        """Apply the operations before the norm, the norm, and the operations after it."""
        value = apply_steps(device, value, steps[: parameters.before], value.dtype, value.dtype)
        if parameters.name == "layernorm":
            value = value - value.mean(axis=-1, keepdims=True)
        square = (value * value).mean(axis=-1, keepdims=True)
        value = value / device.xp.sqrt(square + value.dtype.type(parameters.eps))
        return apply_steps(device, value, steps[parameters.before :], dtype, value.dtype, out)


class Prologue(NamedTuple):
    """The operations of a prologue by name, the number of its scale, and the result's dtype where one is given: the
    parameters of a call, whose inputs are a, b and the vectors."""

    names: tuple[str, ...]
    scale: float
    dtype: Dtype | None = None

    @staticmethod
    def of(steps: Sequence[Operation], dtype: Any = None) -> Prologue | None:
        """Return the parameters for these operations, or None if kernels take no such prologue."""
        vectors, scales = (sum(step.operand is not None for step in steps), [s for s in steps if s.name == "scale"])
        if vectors > MAX_VECTORS or len(scales) > MAX_SCALES or len(steps) > MAX_STEPS:
            return None
        scale = float(scales[0].scalar.real) if scales else 1.0
        return Prologue(tuple(step.name for step in steps), scale, None if dtype is None else named_dtype(dtype))

    def steps(self, vectors: Sequence[DeviceArray]) -> tuple[Operation, ...]:
        """Return the operations with their vectors."""
        found = prologue.steps_of(self.names, vectors, self.scale)
        return tuple(Operation(step.name, step.operand, step.scalar) for step in found)


class PrologueMatmul(Function):
    """f(a) b of a (..., m, k) or (k,), b (..., k, n) and vectors (k,).

    Kernels take vectors along the axis that is summed. The array library computes other prologues before a product
    without one.
    """

    name = "matmul with a prologue"

    def result(self, inputs: Inputs, parameters: Prologue) -> Result:
        """Return the Result of matmul; TypeError if it is not of real numbers."""
        product = resolve(inputs[0], inputs[1], None, (), parameters.dtype)
        if product.inputs.kind in "iub":
            raise TypeError(f"a prologue of {product.inputs}: expected floating-point arrays")
        return Result(product.shape, product.dtype)

    def lower(self, call: AbstractCall) -> KernelCall:
        """Take any strides of a and b; convert arrays of another dtype."""
        a, b, *vectors = call.given
        dtype = _inputs(call.result.dtype, a, b)
        copies = [None if x.dtype == dtype else compact(x, dtype) for x in (a, b)]
        copies += [vector_copy(view, dtype) for view in vectors]
        if any(copies):
            raise NeedsCopies(*copies)
        axes, (first, second, out) = _fold(call, a, b)
        p = call.parameters
        workload = matmul_prologue.workload_from_operands(
            p.names, first, second, out, vectors, math=call.math_of_floats(dtype), epilogue=call.epilogue
        )
        geometry = prologue.prologue_geometry(axes.geometry(), p.scale)
        return KernelCall(workload, geometry, operands=axes.epilogue_strides(call.operands))

    def vendor_call(self, workload: Workload, arrays: Mapping[str, DeviceArray]) -> LibraryCall:
        """Return the arguments, with the scale of verification."""
        vectors = [arrays[name] for name in prologue.VECTORS if name in arrays]
        parameters = Prologue(workload.prologue, prologue.VERIFIED_SCALE, given_dtype(arrays))
        return LibraryCall((arrays["a"], arrays["b"], *vectors), parameters)

    def library(
        self, device: Backend, inputs: Inputs, p: Prologue, math: str | None, out: DeviceArray = None
    ) -> DeviceArray:
        """Apply operations to a in at least float32, round to its dtype, and multiply."""
        a, b, *vectors = inputs
        product = resolve(a, b, None, (), p.dtype)
        dtype = product.inputs
        a = apply_steps(device, a.astype(dtype, copy=False), p.steps(vectors), dtype, dtype)
        return _multiply(device, a, b, product, math, out)


#: By the operation that is applied to the gate.
GATED = {gate: GatedMatmul(name) for name, gate in gated.GATES.items()}
NORMED, PROLOGUE = NormedMatmul(), PrologueMatmul()


def vector_copy(view: View | None, dtype: str) -> Copy | None:
    """Return the copy of a vector for operands of a dtype, or None if it is used in place."""
    if view is None:
        return None
    types = prologue.vector_types(dtype)
    whole = view.shape[-1] == 1 or view.strides[-1] == 1
    return None if view.dtype in types and whole else Copy(view.dtype if view.dtype in types else types[-1], (0,))


def _product_of_floats(words: str, a: DeviceArray, b: DeviceArray, dtype: Dtype | None) -> Product:
    """Return shapes and dtypes of a product; TypeError if it is not of real floats."""
    product = resolve(a, b, None, (), dtype)
    if product.dtype.kind in "iubc":
        raise TypeError(f"{words} of {product.dtype}: expected real floating-point arrays")
    return product


def _wide_product(
    device: Backend, a: DeviceArray, b: DeviceArray, dtype: Dtype | None, math: str | None
) -> DeviceArray:
    """Return the array library's product in at least float32."""
    product = resolve(a, b, None, (), dtype)
    value = _multiply(device, a, b, product, math)
    return value.astype(np.promote_types(product.dtype, np.float32), copy=False)


def _multiply(
    device: Backend, a: DeviceArray, b: DeviceArray, product: Product, math: str | None, out: DeviceArray = None
) -> DeviceArray:
    kind = product_dtype(product.inputs, product.dtype, bool(product.batch))
    return multiply_into(device, a.astype(kind, copy=False), b.astype(kind, copy=False), math, out)


def _inputs(result: Dtype, a: View, b: View) -> str:
    """Return the dtype that operands are converted to: their own if kernels write the wider dtype of the result."""
    own = a.dtype if a.dtype == b.dtype else ""
    return own if result.name in WIDER_RESULTS.get(own, ()) else result.name


def _fold(call: AbstractCall, a: View, b: View) -> tuple[Axes, tuple[View, View, View]]:
    """Return the axes of a product with a gate, a norm or a prologue, and its matrices: a bias of a gate has n columns,
    so none of the batch becomes more."""
    axes, views = fold(a, b, call.out, call.operands, columns=False)
    first, second, out = (axes.view(index, views[index]) for index in range(3))
    return axes, (first, second, out)
