"""The maker and the readers of each tensor of a graph, updated while rules change its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from .graph import Decision, Extents, Graph, Node

#: Predicted microseconds of the kernels of some nodes, or None.
Potential = Callable[[Graph, list[Node]], float | None]


class Links:
    """An index of a graph's nodes by the tensors that they make and read.

    Nodes change through this object alone until `store` writes them back. The time of a query or a change depends on
    the nodes in question, not on the size of the graph.
    """

    def __init__(self, graph: Graph, potential: Potential = lambda graph, nodes: None):
        self.graph, self.potential = graph, potential
        #: Nodes by place; several nodes that replace one share its place.
        self._places: list[list[Node]] = []
        self._place: dict[str, int] = {}
        self._made: dict[str, Node] = {}
        #: For each tensor, how often each node reads it, by the node's key.
        self._readers: dict[str, dict[str, int]] = {}
        self._results = frozenset(graph.outputs)
        #: Nodes that the current rule removed and added, and its reason.
        self.removed: list[Node] = []
        self.added: list[Node] = []
        self.why = ""
        self.predicted: tuple[float | None, float | None] = (None, None)
        for place, node in enumerate(graph.nodes):
            self._places.append([])
            self._put(place, node)

    # ---- queries

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes in order."""
        for nodes in self._places:
            yield from nodes

    def maker(self, name: str, *ops: str) -> Node | None:
        """Return the node that computes a tensor, if it is of one of these operators (any by default)."""
        node = self._made.get(name)
        return node if node is not None and (not ops or node.op in ops) else None

    def plain(self, name: str, *ops: str) -> Node | None:
        """Return the maker of a tensor by operators, if it has no epilogue and the tensor is read once."""
        node = self.maker(name, *ops)
        return node if node is not None and not node.epilogue and self.alone(name) else None

    def readers(self, name: str) -> list[Node]:
        """Return the nodes that read a tensor, each once, in order."""
        found = [self._made[key] for key in self._readers.get(name, ())]
        return sorted(found, key=self.order)

    def reader(self, name: str, *ops: str) -> Node | None:
        """Return the only node that reads a tensor, if it is of one of these operators and has no epilogue."""
        if not self.alone(name):
            return None
        (node,) = self.readers(name)
        return node if node.op in ops and not node.epilogue else None

    def alone(self, name: str) -> bool:
        """Return whether a tensor is read once, by a node of the graph."""
        readers = self._readers.get(name)
        return name not in self._results and readers is not None and list(readers.values()) == [1]

    def is_result(self, name: str) -> bool:
        """Return whether a caller gets a tensor."""
        return name in self._results

    def order(self, node: Node) -> tuple[int, int]:
        """Return a key by which nodes sort in their order."""
        place = self._place[key_of(node)]
        return place, next(rank for rank, each in enumerate(self._places[place]) if each is node)

    def when(self, name: str) -> tuple[int, int]:
        """Return the order of the node that computes a tensor; constants and inputs come first."""
        node = self._made.get(name)
        return (-1, 0) if node is None else self.order(node)

    def is_slower(self, new: list[Node], old: list[Node]) -> bool:
        """Return whether nodes are predicted to be slower than those that they replace; note both times."""
        self.predicted = before, after = self.potential(self.graph, old), self.potential(self.graph, new)
        return before is not None and after is not None and after > before

    # ---- changes

    def put(self, old: Node, *new: Node) -> None:
        """Put nodes in the place of one."""
        place = self._place[key_of(old)]
        rank = next(rank for rank, each in enumerate(self._places[place]) if each is old)
        after = self._places[place][rank + 1 :]
        del self._places[place][rank + 1 :]
        self._take(old)
        for node in new:
            self._put(place, node)
        self._places[place].extend(after)
        self.removed.append(old)
        self.added.extend(new)

    def change(self, old: Node, **fields: object) -> Node:
        """Change fields of a node and return it."""
        new = replace(old, **fields)  # type: ignore[arg-type]
        self.put(old, new)
        return new

    def take_in(self, first: Node, second: Node, **fields: object) -> Node:
        """Let `first` compute the result of `second`, its only reader, in the place of `second`."""
        self._take(first)
        self.removed.append(first)
        new = replace(first, outputs=second.outputs, **fields)  # type: ignore[arg-type]
        self.put(second, new)
        return new

    def remove(self, node: Node) -> None:
        """Remove a node whose results are not read."""
        self._take(node)
        self.removed.append(node)

    def rename(self, old: str, new: str) -> None:
        """Let all readers of `old` read `new`."""
        for node in self.readers(old):
            self._swap(node, node.reading({old: new}))

    def drop(self, names: Iterable[str]) -> None:
        """Remove the makers of tensors that are no longer read, and the makers of their inputs in turn."""
        waiting = list(names)
        while waiting:
            node = self._made.get(waiting.pop())
            if node is not None and not any(each in self._results or self._readers.get(each) for each in node.outputs):
                self.remove(node)
                waiting += node.reads()

    def replace(self, last: Node, *new: Node) -> None:
        """Put nodes in the place of the last node of a pattern, and remove nodes that only the pattern read."""
        self.put(last, *new)
        self.drop(last.reads())

    def bypass(self, node: Node, source: str) -> bool:
        """Let readers of a node's result read `source`, and remove the node.

        Where a caller gets the result, the maker of `source` makes it, unless a caller also gets `source`.
        """
        result, maker = node.outputs[0], self.maker(source)
        if not self.is_result(result):
            self.rename(result, source)
            self.remove(node)
        elif maker is None or self.is_result(source):
            return False
        else:
            self.remove(node)
            self.rename(source, result)
            self.change(maker, outputs=tuple(result if each == source else each for each in maker.outputs))
        self.drop(node.reads())
        return True

    def fresh(self, wanted: str, like: str, shape: Extents | None = None) -> str:
        """Return a name for a new tensor, which begins with `wanted`; note the dtype and the shape of `like`.

        With `shape`, the tensor has this shape.
        """
        name, number, graph = wanted, 0, self.graph
        while name in graph.constants or name in graph.specs or name in graph.inputs or name in self._made:
            name, number = f"{wanted}.{number}", number + 1
        if (spec := graph.spec(like)) is not None:
            graph.specs[name] = spec if shape is None else spec._replace(shape=shape)
        return name

    # ---- bookkeeping

    def apply_rule(self, rule: str, apply: Callable[[Links, Node], bool], node: Node) -> bool:
        """Apply a rule to a node; note the decision on the graph, and return whether anything changed."""
        self.removed, self.added, self.why, self.predicted = [], [], "", (None, None)
        changed = apply(self, node)
        if self.why or (changed and self.removed):
            before = tuple(each.name for each in self.removed) if changed else (node.name,)
            after = tuple(each.name for each in self.added) if changed else ()
            self.graph.decisions.append(Decision(rule, before, after, self.why, *self.predicted, changed))
        return changed

    def store(self) -> Graph:
        """Write the nodes back to the graph and return it."""
        self.graph.nodes = list(self.nodes())
        return self.graph

    def _put(self, place: int, node: Node) -> None:
        self._places[place].append(node)
        for name in node.outputs:
            if name:
                self._made[name] = node
        self._place[key_of(node)] = place
        self._link(node, 1)

    def _take(self, node: Node) -> None:
        place = self._place.pop(key_of(node))
        self._places[place] = [each for each in self._places[place] if each is not node]
        for name in node.outputs:
            if self._made.get(name) is node:
                del self._made[name]
        self._link(node, -1)

    def _swap(self, old: Node, new: Node) -> None:
        """Put a node with the same results in the place of one, without recording it."""
        nodes = self._places[self._place[key_of(old)]]
        nodes[next(rank for rank, each in enumerate(nodes) if each is old)] = new
        for name in new.outputs:
            if name:
                self._made[name] = new
        self._link(old, -1)
        self._link(new, 1)

    def _link(self, node: Node, count: int) -> None:
        key = key_of(node)
        for name in node.reads():
            readers = self._readers.setdefault(name, {})
            readers[key] = readers.get(key, 0) + count
            if not readers[key]:
                del readers[key]


def key_of(node: Node) -> str:
    """Return the tensor by which a node is known: its first result."""
    return node.outputs[0] or next(each for each in node.outputs if each)
