"""Element-wise nodes that are one launch: a node and those that only it reads, and so on, become a program."""

from __future__ import annotations

from gensor_kernels.families.pointwise.shape import cost
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.ir.links import Links, key_of
from gensor_kernels.graph.lowerings.programs import OPERATORS, trace
from gensor_kernels.operators.expression.program import FLOATS, MAX_INPUTS, MAX_STEPS

from .base import Rule

#: Instructions per element of a node that is computed again for each element that it broadcasts to.
CHEAP = 4.0
#: Operators that stay alone: a chain of an epilogue's operations, and a copy.
ALONE = ("Elementwise", "Cast")


class _Programs(Rule):
    """A rule that begins with the last nodes, so that a program is traced once, whole."""

    def everywhere(self, links: Links) -> None:
        """Apply the rule to all nodes, the last one first."""
        for key in [key_of(node) for node in links.nodes() if node.op in self.roots][::-1]:
            node = links.maker(key, *self.roots)
            if node is not None and key_of(node) == key:
                links.apply_rule(self.name, self.apply, node)


def _join(links: Links, last: Node) -> bool:
    """Exp(Sub(x, y)) -> Pointwise(x, y), where nothing else reads the difference.

    With nodes that kernels of rows compute, the rule applies unless the program is predicted to be slower, as where
    no kernel computes it.
    """
    graph, found = links.graph, _Found()
    if not found.take(graph, last):
        return False
    waiting = list(last.reads())
    while waiting:
        name = waiting.pop()
        before = links.maker(name, *OPERATORS)
        if before is None or before in found.nodes or links.is_result(name):
            continue
        if any(reader not in found.nodes for reader in links.readers(name)):
            continue  # which is asked again when the other readers are there
        same = graph.shape(before.outputs[0]) == graph.shape(last.outputs[0])
        if found.take(graph, before, None if same else CHEAP):
            waiting += before.reads()
    nodes = sorted(found.nodes, key=links.order)
    traced = None if len(nodes) == 1 and last.op in ALONE else trace(graph, nodes)
    # Integers alone are positions and sizes, which the host often computes.
    if traced is None or not set(traced[0].types) & set(FLOATS):
        return False
    program, inputs = traced
    joined = tuple(name for node in nodes for name in (*(() if node.op == "Elementwise" else (node.op,)), *node.joined))
    new = Node("Pointwise", inputs, last.outputs, {"program": program.text}, nodes[0].name, (), joined)
    has_kernels = any(node.op == "Elementwise" for node in nodes)
    if has_kernels and links.is_slower([new], [_alone(graph, node) for node in nodes]):
        links.why = "in one launch, it is predicted to be slower"
        return False
    links.replace(last, new)
    return True


def _alone(graph: Graph, node: Node) -> Node:
    """Return a node whose time is known: a program of one operator in place of a call of the array library."""
    traced = None if node.op == "Elementwise" else trace(graph, (node,))
    if traced is None:
        return node
    return Node("Pointwise", traced[1], node.outputs, {"program": traced[0].text}, node.name)


class _Found:
    """The nodes of a program, its steps and the tensors that it reads: at most as many as kernels take."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.steps = 0

    def take(self, graph: Graph, node: Node, most: float | None = None) -> bool:
        """Take a node, unless kernels do not compute it, or not together with the rest, or it costs more than `most`.

        Tensors of less than two axes are left alone: shapes and lists of numbers are the host's.
        """
        if len(graph.shape(node.outputs[0]) or ()) < 2 or len(node.outputs) > 1:
            return False
        alone = trace(graph, (node,))
        if alone is None or (most is not None and sum(cost(s.name, s.dtype) for s in alone[0].operations) > most):
            return False
        made = {name for each in (*self.nodes, node) for name in each.outputs}
        read = {name for each in (*self.nodes, node) for name in each.reads() if not _is_number(graph, name)}
        steps = self.steps + len(alone[0].steps)
        if len(read - made) > MAX_INPUTS or steps > MAX_STEPS:
            return False
        self.nodes.append(node)
        self.steps = steps
        return True


def _is_number(graph: Graph, name: str) -> bool:
    return name in graph.constants and graph.constants[name].size == 1


join_programs = _Programs("Programs", tuple(OPERATORS), _join)
