"""Our functions as operators of PyTorch, with fake kernels: `torch.ops.gensor.*` stands in exported programs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gensor_kernels import forking
from gensor_kernels.dispatch.api import attention, convolution, linear, matmul, norms, pooling
from gensor_kernels.graph.readers.torch_operators import GATES, pair, steps
from gensor_kernels.operators.types.dtypes import array_dtype

from .tracing import torch_itself

if TYPE_CHECKING:
    import torch

    from gensor_kernels.dispatch.calls.array import Activation

    Names = Sequence[str] | None
    Tensors = Sequence[torch.Tensor] | None

_lock = forking.lock(sys.modules[__name__], "_lock", threading.Lock)
_registered: list[Any] = []


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
    call: Callable[..., torch.Tensor]
    fake: Callable[..., torch.Tensor]


def _epilogue(names: Sequence[str] | None, operands: Sequence[torch.Tensor] | None, scalars: Sequence[float]) -> list:
    return [step[0] if len(step) == 1 else step for step in steps(names, operands, scalars)]


def _matmul(
    a: torch.Tensor, b: torch.Tensor, epilogue: Names = None, operands: Tensors = None, scalars: Sequence[float] = ()
) -> torch.Tensor:
    return matmul.matmul(a, b, epilogue=_epilogue(epilogue, operands, scalars) or None).contiguous()


def _matmul_fake(
    a: torch.Tensor, b: torch.Tensor, epilogue: Names = None, operands: Tensors = None, scalars: Sequence[float] = ()
) -> torch.Tensor:
    _epilogue(epilogue, operands, scalars)
    return _product(a, b, a @ b.to(a.dtype), epilogue or ())


def _linear(x: torch.Tensor, w: torch.Tensor, *more: Any) -> torch.Tensor:
    return linear.linear(x, w, *more).contiguous()


def _linear_fake(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, activation: str | None = None
) -> torch.Tensor:
    import torch

    y = torch.nn.functional.linear(x, w.to(x.dtype), None if bias is None else bias.to(x.dtype))
    return _product(x, w, y, [activation])


def _product(x: torch.Tensor, w: torch.Tensor, y: torch.Tensor, activations: Sequence[str | None]) -> torch.Tensor:
    """Return the result of a product like `y`, whose last axis a gate halves."""
    shape = list(y.shape)
    if any(name in GATES for name in activations):
        shape[-1] //= 2
    return x.new_empty(shape, dtype=_promoted(x, w))


def _promoted(x: torch.Tensor, w: torch.Tensor) -> torch.dtype:
    """Return the dtype of a product, which is NumPy's."""
    import torch

    dtypes = (array_dtype(str(each.dtype).removeprefix("torch.")) for each in (x, w))
    return getattr(torch, np.result_type(*dtypes).name)


def _pairs(values: Sequence[Any]) -> list[Any]:
    """Return arguments of a window with two numbers in place of one for both axes, and None for no stride."""
    return [(pair(each) or None) if isinstance(each, (list, tuple)) else each for each in values]


def _conv2d(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
    add: torch.Tensor | None = None,
    activation: Activation | None = None,
) -> torch.Tensor:
    window = _pairs([stride, padding, dilation, groups])
    return _like(x, convolution.conv2d(x, w, bias, *window, add=add, activation=activation))


def _conv2d_fake(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None, *window: Any) -> torch.Tensor:
    import torch

    bias = None if bias is None else bias.to(x.dtype)
    y = torch.nn.functional.conv2d(x, w.to(x.dtype), bias, *_pairs(window[:4]))
    dtype = torch.int32 if x.dtype == w.dtype == torch.int8 else _promoted(x, w)
    return _like(x, x.new_empty(y.shape, dtype=dtype))


def _like(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return images with the channels last where they are last in `x`, else first."""
    import torch

    last = not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    return y.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: Any = None,
    scale: float | None = None,
) -> torch.Tensor:
    return attention.attention(q, k, v, mask, causal or False, scale).contiguous()


def _attention_fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def _rows(name: str) -> Callable[..., torch.Tensor]:
    """Return the operator of a norm or a softmax, whose second argument is a shape or an axis."""

    def call(x: torch.Tensor, *more: Any) -> torch.Tensor:
        return getattr(norms, name)(x, *(tuple(each) if isinstance(each, list) else each for each in more)).contiguous()

    return call


def _alike(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(x.shape)


def _pooling(name: str) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
    """Return what computes a pooling, and its fake kernel."""

    def call(x: torch.Tensor, *window: Any) -> torch.Tensor:
        return _like(x, getattr(pooling, name)(x, *_pairs(window)))

    def fake(x: torch.Tensor, *window: Any) -> torch.Tensor:
        import torch

        return _like(x, x.new_empty(getattr(torch.nn.functional, name)(x, *_pairs(window)).shape))

    return call, fake


def _chain(x: torch.Tensor, epilogue: Names, operands: Tensors = None, scalars: Sequence[float] = ()) -> torch.Tensor:
    return norms.elementwise(x, _epilogue(epilogue, operands, scalars)).contiguous()


def _chain_fake(
    x: torch.Tensor, epilogue: Names, operands: Tensors = None, scalars: Sequence[float] = ()
) -> torch.Tensor:
    _epilogue(epilogue, operands, scalars)
    return x.new_empty(x.shape)


_STEPS = "Tensor[]? operands=None, float[] scalars=[]"
_WINDOW = "Tensor x, int[2] kernel_size, int[2] stride=[], int[2] padding=0"
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
    "softmax": _Operator("(Tensor x, int axis=-1)", _rows("softmax"), _alike),
    "log_softmax": _Operator("(Tensor x, int axis=-1)", _rows("log_softmax"), _alike),
    "layer_norm": _Operator(
        "(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
        _rows("layer_norm"),
        _alike,
    ),
    "rms_norm": _Operator(
        "(Tensor x, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None)", _rows("rms_norm"), _alike
    ),
    "max_pool2d": _Operator(f"({_WINDOW}, int[2] dilation=1, bool ceil_mode=False)", *_pooling("max_pool2d")),
    "avg_pool2d": _Operator(f"({_WINDOW}, bool ceil_mode=False, bool count_include_pad=True)", *_pooling("avg_pool2d")),
    "elementwise": _Operator(f"(Tensor x, str[] epilogue, {_STEPS})", _chain, _chain_fake),
}
