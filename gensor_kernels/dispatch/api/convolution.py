"""conv1d, conv2d and conv_transpose2d, with the arguments of torch.nn.functional. Imports little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels.dispatch.calls.arguments import WIDER_RESULTS, Operation, plain_operations
from gensor_kernels.dispatch.calls.conv_parameters import IMAGES, Parameters, read_parameters
from gensor_kernels.dispatch.calls.whole import pair, whole
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import like, public

if TYPE_CHECKING:
    from typing import Literal

    from gensor_kernels.arrays import ArrayLike
    from gensor_kernels.dispatch.calls.array import Activation, ConvolutionPrecision, DeviceArray, Items

#: Values of `precision`.
PRECISIONS = (None, "ieee", "tf32")


@public
def conv2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    add: ArrayLike | None = None,
    activation: Activation | None = None,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    out: ArrayLike | None = None,
    precision: ConvolutionPrecision | None = None,
    prologue: Items | None = None,
) -> DeviceArray:
    """Compute a 2-D convolution with a fused epilogue.

    The result is `activation(x * w + bias + add)`.

    The signature is that of `torch.nn.functional.conv2d`, with further keywords.

    Parameters
    ----------
    x : array, shape (n, c, h, w)
        Images; (n, h, w, c) with `layout="NHWC"`.
    w : array, shape (k, c / groups, r, s)
        Filters; (k, r, s, c / groups) with `layout="NHWC"`.
    bias : array, shape (k,), optional
        Term of each output channel.
    stride : int or pair of int, default 1
        Step of the filter along h and w.
    padding : int, pair, pair of pairs or str, default 0
        Zeros around the image: one number, (h, w) or ((top, bottom), (left, right)); or
        "valid" for none, or "same" for as many rows and columns as `x` has (stride 1).
    dilation : int or pair of int, default 1
        Distance between the taps of the filter along h and w.
    groups : int, default 1
        Groups of channels that are convolved separately.
    add : array, optional
        Term that broadcasts to the result.
    activation : str, optional
        Activation as in `matmul`, without gates.
    layout : {"NCHW", "NHWC"}, default "NCHW"
        Order of axes.
    out : array, optional
        Array that receives the result.
    precision : {None, "ieee", "tf32"}, optional
        Arithmetic of float32. The default, None, follows CuPy's TF32 switch.
    prologue : list, optional
        Operations on `x` as kernels read it, as in `matmul`. Arrays of shape (c,) have
        one element per channel; arrays of more axes broadcast to `x`.

    Returns
    -------
    array, shape (n, k, oh, ow) or (n, oh, ow, k)
        A new array of the promoted dtype (int32 for int8), or `out`. Channels are
        innermost in memory where they are innermost in `x`.

    Raises
    ------
    ValueError
        If shapes or arguments do not fit.
    TypeError
        If an operand is not an array of this device.
    UnsupportedError
        If `activation` is a gate.

    Notes
    -----
    Kernels serve float16, bfloat16, float32, float64 and int8, without an im2col buffer
    [1]_. float16 and bfloat16 are summed in float32, int8 in int32. CuPy has no
    convolution: where no kernel serves, products of shifted images are summed. The zeros
    around the image are operands: their products with NaN and infinities in `w` are NaN.

    `prologue=[("mul", gamma), ("bias", beta), "relu"]` is a folded batch norm and its
    activation. Padding is 0 after the prologue.

    Images without channels give the epilogue of zeros.

    References
    ----------
    .. [1] S. Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning",
       arXiv:1410.0759.

    Examples
    --------
    >>> x = np.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    >>> w = np.ones((1, 1, 3, 3), "float32")
    >>> bias = np.array([-50], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.conv2d(x, w, bias, activation="relu")
    array([[[[ 0.,  4.],
             [31., 40.]]]], dtype=float32)
    """
    parameters = read_parameters(stride, padding, dilation, groups, layout, w)
    return _convolution(x, w, parameters, bias, add, activation, out, precision, prologue)


def conv2d_to(
    x: DeviceArray,
    w: DeviceArray,
    epilogue: Items,
    dtype: str,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    layout: str = "NCHW",
    out: DeviceArray = None,
) -> DeviceArray:
    """Compute a convolution with operations in any order and a result of another dtype, for models of integers.

    Arrays of the epilogue broadcast to the result. An int8 result drops the fraction that operations leave. TypeError
    for a dtype that kernels do not write from their sums.
    """
    parameters = read_parameters(stride, padding, dilation, groups, layout, w)
    promoted = np.promote_types(x.dtype, w.dtype)
    if dtype not in (promoted.name, *WIDER_RESULTS.get(promoted.name, ())):
        raise TypeError(f"conv2d: a result of {dtype} is not computed of {promoted.name}: cast x and w")
    return _convolution(x, w, replace(parameters, dtype=dtype), None, None, None, out, None, None, None, epilogue)


@like(conv2d)
def conv1d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    add: ArrayLike | None = None,
    activation: Activation | None = None,
    layout: Literal["NCW", "NWC"] = "NCW",
    out: ArrayLike | None = None,
    precision: ConvolutionPrecision | None = None,
    prologue: Items | None = None,
) -> DeviceArray:
    """Compute a 1-D convolution with a fused epilogue.

    The signature is that of `torch.nn.functional.conv1d`, with further keywords;
    `conv2d` has the notes on dtypes and precision.

    Parameters
    ----------
    x : array, shape (n, c, w)
        Signals; (n, w, c) with `layout="NWC"`.
    w : array, shape (k, c / groups, s)
        Filters; (k, s, c / groups) with `layout="NWC"`.
    stride : int, default 1
        Step of the filter.
    padding : int or {"same", "valid"}, default 0
        Zeros on either side.
    dilation : int, default 1
        Distance between the taps of the filter.
    layout : {"NCW", "NWC"}, default "NCW"
        Order of axes.

    Returns
    -------
    array, shape (n, k, ow) or (n, ow, k)
        A new array, or `out`.

    Examples
    --------
    >>> x = np.arange(6, dtype="float32").reshape(1, 1, 6)
    >>> w = np.array([[[1, 0, -1]]], "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.conv1d(x, w)
    array([[[-2., -2., -2., -2.]]], dtype=float32)
    """
    if layout not in ("NCW", "NWC"):
        raise ValueError(f"layout must be 'NCW' or 'NWC', not {shown(layout)}")
    axis = 2 if layout == "NCW" else 1
    if x.ndim != 3 or w.ndim != 3:
        raise ValueError(f"conv1d: x and w have 3 axes ({layout}), not {x.ndim} and {w.ndim}")
    (_, step), (_, spread) = pair("stride", _one(stride), 1), pair("dilation", _one(dilation), 1)
    pads = padding if isinstance(padding, str) else (0, whole("padding", _one(padding), 0))
    image, filters = _lift(x, axis), _lift(w, axis)
    parameters = read_parameters((1, step), pads, (1, spread), groups, "NCHW" if axis == 2 else "NHWC", filters)
    if isinstance(prologue, (list, tuple)):
        prologue = [_lift_step(item, 3 - axis) for item in prologue]
    found = _convolution(image, filters, parameters, bias, add, activation, out, precision, prologue, axis)
    return out if out is not None else found.reshape(*found.shape[:axis], *found.shape[axis + 1 :])


@like(conv2d)
def conv_transpose2d(
    x: ArrayLike,
    w: ArrayLike,
    bias: ArrayLike | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | Sequence[Sequence[int]] | str = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
    *,
    add: ArrayLike | None = None,
    activation: Activation | None = None,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    out: ArrayLike | None = None,
    precision: ConvolutionPrecision | None = None,
    prologue: Items | None = None,
) -> DeviceArray:
    """Compute a transposed 2-D convolution with a fused epilogue.

    It is the gradient of a convolution in its image.

    The signature is that of `torch.nn.functional.conv_transpose2d`, with further
    keywords; `conv2d` has the notes on dtypes and precision.

    Parameters
    ----------
    w : array, shape (c, k / groups, r, s)
        Filters; (c, r, s, k / groups) with `layout="NHWC"`. Every call copies them into
        the order that kernels take.
    stride : int or pair of int, default 1
        Step of the filter in the result along h and w.
    padding : int, pair, pair of pairs or str, default 0
        Rows and columns that are taken off the result, written as in `conv2d`.
    output_padding : int or pair of int, default 0
        Rows and columns that are added at the end of the result.

    Returns
    -------
    array, shape (n, k, oh, ow) or (n, oh, ow, k)
        A new array, or `out`, with oh = (h - 1) stride - 2 padding + dilation (r - 1) +
        output_padding + 1, and ow by the same formula.

    Notes
    -----
    Kernels convolve `x` with zeros between its elements. Where `w` has NaN or infinities,
    their products with these zeros are NaN, in any element of that filter's result.

    References
    ----------
    .. [1] V. Dumoulin and F. Visin, "A guide to convolution arithmetic for deep
       learning", arXiv:1603.07285.

    Examples
    --------
    >>> x = np.array([[[[1, 2], [3, 4]]]], "float32")
    >>> w = np.ones((1, 1, 2, 2), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.conv_transpose2d(x, w, stride=2)
    array([[[[1., 1., 2., 2.],
             [1., 1., 2., 2.],
             [3., 3., 4., 4.],
             [3., 3., 4., 4.]]]], dtype=float32)
    """
    parameters = read_parameters(stride, padding, dilation, groups, layout, w, output_padding)
    return _convolution(x, w, parameters, bias, add, activation, out, precision, prologue)


def _convolution(
    x: DeviceArray,
    w: DeviceArray,
    p: Parameters,
    bias: DeviceArray,
    add: DeviceArray,
    activation: str | None,
    out: DeviceArray,
    precision: str | None,
    prologue: Any,
    lifted: int | None = None,
    epilogue: Items | None = None,
) -> DeviceArray:
    """Compute a convolution of images; `lifted` is the axis of the result that `add` and `out` of `conv1d` lack."""
    from gensor_kernels.dispatch.functions.convolution import CONVOLUTION
    from gensor_kernels.dispatch.functions.window import DEPTHWISE

    term, target = (add, out) if lifted is None else (_lift(add, lifted), _lift(out, lifted))
    try:
        if precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, not {shown(precision)}")
        if bias is not None:
            bias = _bias(bias, w, p)
        steps = plain_operations("a convolution", 1, bias, term, activation, epilogue)
        runtime = current_runtime()
        if prologue is not None:
            from gensor_kernels.dispatch.functions.prologue_convolution import PROLOGUE_CONVOLUTION, PROLOGUE_DEPTHWISE

            from .prologue import convolution

            x, vectors, parameters = convolution(runtime, x, w, prologue, p)
            if parameters is not None:
                is_depthwise = _kind(tuple(x.shape), tuple(w.shape), p).depthwise
                function = PROLOGUE_DEPTHWISE if is_depthwise else PROLOGUE_CONVOLUTION
                return runtime.serve(function, (x, w, *vectors), parameters, target, steps, precision)
        kind = _kind(tuple(x.shape), tuple(w.shape), p)
        if kind.product:
            found = _product(x, w, steps, target, precision, p)
            if found is not None:
                return found
        return runtime.serve(DEPTHWISE if kind.depthwise else CONVOLUTION, (x, w), p, target, steps, precision)
    except ValueError:
        _refuse_misfits(x, w, p, lifted, add=add, out=out)
        raise


def _bias(bias: DeviceArray, w: DeviceArray, p: Parameters) -> DeviceArray:
    """Return the bias as it broadcasts to the result; ValueError for another number than one per filter."""
    if w.ndim == 4:
        filters = w.shape[p.weights[0]] * (dict(p.sizes)["groups"] if p.transposed else 1)
        if tuple(bias.shape) != (filters,):
            raise ValueError(f"bias has shape {tuple(bias.shape)}, w has {filters} filters")
    return bias.reshape(-1, 1, 1) if p.layout == "NCHW" else bias


def _refuse_misfits(
    x: DeviceArray, w: DeviceArray, p: Parameters, lifted: int | None = None, **placed: DeviceArray
) -> None:
    """Raise ValueError, with shapes as the caller wrote them, for a `placed` array that does not fit.

    `lifted` is the axis of the result that a 1-D convolution does not have.
    """
    from gensor_kernels.dispatch.functions.convolution import CONVOLUTION

    try:
        shape = CONVOLUTION.result((x, w), p).shape
    except ValueError:  # x and w do not fit: the caller's own error says so
        return
    shape = tuple(extent for axis, extent in enumerate(shape) if axis != lifted)
    for name, array in placed.items():
        own = () if array is None else tuple(array.shape)
        fits = all(n == m or (n == 1 and name != "out") for n, m in zip(own[::-1], shape[::-1], strict=False))
        if len(own) > len(shape) or not fits or (name == "out" and own and own != shape):
            raise ValueError(f"{name} has shape {own}, the result {shape}") from None


class _Kind(NamedTuple):
    """Whether a convolution is a matrix product, and whether it has one channel and one filter per group."""

    product: bool
    depthwise: bool


@lru_cache(maxsize=4096)
def _kind(x: tuple[int, ...], w: tuple[int, ...], p: Parameters) -> _Kind:
    """Return the kind of a convolution of these shapes; ValueError where they do not fit."""
    from gensor_kernels.dispatch.functions.convolution import full_sizes

    if p.transposed or len(x) != 4 or len(w) != 4:
        return _Kind(False, False)
    sizes = full_sizes(x, w, p)
    padded = any(size for name, size in p.sizes if name.startswith("pad_"))
    fixed = all(sizes[name] == 1 for name in ("r", "s", "stride_h", "stride_w", "groups"))
    return _Kind(fixed and not padded, sizes["groups"] == sizes["c"] == sizes["k_out"])


def _product(
    x: DeviceArray, w: DeviceArray, steps: tuple[Operation, ...], out: DeviceArray, precision: str | None, p: Parameters
) -> DeviceArray:
    """Return a convolution of 1 x 1 as a matrix product without copies, or None if the layouts do not allow that."""
    flat = w.reshape(w.shape[0], x.shape[IMAGES[p.layout][3]])
    dtype = p.dtype or ("int32" if x.dtype == w.dtype == "int8" else None)
    if p.layout == "NHWC":
        return current_runtime().call(x, flat.T, out, steps, dtype, precision)
    n, _, h, width = x.shape
    arrays = [x, out, *(step.operand for step in steps if step.operand is not None and step.operand.ndim == 4)]
    if not all(array is None or array.flags.c_contiguous for array in arrays):
        return None

    def rows(array: DeviceArray) -> DeviceArray:
        if array is None or array.ndim < 2:
            return array
        return array.reshape(*array.shape[:-2], array.shape[-2] * array.shape[-1])

    flatter = tuple(step._replace(operand=rows(step.operand)) for step in steps)
    if any(s.operand is not None and s.operand.shape[-1:] not in ((), (1,), (h * width,)) for s in flatter):
        return None
    found = current_runtime().call(flat, rows(x), rows(out), flatter, dtype, precision)
    return out if out is not None else found.reshape(n, w.shape[0], h, width)


def _one(value: Any) -> Any:
    """Return the only entry of a sequence of one."""
    return value[0] if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1 else value


def _lift(array: DeviceArray, axis: int | None) -> DeviceArray:
    """Return an array of three axes with another axis of extent 1; one that broadcasts is left as it is."""
    if array is None or axis is None or array.ndim < 3:
        return array
    return array.reshape(*array.shape[:axis], 1, *array.shape[axis:])


def _lift_step(item: Any, trailing: int) -> Any:
    """Return an operation whose array gets an axis of extent 1 before its last `trailing` ones."""
    if isinstance(item, str) or len(item) < 2 or getattr(item[1], "ndim", 0) <= trailing:
        return item
    name, array, *rest = item
    return (name, array.reshape(*array.shape[:-trailing], 1, *array.shape[-trailing:]), *rest)
