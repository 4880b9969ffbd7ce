"""The public functions beside matmul: contractions with the names, arguments and rules of CuPy's. Imports little."""

from __future__ import annotations

from typing import Any

from gensor_kernels.dispatch.calls.arguments import FusedAsked, operations
from gensor_kernels.dispatch.contractions.pairs import pair
from gensor_kernels.errors import UnsupportedError

from .current import current_runtime
from .interop import adopting


@adopting
def einsum(*operands: Any, dtype: Any = None, optimize: Any = False, conjugate: Any = (), prologue: Any = None) -> Any:
    """Sum of products as Einstein wrote it: `einsum("bihd,bjhd->bhij", q, k)`.

    `einsum(subscripts, *operands)` or `einsum(operand0, sublist0, operand1, sublist1, ..., [output])`. Subscripts,
    broadcasting of axes of one element, ellipses, repeated and summed letters and the implied output are those of
    `cupy.einsum` (numpy.einsum); the dtype is the operands' promoted one, or `dtype`. int8 wraps around as there;
    float16 and bfloat16 are summed in float32 and rounded once. `optimize` takes what `cupy.einsum` takes: False
    contracts from the last operand to the first, as CuPy does, True and "greedy" in a cheap order, "optimal" in the
    cheapest, a list from `numpy.einsum_path` as it says. `conjugate` names operands by number (from 0) that are taken
    conjugated: kernels do that while they read, where `.conj()` makes a copy. `prologue` are operations on the first
    operand as kernels read it, as in `matmul`; their arrays broadcast to it.

    Two operands are one product of kernels' on the arrays as they lie; axes that kernels have too few of cost one
    copy. More are contracted pairwise, each intermediate in the result's dtype. One operand, and products in which
    nothing is summed, are the array library's. The result may be a transposed view of new memory; it is a view of
    the operand where there is one and nothing is summed, as in CuPy.

    Raises ValueError for subscripts and shapes that do not fit, TypeError for an `optimize` nobody knows.
    """
    if (
        len(operands) == 3
        and type(operands[0]) is str
        and type(optimize) is bool
        and conjugate == ()
        and prologue is None
    ):
        runtime = current_runtime()
        text, a, b = operands
        is_array = runtime.device.is_array
        if is_array(a) and is_array(b):
            return pair(runtime, text, a, b, None, dtype)
    from gensor_kernels.dispatch.contractions.path import einsum

    return einsum(current_runtime(), operands, dtype, optimize, conjugate, prologue)


@adopting
def tensordot(a: Any, b: Any, axes: Any = 2, *, prologue: Any = None) -> Any:
    """Sum of products over `axes` of two arrays, as `cupy.tensordot` (numpy.tensordot).

    `axes` is a number (the last axes of `a` with the first of `b`) or a pair of axes or of sequences of axes. The
    result has the axes of `a` that are left, then those of `b`; its dtype is the promoted one. Raises ValueError
    for axes whose extents differ, TypeError for operands that are no arrays of this device. `prologue` as in `einsum`.
    """
    if prologue is not None:
        from gensor_kernels.dispatch.functions.prologue_contraction import contraction

        return contraction(current_runtime(), tensordot_form(axes), a, b, prologue)
    return pair(current_runtime(), tensordot_form(axes), a, b, None, None)


def tensordot_form(axes: Any) -> tuple[str, Any]:
    """The form of a tensordot: `axes` as a number or a pair of tuples."""
    return "tensordot", axes if type(axes) is int else _axes(axes)


def _axes(axes: Any) -> Any:
    try:
        first, second = axes
    except TypeError:
        return int(axes)
    except ValueError:
        raise ValueError("axes must be a number or a pair of axes") from None
    return tuple((int(each),) if not hasattr(each, "__len__") else tuple(map(int, each)) for each in (first, second))


@adopting
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Product over the last axis of `a` and the last but one of `b` (its only one), as `cupy.dot` (numpy.dot).

    Shapes (..., k) and (..., k, n) give (..., ..., n); an operand without axes scales the other. `out` must have
    the result's shape and dtype (any strides). Raises ValueError where they do not fit, TypeError for operands that
    are no arrays of this device.
    """
    return pair(current_runtime(), ("dot",), a, b, out, None)


@adopting
def inner(a: Any, b: Any) -> Any:
    """Product over the last axes of two arrays, as `cupy.inner` (numpy.inner): (..., k) and (..., k).

    Raises ValueError where these differ, TypeError for operands that are no arrays of this device.
    """
    return pair(current_runtime(), ("inner",), a, b, None, None)


@adopting
def vdot(a: Any, b: Any) -> Any:
    """Product of two arrays as vectors, the first one conjugated, as `cupy.vdot` (numpy.vdot): an array without axes.

    Kernels conjugate as they read.

    Raises ValueError for arrays of different sizes, TypeError for operands that are no arrays of this device.
    """
    runtime = current_runtime()
    runtime.check(a, b, None, (), None)
    if a.shape != b.shape:
        a, b = a.ravel(), b.ravel()
    return pair(runtime, ("vdot",), a, b, None, None)


@adopting
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Products of every element of `a` with every one of `b`, as `cupy.outer` (numpy.outer): (a.size, b.size).

    Nothing is summed, so on a GPU the library does it. `out` must have the result's shape and dtype. Raises
    ValueError where it has not, TypeError for operands that are no arrays of this device.
    """
    runtime = current_runtime()
    runtime.check(a, b, out, (), None)
    return pair(runtime, ("outer",), a.ravel(), b.ravel(), out, None)


@adopting
def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    activation: str | None = None,
    *,
    scales: Any = None,
    zeros: Any = None,
    group: int | None = None,
    prologue: Any = None,
) -> Any:
    """`activation(x @ w.T + bias)` in one kernel, as `torch.nn.functional.linear` with an activation.

    `x` is (..., in), `w` (out, in) or (in,), `bias` broadcasts to the result, which is (..., out) or (...).
    `activation` is one of relu, relu6, gelu, gelu_tanh, silu, tanh, sigmoid. The epilogue is computed in the
    accumulator's type and rounded once.

    Gates halve the columns: swiglu, geglu, geglu_tanh and reglu are `f(x @ g.T) * (x @ u.T)`, where `w` is
    (2 out, in), the gate `g` above `u` as Llama's merged gate_up_proj has them, and `bias` (2 out,).

    With `scales` the weights are quantised, `(w - zeros) * scales`, and widened inside the kernel: int8 (out, in), or
    uint8 (out, in / 2) with two numbers of 0 to 15 in a byte, the one of even index in the lower half. `scales` are
    (out,), or (out, groups) with one for every `group` elements of a row (32, 64 or 128 in kernels; by default what
    the shapes say); `zeros` have their shape and the weights' kind, by default 0, and 8 for numbers of 4 bits. Kernels
    take `x` of float16 or bfloat16, sum each group exactly as it is and scale the sum, so weights are never rounded;
    scales are brought to x's dtype. The result has x's dtype. Gates take no quantised weights.

    `prologue` are operations on `x` as kernels read it, as in `matmul`: `linear(x, w, prologue=["gelu"])` is
    `gelu(x) @ w.T`, and `[("mul", gamma), ("bias", beta), "relu"]` has vectors (in,).

    Raises ValueError for shapes that do not fit and for other names, TypeError for operands that are no arrays of this
    device.
    """
    runtime = current_runtime()
    if prologue is not None:
        return _prepared_linear(runtime, x, w, bias, activation, prologue, (scales, zeros, group))
    try:
        steps = operations(1, bias, None, activation, None)
    except FusedAsked:
        if scales is not None:
            raise UnsupportedError(f"linear: {activation} takes no quantised weights") from None
        from gensor_kernels.dispatch.functions.gated import parsed, product

        return product(runtime, x, transposed(w), parsed(1, bias, None, activation, None))
    if scales is not None:
        from gensor_kernels.dispatch.functions.quantised import QUANTISED_LINEAR, checked
        from gensor_kernels.dispatch.plans.calls import call, check

        check(runtime, (x, w, scales, zeros), None, steps)
        return call(runtime, QUANTISED_LINEAR, (x, w, scales, zeros), checked(x, w, scales, zeros, group), None, steps)
    if zeros is not None or group is not None:
        raise ValueError("linear: zeros and group belong to scales")
    try:
        return runtime.call(x, transposed(w), None, steps, None, None)
    except AttributeError:
        runtime.check(x, w, None, steps, None)
        raise


def _prepared_linear(
    runtime: Any, x: Any, w: Any, bias: Any, activation: str | None, prologue: Any, quantised: tuple[Any, Any, Any]
) -> Any:
    """A linear layer with a prologue; `quantised` are scales, zeros and group."""
    from gensor_kernels.dispatch.functions.prologue_matmul import in_front, product

    scales, zeros, group = quantised
    if scales is None and zeros is None and group is None:
        runtime.check(x, w, None, (), None)
        try:
            return product(runtime, x, transposed(w), prologue, None, operations(1, bias, None, activation), None, None)
        except FusedAsked:
            pass
    x = in_front(runtime, x, prologue)
    return linear(x, w, bias, activation, scales=scales, zeros=zeros, group=group)


def define(expression: str, epilogue: Any = (), prologue: Any = ()) -> Any:
    """An operator of your own: `define("b h i d, b h j d -> b h i j", epilogue=[("scale", 0.125)])`.

    `expression` names the axes of two arrays and of the result, as words separated by spaces or as single letters;
    axes of both that the result lacks are summed. `epilogue` lists up to six operations, in order: names that need
    nothing ("relu", "gelu", ...), `("scale", number)`, and `("bias", axes)`, `("add", axes)`, `("mul", axes)` or
    `("mask", axes, fill)`, whose array has the axes named, some of the result's. Those arrays are given at each call,
    behind the two operands:

        scores = define("b h i d, b h j d -> b h i j", epilogue=[("scale", 0.125), ("mask", "i j", -1e9)])
        s = scores(q, k, keep)

    `prologue` lists operations on the first operand as kernels read it: those without an array, "scale", and "bias" and
    "mul" with the axes of theirs, some of the operand's. These arrays are given in front of the epilogue's.

    The function returned takes arrays as `einsum` does and gives a result of their promoted dtype (sums of float16
    and bfloat16 are taken in float32, and the epilogue too). Raises ValueError for an expression or an epilogue that
    says nothing, and, when called, for arrays that do not fit.
    """
    from .define import Defined

    return Defined(expression, epilogue, prologue)


def transposed(w: Any) -> Any:
    """The weights of `linear` as its product takes them."""
    if w.ndim > 2:
        raise ValueError(f"linear: w has the shape (out, in) or (in,), not {tuple(w.shape)}")
    return w.T
