"""conv1d, conv2d and conv_transpose2d, with the arguments of torch.nn.functional. Imports little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gensor_kernels.dispatch.calls.arguments import Operation, unfused
from gensor_kernels.dispatch.calls.conv_parameters import IMAGES, Parameters
from gensor_kernels.dispatch.calls.whole import padding_pairs, pair, whole
from gensor_kernels.dispatch.observe.dry_run import product

from .current import current_runtime
from .interop import adopting

#: What convolutions may be asked for; "winograd" changes nothing where a convolution is a matrix product.
PRECISIONS = (None, "ieee", "tf32", "winograd")


@adopting
def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    add: Any = None,
    activation: str | None = None,
    layout: str = "NCHW",
    out: Any = None,
    precision: str | None = None,
    prologue: Any = None,
) -> Any:
    """2-D convolution with a fused epilogue, `activation(x * w + bias + add)`, as torch.nn.functional.conv2d.

    `x` is (n, c, h, w) and `w` (k, c / groups, r, s); with `layout="NHWC"` `x` is (n, h, w, c) and `w` (k, r, s,
    c / groups). The result is (n, k, oh, ow), or (n, oh, ow, k), in memory with channels innermost where those of `x`
    are. `stride` and `dilation` are integers or (h, w) pairs; `padding` too, or ((top, bottom), (left, right)), or
    "same" (stride 1) or "valid". `bias` is (k,); `add` broadcasts to the result; `activation` as in `matmul`.

    The dtypes are those of `matmul`: float16, bfloat16, float32, float64, and int8, whose sums are int32. Sums of
    float16 and bfloat16 are taken in float32. `precision` is "ieee" or "tf32" for float32 operands; None follows
    CuPy's own TF32 switch. "winograd" allows Winograd's F(2 x 2, 3 x 3) where a float32 filter is 3 x 3 and moves by
    one, without dilation and groups: errors are some times larger than those of "ieee", and where an infinity is read,
    the result may be NaN. Anywhere else it means "ieee".

    `prologue` are operations on `x` as kernels read it, as in `matmul`: `[("mul", gamma), ("bias", beta), "relu"]` with
    arrays (c,), one element per channel, is a folded batch norm and its activation. Padding is 0 behind them. Arrays of
    more axes broadcast to `x`.

    An image without channels gives the epilogue of zeros. Raises ValueError for shapes and arguments that do not fit,
    TypeError for operands that are no arrays of this device. CuPy has no convolution of its own: where no kernel
    serves, products of shifted images are summed.
    """
    parameters = _parameters(stride, padding, dilation, groups, layout, w)
    return _convolution(x, w, bias, add, activation, out, precision, parameters, prologue)


@adopting
def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    *,
    add: Any = None,
    activation: str | None = None,
    layout: str = "NCW",
    out: Any = None,
    precision: str | None = None,
    prologue: Any = None,
) -> Any:
    """1-D convolution, as torch.nn.functional.conv1d: `x` (n, c, w) and `w` (k, c / groups, s), or with
    `layout="NWC"` (n, w, c) and (k, s, c / groups). Everything else as in :func:`conv2d`."""
    if layout not in ("NCW", "NWC"):
        raise ValueError(f"layout must be 'NCW' or 'NWC', not {layout!r}")
    axis = 2 if layout == "NCW" else 1
    if x.ndim != 3 or w.ndim != 3:
        raise ValueError(f"conv1d: expected an image and weights of 3 axes, not {x.ndim} and {w.ndim}")
    (_, step), (_, spread) = pair("stride", _one(stride), 1), pair("dilation", _one(dilation), 1)
    pads = padding if isinstance(padding, str) else (0, whole("padding", _one(padding), 0))
    lifted = [None if value is None else _lift(value, axis, x.ndim) for value in (add, out)]
    parameters = _parameters((1, step), pads, (1, spread), groups, "NCHW" if axis == 2 else "NHWC", _lift(w, axis, 3))
    found = _convolution(
        *(_lift(x, axis, 3), _lift(w, axis, 3), bias, lifted[0], activation, lifted[1], precision, parameters),
        [_lift_step(item, 3 - axis) for item in prologue] if isinstance(prologue, (list, tuple)) else prologue,
    )
    return out if out is not None else found.reshape(*found.shape[:axis], *found.shape[axis + 1 :])


@adopting
def conv_transpose2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    *,
    add: Any = None,
    activation: str | None = None,
    layout: str = "NCHW",
    out: Any = None,
    precision: str | None = None,
    prologue: Any = None,
) -> Any:
    """Transposed 2-D convolution (the gradient of one in its image), as torch.nn.functional.conv_transpose2d.

    `x` is (n, c, h, w) and `w` (c, k / groups, r, s), or with `layout="NHWC"` (n, h, w, c) and (c, r, s, k / groups).
    The result has (h - 1) stride - 2 padding + dilation (r - 1) + output_padding + 1 rows, columns likewise.
    Everything else as in :func:`conv2d`; weights are copied into the order kernels take at every call.
    """
    parameters = _parameters(stride, padding, dilation, groups, layout, w, output_padding)
    return _convolution(x, w, bias, add, activation, out, precision, parameters, prologue)


def _convolution(
    x: Any,
    w: Any,
    bias: Any,
    add: Any,
    activation: str | None,
    out: Any,
    precision: str | None,
    p: Parameters,
    prologue: Any = None,
) -> Any:
    from gensor_kernels.dispatch.functions.convolution import CONVOLUTION
    from gensor_kernels.dispatch.functions.window import DEPTHWISE, is_depthwise
    from gensor_kernels.dispatch.plans.calls import call

    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(map(repr, PRECISIONS))}, not {precision!r}")
    if bias is not None and p.layout == "NCHW":
        bias = bias.reshape(-1, 1, 1)
    steps = unfused("a convolution", 1, bias, add, activation)
    runtime = current_runtime()
    if prologue is not None:
        from gensor_kernels.dispatch.functions.prologue_convolution import (
            PREPARED_CONVOLUTION,
            PREPARED_DEPTHWISE,
            convolution,
        )

        x, vectors, prepared = convolution(runtime, x, w, prologue, p)
        if prepared is not None:
            behind = PREPARED_DEPTHWISE if is_depthwise(x, w, p) else PREPARED_CONVOLUTION
            return call(runtime, behind, (x, w, *vectors), prepared, out, steps, precision)
    if _is_product(p, w):
        found = _product(x, w, steps, out, "ieee" if precision == "winograd" else precision, p)
        if found is not None:
            return found
    function = DEPTHWISE if is_depthwise(x, w, p) else CONVOLUTION
    return call(runtime, function, (x, w), p, out, steps, precision)


def _is_product(p: Parameters, w: Any) -> bool:
    sizes = dict(p.sizes)
    moving = any(sizes[name] for name in sizes if name.startswith("pad_")) or p.transposed or w.ndim != 4
    taps = () if moving else [w.shape[axis] for axis in p.weights[1:3]]
    return not moving and (*taps, sizes["stride_h"], sizes["stride_w"], sizes["groups"]) == (1,) * 5


def _product(x: Any, w: Any, steps: tuple[Operation, ...], out: Any, precision: str | None, p: Parameters) -> Any:
    """A convolution of 1 x 1 as a matrix product of the arrays as they lie; None where they lie otherwise."""
    from gensor_kernels.dispatch.functions.convolution import full_sizes

    full_sizes(x.shape, w.shape, p)
    flat, dtype = w.reshape(w.shape[0], x.shape[IMAGES[p.layout][3]]), "int32" if x.dtype == w.dtype == "int8" else None
    if p.layout == "NHWC":
        return product(current_runtime(), x, flat.T, out, steps, dtype, precision)
    n, _, h, width = x.shape
    arrays = [x, out, *(step.operand for step in steps if step.operand is not None and step.operand.ndim == 4)]
    if not all(array is None or array.flags.c_contiguous for array in arrays):
        return None

    def rows(array: Any) -> Any:
        if array is None or array.ndim < 2:
            return array
        return array.reshape(*array.shape[:-2], array.shape[-2] * array.shape[-1])

    flatter = tuple(step._replace(operand=rows(step.operand)) for step in steps)
    if any(s.operand is not None and s.operand.shape[-1] not in (1, h * width) for s in flatter):
        return None
    found = product(current_runtime(), flat, rows(x), rows(out), flatter, dtype, precision)
    return out if out is not None else found.reshape(n, w.shape[0], h, width)


# ---- arguments


def _parameters(
    stride: Any, padding: Any, dilation: Any, groups: Any, layout: str, w: Any, output_padding: Any = None
) -> Parameters:
    if layout not in IMAGES:
        raise ValueError(f"layout must be one of {', '.join(map(repr, IMAGES))}, not {layout!r}")
    (stride_h, stride_w), (dilation_h, dilation_w) = pair("stride", stride, 1), pair("dilation", dilation, 1)
    transposed = output_padding is not None
    taps = [w.shape[axis] for axis in Parameters(layout, (), transposed).weights[1:3]] if w.ndim == 4 else [1, 1]
    (top, bottom), (left, right) = _padding(padding, (stride_h, stride_w), (dilation_h, dilation_w), taps)
    sizes = dict(stride_h=stride_h, stride_w=stride_w, dilation_h=dilation_h, dilation_w=dilation_w)
    sizes |= dict(groups=whole("groups", groups, 1), pad_top=top, pad_bottom=bottom, pad_left=left, pad_right=right)
    if transposed:
        sizes["output_padding_h"], sizes["output_padding_w"] = pair("output_padding", output_padding, 0)
    return Parameters(layout, tuple(sizes.items()), transposed)


def _padding(padding: Any, stride: Sequence[int], dilation: Sequence[int], taps: Sequence[int]) -> Any:
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"padding must be 'same' or 'valid' where it is a word, not {padding!r}")
        if padding == "valid":
            return (0, 0), (0, 0)
        if tuple(stride) != (1, 1):
            raise ValueError("padding='same' needs stride 1")
        around = [d * (t - 1) for d, t in zip(dilation, taps, strict=True)]
        return tuple((each // 2, each - each // 2) for each in around)
    return padding_pairs(padding)


def _one(value: Any) -> Any:
    """The only entry of a sequence of one."""
    return value[0] if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1 else value


def _lift(array: Any, axis: int, ndim: int) -> Any:
    """An array with another axis of extent 1; one that broadcasts is left as it is."""
    if array.ndim < ndim:
        return array
    return array.reshape(*array.shape[:axis], 1, *array.shape[axis:])


def _lift_step(item: Any, behind: int) -> Any:
    """An operation as it is written, whose array has another axis of extent 1 before the last `behind`."""
    if isinstance(item, str) or len(item) < 2 or getattr(item[1], "ndim", 0) <= behind:
        return item
    name, array, *rest = item
    return (name, array.reshape(*array.shape[:-behind], 1, *array.shape[-behind:]), *rest)
