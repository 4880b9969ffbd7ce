"""Shapes inferred, and what follows from constants computed once: for all sizes of a model, and for those of a call."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.graph.lowerings import LOWERINGS, compute
from gensor_kernels.graph.lowerings.base import Host
from gensor_kernels.graph.lowerings.shapes import MOST_ELEMENTS, infer, key_of

from .onnx_limits import SMALLEST, most_folded, refuse_large

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Graph, Node

#: Operators that rules fold, after others have found the integers before them.
QUANTISED = ("DequantizeLinear",)


def fold(graph: Graph, is_open: bool = False) -> None:
    """Infer shapes, and replace nodes whose inputs are all constants, and shapes that are known, by their results.

    Nodes that only the device computes stay, and those of QUANTISED; where sizes of inputs are open, so does a large
    ConstantOfShape. UnsupportedError names a node whose result exceeds the memory for computed constants; a result is
    freed after its last reader. Nodes that compute the same become one.
    """
    run, kept = Host(), []
    fixed, held = set(graph.constants), dict[str, int]()
    total = max(0, sum(each.nbytes for each in graph.constants.values()) - graph.weight_bytes)
    reads = Counter(name for node in graph.nodes for name in set(node.reads()))
    reads.update(graph.outputs)
    for node in graph.nodes:
        run.values = graph.constants
        infer(graph, node)
        node = _simpler(graph, node)
        if node.op in ("Shape", "Size") and (shape := graph.static(node.inputs[0])) is not None:
            stand_in = np.broadcast_to(np.zeros((), np.bool_), shape)  # only its shape is read
            graph.constants[node.outputs[0]] = LOWERINGS[node.op](run, node, stand_in)
            fixed.update(node.outputs)
            continue
        if node.op not in LOWERINGS or node.op in QUANTISED or not fixed.issuperset(node.reads()):
            kept.append(node)
            continue
        sizes = _sizes(graph, node)
        if is_open and node.op == "ConstantOfShape" and sum(sizes.values()) > SMALLEST:
            kept.append(node)
            continue
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
    _join_equal(graph)
    graph.tidy()


def _simpler(graph: Graph, node: Node) -> Node:
    """Return a CastLike to a known dtype as a Cast, and a Concat without its empty inputs."""
    if node.op == "CastLike" and (like := graph.spec(node.inputs[1])) is not None and like.dtype != object:
        from onnx import helper

        attributes = {**node.attributes, "to": helper.np_dtype_to_tensor_dtype(like.dtype)}
        return replace(node, op="Cast", inputs=node.inputs[:1], attributes=attributes)
    if node.op == "Concat":
        axis, shapes = node.attribute("axis"), [graph.static(name) for name in node.inputs]
        kept = tuple(n for n, shape in zip(node.inputs, shapes, strict=True) if shape is None or shape[axis])
        if len(kept) == 1:
            return replace(node, op="Identity", inputs=kept, attributes={})
        return node if not kept else replace(node, inputs=kept)
    return node


def _join_equal(graph: Graph) -> None:
    """Let nodes that compute the same, of the same tensors and small constants, be one."""
    names, kept, results = dict[str, str](), [], set(graph.outputs)
    constants, found = dict[Hashable, str](), dict[Hashable, "Node"]()
    for name, value in graph.constants.items():
        if value.size <= MOST_ELEMENTS and value.dtype != object and name not in results:
            first = constants.setdefault(key_of(value), name)
            if first != name:
                names[name] = first
    for node in graph.nodes:
        read = node if names.keys().isdisjoint(node.inputs) else node.reading(names)
        attributes = key_of(node.attributes)
        same = found.setdefault((read.op, read.inputs, attributes, *map(bool, read.outputs)), read)
        if same is read or not results.isdisjoint(read.outputs):
            kept.append(read)
        else:
            names.update(zip(read.outputs, same.outputs, strict=True))
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
