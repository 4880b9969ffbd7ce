"""Convolutions and poolings by torch.nn.functional: cuDNN, with channels first or last, like the arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gensor_kernels.operators import operator
from gensor_kernels.operators.types.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., Any]


class NoCallError(Exception):
    """PyTorch has no call for a Workload."""


def _pads(size: Mapping[str, int]) -> tuple[tuple[int, int], tuple[int, int, int, int] | None]:
    """Return (the padding argument of a call, the padding for F.pad before it)."""
    top, bottom, left, right = (size[f"pad_{side}"] for side in ("top", "bottom", "left", "right"))
    if (top, left) == (bottom, right):
        return (top, left), None
    return (0, 0), (left, right, top, bottom)


def _first(x: Tensor) -> Tensor:
    """Return (n, h, w, c) as (n, c, h, w), a view."""
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def _over(size: Mapping[str, int], *names: str) -> list[tuple[int, int]]:
    return [(size[f"{name}_h"], size[f"{name}_w"]) for name in names]


def convolution(torch: ModuleType, workload: Workload, steps: list[str]) -> tuple[Function, int]:
    """Return conv2d or conv_transpose2d, a bias included."""
    size, functional = workload.size, torch.nn.functional
    declared: Any = operator(workload.operator)
    padding, before = _pads(size)
    stride, dilation = _over(size, "stride", "dilation")
    biased = steps[:1] == ["bias"]
    if declared.transposed:
        if before is not None:
            raise NoCallError("conv_transpose2d crops both sides alike")
        (extra,) = _over(size, "output_padding")

        def transposed(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
            x, w = _first(x.flatten(3)), w.permute(0, 4, 1, 2, 3).flatten(0, 1)
            b = None if bias is None else bias.flatten()
            return _last(functional.conv_transpose2d(x, w, b, stride, padding, extra, size["groups"], dilation))

        return transposed, int(biased)

    def convolved(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        x, w = _first(x.flatten(3)), _first(w.flatten(0, 1))
        x = x if before is None else functional.pad(x, before)
        b = None if bias is None else bias.flatten()
        return _last(functional.conv2d(x, w, b, stride, padding, dilation, size["groups"]))

    return convolved, int(biased)


def depthwise(torch: ModuleType, workload: Workload, steps: list[str]) -> tuple[Function, int]:
    """Return conv2d with as many groups as channels."""
    size, functional = workload.size, torch.nn.functional
    padding, before = _pads(size)
    stride, dilation = _over(size, "stride", "dilation")
    biased = steps[:1] == ["bias"]

    def convolved(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        x, w = _first(x), w.permute(2, 0, 1)[:, None]
        x = x if before is None else functional.pad(x, before)
        b = None if bias is None else bias.flatten()
        return _last(functional.conv2d(x, w, b, stride, padding, dilation, size["c"]))

    return convolved, int(biased)


def pooling(torch: ModuleType, workload: Workload, steps: list[str]) -> tuple[Function, int]:
    """Return max_pool2d or avg_pool2d."""
    size, functional = workload.size, torch.nn.functional
    padding, before = _pads(size)
    (stride,) = _over(size, "stride")
    window, ceil = (size["r"], size["s"]), bool(size.get("ceil_mode", 0))
    if before is not None and (ceil or workload.operator != "max_pool2d"):
        raise NoCallError("what lies outside is counted otherwise")
    if workload.operator == "avg_pool2d":
        counted = bool(size["count_include_pad"])
        return lambda x: _last(functional.avg_pool2d(_first(x), window, stride, padding, ceil, counted)), 0
    (dilation,) = _over(size, "dilation")

    def pool(x: Tensor) -> Tensor:
        x = _first(x)
        x = x if before is None else functional.pad(x, before, value=float("-inf"))
        return _last(functional.max_pool2d(x, window, stride, padding, dilation, ceil))

    return pool, 0
