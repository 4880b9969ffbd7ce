"""Products, sums of products and convolutions: one kernel each, with its epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gensor_kernels.dispatch.api.conv3d import conv3d
from gensor_kernels.dispatch.api.convolution import conv2d, conv2d_to, conv_transpose2d
from gensor_kernels.dispatch.api.linalg import einsum
from gensor_kernels.dispatch.api.linear import linear
from gensor_kernels.dispatch.api.matmul import matmul

from .base import FLOATS, Lowering, Run, Tensor, channels_first, channels_last, last_step, name_of, window_of
from .elementwise import wide

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.graph.ir.graph import Node

T = TypeVar("T")


def _matmul(run: Run, node: Node, a: Tensor, b: Tensor) -> Tensor:
    if name_of(a) not in FLOATS or a.size == 0 or b.size == 0:
        xp, a, b = run.together(a, b)
        return xp.matmul(a, b)
    return run.call(matmul, a, b, **_epilogue(run.epilogue(node)))


def _gemm(run: Run, node: Node, a: Tensor, b: Tensor, c: Tensor = None) -> Tensor:
    a = a.T if node.attribute("transA") else a
    b = b.T if node.attribute("transB") else b
    alpha, beta = node.attribute("alpha"), node.attribute("beta")
    if name_of(a) not in FLOATS or a.size == 0:
        xp, a, b, c = run.together(a, b, c)
        found = alpha * xp.matmul(a, b)
        return (found if c is None else found + beta * c).astype(a.dtype)
    items: list[Any] = [] if alpha == 1 else [("scale", alpha)]
    if c is not None and beta != 0:
        c = run.device(c)
        # NumPy makes scalars of arrays without axes.
        scaled = c if beta == 1 else run.xp.asarray(c * c.dtype.type(beta))
        items.append(("bias" if scaled.shape == (b.shape[1],) else "add", scaled))
    return run.call(matmul, a, b, **_epilogue(items + run.epilogue(node)))


def _linear(run: Run, node: Node, x: Tensor, numbers: Tensor, scales: Tensor, zeros: Tensor = None) -> Tensor:
    return run.call(linear, x, numbers, scales=scales, zeros=run.device(zeros), **_epilogue(run.epilogue(node)))


def _matmul_gate(run: Run, node: Node, a: Tensor, b: Tensor, bias: Tensor = None) -> Tensor:
    before = [] if bias is None else [("bias", run.device(bias))]
    return run.call(matmul, a, b, epilogue=[*before, node.attribute("gate"), *run.epilogue(node)])


def _epilogue(items: list[Any]) -> dict[str, Any]:
    return {"epilogue": items} if items else {}


def _einsum(run: Run, node: Node, *values: Tensor) -> Tensor:
    equation = node.attribute("equation").replace(" ", "")
    if all(name_of(each) in FLOATS for each in values) and len(values) > 1:
        return run.call(einsum, equation, *values)
    xp, *values = run.together(*values)  # type: ignore[assignment]
    return xp.einsum(equation, *values)


def _conv(run: Run, node: Node, x: Tensor, w: Tensor, bias: Tensor = None) -> Tensor:
    more: dict[str, Any] = {}
    for item in run.epilogue(node):
        if isinstance(item, str):
            more["activation"] = item
        else:
            more["add"] = two_axes(item[1], x.ndim - 2)
    more["add"] = channels_last(more.get("add")) if node.layout == "last" else more.get("add")
    return _convolve(run, node, conv2d, (x, w, bias), x.dtype, more)


def _integer_conv(run: Run, node: Node, x: Tensor, w: Tensor) -> Tensor:
    steps = [step if isinstance(step, str) else (step[0], two_axes(step[1], x.ndim - 2)) for step in run.epilogue(node)]
    steps = [last_step(step) for step in steps] if node.layout == "last" else steps
    dtype = node.attribute("to")
    return _convolve(run, node, conv2d_to, (x, w), dtype, {"epilogue": steps, "dtype": dtype})


def _integer_matmul(run: Run, node: Node, a: Tensor, b: Tensor) -> Tensor:
    return run.call(matmul, a, b, dtype=node.attribute("to"), epilogue=run.epilogue(node))


def _convolve(
    run: Run,
    node: Node,
    function: Callable[..., Any],
    given: Sequence[Tensor],
    dtype: DTypeLike,
    more: dict[str, Any],
) -> Tensor:
    """Call a function of convolutions with the node's window and layout."""
    x, w, *rest = given
    spatial, strides, dilations = window_of(node, x)
    pads = padding(node, x.shape[2:], w.shape[2:], strides, dilations)
    x, w = two_axes(run.device(x), spatial), two_axes(run.device(w), spatial)
    more |= {"stride": two(strides, 1), "padding": two(pads, (0, 0)), "dilation": two(dilations, 1)}
    more["groups"] = node.attribute("group")
    if spatial == 3:
        return run.call(conv3d, x, w, *rest, **more)
    if node.layout == "last":
        more["layout"] = "NHWC"
        return channels_first(run.call(function, channels_last(x), channels_last(w), *rest, **more))
    if node.layout == "first" and not x.flags.c_contiguous:
        sizes = zip(x.shape[2:], w.shape[2:], *(more[each] for each in ("stride", "padding", "dilation")), strict=True)
        image = [(extent + sum(pair) - (taps - 1) * far - 1) // by + 1 for extent, taps, by, pair, far in sizes]
        more["out"] = run.xp.empty((x.shape[0], w.shape[0], *image), dtype)
    y = run.call(function, x, w, *rest, **more)
    return y if spatial == 2 else y[:, :, 0]


def _conv_transpose(run: Run, node: Node, x: Tensor, w: Tensor, bias: Tensor = None) -> Tensor:
    spatial, strides, dilations = window_of(node, x)
    extra = node.attribute("output_padding") or (0,) * spatial
    reach = [(taps - 1) * dilation + 1 for taps, dilation in zip(w.shape[2:], dilations, strict=True)]
    full = [
        stride * (extent - 1) + each + more
        for stride, extent, each, more in zip(strides, x.shape[2:], reach, extra, strict=True)
    ]
    mode = node.attribute("auto_pad")
    wanted = node.attribute("output_shape")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [extent * stride for extent, stride in zip(x.shape[2:], strides, strict=True)]
    if wanted is None:
        pads = _pairs(node.attribute("pads") or (0,) * (2 * spatial))
    else:
        total = [size - each for size, each in zip(full, wanted, strict=True)]
        pads = [(each // 2, each - each // 2) for each in total]
        pads = pads if mode == "SAME_UPPER" else [(high, low) for low, high in pads]
    # Zeros at the end of a result that is to be larger than the convolution's.
    extra = [each - min(sum(pair), 0) for each, pair in zip(extra, pads, strict=True)]
    pads = [pair if sum(pair) > 0 else (max(pair[0], 0), max(pair[1], 0)) for pair in pads]
    x, w = two_axes(run.device(x), spatial), two_axes(run.device(w), spatial)
    if spatial == 3:
        return _conv_transpose3d(run, node, x, w, bias, list(zip(strides, dilations, pads, extra, strict=True)))
    more: dict[str, Any] = {"stride": two(strides, 1), "padding": two(pads, (0, 0)), "dilation": two(dilations, 1)}
    more |= {"output_padding": two(extra, 0), "groups": node.attribute("group")}
    if node.layout == "last":
        y = run.call(conv_transpose2d, channels_last(x), channels_last(w), bias, layout="NHWC", **more)
        return channels_first(y)
    y = run.call(conv_transpose2d, x, w, bias, **more)
    return y if spatial == 2 else y[:, :, 0]


def _conv_transpose3d(
    run: Run, node: Node, x: Tensor, w: Tensor, bias: Tensor, axes: list[tuple[int, int, tuple[int, int], int]]
) -> Tensor:
    """Transpose a convolution of each slice, with a filter per tap along the depth, and add the results up.

    `axes` have a stride, a dilation, paddings and the output padding along depth, rows and columns.
    """
    (step, hole, (low, high), extra), *rest = axes
    strides, dilations, pads, extras = (list(each) for each in zip(*rest, strict=True))
    more: dict[str, Any] = {"stride": strides, "padding": pads, "dilation": dilations, "output_padding": extras}
    n, c, d, *_ = x.shape
    share, taps = w.shape[1:3]
    slices = x.swapaxes(1, 2).reshape(n * d, c, *x.shape[3:])
    filters = w.reshape(c, share * taps, *w.shape[3:])
    groups = node.attribute("group")
    found = run.call(conv_transpose2d, slices, filters, None, groups=groups, **more)
    parts = wide(run.xp, found).reshape(n, d, share * groups, taps, *found.shape[2:])
    whole = max((d - 1) * step + (taps - 1) * hole + 1 + extra, 0)
    total = run.xp.zeros((n, share * groups, whole, *found.shape[2:]), parts.dtype)
    for tap in range(taps):
        total[:, :, tap * hole : tap * hole + (d - 1) * step + 1 : step] += parts[:, :, :, tap].swapaxes(1, 2)
    if bias is not None:
        total += wide(run.xp, run.device(bias)).reshape(-1, 1, 1, 1)
    return total[:, :, low : whole - high].astype(x.dtype)


def _pairs(pads: Sequence[int]) -> list[tuple[int, int]]:
    half = len(pads) // 2
    return list(zip(pads[:half], pads[half:], strict=True))


def padding(
    node: Node, extents: Sequence[int], taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the (begin, end) padding of each spatial axis of a convolution or a pooling."""
    mode = node.attribute("auto_pad")
    if mode in ("NOTSET", ""):
        return _pairs(node.attribute("pads") or (0,) * (2 * len(extents)))
    if mode == "VALID":
        return [(0, 0)] * len(extents)
    found = []
    for extent, tap, stride, dilation in zip(extents, taps, strides, dilations, strict=True):
        total = max((-(-extent // stride) - 1) * stride + (tap - 1) * dilation + 1 - extent, 0)
        low = total // 2 if mode == "SAME_UPPER" else total - total // 2
        found.append((low, total - low))
    return found


def two_axes(array: Tensor, spatial: int) -> Tensor:
    """Return a tensor with one spatial axis as one with two; numbers, and arrays along the last axis, as they are."""
    return array if spatial > 1 or getattr(array, "ndim", 0) < 2 else array[..., None, :]


def two(values: Sequence[T], first: T) -> tuple[T, ...]:
    """Return values for two or three spatial axes; `first` for the one that a tensor lacks."""
    return tuple(values) if len(values) > 1 else (first, *values)


LOWERINGS: dict[str, Lowering] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Einsum": _einsum,
    "GatedMatMul": _matmul_gate,
    "IntegerConv": _integer_conv,
    "IntegerMatMul": _integer_matmul,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "QuantisedLinear": _linear,
}
