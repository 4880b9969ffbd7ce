"""Element-wise nodes that are one launch: those that read each other become a program of one or several results."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from gensor_kernels.families.pointwise.shape import cost
from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.ir.links import Links, key_of
from gensor_kernels.graph.lowerings.programs import OPERATORS, trace
from gensor_kernels.operators.expression.program import (
    FLOATS,
    MAX_INPUTS,
    MAX_RESULTS,
    MAX_STEPS,
    TYPES,
    Program,
    constant,
    make,
    parse,
)
from gensor_kernels.operators.types.dtypes import array_dtype

from .base import Rule, rule

#: Instructions per element of a node that is computed again for each element that it broadcasts to.
CHEAP = 4.0
#: How much longer a kernel of rows is predicted to take where a program replaces it alone.
WORTHWHILE = 1.1


class _Programs(Rule):
    """A rule that begins with the last nodes, so that a program is traced once, whole."""

    def everywhere(self, links: Links) -> None:
        """Apply the rule to all nodes, the last one first."""
        for key in [key_of(node) for node in links.nodes() if node.op in self.roots][::-1]:
            node = links.maker(key, *self.roots)
            if node is not None and key_of(node) == key:
                links.apply_rule(self.name, self.apply, node)


def _join(links: Links, last: Node) -> bool:
    """Exp(Sub(x, y)) -> Pointwise(x, y); what other nodes read of it, or a caller, are further results.

    With nodes that kernels of rows compute, the rule applies unless the program is predicted to be slower, as where
    no kernel computes it; to one of them alone, where it is predicted to be faster, as where a chain reads x twice.
    """
    graph, found = links.graph, _Found(links, last)
    if not found.take(last):
        return False
    shared = found.take_before(last)
    while shared:
        count = len(found.nodes)
        found.take_with_readers(shared.pop())
        shared += found.take_before(*found.nodes[count:])
    nodes = sorted(found.nodes, key=links.order)
    results = tuple(node.outputs[0] for node in nodes if found.is_result(node))
    new = None if len(nodes) == 1 and last.op == "Cast" else _program(graph, nodes, results)
    # Integers alone are positions and sizes, which the host often computes.
    if new is None or not set(parse(new.attributes["program"]).types) & set(FLOATS):
        return False
    if any(node.op == "Elementwise" for node in nodes):
        slower = links.is_slower([new], [_alone(graph, node) for node in nodes])
        before, after = links.predicted
        if len(nodes) == 1 and (before is None or after is None or before < WORTHWHILE * after):
            return False
        if slower:
            links.why = "in one launch, it is predicted to be slower"
            return False
    for node in nodes[:-1]:
        links.remove(node)
    links.put(last, new)
    return True


def _program(graph: Graph, nodes: list[Node], results: tuple[str, ...]) -> Node | None:
    """Return the program of some nodes, or None."""
    traced = trace(graph, nodes, results)
    if traced is None:
        return None
    joined = tuple(name for node in nodes for name in (*(() if node.op == "Elementwise" else (node.op,)), *node.joined))
    return Node("Pointwise", traced[1], results, {"program": traced[0].text}, nodes[0].name, (), joined)


def _alone(graph: Graph, node: Node) -> Node:
    """Return a node whose time is known: a program of one operator in place of a call of the array library."""
    return (None if node.op == "Elementwise" else _program(graph, [node], node.outputs)) or node


class _Found:
    """The nodes of a program that ends with `last`, and its steps: at most as many as kernels take."""

    def __init__(self, links: Links, last: Node) -> None:
        self.links, self.last = links, last
        self.nodes: list[Node] = []
        self.steps = 0

    def is_result(self, node: Node) -> bool:
        """Return whether a caller, or a node after the last one, reads a node's result."""
        links, name = self.links, node.outputs[0]
        later = any(links.order(each) > links.order(self.last) for each in links.readers(name))
        return node is self.last or links.is_result(name) or later

    def take(self, node: Node) -> bool:
        """Take a node, unless kernels do not compute it, or not together with the rest.

        Of another shape than the last result, it must cost little and not be a result. Tensors of less than two axes
        are left alone: shapes and lists of numbers are the host's.
        """
        graph, (name, *more) = self.links.graph, node.outputs
        spec, last = graph.spec(name), graph.spec(self.last.outputs[0])
        if more or spec is None or last is None or len(spec.shape or ()) < 2:
            return False
        if spec != last and self.is_result(node):
            return False
        alone, nodes = trace(graph, (node,)), [*self.nodes, node]
        if alone is None:
            return False
        if spec.shape != last.shape and sum(cost(each.name, each.dtype) for each in alone[0].operations) > CHEAP:
            return False
        made = {each for member in nodes for each in member.outputs}
        read = {each for member in nodes for each in member.reads() if not _is_number(graph, each)}
        steps, results = self.steps + len(alone[0].steps), sum(map(self.is_result, nodes))
        if len(read - made) > MAX_INPUTS or steps > MAX_STEPS or results > MAX_RESULTS:
            return False
        self.nodes, self.steps = nodes, steps
        return True

    def take_before(self, *nodes: Node) -> list[Node]:
        """Take what these nodes read, and so on, as far as nothing else reads it; return what others read too."""
        names, shared = [name for node in nodes for name in node.reads()], []
        while names:
            node = self.links.maker(names.pop(), *OPERATORS)
            if node is None or node in self.nodes:
                continue
            if self.links.is_result(node.outputs[0]) or any(
                reader not in self.nodes for reader in self.links.readers(node.outputs[0])
            ):
                shared.append(node)
            elif self.take(node):
                names += node.reads()
        return shared

    def take_with_readers(self, node: Node) -> None:
        """Take a node that one of these reads, and all of its readers before the last one, or none of them."""
        before, end, waiting = (self.nodes, self.steps), self.links.order(self.last), [node]
        while waiting:
            each = waiting.pop()
            if each in self.nodes:
                continue
            if each.op not in OPERATORS or not self.take(each):
                self.nodes, self.steps = before
                return
            waiting += [reader for reader in self.links.readers(each.outputs[0]) if self.links.order(reader) < end]


def _is_number(graph: Graph, name: str) -> bool:
    return name in graph.constants and graph.constants[name].size == 1


@rule("ChannelScales", "QuantizeLinear", "DequantizeLinear")
def spread_scales(links: Links, node: Node) -> bool:
    """Give constant scales and zero points of channels as many axes as the tensor has, so that they broadcast."""
    graph, shape = links.graph, links.graph.shape(node.inputs[0])
    given = [graph.constants.get(name) for name in node.inputs[1:]]
    if shape is None or len(shape) < 2 or node.attribute("block_size"):
        return False
    if any(each is None or each.ndim != 1 for each in given) or given[0].size == 1:  # type: ignore[union-attr]
        return False
    extents = [1] * len(shape)
    extents[node.attribute("axis")] = -1

    def spread(name: str) -> str:
        constant, known = graph.constants[name].reshape(extents), graph.constants.get(f"{name}.spread")
        same = known is not None and known.shape == constant.shape and np.shares_memory(known, constant)
        return f"{name}.spread" if same else graph.add(f"{name}.spread", constant)

    links.change(node, inputs=(node.inputs[0], *map(spread, node.inputs[1:])))
    return True


join_programs = _Programs("Programs", tuple(OPERATORS), _join)


def share_programs(graph: Graph) -> None:
    """Make numbers that differ between otherwise equal programs inputs, so that one kernel computes them all."""
    alike: dict[Hashable, list[int]] = {}
    for place, node in enumerate(graph.nodes):
        if node.op == "Pointwise":
            program = parse(node.attributes["program"])
            steps = tuple(step._replace(arguments=()) if step.name == "const" else step for step in program.steps)
            alike.setdefault((program.inputs, steps, program.outputs), []).append(place)
    for places in alike.values():
        programs = [parse(graph.nodes[place].attributes["program"]) for place in places]
        columns = zip(*(program.steps for program in programs), strict=True)
        different = [number for number, steps in enumerate(columns) if len(set(steps)) > 1]
        if different and len(programs[0].inputs) + len(different) <= MAX_INPUTS:
            for place, program in zip(places, programs, strict=True):
                _read_numbers(graph, place, program, different)


def _read_numbers(graph: Graph, place: int, program: Program, numbers: list[int]) -> None:
    """Let a program read the constants that are these of its steps."""
    node, count = graph.nodes[place], len(program.inputs)
    read = [program.steps[each] for each in numbers]
    kept = [number for number in range(len(program.steps)) if number not in numbers]
    order = [*range(count), *(count + each for each in (*numbers, *kept))]
    places = {old: new for new, old in enumerate(order)}
    steps = [
        step if step.name == "const" else step._replace(arguments=tuple(places[each] for each in step.arguments))
        for step in (program.steps[number] for number in kept)
    ]
    inputs = (*program.inputs, *(step.dtype for step in read))
    made = make(inputs, steps, *(places[each] for each in program.outputs))
    names = [
        graph.add(f"{node.outputs[0]}.number", np.array(constant(step), array_dtype(TYPES[step.dtype])))
        for step in read
    ]
    graph.change(place, inputs=(*node.inputs, *names), attributes={"program": made.text})
