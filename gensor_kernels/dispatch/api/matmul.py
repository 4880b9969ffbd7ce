"""matmul: the public function. Imports little: a first call loads the rest."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.dispatch.calls.arguments import FusedEpilogue, named_dtype, operations, plain_operations
from gensor_kernels.dispatch.key import short
from gensor_kernels.shown import shown

from . import current
from .interop import public

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import Activation, Items, Precision
    from gensor_kernels.dispatch.plans.runtime import Runtime

_ONE = 1  # by identity: comparing an array with 1 would wait for the device
#: eps where a call names none: PyTorch's of a layer norm, Llama's of an rms norm.
EPS = {"layernorm": 1e-5, "rmsnorm": 1e-6}


@partial(short, current)
@public
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    /,
    out: ArrayLike | None = None,
    *,
    alpha: complex | ArrayLike = 1,
    bias: ArrayLike | None = None,
    add: ArrayLike | None = None,
    activation: Activation | None = None,
    epilogue: Items | None = None,
    dtype: DTypeLike | None = None,
    precision: Precision | None = None,
    dtype_a: DTypeLike | None = None,
    dtype_b: DTypeLike | None = None,
    prologue: Items | None = None,
) -> DeviceArray:
    """Multiply two matrices and apply a fused epilogue.

    The result is `activation(alpha * a @ b + bias + add)`, computed in one kernel.

    The signature is that of `cupy.matmul`, without `axes`, `axis`, `keepdims`,
    `casting`, `order` and `signature`, and with further keywords. Shapes, broadcasting,
    one-dimensional operands, dtype promotion, `out` and errors are those of
    `cupy.matmul`; `out` may also have the wider dtype of the sums.

    Parameters
    ----------
    a : array, shape (..., m, k) or (k,)
        Left operand: a CuPy array, or a NumPy array inside `emulated`.
    b : array, shape (..., k, n) or (k,)
        Right operand. With a gate, its shape is (..., k, 2 n).
    out : array, shape (..., m, n), optional
        Array that receives the result.
    alpha : number, default 1
        Factor of the product; complex only where the result is complex.
    bias, add : array, optional
        Terms added to the product; each broadcasts to the result.
    activation : str, optional
        "relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid" or a gate:
        "swiglu", "geglu", "geglu_tanh", "reglu".
    epilogue : list, optional
        Operations in any order, in place of `bias`, `add` and `activation`:
        `[("bias", x), "relu", ("mul", y), ("scale", 0.5), ("mask", keep, fill),
        ("add", z), "cast"]`, with one gate or one norm at most; kernels take up to six.
        "mask" gives `fill` where `keep` is 0, "cast" rounds to the dtype of the result.
    dtype : dtype, optional
        Dtype of the result; by default the dtype of `out`, or the promoted dtype.
        It may be wider than the operands' dtype: int32 for int8 gives exact sums.
    precision : {None, "ieee", "tf32", "ozaki", "3m"}, optional
        Arithmetic that kernels may use: "tf32" for float32 (None follows CuPy's own
        switch), "ozaki" for float64, "3m" for complex numbers.
    dtype_a, dtype_b : {"float8_e4m3fn", "float8_e5m2", "int8"}, optional
        Element type of an operand stored in 8 bits, widened as kernels read it.
    prologue : list, optional
        Operations on `a` as kernels read it, written as in `epilogue`:
        `[("mul", gamma), ("bias", beta), "relu"]` gives `relu(a * gamma + beta) @ b`.

    Returns
    -------
    array, shape (..., m, n)
        A new array, or `out`.

    Raises
    ------
    ValueError
        If shapes do not fit, or a name is unknown.
    TypeError
        If a dtype cannot be cast, or an operand is not an array of this device.
    UnsupportedError
        If an operation is not defined for complex numbers. Complex results take
        scale, bias, add, mul, mask and cast.

    Notes
    -----
    Kernels serve float16, bfloat16, float32, float64, int8, complex64 and complex128
    with any strides; CuPy computes other calls. float16 and bfloat16 are summed in
    float32. The epilogue is computed in the accumulator's type and rounded once.

    A gate takes `b` as two matrices g and u side by side, and gives `f(a @ g) * (a @ u)`.
    A norm in an `epilogue`, "layernorm" or `("rmsnorm", eps)`, normalises the rows of
    the result. docs/dispatch.md has the rules of precision, gates, norms, prologues and
    operands in 8 bits.

    Examples
    --------
    >>> import numpy as np, gensor_kernels
    >>> a = np.arange(6, dtype="float32").reshape(2, 3)
    >>> b = np.ones((3, 2), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.matmul(a, b)
    array([[ 3.,  3.],
           [12., 12.]], dtype=float32)

    On a GPU, with CuPy arrays, `emulated` is left out. An epilogue, first by keywords,
    then as a list:

    >>> bias = np.array([-5, 0], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.matmul(a, b, bias=bias, activation="relu")
    ...     gensor_kernels.matmul(a, b, epilogue=["relu", ("scale", 2), ("bias", bias)])
    array([[ 0.,  3.],
           [ 7., 12.]], dtype=float32)
    array([[ 1.,  6.],
           [19., 24.]], dtype=float32)

    Exact sums of int8, which would wrap around:

    >>> x = np.full((1, 4), 100, "int8")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.matmul(x, x.T, dtype="int32")
    array([[40000]], dtype=int32)
    """
    runtime = current.only or current.inside.get() or current.lookup()
    if prologue is not None:
        from .prologue import apply_prologue, product

        if dtype_a is None and dtype_b is None:
            with suppress(FusedEpilogue):
                steps = operations(alpha, bias, add, activation, epilogue)
                return product(runtime, a, b, prologue, out, steps, dtype, precision)
        a = apply_prologue(runtime, a, prologue)
    if dtype_a is not None or dtype_b is not None:
        from .scaled_matmul import mixed_matmul

        steps = plain_operations("matmul of operands with dtype_a or dtype_b", alpha, bias, add, activation, epilogue)
        return mixed_matmul(runtime, a, b, (dtype_a, dtype_b), out, steps, dtype, precision)
    if bias is None and add is None and activation is None and epilogue is None and alpha is _ONE:
        return runtime.call(a, b, out, (), dtype, precision)
    try:
        steps = operations(alpha, bias, add, activation, epilogue)
    except FusedEpilogue:
        return fused(runtime, a, b, (alpha, bias, add, activation, epilogue), out, dtype, precision)
    return runtime.call(a, b, out, steps, dtype, precision)


def fused(
    runtime: Runtime,
    a: DeviceArray,
    b: DeviceArray,
    arguments: Any,
    out: DeviceArray,
    dtype: DTypeLike | None,
    precision: str | None,
) -> DeviceArray:
    """Compute a matmul with a gate or a norm in its epilogue; `arguments` are the arguments of `operations`."""
    from gensor_kernels.dispatch.functions.fused_matmul import GATED, NORMED, Norm
    from gensor_kernels.operators.products import gated
    from gensor_kernels.operators.types.epilogue import NORMS

    alpha, bias, add, activation, epilogue = arguments
    items = [activation] if epilogue is None else list(epilogue)
    names = [_name_of(item) for item in items]
    is_norm = any(name in NORMS for name in names)
    place = next(place for place, name in enumerate(names) if name in (NORMS if is_norm else gated.GATES))
    name, values = names[place], () if isinstance(items[place], str) else items[place][1:]
    if is_norm and (len(values) > 1 or any(not isinstance(each, (int, float)) or not each > 0 for each in values)):
        raise ValueError(f"{name} takes an eps above 0, as in ('{name}', 1e-5), not {shown(values)}")
    if values and not is_norm:
        raise ValueError(f"epilogue operation {name!r} takes no values")
    try:
        first = (alpha, bias, add) if epilogue is None else (alpha, bias, add, activation, items[:place])
        before = operations(*first)
        if not is_norm and (len(before) > 1 or any(step.name != "bias" for step in before)):
            named = ", ".join(step.name for step in before)
            raise ValueError(f"only one bias may come before {name}, not {named}")
        after = operations(epilogue=items[place + 1 :])
    except FusedEpilogue:
        raise ValueError(f"an epilogue has one gate{' or norm' if is_norm else ''} at most") from None
    given = None if dtype is None else named_dtype(dtype)
    if is_norm:
        norm = Norm(name, float(values[0]) if values else EPS[name], len(before), given)
        return runtime.serve(NORMED, (a, b), norm, out, (*before, *after), precision)
    own = before[0].operand if before else None
    return runtime.serve(GATED[gated.GATES[name]], (a, b, own), given, out, after, precision)


def _name_of(item: Any) -> str:
    """Return the name of an epilogue's operation, "" for an item without one."""
    name = item[0] if isinstance(item, (tuple, list)) and item else item
    return name if isinstance(name, str) else ""
