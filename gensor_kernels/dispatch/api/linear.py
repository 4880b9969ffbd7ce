"""`linear`: a layer of a network with its activation, gates, quantised weights and prologues. Imports little."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import FusedEpilogue, operations
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.epilogue import GATES
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import public

if TYPE_CHECKING:
    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import Activation, DeviceArray, Items
    from gensor_kernels.dispatch.plans.runtime import Runtime


@public
def linear(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    activation: Activation | None = None,
    *,
    alpha: complex | ArrayLike = 1,
    scales: ArrayLike | None = None,
    zeros: ArrayLike | None = None,
    group: int | None = None,
    format: str | None = None,
    epilogue: Items | None = None,
    prologue: Items | None = None,
    out: ArrayLike | None = None,
) -> DeviceArray:
    """Apply a linear layer and an activation: `activation(alpha * x @ w.T + bias)`.

    The signature is that of `torch.nn.functional.linear`, with an activation and
    further keywords: one kernel does it all.

    Parameters
    ----------
    x : array, shape (..., in)
        Input.
    w : array, shape (out, in) or (in,)
        Weights; with a gate (2 out, in); quantised weights of 4 bits (out, in / 2).
    bias : array, optional
        Term added to the product; it broadcasts to the result. With a gate, its shape
        is (2 out,).
    activation : str, optional
        "relu", "relu6", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid" or a gate:
        "swiglu", "geglu", "geglu_tanh", "reglu".
    alpha : number or array, shape (), default 1
        Factor of the product, such as the scale of an NVFP4 tensor.
    scales : array, shape (out,) or (out, groups), optional
        Scales of quantised weights, one for a row or one for every `group` elements of
        a row.
    zeros : array, shape of `scales`, optional
        Zero points, integers like the weights; by default 0, and 8 for weights of
        4 bits.
    group : int, optional
        Elements of a row that share a scale, fewer in the last group; by default `in`
        over the number of scales, which divides it. Kernels take 32, 64 and 128.
    format : {"mxfp8", "mxfp8_e5m2", "mxfp4", "nvfp4"}, optional
        Block-scaled format of `w` and `scales`, as `quantize` returns them.
    epilogue : list, optional
        Operations in order, as in `matmul`, in place of `bias` and `activation`.
    prologue : list, optional
        Operations on `x` as kernels read it, as in `matmul`, with arrays of shape
        (in,): `linear(x, w, prologue=["gelu"])` is `gelu(x) @ w.T`.
    out : array, shape of the result, optional
        Array that receives the result, as in `matmul`.

    Returns
    -------
    array, shape (..., out) or (...)
        A new array of the promoted dtype (with quantised weights, of the dtype of `x`),
        or `out`.

    Raises
    ------
    ValueError
        If shapes or `out` do not fit, or a name is unknown.
    TypeError
        If an operand is not an array of this device.
    UnsupportedError
        If a gate is combined with quantised weights.

    Notes
    -----
    The epilogue is computed in the accumulator's type and rounded once.

    Gates: `w` holds the rows of the gate g above the rows of u, as Llama's merged
    gate_up_proj does. The result is `f(x @ g.T) * (x @ u.T)` with f = silu, gelu,
    gelu_tanh or relu [1]_.

    Quantised weights stand for `(w - zeros) * scales` and are int8 (out, in), or uint8
    (out, in / 2) with two numbers from 0 to 15 in a byte, the number of even index in
    the lower four bits. Kernels take `x` of float16 or bfloat16. They sum each group
    exactly and scale the sum, so the weights are never rounded. Scales are converted to
    the dtype of `x`. Weights in a `format` are not rounded either; their kernels need a
    GPU of compute capability 8.0, and rows of multiples of 4 bytes.

    References
    ----------
    .. [1] N. Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.

    Examples
    --------
    >>> x = np.arange(6, dtype="float32").reshape(2, 3)
    >>> w = np.array([[1, 1, 1], [1, 0, -1]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.linear(x, w, activation="relu")
    array([[ 3.,  0.],
           [12.,  0.]], dtype=float32)

    Weights of int8 with one scale for each row:

    >>> scales = np.array([0.5, 2], "float16")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.linear(x.astype("float16"), w.astype("int8"), scales=scales)
    array([[ 1.5, -4. ],
           [ 6. , -4. ]], dtype=float16)
    """
    runtime = current_runtime()
    try:
        if prologue is not None:
            from .prologue import apply_prologue, product

            if scales is None and zeros is None and group is None and format is None:
                runtime.check(x, w, out, (), None)
                with suppress(FusedEpilogue):
                    steps = operations(alpha, bias, None, activation, epilogue)
                    return product(runtime, x, transpose_weights(w), prologue, out, steps, None, None)
            x = apply_prologue(runtime, x, prologue)
        try:
            steps = operations(alpha, bias, None, activation, epilogue)
        except FusedEpilogue:
            if scales is not None:
                raise UnsupportedError(f"linear: {activation or 'a gate'} takes no quantised weights") from None
            from .matmul import fused

            return fused(runtime, x, transpose_weights(w), (alpha, bias, None, activation, epilogue), out, None, None)
        if format is not None:
            if scales is None or zeros is not None or group is not None:
                raise ValueError(f"linear: a format takes scales, and neither zeros nor group: {shown(format)}")
            from .scaled_matmul import formatted

            return formatted(runtime, "linear", (x, w, scales, None), steps, out, format, None)
        if scales is not None:
            return _quantised_linear(runtime, x, w, steps, (scales, zeros, group), out)
        if zeros is not None or group is not None:
            raise ValueError("linear: zeros and group belong to scales")
        return runtime.call(x, transpose_weights(w), out, steps, None, None)
    except ValueError:
        if scales is None and format is None:
            _refuse_misfits(x, w, activation)
        raise


def _quantised_linear(
    runtime: Runtime,
    x: DeviceArray,
    w: DeviceArray,
    steps: Any,
    quantised: tuple[Any, Any, int | None],
    out: DeviceArray,
) -> DeviceArray:
    """Return a linear layer of quantised weights; `quantised` are scales, zeros and group."""
    from gensor_kernels.dispatch.functions.low_precision_matmul import QUANTISED_LINEAR, Weights

    scales, zeros, group = quantised
    inputs = (x, w, scales, zeros)
    runtime.check_inputs(inputs, out, steps)
    return runtime.serve(QUANTISED_LINEAR, inputs, Weights.of(*inputs, group), out, steps)


def _refuse_misfits(x: DeviceArray, w: DeviceArray, activation: str | None) -> None:
    """Raise ValueError for weights that do not fit `x`: the product beneath calls them a and b."""
    if not x.ndim or not w.ndim or x.shape[-1] != w.shape[-1]:
        raise ValueError(f"linear: x is (..., in) and w (out, in), not {tuple(x.shape)} and {tuple(w.shape)}") from None
    if activation in GATES and (w.ndim < 2 or w.shape[0] % 2):
        raise ValueError(f"linear: with {activation}, w is (2 out, in), not {tuple(w.shape)}") from None


def transpose_weights(w: DeviceArray) -> DeviceArray:
    """Return the weights of `linear` as its product takes them."""
    if w.ndim > 2:
        raise ValueError(f"linear: w has the shape (out, in) or (in,), not {tuple(w.shape)}")
    return w.T
