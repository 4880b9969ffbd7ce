"""matmul: the public function, and the short way of repeated calls. Imports little: a first call loads the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from gensor_kernels.dispatch.calls.arguments import FusedAsked, operations, unfused

from . import current
from .interop import adopting

Product = TypeVar("Product", bound=Callable[..., Any])

_ONE = 1  # by identity: comparing an array with 1 would wait for the device


def _short(product: Product) -> Product:
    """A matrix product with a shorter way for plain calls of CuPy arrays; keywords and other arrays take the long one.

    It fills in no defaults of keywords and calls nothing but the Plan, or, where the addresses are those the Plan has
    placed its launch at, only that. The key is that of `Runtime.call`, of matrices without the lists' detour. Inside
    graph capture what allocates takes the long way too, and with it memory that lasts (interop.py).
    """

    @wraps(product)
    def short(a: Any, b: Any, /, out: Any = None, **more: Any) -> Any:
        if more:
            return product(a, b, out, **more)
        runtime = current.only or current.inside.get() or current.lookup()
        try:
            type_a, type_b, pa, pb = a.dtype, b.dtype, a.data.ptr, b.data.ptr
            if out is None:
                types: Any = type_a if type_b is type_a else (type_a, type_b)
                key: Any = (types, *a._shape, *a._strides, None, *b._shape, *b._strides)
                pc = 0
            else:
                type_c, pc = out.dtype, out.data.ptr
                types = type_a if type_b is type_a and type_c is type_a else (type_a, type_b, type_c)
                try:  # matrices
                    m, k = a._shape
                    am, ak = a._strides
                    bk, n = b._shape
                    sk, sn = b._strides
                    cm, cn = out._shape
                    om, on = out._strides
                    key = (types, m, k, am, ak, None, bk, n, sk, sn, None, cm, cn, om, on)
                except ValueError:
                    key = types, *a._shape, *a._strides, None, *b._shape, *b._strides, None, *out._shape, *out._strides
            if runtime.where is not None:
                return product(a, b, out)
            plan = runtime.find(key)
        except (AttributeError, ValueError):  # other arrays; NumPy has no buffer of bfloat16
            return product(a, b, out)
        if plan is not None:
            place_a, place_b, place_c, function, grid, block, params, shared, _memory = plan.placed
            try:
                if pa == place_a and pb == place_b and pc == place_c:
                    function(grid, block, params, shared)
                    return out
                if not (pa | pb | pc) & 15 and (not (plan.allocates or out is None) or not runtime.device.capturing()):
                    return plan.run(a, b, out, (), pa, pb, pc)
            except runtime.troubles as error:
                plan = runtime.instead(key, plan, error, a, b, out, (), None, None)
                return plan.run(a, b, out, (), pa, pb, pc)
        return product(a, b, out)

    return short  # type: ignore[return-value]


@_short
@adopting
def matmul(
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    alpha: Any = 1,
    bias: Any = None,
    add: Any = None,
    activation: str | None = None,
    epilogue: Any = None,
    dtype: Any = None,
    precision: str | None = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
    prologue: Any = None,
) -> Any:
    """Matrix product of two arrays with a fused epilogue: `activation(alpha * a @ b + bias + add)`.

    `a` (..., m, k) and `b` (..., k, n) are CuPy arrays (NumPy arrays inside `emulated`); shapes, broadcasting,
    one-dimensional operands, dtype promotion, `out` and errors are those of `cupy.matmul`. The result has shape
    (..., m, n).

    `alpha` is a number (complex for complex results); `bias` and `add` are arrays that broadcast to the result;
    `activation` is one of
    relu, relu6, gelu, gelu_tanh, silu, tanh, sigmoid. `epilogue` gives operations in any order instead:
    `[("bias", x), "relu", ("mul", y), ("scale", 0.5), ("mask", keep, fill), ("add", z), "cast"]`, up to six in a
    kernel. The epilogue is computed in the accumulator's type (float32 for float16 and bfloat16) and rounded once.

    Gates, as `activation` or in front in `epilogue`, where one bias may come before them: swiglu, geglu, geglu_tanh and
    reglu are `f(a @ g) * (a @ u)` in one kernel with f = silu, gelu, gelu_tanh, relu, where `b` (..., k, 2 n) is
    [g, u] side by side, `bias` (2 n,) likewise, and the result (..., m, n).

    `epilogue` may have one norm of the result's rows, "layernorm" or "rmsnorm", or ("layernorm", eps), with eps 1e-5
    and 1e-6 by default: `[("bias", x), ("add", residual), "layernorm", ("mul", weight), ("bias", shift)]`.

    `prologue` are operations on `a` as kernels read it: `prologue=[("mul", gamma), ("bias", beta), "relu"]` is
    `relu(a * gamma + beta) @ b` without that array in memory. They are written as in `epilogue`, of scale, bias, mul
    and the activations; arrays broadcast to `a`, and kernels take two of shape (k,), a scale, and six operations. They
    are computed in the accumulator's type and rounded once to the operands' dtype. What kernels do not take, and what
    stands beside a gate, a norm or `dtype_a`, is computed in front by the array library.

    `dtype`, or the dtype of `out`, may be wider than the operands': int32 for int8 gives the exact sums.
    `precision` is "ieee" or "tf32" for float32 operands; None follows CuPy's own TF32 switch. For float64 ones "ozaki"
    allows exact products of 8-bit slices on integer tensor cores, within the same bound on errors: many times faster
    on parts that multiply float64 slowly (RTX 4090, L4, Orin). For complex operands "3m"
    allows three real products in place of four: faster where multiplication is what takes the time, with errors small
    beside |a| |b| but not beside a small real or imaginary part. The operations of complex numbers are scale, bias,
    add, mul, mask and cast.

    `dtype_a` and `dtype_b` say what the bytes of an operand are where the array does not: "float8_e4m3fn" or
    "float8_e5m2" for arrays of uint8 (or of ml_dtypes' types), "int8" beside floating-point numbers. Kernels widen such
    an operand as they read it, exactly, to float16 or to the other operand's type, and sum in float32; nothing is
    copied. The result has the dtype of the wider operand, float32 where both have 8 bits, or `dtype`.

    Raises ValueError for shapes that do not fit and unknown names, TypeError for dtypes that cannot be cast and
    for operands that are no arrays of this device, UnsupportedError for operations that complex numbers lack.
    """
    runtime = current.only or current.inside.get() or current.lookup()
    if prologue is not None:
        from gensor_kernels.dispatch.functions.prologue_matmul import matmul_behind

        asked, types = (alpha, bias, add, activation, epilogue), (dtype_a, dtype_b)
        return matmul_behind(runtime, a, b, asked, prologue, out, dtype, precision, types)
    if dtype_a is not None or dtype_b is not None:
        from gensor_kernels.dispatch.functions.mixed_input import typed_product

        steps = unfused("matmul of operands with dtype_a or dtype_b", alpha, bias, add, activation, epilogue)
        return typed_product(runtime, (a, b), out, steps, dtype, precision, (dtype_a, dtype_b))
    if bias is None and add is None and activation is None and epilogue is None and alpha is _ONE:
        return runtime.call(a, b, out, (), dtype, precision)
    try:
        steps = operations(alpha, bias, add, activation, epilogue)
    except FusedAsked:
        from gensor_kernels.dispatch.functions.gated import fused

        return fused(runtime, a, b, (alpha, bias, add, activation, epilogue), out, dtype, precision)
    return runtime.call(a, b, out, steps, dtype, precision)
