"""The layout of every image of a graph: chosen, written into its nodes, and conversions between them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gensor_kernels.graph.ir.graph import Graph, Node

from .choice import Choice, Tensor, total
from .times import LAST, Times, in_order, weight_orders

#: Operators whose kernels take both layouts, with different times.
KERNELS = ("AveragePool", "Conv", "ConvTranspose", "IntegerConv", "Elementwise", "GlobalAveragePool", "MaxPool")
#: Reductions of whole images, which read both layouts and write vectors.
REDUCTIONS = ("GlobalMaxPool", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
#: Predicted times must fall by this factor before a graph is changed.
WORTHWHILE = 1.01
#: Operators that can read one layout and write the other; grouped convolutions cannot.
EITHER = ("Conv", "Elementwise", "IntegerConv")
#: Transposes that are views of images with channels last: into the axes (n, c, h, w), and out of them.
INTO, OUT_OF = (0, 3, 1, 2), LAST
#: Operators of the array library, which keep the layout that they read at the same time.
NEUTRAL = (
    *("Abs", "Add", "Cast", "Celu", "Clip", "Concat", "Div", "Elu", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Reciprocal", "Selu", "Softplus", "Sqrt", "Sub", "Sum"),
    *("DequantizeLinear", "Pointwise", "QuantizeLinear", "Slice", "Split", "Swish", "ThresholdedRelu"),
)


@dataclass(frozen=True)
class Layouts:
    """Chosen layouts, with their times."""

    #: Nodes with channels last.
    last: int = 0
    #: Copies between layouts.
    conversions: int = 0
    #: Predicted microseconds of the nodes over images, conversions included.
    predicted_us: float = 0.0
    #: The same with channels first everywhere.
    first_us: float = 0.0

    def __str__(self) -> str:
        if not self.last:
            return f"channels first everywhere: {self.first_us:.1f} µs over images (predicted)"
        return (
            f"channels last in {self.last} nodes, {self.conversions} conversions: {self.predicted_us:.1f} µs over "
            f"images, {self.first_us:.1f} µs with channels first (predicted)"
        )


def choose_layouts(graph: Graph) -> Layouts | None:
    """Choose the layout of every node over images by predicted time on the current device, and change the graph.

    Shapes stay (n, c, h, w): a layout is an order in memory. Inputs, results and operators that are not known to take
    channels last have channels first. Returns None for a graph without images.
    """
    places = [place for place, node in enumerate(graph.nodes) if _takes_both(graph, node)]
    if not any(graph.nodes[place].op in KERNELS[:4] for place in places):
        return None
    return _Choice(graph, places).apply()


def _is_image(graph: Graph, name: str) -> bool:
    spec = graph.spec(name) if name else None
    if spec is None or spec.shape is None or len(spec.shape) != 4:
        return False
    return spec.dtype.name in ("float16", "bfloat16", "float32", "int8") and all(
        isinstance(each, int) and each > 0 for each in spec.shape
    )


def _are_images(graph: Graph, names: Iterable[str]) -> bool:
    return all(_is_image(graph, each) for each in names)


def _takes_both(graph: Graph, node: Node) -> bool:
    if node.op == "Transpose":
        return node.attribute("perm") in (INTO, OUT_OF) and _are_images(graph, (node.inputs[0], node.outputs[0]))
    if node.op not in (*KERNELS, *NEUTRAL, *REDUCTIONS):
        return False
    known = all(graph.shape(each) is not None for each in (*node.reads(), *node.outputs) if each)
    if node.op in REDUCTIONS:
        axes = graph.constants.get(node.input(1))
        whole = node.op == "GlobalMaxPool" or (axes is not None and sorted(int(each) % 4 for each in axes) == [2, 3])
        return known and whole and _is_image(graph, node.inputs[0])
    images = node.reads() if node.op in NEUTRAL else node.inputs[:1]
    whole = len(node.outputs) == 1 or node.op in ("Pointwise", "Split")
    return known and whole and any(_is_image(graph, each) for each in images) and _are_images(graph, node.outputs)


def _transposes(node: Node, order: tuple[int, ...]) -> bool:
    return node.op == "Transpose" and node.attribute("perm") == order


class _Choice:
    """Nodes that take both layouts; node 0 stands for all others, which have channels first."""

    def __init__(self, graph: Graph, places: list[int]):
        self.graph, self.times = graph, Times(graph)
        self.nodes = [graph.nodes[place] for place in places]
        self.own = [(0.0, math.inf), *(self._both(node) for node in self.nodes)]
        for number, (first, last) in enumerate(self.own):
            if math.isinf(first) and math.isinf(last):  # unknown: as in the file
                self.own[number] = (0.0, math.inf)
        self.number = {id(node): number for number, node in enumerate(self.nodes, 1)}
        #: The same without Transposes that read or write other tensors than images.
        self.reader = self._without(INTO)
        self.writer = self._without(OUT_OF)
        self.names = self._tensors()
        self.laid: dict[tuple[str, tuple[int, ...]], str] = {}

    def _without(self, order: tuple[int, ...]) -> dict[int, int]:
        return {id(node): self.number[id(node)] for node in self.nodes if not _transposes(node, order)}

    def _both(self, node: Node) -> tuple[float, float]:
        if node.op in NEUTRAL:
            return 0.0, 0.0
        if node.op == "Transpose":
            # A result without readers is copied for the caller in any case.
            read = any(node.outputs[0] in each.reads() for each in self.graph.nodes)
            free = node.outputs[0] in self.graph.outputs and not read
            image = node.outputs[0] if _transposes(node, INTO) else node.inputs[0]
            return 0.0 if free else self.times.conversion(image), 0.0
        first, last = (self.times.of(replace(node, layout=each), each == "last") for each in ("first", "last"))
        return first, last

    def _images(self, node: Node) -> set[str]:
        return {each for each in node.reads() if _is_image(self.graph, each) and each not in self.graph.constants}

    def _tensors(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Return (writer, readers) of the images between nodes, by name."""
        made = {name: self.writer.get(id(node), 0) for node in self.nodes for name in node.outputs}
        readers: dict[str, set[int]] = {}
        for node in self.graph.nodes:
            for name in self._images(node):
                readers.setdefault(name, set()).add(self.reader.get(id(node), 0))
        for name in filter(lambda each: _is_image(self.graph, each), self.graph.outputs):
            readers.setdefault(name, set()).add(0)
        wanted = {name: tuple(sorted(each)) for name, each in readers.items()}
        return {name: (made.get(name, 0), each) for name, each in wanted.items() if made.get(name, 0) or any(each)}

    def apply(self) -> Layouts:
        """Choose, and change the graph.

        Further times of readers in the other layout are predicted only where needed: they are 0 at first, and a choice
        that depends on no unknown time is the best one.
        """
        direct: dict[str, dict[tuple[int, bool], float]] = {name: {} for name in self.names}
        known: set[tuple[str, int, bool]] = set()
        for name, (_, readers) in self.names.items():
            for reader in readers:
                if reader and self._may_cross(name, self.nodes[reader - 1]):
                    direct[name] |= {(reader, False): 0.0, (reader, True): 0.0}
        tensors = {name: Tensor(*each, self.times.conversion(name), direct[name]) for name, each in self.names.items()}
        numbers, choice = {name: number for number, name in enumerate(tensors)}, Choice(self.own, [*tensors.values()])
        while True:
            last = choice.last()
            unknown = {
                (name, reader, last[reader])
                for name, (writer, readers) in self.names.items()
                for reader in readers
                if last[reader] != last[writer] and (reader, last[reader]) in direct[name]
            } - known
            if not unknown:
                break
            for name, reader, side in unknown:
                node = replace(self.nodes[reader - 1], layout="last" if side else "first")
                more = max(self.times.of(node, not side) - self.own[reader][side], 0.0)
                direct[name][reader, side] = more
                choice.slow(numbers[name], reader, side, more)
            known |= unknown
        nothing = [False] * len(last)
        return self._write(tensors, last, total(self.own, list(tensors.values()), nothing))

    def _may_cross(self, name: str, node: Node) -> bool:
        others = (*node.inputs[1:], *(step.operand for step in node.epilogue))
        if (node.attribute("group") or 1) > 1:
            return False
        return node.op in EITHER and node.inputs[0] == name and name not in others

    def _write(self, tensors: dict[str, Tensor], last: list[bool], first_us: float) -> Layouts:
        """Write layouts into nodes, and conversions between them."""
        predicted = total(self.own, list(tensors.values()), last)
        if predicted * WORTHWHILE > first_us:
            return Layouts(0, 0, first_us, first_us)
        graph = self.graph
        numbers, readers = ([found.get(id(node), 0) for node in graph.nodes] for found in (self.number, self.reader))
        for place, number in enumerate(numbers):
            if number:
                is_last = last[number] or (graph.nodes[place].op == "Transpose" and not self.own[number][False])
                node = replace(graph.nodes[place], layout="last" if is_last else "first")
                graph.nodes[place] = self._with_constants(node) if last[number] else node
        copies: dict[int, list[Node]] = {}
        for name, tensor in tensors.items():
            if tensor.conversion and tensor.crossing(last)[1]:
                place, node = self._convert(name, tensor, [last[each] for each in readers], numbers, last[tensor.made])
                copies.setdefault(place, []).append(node)
        for place in sorted(copies, reverse=True):
            graph.nodes[place:place] = copies[place]
        graph.tidy()
        return Layouts(sum(last), sum(map(len, copies.values())), predicted, first_us)

    def _convert(
        self, name: str, tensor: Tensor, reads_last: list[bool], numbers: list[int], is_last: bool
    ) -> tuple[int, Node]:
        """Let readers of the other layout read a copy; return the place and the node that makes it.

        `reads_last` is, for each node of the graph, whether it reads channels last.
        """
        graph, side = self.graph, not is_last
        copy = f"{name}.{'last' if side else 'first'}"
        while graph.spec(copy) is not None:
            copy += "."
        graph.specs[copy] = graph.spec(name)  # type: ignore[assignment]
        readers = [place for place, node in enumerate(graph.nodes) if name in node.reads()]
        there = [place for place in readers if reads_last[place] == side]
        node = Node("Layout", (name,), (copy,), {}, copy, layout="last" if side else "first")
        if name in graph.outputs and not side:  # a result keeps its name
            place = numbers.index(tensor.made) + 1
            outputs = tuple(copy if each == name else each for each in graph.nodes[place - 1].outputs)
            graph.change(place - 1, outputs=outputs)
            there = [each for each in readers if each not in there]
            node = replace(node, inputs=(copy,), outputs=(name,))
        else:
            place = min(there)
        for each in there:
            graph.nodes[each] = graph.nodes[each].reading({name: copy})
        return place, node

    def _with_constants(self, node: Node) -> Node:
        """Return a node with channels last whose constants have the same layout."""
        orders = weight_orders(self.graph, node)
        for place, name in enumerate(node.reads()):
            constant = self.graph.constants.get(name)
            if constant is None or constant.ndim != 4:
                continue
            order = orders[1] if orders is not None and place == 1 else (0, 2, 3, 1)
            if math.prod(constant.shape) > max(constant.shape):  # of one axis it is the same in any order
                node = node.reading({name: self._constant_in(name, order)})
        return node

    def _constant_in(self, name: str, order: tuple[int, ...]) -> str:
        """Return the name of a constant with its axes in this order in memory."""
        if (name, order) not in self.laid:
            self.laid[name, order] = self.graph.add(f"{name}.last", in_order(self.graph, name, order))
        return self.laid[name, order]
