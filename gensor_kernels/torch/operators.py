"""Our functions as operators of PyTorch, with fake kernels: `torch.ops.gensor.*` stands in exported programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import gensor_kernels.dispatch as functions
from gensor_kernels import forking
from gensor_kernels.dispatch.api.elementwise import elementwise as _elementwise
from gensor_kernels.graph.readers.torch_operators import GATES, pair, steps
from gensor_kernels.operators.types.dtypes import array_dtype

from .tracing import torch_itself

_lock = threading.Lock()
_registered: list[Any] = []


@forking.in_child
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


def register() -> None:
    """Register our functions with PyTorch as `torch.ops.gensor.*`.

    The operators have fake kernels, so that `torch.export` and `torch.compile` trace
    programs that call them, with open sizes too, and `from_torch` reads these programs.
    An epilogue is a list of names; operations that take a tensor take the next one of
    `operands`, and those that take a number the next one of `scalars`.

    Operators: matmul, linear, conv2d, attention, softmax, log_softmax, layer_norm,
    rms_norm, max_pool2d, avg_pool2d, elementwise.

    Raises
    ------
    ModuleNotFoundError
        If PyTorch is not installed; the text has the command that installs it.

    Notes
    -----
    There are no gradients: a backward pass through an operator raises RuntimeError. A
    second call does nothing.

    Examples
    --------
    >>> import torch  # doctest: +SKIP
    >>> import gensor_kernels.torch
    >>> gensor_kernels.torch.register()  # doctest: +SKIP
    >>> a, b, bias = torch.ones(2, 3), torch.ones(3, 4), torch.full((4,), -5.0)  # doctest: +SKIP
    >>> with gensor_kernels.emulated("sm_87"):  # doctest: +SKIP
    ...     torch.ops.gensor.matmul(a, b, ["bias", "relu"], [bias]).sum()
    tensor(0.)
    """
    torch = torch_itself()
    with _lock:
        if _registered:
            return
        for name, operator in _OPERATORS.items():
            made = torch.library.custom_op(
                f"gensor::{name}", operator.call, mutates_args=(), schema=f"{operator.schema} -> Tensor"
            )
            made.register_fake(operator.fake)
            made.register_autograd(_no_gradients)
            _registered.append(made)


def _no_gradients(context: Any, *gradients: Any) -> Any:
    raise RuntimeError("gensor_kernels computes no gradients: call its operators under torch.no_grad()")


class _Operator(NamedTuple):
    """An operator of PyTorch: its schema, what computes it, and the shape and dtype of its result."""

    schema: str
    call: Callable[..., Any]
    fake: Callable[..., Any]


def _epilogue(names: Sequence[str] | None, operands: Sequence[Any] | None, scalars: Sequence[float]) -> list[Any]:
    return [step[0] if len(step) == 1 else step for step in steps(names, operands, scalars)]


def _matmul(a: Any, b: Any, epilogue: Any = None, operands: Any = None, scalars: Any = ()) -> Any:
    return functions.matmul(a, b, epilogue=_epilogue(epilogue, operands, scalars) or None).contiguous()


def _matmul_fake(a: Any, b: Any, epilogue: Any = None, operands: Any = None, scalars: Any = ()) -> Any:
    import torch

    _epilogue(epilogue, operands, scalars)
    shape = list(torch.matmul(a, b.to(a.dtype)).shape)
    if any(name in GATES for name in epilogue or ()):
        shape[-1] //= 2
    return a.new_empty(shape, dtype=_promoted(a, b))


def _promoted(x: Any, w: Any) -> Any:
    """Return the dtype of a product, which is NumPy's."""
    import torch

    x, w = (array_dtype(str(each.dtype).removeprefix("torch.")) for each in (x, w))
    return getattr(torch, np.result_type(x, w).name)


def _linear(x: Any, w: Any, bias: Any = None, activation: Any = None) -> Any:
    return functions.linear(x, w, bias, activation).contiguous()


def _linear_fake(x: Any, w: Any, bias: Any = None, activation: Any = None) -> Any:
    import torch

    shape = list(torch.nn.functional.linear(x, w.to(x.dtype), None if bias is None else bias.to(x.dtype)).shape)
    if activation in GATES:
        shape[-1] //= 2
    return x.new_empty(shape, dtype=_promoted(x, w))


def _conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
    add: Any = None,
    activation: Any = None,
) -> Any:
    more: dict[str, Any] = {
        "stride": pair(stride),
        "padding": pair(padding),
        "dilation": pair(dilation),
        "groups": groups,
    }
    return _like(x, functions.conv2d(x, w, bias, **more, add=add, activation=activation))


def _conv2d_fake(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = (1,),
    padding: Any = (0,),
    dilation: Any = (1,),
    groups: int = 1,
    add: Any = None,
    activation: Any = None,
) -> Any:
    import torch

    bias = None if bias is None else bias.to(x.dtype)
    y = torch.nn.functional.conv2d(x, w.to(x.dtype), bias, pair(stride), pair(padding), pair(dilation), groups)
    dtype = torch.int32 if x.dtype == w.dtype == torch.int8 else _promoted(x, w)
    return _like(x, x.new_empty(y.shape, dtype=dtype))


def _like(x: Any, y: Any) -> Any:
    """Return images with the channels last where they are last in `x`, else first."""
    import torch

    last = not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    return y.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _attention(q: Any, k: Any, v: Any, mask: Any = None, causal: Any = None, scale: float | None = None) -> Any:
    return functions.attention(q, k, v, mask, causal or False, scale).contiguous()


def _attention_fake(q: Any, k: Any, v: Any, mask: Any = None, causal: Any = None, scale: float | None = None) -> Any:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def _norm(name: str) -> Callable[..., Any]:
    def call(x: Any, normalized_shape: Any, *more: Any) -> Any:
        return getattr(functions, name)(x, tuple(normalized_shape), *more).contiguous()

    return call


def _softmax(name: str) -> Callable[..., Any]:
    def call(x: Any, axis: int = -1) -> Any:
        return getattr(functions, name)(x, axis).contiguous()

    return call


def _alike(x: Any, *_: Any) -> Any:
    return x.new_empty(x.shape)


def _max_pool2d(
    x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    step = pair(stride) or None
    return _like(x, functions.max_pool2d(x, pair(kernel), step, pair(padding), pair(dilation), ceil_mode))


def _max_pool2d_fake(
    x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> Any:
    import torch

    step = pair(stride) or None
    y = torch.nn.functional.max_pool2d(x, pair(kernel), step, pair(padding), pair(dilation), ceil_mode)
    return _like(x, x.new_empty(y.shape))


def _avg_pool2d(
    x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False, with_pad: bool = True
) -> Any:
    step = pair(stride) or None
    return _like(x, functions.avg_pool2d(x, pair(kernel), step, pair(padding), ceil_mode, with_pad))


def _avg_pool2d_fake(
    x: Any, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False, with_pad: bool = True
) -> Any:
    import torch

    step = pair(stride) or None
    y = torch.nn.functional.avg_pool2d(x, pair(kernel), step, pair(padding), ceil_mode, with_pad)
    return _like(x, x.new_empty(y.shape))


def _chain(x: Any, epilogue: Any, operands: Any = None, scalars: Any = ()) -> Any:
    return _elementwise(x, _epilogue(epilogue, operands, scalars)).contiguous()


def _chain_fake(x: Any, epilogue: Any, operands: Any = None, scalars: Any = ()) -> Any:
    _epilogue(epilogue, operands, scalars)
    return x.new_empty(x.shape)


_STEPS = "Tensor[]? operands=None, float[] scalars=[]"
_POOLING = "Tensor x, int[2] kernel_size, int[2] stride=[], int[2] padding=0"
_OPERATORS = {
    "matmul": _Operator(f"(Tensor a, Tensor b, str[]? epilogue=None, {_STEPS})", _matmul, _matmul_fake),
    "linear": _Operator("(Tensor x, Tensor w, Tensor? bias=None, str? activation=None)", _linear, _linear_fake),
    "conv2d": _Operator(
        "(Tensor x, Tensor w, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1, "
        "Tensor? add=None, str? activation=None)",
        _conv2d,
        _conv2d_fake,
    ),
    "attention": _Operator(
        "(Tensor q, Tensor k, Tensor v, Tensor? mask=None, str? causal=None, float? scale=None)",
        _attention,
        _attention_fake,
    ),
    "softmax": _Operator("(Tensor x, int axis=-1)", _softmax("softmax"), _alike),
    "log_softmax": _Operator("(Tensor x, int axis=-1)", _softmax("log_softmax"), _alike),
    "layer_norm": _Operator(
        "(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
        _norm("layer_norm"),
        _alike,
    ),
    "rms_norm": _Operator(
        "(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None)", _norm("rms_norm"), _alike
    ),
    "max_pool2d": _Operator(f"({_POOLING}, int[2] dilation=1, bool ceil_mode=False)", _max_pool2d, _max_pool2d_fake),
    "avg_pool2d": _Operator(
        f"({_POOLING}, bool ceil_mode=False, bool count_include_pad=True)", _avg_pool2d, _avg_pool2d_fake
    ),
    "elementwise": _Operator(f"(Tensor x, str[] epilogue, {_STEPS})", _chain, _chain_fake),
}
