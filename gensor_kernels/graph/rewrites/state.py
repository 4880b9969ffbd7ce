"""State of a session: nodes that append to it write in place, if possible from the kernel of a product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Extents, Graph, Node, Spec
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings.base import IN_PLACE

from .base import Rule, rule

#: The standard's number of int32.
TENSOR_INT32 = 6


class State(NamedTuple):
    """State of a session."""

    #: Results by the input that they replace in the next call.
    results: dict[str, str]
    #: Caches of values by the caches of keys that share their rows.
    pairs: dict[str, str]

    def key(self) -> tuple[Any, ...]:
        """Return a key that identifies the state."""
        return tuple(self.results.items()), tuple(self.pairs.items())


def _write_in_place(state: Mapping[str, str], links: Links, node: Node) -> bool:
    """TensorScatter(past, x, places) -> the same, written into `past`, if it alone reads `past`."""
    past = node.inputs[0]
    if node.attribute(IN_PLACE) or state.get(past) != node.outputs[0] or not links.alone(past):
        return False
    links.change(node, attributes={**node.attributes, IN_PLACE: 1})
    return True


def _append(pairs: Mapping[str, str], links: Links, node: Node) -> bool:
    """q, k, v = Split(MatMul(x, w)), TensorScatter(past_k, k), TensorScatter(past_v, v) -> MatMulAppend(x, w).

    `pairs` are caches of keys and values (batch, capacity, columns) with common rows; only attention to all valid keys
    reads them.
    """
    graph, joint = links.graph, node.inputs[0]
    product, shape = links.maker(joint, "MatMul"), graph.shape(joint)
    if product is None or not links.alone(joint) or len(node.outputs) != 3 or shape is None or len(shape) != 3:
        return False
    q, k, v = node.outputs
    keys, values = (_store(links, name) for name in (k, v))
    if keys is None or values is None or pairs.get(keys.inputs[0]) != values.inputs[0]:
        return False
    places = keys.input(2)
    if node.attribute("axis") not in (-1, 2) or places != values.input(2):
        return False
    columns = [(graph.static(name) or (0,))[-1] for name in (q, k, v)]
    # The queries of a token must fit into the row before its keys and values.
    fits = 0 < columns[0] <= sum(columns[1:]) and (graph.shape(product.inputs[1]) or ())[1:] == (sum(columns),)
    if not fits or links.when(places) > links.order(product):
        return False
    for each in (keys, values, node):
        links.remove(each)
    links.change(
        product,
        op="MatMulAppend",
        inputs=(*product.inputs[:2], keys.inputs[0], values.inputs[0], places),
        outputs=(q, keys.outputs[0], values.outputs[0]),
        attributes={IN_PLACE: 1},
        joined=(*product.joined, "Split", "TensorScatter", "TensorScatter"),
    )
    return True


def _store(links: Links, name: str) -> Node | None:
    """Return the node that appends a tensor to state along axis 1, if nothing else reads the tensor."""
    node = links.reader(name, "TensorScatter")
    if node is None or not node.attribute(IN_PLACE) or node.inputs[1] != name:
        return None
    linear = node.attribute("mode") == "linear"
    axis, rank = node.attribute("axis"), len(links.graph.shape(node.inputs[0]) or ())
    read = all(_sees_all(each) for each in links.readers(node.outputs[0]))
    return node if linear and axis in (1, -2) and rank == 3 and read else None


def _sees_all(node: Node) -> bool:
    """Return whether a node is attention whose last query sees all valid keys, in any order."""
    windows = max(node.attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    is_plain = node.op == "Attention" and len(node.outputs) == 1 and windows < 0
    return is_plain and not node.input(3) and bool(node.input(6))


def _newest(graph: Graph) -> None:
    """Add nodes at the end that move rows from before the caches, where products stored them, to their places."""
    groups: dict[tuple[str, Extents | None, Extents | None], list[Node]] = {}
    for node in graph.nodes:
        if node.op == "MatMulAppend" and (graph.shape(node.inputs[0]) or (0, 0))[1] == 1:
            key = node.inputs[4], graph.shape(node.inputs[2]), graph.shape(node.inputs[3])
            groups.setdefault(key, []).append(node)
    for (places, keys, values), nodes in groups.items():
        columns = sum(int(each[2]) for each in (keys, values) if each is not None and isinstance(each[2], int))
        inputs = (places, *(node.inputs[2] for node in nodes))
        name = nodes[0].outputs[1] + ".rows"
        graph.nodes.append(Node("NewestRows", inputs, (name,), {"columns": columns, IN_PLACE: 1}, name))


@rule("Lengths", "Attention")
def narrow_lengths(links: Links, node: Node) -> bool:
    """Attention(..., nonpad_kv_seqlen=n) -> Attention(..., n as int32), the same for all layers: as kernels read it."""
    name = node.input(6)
    found = links.graph.spec(name) if name else None
    if found is None or found.dtype == np.int32 or name in links.graph.constants:
        return False
    narrow = name + ".int32"
    changed = replace(node, inputs=(*node.inputs[:6], narrow))
    if links.maker(narrow) is not None:
        links.put(node, changed)
    else:
        links.graph.specs[narrow] = Spec(np.dtype(np.int32), found.shape)
        links.put(node, Node("Cast", (name,), (narrow,), {"to": TENSOR_INT32}, narrow), changed)
    return True


def keep_state(graph: Graph, state: Mapping[str, str], pairs: Mapping[str, str]) -> None:
    """Apply the rules of state to a graph; results that are written in place are removed from its outputs."""
    links = Links(graph)
    Rule("InPlace", ("TensorScatter",), partial(_write_in_place, state)).everywhere(links)
    Rule("Appends", ("Split",), partial(_append, pairs)).everywhere(links)
    narrow_lengths.everywhere(links)
    links.store().tidy()
    written = {name for node in graph.nodes if node.attribute(IN_PLACE) for name in node.outputs}
    kept = {result for result in state.values() if result in written}
    graph.outputs = [name for name in graph.outputs if name not in kept]
    _newest(graph)
