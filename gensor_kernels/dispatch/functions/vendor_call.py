"""The array library's call that a kernel replaces: of a Workload of arrays in their declared axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.devices import originals
from gensor_kernels.dispatch.calls.arguments import Operation, resolve
from gensor_kernels.dispatch.calls.fallback import apply_steps, evaluate
from gensor_kernels.operators import MODULES, operator
from gensor_kernels.operators.products.gated import Gated
from gensor_kernels.operators.products.quantised import Quantised
from gensor_kernels.operators.products.sum_of_products import SumOfProducts
from gensor_kernels.operators.types.dtypes import EIGHT_BIT_FLOATS
from gensor_kernels.operators.types.workload import Workload

from .base import Function

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import Backend, DeviceArray

#: The Function of the operators that a module of operators declares.
FUNCTIONS = {
    "rows.reductions": ("rows", "COMPOSED"),
    "rows.softmax": ("rows", "COMPOSED"),
    "rows.scans": ("rows", "SCANNED"),
    "rows.norms": ("rows", "COMPOSED"),
    "rows.elementwise": ("rows", "COMPOSED"),
    "pointwise.pointwise": ("pointwise", "COMPOSED"),
    "pointwise.block_formats": ("block_formats", "QUANTISATION"),
    "windows.conv": ("convolution", "CONVOLUTION"),
    "windows.depthwise": ("window", "DEPTHWISE"),
    "windows.pooling": ("window", "POOLING"),
    "attention.attention": ("attention", "ATTENTION"),
    "attention.sequences": ("attention_sequences", "SEQUENCES"),
    "recurrent.recurrent": ("recurrent", "RECURRENCE"),
    "products.gated": ("fused_matmul", "GATED"),
    "products.ragged": ("grouped_matmul", "GROUPED_MATMUL"),
    "products.normed": ("fused_matmul", "NORMED"),
    "products.matmul_prologue": ("fused_matmul", "PROLOGUE"),
    "windows.conv_prologue": ("prologue_convolution", "PROLOGUE_CONVOLUTION"),
    "windows.depthwise_prologue": ("prologue_convolution", "PROLOGUE_DEPTHWISE"),
    "products.quantised": ("low_precision_matmul", "QUANTISED_LINEAR"),
    "products.block_scaled": ("low_precision_matmul", "BLOCK_SCALED_MATMUL"),
}


def library_call(
    device: Backend, workload: Workload, arrays: Mapping[str, DeviceArray], steps: Sequence[Operation]
) -> Callable[[], DeviceArray] | None:
    """Return a function that computes the Workload by the array library, as a call of ours without kernels would.

    `arrays` are inputs and output by operand name, in the axes the operator declares; `steps` are the epilogue, its
    operands broadcastable to the output's axes. The result has these axes, and is the output itself where the library
    can write to it. It is None where the library has no such call.
    """
    declared = operator(workload.operator)
    output = arrays[declared.names[-1]]
    if workload.operator == "matmul":
        return _product(device, workload, arrays, tuple(steps))
    if isinstance(declared, SumOfProducts):
        return _sum_of_products(device, declared, workload, arrays, output, steps)
    function = function_of(workload)
    if function is None:
        return None
    made = function.vendor_call(workload, arrays)
    out = made.own(output) if not steps and made.inputs[0].dtype == output.dtype else None

    def call() -> DeviceArray:
        library = (device, made.inputs, made.parameters, precision_of(workload), out)
        value = originals.call(function.library, *library)
        if out is not None and value is out:
            return output
        last = output if steps else None
        return function.finish(device, made.declared(value), tuple(steps), made.parameters, output.dtype, last)

    return call


def function_of(workload: Workload) -> Function | None:
    """Return the Function that computes a Workload, or None of products, sums of products and what has no call."""
    if workload.program:
        from .pointwise import function_of

        return function_of(workload.program)
    return _function_of(workload.operator)


@cache
def _function_of(name_of_operator: str) -> Function | None:
    if MODULES[name_of_operator] not in FUNCTIONS:
        return None
    declared = operator(name_of_operator)
    if isinstance(declared, Quantised) and declared.format:
        from .block_formats import FORMATTED

        return FORMATTED["scaled_matmul" if declared.both else "linear"]
    module, name = FUNCTIONS[MODULES[name_of_operator]]
    given = getattr(import_module(f".{module}", __package__), name)
    function: Function = given[declared.gate] if isinstance(declared, Gated) else given
    return function


def precision_of(workload: Workload) -> str:
    """Return "tf32" or "ieee": other ways to form products are no reason for the library to be less precise."""
    return "tf32" if workload.math == "tf32" else "ieee"


def _product(
    device: Backend, workload: Workload, arrays: Mapping[str, DeviceArray], steps: tuple[Operation, ...]
) -> Callable[[], DeviceArray]:
    """Return a function of one matmul; without a batch of two-dimensional arrays, as callers have them."""
    a, b, c = (arrays[name] for name in "abc")
    single = workload.size["batch"] == 1
    if single:
        a, b, c = a[0], b[0], c[0]
        steps = tuple(step if step.operand is None else step._replace(operand=step.operand[0]) for step in steps)
    if a.dtype != b.dtype or a.dtype == np.uint8:
        return lambda: _mixed_product(device, workload, (a, b), c, steps).reshape(arrays["c"].shape)
    flags = workload.conjugated
    found = resolve(a, b, c, steps, c.dtype, precision_of(workload), (flags["a"], flags["b"]))
    if found.plain and not steps:
        return lambda: device.product(a, b, found.math, out=c)
    last = c if c.dtype == found.dtype else None
    return lambda: evaluate(device, found, a, b, steps, found.math, last).reshape(arrays["c"].shape)


def _mixed_product(
    device: Backend,
    workload: Workload,
    inputs: tuple[DeviceArray, DeviceArray],
    out: DeviceArray,
    steps: tuple[Operation, ...],
) -> DeviceArray:
    """Return a product of operands of which one is stored narrower than it is multiplied."""
    from .low_precision_matmul import MIXED_MATMUL, ElementTypes

    named = [name if name in EIGHT_BIT_FLOATS else None for name in (workload.dtype["a"], workload.dtype["b"])]
    value = MIXED_MATMUL.library(device, inputs, ElementTypes(named[0], named[1], out.dtype), workload.math)
    return apply_steps(device, value, steps, out.dtype, value.dtype, out if steps else None)


def _sum_of_products(
    device: Backend,
    declared: SumOfProducts,
    workload: Workload,
    arrays: Mapping[str, DeviceArray],
    output: DeviceArray,
    steps: Sequence[Operation],
) -> Callable[[], DeviceArray]:
    """Return a function of one einsum; sums of 16-bit and 8-bit numbers in what kernels sum them in."""
    view = declared.view(workload)
    axes = [axis.name for axis in (*view.batch, *view.m, *view.n, *view.k)]
    wide = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}
    labels = [axes.index(axis.name) for axis in declared.stages(workload.size)[0].axes]

    def read(access: Any) -> tuple[Any, list[int]]:
        array = arrays[access.tensor.name]
        array = array.conj() if access.conjugated and workload.is_complex else array
        kind = np.dtype(wide.get(array.dtype.name, array.dtype.name))
        return array.astype(kind, copy=False), [axes.index(index.terms[0][0].name) for index in access.indices]

    def call() -> DeviceArray:
        operands = (*read(view.a), *read(view.b))
        value = device.xp.einsum(*operands, labels)
        return apply_steps(device, value, steps, output.dtype, value.dtype, output if steps else None)

    return call
