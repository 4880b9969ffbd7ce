"""What a lowering is given, and how it makes itself known by the operators that it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.api.explain import explain
from gensor_kernels.errors import UnsupportedError

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

#: Computes the results of a node from its inputs; None stands for an input that was left out.
Lowering = Callable[..., Any]

#: dtypes of the kernels of rows and of element-wise operations.
FLOATS = ("float16", "bfloat16", "float32", "float64")


class Run:
    """One execution of a graph: where arrays lie, and what served each node.

    Shapes, indices and the like are NumPy arrays, whatever the device; a tensor that a kernel reads is an array of the
    device.

    Parameters
    ----------
    placed : dict
        Constants that lie on the device already, by the identity of their NumPy array.
    explains : bool
        Whether `explained` gets an Explanation of every call.
    """

    def __init__(self, placed: dict[int, Any], explains: bool = False):
        self.runtime = current.current_runtime()
        self.xp = self.runtime.device.xp
        self.placed = placed
        #: Every tensor that is still needed, by name.
        self.values: dict[str, Any] = {}
        #: What served the calls of the node that is being computed, where that is asked for.
        self.explained: list[Any] | None = [] if explains else None

    def device(self, value: Any) -> Any:
        """Return an array of the device; the copy of a NumPy array is kept."""
        if value is None or self.runtime.device.emulated or not isinstance(value, np.ndarray):
            return value
        if id(value) not in self.placed:
            order = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
            copy = self.xp.asarray(np.ascontiguousarray(value.transpose(order)))
            self.placed[id(value)] = value, copy.transpose(np.argsort(order).tolist())  # in memory as it lay
        return self.placed[id(value)][1]

    def host(self, value: Any) -> np.ndarray:
        """Return a NumPy array."""
        return value if isinstance(value, np.ndarray) else self.runtime.device.host(value)

    def integers(self, value: Any) -> list[int]:
        """Return the numbers of a tensor of integers."""
        return [int(each) for each in np.ravel(self.host(value))]

    def together(self, *values: Any) -> tuple[Any, ...]:
        """Return the array library of some tensors in front of them; all lie on the device if one does."""
        if all(value is None or isinstance(value, np.ndarray) for value in values):
            return np, *values
        return self.xp, *(self.device(value) for value in values)

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Compute by a function of this package."""
        arguments = [self.device(each) for each in args]
        if self.explained is not None:
            self.explained.append(explain(function, *arguments, **keywords))
        return function(*arguments, **keywords)

    def epilogue(self, node: Node) -> list[Any]:
        """Return the epilogue of a node as our functions take it."""
        found: list[Any] = []
        for step in node.epilogue:
            if step.operand:
                found.append((step.name, self.device(self.values[step.operand])))
            else:
                found.append(step.name if step.scalar is None else (step.name, step.scalar))
        return found


def channels_last(array: Any) -> Any:
    """Return a tensor (n, c, h, w), or one that broadcasts to it, as a view with the axes (n, h, w, c)."""
    return None if array is None else array[(None,) * (4 - array.ndim)].transpose(0, 2, 3, 1)


def channels_first(array: Any) -> Any:
    """Return a tensor (n, h, w, c) as a view with the axes (n, c, h, w)."""
    return array.transpose(0, 3, 1, 2)


def is_served(value: Any) -> bool:
    """Return whether kernels of rows and of element-wise operations take a tensor."""
    return value.ndim > 0 and value.size > 0 and name_of(value) in FLOATS


def name_of(value: Any) -> str:
    """Return the name of a tensor's dtype."""
    return str(value.dtype)


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """Return an attribute of a node; strings as str."""
    value = node.attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else value


def refused(node: Node, reason: str) -> UnsupportedError:
    """Return the error of a node that is not served."""
    return UnsupportedError(f"node {node.name!r} ({node.op}): {reason}")
