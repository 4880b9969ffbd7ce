"""The run in which lowerings compute nodes, and functions that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.api.explain import explain
from gensor_kernels.errors import UnsupportedError

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.graph.ir.graph import Node

#: A tensor of a run: an array of the device, or a NumPy array on the host.
Tensor: TypeAlias = Any
#: Computes the results of a node from its inputs, of which some may be None.
Lowering = Callable[..., Any]

#: Attribute of a node that writes into its inputs: state that only it reads.
IN_PLACE = "in_place"
#: dtypes of the kernels of rows and of element-wise operations.
FLOATS = ("float16", "bfloat16", "float32", "float64")


class Run:
    """One execution of a graph: its tensors, and what served each node if it `explains`.

    Shapes and indices are NumPy arrays on every device; tensors that kernels read are arrays of the device. A lowering
    changes no array in place, except the state of a node with IN_PLACE.
    """

    def __init__(self, on_device: Callable[[Device, np.ndarray], Tensor], explains: bool = False):
        self.runtime = current.current_runtime()
        self.xp = self.runtime.device.xp
        #: Returns the copy of a constant on the device, or None for any other array.
        self.on_device = on_device
        #: Tensors that are still needed, by name.
        self.values: dict[str, Tensor] = {}
        #: Explanations of the calls of the current node, if the run explains.
        self.explained: list[Any] | None = [] if explains else None
        #: The current node.
        self.node: Node | None = None
        #: Tensors whose elements follow from the elements of inputs.
        self.variable: set[str] = set()
        #: The first node that reads such elements back to the host.
        self.reader: Node | None = None
        #: Copies on the device of host arrays other than constants, by identity.
        self.uploaded: dict[int, tuple[np.ndarray, Tensor]] = {}
        #: Called with every copy of a host array.
        self.on_upload: Callable[[Tensor], None] | None = None

    def device(self, value: Tensor) -> Tensor:
        """Return an array of the device; the copy of a NumPy array is kept."""
        if value is None or self.runtime.device.emulated or not isinstance(value, np.ndarray):
            return value
        found = self.on_device(self.runtime.device, value)
        if found is None:
            if id(value) not in self.uploaded:
                self.uploaded[id(value)] = value, upload(self.runtime.device, value)
            found = self.uploaded[id(value)][1]
        if self.on_upload is not None:
            self.on_upload(found)
        return found

    def host(self, value: Tensor) -> np.ndarray:
        """Return a NumPy array."""
        node = self.node
        if node is not None:
            names = [name for name in node.reads() if self.values.get(name) is value] or node.reads()
            if not self.variable.isdisjoint(names):
                self.reads_back()
        return value if isinstance(value, np.ndarray) else self.runtime.device.host(value)

    def reads_back(self) -> None:
        """Note that the node needs elements of its inputs on the host: its shapes may differ in the next run."""
        self.reader = self.reader or self.node

    def is_known(self, name: str, value: Tensor) -> bool:
        """Return whether the host knows the elements of a tensor, which are equal in every call of a bound plan."""
        return isinstance(value, np.ndarray) and name not in self.variable

    def integers(self, value: Tensor) -> list[int]:
        """Return the numbers of a tensor of integers."""
        return [int(each) for each in np.ravel(self.host(value))]

    def together(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return the array library of some tensors, and the tensors, all on the device if one is."""
        if all(value is None or isinstance(value, np.ndarray) for value in values):
            return np, *values
        return self.xp, *(self.device(value) for value in values)

    def erf(self, x: Tensor) -> Tensor:
        """Return the error function of each element of an array of the device."""
        return 1 - self.runtime.device.erfc(x)

    def call(self, function: Callable[..., Any], *args: Tensor, **keywords: Tensor) -> Tensor:
        """Compute by a function of this package."""
        arguments = [self.device(each) for each in args]
        if self.explained is not None:
            self.explained.append(explain(function, *arguments, **keywords))
        return function(*arguments, **keywords)

    def epilogue(self, node: Node) -> list[Any]:
        """Return the epilogue of a node as our functions take it."""
        found: list[Any] = []
        for step in node.epilogue:
            given = [self.device(self.values[step.operand])] if step.operand else []
            given += [] if step.scalar is None else [step.scalar]
            found.append((step.name, *given) if given else step.name)
        return found


def channels_last(array: Tensor) -> Tensor:
    """Return a tensor (n, c, h, w), or one that broadcasts to it, as a view with the axes (n, h, w, c)."""
    return None if array is None else array[(None,) * (4 - array.ndim)].transpose(0, 2, 3, 1)


def channels_first(array: Tensor) -> Tensor:
    """Return a tensor (n, h, w, c) as a view with the axes (n, c, h, w)."""
    return array.transpose(0, 3, 1, 2)


def last_step(step: Any) -> Any:
    """Return an operation with its array as a view with the axes (n, h, w, c); a bias along w is a term."""
    if isinstance(step, str) or not hasattr(step[1], "ndim"):
        return step
    name, array, *rest = step
    return ("add" if name == "bias" else name, channels_last(array), *rest)


def upload(device: Device, value: np.ndarray) -> Tensor:
    """Return a copy of a NumPy array on the device, in new memory and with the same order of axes."""
    order = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
    with device.lending(None):
        copy = device.xp.asarray(np.ascontiguousarray(value.transpose(order)))
    return copy.transpose(np.argsort(order).tolist())


def is_served(value: Tensor) -> bool:
    """Return whether kernels of rows and of element-wise operations take a tensor."""
    return value.ndim > 0 and value.size > 0 and name_of(value) in FLOATS


def name_of(value: Tensor) -> str:
    """Return the name of a tensor's dtype."""
    return str(value.dtype)


class Host(Run):
    """A run on the host, by the array library alone."""

    def __init__(self) -> None:
        self.xp = np
        self.explained, self.values, self.variable = None, {}, set()

    def device(self, value: Tensor) -> Tensor:
        """Return the array itself."""
        return value

    def host(self, value: Tensor) -> np.ndarray:
        """Return the array itself."""
        return value

    def reads_back(self) -> None:
        """Do nothing: everything is on the host."""

    def call(self, function: Callable[..., Any], *args: Tensor, **keywords: Tensor) -> Tensor:
        """Leave a node that a kernel computes to the device."""
        raise UnsupportedError("kernels run on the device")


#: Operators of windows, by their names in messages.
WINDOWS = {
    "AveragePool": "poolings",
    "Conv": "convolutions",
    "ConvInteger": "convolutions",
    "IntegerConv": "convolutions",
    "ConvTranspose": "transposed convolutions",
    "LpPool": "poolings",
    "MaxPool": "poolings",
}


def spatial_axes(node: Node, rank: int) -> int:
    """Return the number of spatial axes of a tensor under a window; UnsupportedError unless it is one to three."""
    if rank not in (3, 4, 5):
        raise refusal(node, f"{WINDOWS[node.op]} have one to three spatial axes, not {rank - 2}")
    return rank - 2


def window_of(node: Node, x: Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the number of spatial axes of a node with a window, its strides, and its dilations."""
    spatial = spatial_axes(node, x.ndim)
    ones = (1,) * spatial
    return spatial, node.attribute("strides") or ones, node.attribute("dilations") or ones


def refusal(node: Node, reason: str) -> UnsupportedError:
    """Return the error of a node that is not served."""
    return UnsupportedError(f"node {node.name!r} ({node.op}): {reason}")
