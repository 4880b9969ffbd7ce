"""Transposes around operators that compute in any order of axes: a minimum cut decides which remain.

Exporters of channels-last models (tf2onnx, Keras) write a Transpose before and after every convolution. The operators
between can compute on the tensors before these Transposes: then they cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Extents, Graph, Node
from gensor_kernels.graph.ir.links import Links, key_of
from gensor_kernels.graph.layouts.choice import Tensor, choose
from gensor_kernels.graph.lowerings import elementwise, rows

#: Operators that compute element by element, with broadcasting.
MAPS = {*elementwise.LOWERINGS, "Cast"} - {"Dropout", "Elementwise"}
#: Operators with an attribute `axis`.
ALONG = ("Concat", "Split")
REDUCTIONS = tuple(each for each in rows.LOWERINGS if each.startswith("Reduce"))
#: Elements whose copy takes as long as a launch.
LAUNCH = 100_000
#: Operators that take the operations after them into their kernels: these stay next to them where costs are equal.
FIRST = ("Conv", "ConvTranspose")
NEXT = 0.5
#: Nodes that stand for all that read and write tensors as in the file, and for the Transposes.
STAYS, MOVES = 0, 1
Order = tuple[int, ...]


class Moved(NamedTuple):
    """A node that can compute in another order of axes: the places of inputs to transpose, and its results."""

    node: Node
    places: tuple[int, ...]
    results: tuple[str, ...]


class Transposes:
    """Rule of a whole graph: operators compute before Transposes of their inputs, where fewer Transposes remain."""

    name = "Transposes"

    def everywhere(self, links: Links) -> None:
        """Apply the rule for each order that moves channels to the end, or from there to axis 1."""
        orders = {node.attribute("perm"): None for node in links.nodes() if node.op == "Transpose"}
        for order in orders:
            if order and len(order) > 2 and order in (_last(len(order)), _inverse(_last(len(order)))):
                for moved in _choose(links, order):
                    links.apply_rule(self.name, partial(_move, moved, order), moved.node)


def _last(rank: int) -> Order:
    """Return the order that moves channels from axis 1 to the end."""
    return (0, *range(2, rank), 1)


def _inverse(order: Order) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _choose(links: Links, order: Order) -> list[Moved]:
    """Return the nodes that compute on tensors from before Transposes of this order."""
    graph, inverse = links.graph, _inverse(order)
    moved = [each for node in links.nodes() if (each := _moved(graph, node, order)) is not None]
    number = {key_of(each.node): place for place, each in enumerate(moved, 2)}
    names = [name for each in moved for name in (*(each.node.inputs[place] for place in each.places), *each.results)]
    tensors = []
    for name in dict.fromkeys(names):
        maker = links.maker(name)
        made = STAYS if maker is None else number.get(key_of(maker), MOVES if _is(maker, order) else STAYS)
        if made > MOVES and name not in moved[made - 2].results:
            made = STAYS
        readers = {MOVES if _is(node, inverse) else number.get(key_of(node), STAYS) for node in links.readers(name)}
        readers |= {STAYS} if links.is_result(name) else set()
        tensors.append(Tensor(made, tuple(sorted(readers)), _cost(graph.shape(name), order)))
    fixed = [(0.0, math.inf), (math.inf, 0.0)]
    sides = choose([*fixed, *((NEXT * each, 0.0) for each in _follow(links, moved, order))], tensors)
    return [each for each, is_moved in zip(moved, sides[2:], strict=True) if is_moved]


def _follow(links: Links, moved: Sequence[Moved], order: Order) -> Iterator[bool]:
    """Yield for each node whether it follows a convolution and the Transpose of its result."""
    found = set[str]()
    for node in links.nodes():
        if _is(node, order) and links.maker(node.inputs[0], *FIRST):
            found.update(node.outputs)
    for node, places, results in moved:
        follows = not found.isdisjoint(node.inputs[place] for place in places)
        found.update(results if follows else ())
        yield follows


def _is(node: Node, order: Order) -> bool:
    return node.op == "Transpose" and node.attribute("perm") == order


def _cost(shape: Extents | None, order: Order) -> float:
    """Return the cost of a Transpose in elements; 1, of a view, where it moves none."""
    shape = shape or ()
    wide = [place for place in order if shape[place] != 1]
    if wide == sorted(wide):
        return 1.0
    return LAUNCH + math.prod(each if isinstance(each, int) else 64 for each in shape)


def _moved(graph: Graph, node: Node, order: Order) -> Moved | None:
    """Return how a node computes in another order of axes, or None if it cannot."""
    if node.op in REDUCTIONS:
        return _reduced(graph, node, order)
    places, results = _places(graph, node, len(order)), tuple(filter(None, node.outputs))
    names = (*(node.inputs[place] for place in places), *results)
    if node.epilogue or not places or any(len(graph.shape(each) or ()) != len(order) for each in names):
        return None
    return Moved(node, tuple(places), results)


def _places(graph: Graph, node: Node, rank: int) -> list[int]:
    """Return the places of the inputs to transpose, none where a node needs its axes in their order."""
    if node.op in ("Clip", "Split"):
        return [0]
    if node.op in ("Pad", "Slice"):
        is_known = node.input(1 if node.op == "Pad" else 3) in graph.constants
        return [0] if is_known and not (node.op == "Pad" and node.input(3)) else []
    if node.op not in MAPS and node.op != "Concat":
        return []
    names = [(place, each) for place, each in enumerate(node.inputs) if each not in graph.constants]
    return [place for place, each in names if not _is_number(graph.static(each), rank)]


def _is_number(shape: tuple[int, ...] | None, rank: int) -> bool:
    """Return whether a tensor of one element broadcasts to any order of axes."""
    return shape is not None and len(shape) < rank and math.prod(shape) == 1


def _reduced(graph: Graph, node: Node, order: Order) -> Moved | None:
    """Return how a reduction over some axes computes: its result has the same order, or all axes."""
    axes = graph.constants.get(node.input(1))
    if (
        node.op not in REDUCTIONS
        or axes is None
        or not axes.size
        or len(graph.shape(node.inputs[0]) or ()) != len(order)
    ):
        return None
    if node.attribute("keepdims"):
        return Moved(node, (0,), node.outputs)
    gone = {int(each) % len(order) for each in axes}
    kept = [axis for place, axis in enumerate(order) if place not in gone]
    return Moved(node, (0,), ()) if kept == sorted(kept) else None


def _move(moved: Moved, order: Order, links: Links, _: Node) -> bool:
    """Let a node compute on transposed inputs, and transpose its results back."""
    graph, (node, places, results), inverse = links.graph, moved, _inverse(order)
    inputs, new = list(node.inputs), []
    for place in places:
        given = node.inputs[place]
        known = [each for each in links.readers(given) if _is(each, inverse) and links.order(each) < links.order(node)]
        if known:
            inputs[place] = known[0].outputs[0]
            continue
        inputs[place] = links.fresh(given + ".moved", given, _turned(graph, given, inverse))
        new.append(Node("Transpose", (given,), (inputs[place],), {"perm": inverse}, node.name))
    attributes = dict(node.attributes)
    for place, value in _constants(graph, node, order):
        inputs[place] = graph.add(f"{node.inputs[place]}.moved", value)
    if node.op in ALONG:
        attributes["axis"] = order[node.attribute("axis")]
    back, outputs = [], list(node.outputs)
    for place, name in enumerate(node.outputs):
        if name in results:
            outputs[place] = links.fresh(name + ".moved", name, _turned(graph, name, inverse))
            back.append(Node("Transpose", (outputs[place],), (name,), {"perm": order}, node.name))
    made = Node(node.op, tuple(inputs), tuple(outputs), attributes, node.name)
    links.put(node, *new, made, *back)
    return True


def _turned(graph: Graph, name: str, order: Order) -> Extents:
    shape = graph.shape(name) or ()
    return tuple(shape[axis] for axis in order)


def _constants(graph: Graph, node: Node, order: Order) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the constants of a node, by place, as the node reads them before a Transpose of its inputs."""
    rank, inverse = len(order), _inverse(order)
    if node.op == "Pad":
        pads = graph.constants[node.inputs[1]].reshape(2, rank)
        yield 1, pads[:, inverse].ravel()
    elif node.op == "Slice" or node.op in REDUCTIONS:
        place = 3 if node.op == "Slice" else 1
        yield place, np.array([order[int(each)] for each in graph.constants[node.inputs[place]].ravel()], np.int64)
    elif node.op in MAPS or node.op == "Concat":
        for place, name in enumerate(node.inputs):
            constant = graph.constants.get(name)
            if constant is not None and constant.size > 1:
                whole = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
                yield place, np.ascontiguousarray(whole.transpose(inverse))


move_transposes = Transposes()
