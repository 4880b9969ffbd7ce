"""Constants of a model: nodes of constants computed once, and copies on a device that plans share.

The optimiser of onnxscript folds small constants; `fold` folds weights that a file computes (ConstantOfShape).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.devices.device import reach
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.ir.graph import Derived, Graph, Node, owner_of
from gensor_kernels.graph.lowerings import LOWERINGS, compute
from gensor_kernels.graph.lowerings.base import Host, upload
from gensor_kernels.graph.lowerings.shapes import infer
from gensor_kernels.graph.readers.onnx_limits import most_folded, refuse_large

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: Operators that rules fold, after others have found the integers before them.
QUANTISED = ("DequantizeLinear",)


def fold(graph: Graph) -> None:
    """Replace nodes whose inputs are all constants, and shapes that are known, by their results.

    Nodes that only the device computes stay, and those of QUANTISED. UnsupportedError names a node whose result exceeds
    the memory for computed constants; a result is freed after its last reader.
    """
    run, kept = Host(), []
    fixed, held = set(graph.constants), dict[str, int]()
    total = max(0, sum(each.nbytes for each in graph.constants.values()) - graph.weight_bytes)
    reads = Counter(name for node in graph.nodes for name in set(node.reads()))
    reads.update(graph.outputs)
    for node in graph.nodes:
        run.values = graph.constants
        infer(graph, node)
        if node.op in ("Shape", "Size") and (shape := graph.static(node.inputs[0])) is not None:
            stand_in = np.broadcast_to(np.zeros((), np.bool_), shape)  # only its shape is read
            graph.constants[node.outputs[0]] = LOWERINGS[node.op](run, node, stand_in)
            fixed.update(node.outputs)
            continue
        if node.op not in LOWERINGS or node.op in QUANTISED or not fixed.issuperset(node.reads()):
            kept.append(node)
            continue
        sizes = _sizes(graph, node)
        total += sum(sizes.values())
        refuse_large(node.name, node.op, sum(sizes.values()), total, most_folded(graph.weight_bytes))
        held |= sizes
        fixed.update(node.outputs)
        if not graph.constants.keys() >= set(node.reads()) or not _fold_node(graph, run, node):
            kept.append(node)
            continue
        for name in set(node.reads()):
            reads[name] -= 1
            if not reads[name] and name in held:
                del graph.constants[name]
                total -= held.pop(name)
    graph.nodes = kept


def _fold_node(graph: Graph, run: Host, node: Node) -> bool:
    """Make a node's results constants; return False if only a kernel on the device computes them."""
    try:
        results = compute(run, node)
    except UnsupportedError:
        return False
    graph.constants.update(zip(node.outputs, results, strict=False))
    return True


def _sizes(graph: Graph, node: Node) -> dict[str, int]:
    """Return the bytes of a node's results, by name."""
    names = [name for name in node.outputs if name]
    shapes = [shape for name in names if (shape := graph.static(name)) is not None]
    if len(shapes) == len(names):
        sizes = zip(names, map(math.prod, shapes), strict=True)
        return {name: size * graph.specs[name].dtype.itemsize for name, size in sizes}
    # Results whose sizes depend on elements are places in the inputs (NonZero), or some of their elements (Compress).
    inputs = [graph.spec(name) for name in node.reads()]
    most = sum(
        math.prod(each for each in spec.shape or () if isinstance(each, int)) * max(len(spec.shape or ()), 1)
        for spec in inputs
        if spec is not None
    )
    return dict.fromkeys(names, 8 * most)


class Weights:
    """Constants of a model, and their copies on one device."""

    def __init__(self) -> None:
        #: Arrays by dtype, shape, strides and first elements.
        self._arrays: dict[tuple[object, ...], list[np.ndarray]] = {}
        #: The same arrays by identity, and by that of the owner of their memory.
        self._all: dict[int, np.ndarray] = {}
        self._by_owner: dict[int, list[np.ndarray]] = {}
        #: Copies on the device, by the identity of the NumPy array.
        self.placed: dict[int, DeviceArray] = {}
        #: Arrays that rules and layouts computed from the file's constants.
        self.derived = Derived()

    def share(self, value: np.ndarray) -> np.ndarray:
        """Return the first array that was equal to this one: plans of several signatures share it."""
        if value.dtype != object:  # text
            key = value.dtype.name, value.shape, value.strides, value.flat[:16].tobytes()
            alike = self._arrays.setdefault(key, [])
            for each in alike:
                if each is value or np.array_equal(_bytes(each), _bytes(value)):
                    return each
            alike.append(value)
        self._all[id(value)] = value
        self._by_owner.setdefault(id(owner_of(value)), []).append(value)
        return value

    def on(self, device: Device, value: np.ndarray) -> DeviceArray:
        """Return a shared array, or a view of one, on the device, or None for any other array."""
        if id(value) in self._all:
            if id(value) not in self.placed:
                self.placed[id(value)] = upload(device, value)
            return self.placed[id(value)]
        at, (before, size) = value.ctypes.data, reach(value.shape, value.strides, value.itemsize)
        for whole in self._by_owner.get(id(owner_of(value)), ()):
            offset = at - whole.ctypes.data
            if (
                reach(whole.shape, whole.strides, whole.itemsize) == (0, whole.nbytes)
                and before <= offset
                and offset - before + size <= whole.nbytes
            ):
                copy = self.on(device, whole)
                shape, strides = tuple(value.shape), tuple(value.strides)
                return device.borrow(device.pointer(copy) + offset, shape, strides, value.dtype, copy, device.number)
        return None


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
