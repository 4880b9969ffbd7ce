"""Results of a model as PyTorch's own operators would return them: in the same layout, and in separate memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Layout:
    """The order of axes in memory that a result of a graph has.

    Parameters
    ----------
    fake : torch.Tensor
        The traced result. A result that is not dense, such as a broadcast, is laid out
        with its last axis innermost.
    """

    def __init__(self, fake: torch.Tensor):
        shape, strides = [int(each) for each in fake.shape], [int(each) for each in fake.stride()]
        axes = sorted(range(len(shape)), key=lambda axis: (-strides[axis], -shape[axis]))
        dense = _strides(shape, axes)
        own = all(a == b or extent == 1 for a, b, extent in zip(strides, dense, shape, strict=True))
        self.axes = axes if own else list(range(len(shape)))

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor with this layout: itself, or a copy."""
        import torch

        dense = _strides(tensor.shape, self.axes)
        if all(a == b or extent == 1 for a, b, extent in zip(tensor.stride(), dense, tensor.shape, strict=True)):
            return tensor
        empty = torch.empty_permuted(tensor.shape, self.axes, dtype=tensor.dtype, device=tensor.device)
        return empty.copy_(tensor)


def _strides(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor whose axes are in this order, the outermost first."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides


def apart(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return results that share no memory with inputs and each other: themselves, or copies."""
    taken = [_span(each) for each in inputs]
    found = []
    for each in results:
        first, last = _span(each)
        if any(begin < last and first < end for begin, end in taken):
            each = each.clone()
        taken.append(_span(each))
        found.append(each)
    return found


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first address of a tensor's elements and the address after the last one."""
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
