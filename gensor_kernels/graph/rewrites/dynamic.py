"""Tensors that are quantised by their own range in each call: their products, convolutions, and ranges."""

from __future__ import annotations

import numpy as np

from gensor_kernels.graph.ir.graph import Node, Step
from gensor_kernels.graph.ir.links import Links

from .base import floats, rule
from .integers import INT8, MOST_TERMS, UINT8, inside

#: The standard's numbers of int32, and of types of 8 bits.
INT32 = 6
NUMBERS = {INT8: 3, UINT8: 2}


@rule("DynamicProducts", "MatMulInteger")
def multiply_dynamic(links: Links, node: Node) -> bool:
    """Cast(MatMulInteger(a, b, zero)) -> IntegerMatMul(a, b; add -zero * columns), of int8 and a constant `b`.

    The sums of the columns of `b` are constants; zero points may be computed.
    """
    graph, cast = links.graph, links.reader(node.outputs[0], "Cast")
    matrix, given, zeros = (
        graph.constants.get(node.inputs[1]),
        graph.spec(node.inputs[0]),
        graph.constants.get(node.input(3)),
    )
    if cast is None or matrix is None or given is None or not floats(graph, cast.outputs[0]):
        return False
    if given.dtype != INT8 or matrix.dtype != INT8 or matrix.ndim != 2 or len(matrix) > MOST_TERMS:
        return False
    shape, result = graph.shape(node.input(2)) if node.input(2) else (), graph.spec(cast.outputs[0])
    if (node.input(3) and (zeros is None or zeros.any())) or shape not in ((), (1,)) or result is None:
        return False
    nodes, steps = list[Node](), list[Step]()
    if node.input(2):
        columns = graph.derived.array("columns", [matrix], lambda: -matrix.sum(axis=0, dtype=np.int32))
        name = graph.add(f"{node.inputs[1]}.columns", columns)
        wide, term = links.fresh(f"{node.outputs[0]}.zero", name, shape), links.fresh(f"{node.outputs[0]}.term", name)
        nodes.append(Node("Cast", (node.inputs[2],), (wide,), {"to": INT32}, wide))
        nodes.append(Node("Mul", (wide, name), (term,), {}, term))
        steps.append(Step("add", term))
    attributes = {"to": result.dtype.name}
    product = Node("IntegerMatMul", node.inputs[:2], cast.outputs, attributes, node.name, tuple(steps), (cast.op,))
    links.replace(cast, *nodes, product)
    return True


@rule("DynamicConvolutions", "ConvInteger")
def convolve_dynamic(links: Links, node: Node) -> bool:
    """ConvInteger(x, w, zero, z) -> IntegerConv(x, w) - z * IntegerConv(x, 1) - zero * c, of int8.

    Filters w and their zero points z are constants, and so are the sums c of the taps of w - z inside the image. `zero`
    may be computed.
    """
    graph, group = links.graph, node.attribute("group")
    given, filters, points = graph.spec(node.inputs[0]), graph.constants.get(node.inputs[1]), node.input(3)
    shape, result = graph.static(node.inputs[0]), graph.static(node.outputs[0])
    if given is None or given.dtype != INT8 or filters is None or filters.dtype != INT8 or not node.input(2):
        return False
    if shape is None or result is None or len(shape) not in (3, 4) or filters[0].size > MOST_TERMS:
        return False
    z = graph.constants.get(points) if points else np.zeros((), INT8)
    if z is None or graph.shape(node.inputs[2]) not in ((), (1,)) or (z.any() and group not in (1, len(filters))):
        return False
    each = z.astype(np.int64).reshape(-1, *(1,) * (len(shape) - 1))
    sums_of_taps = graph.derived.array(
        ("inside", repr(sorted(node.attributes.items())), shape, z.tobytes()),
        [filters],
        lambda: inside(node, filters - each, shape, result).astype(np.int32),
    )
    name = graph.add(f"{node.inputs[1]}.inside", sums_of_taps)
    window = {key: node.attribute(key) for key in ("auto_pad", "dilations", "group", "pads", "strides")}
    wide = links.fresh(f"{node.outputs[0]}.zero", name, graph.shape(node.inputs[2]))
    term = links.fresh(f"{node.outputs[0]}.term", name)
    sums = links.fresh(f"{node.outputs[0]}.sums", name, result)
    nodes = [
        Node("Cast", (node.inputs[2],), (wide,), {"to": INT32}, wide),
        Node("Mul", (wide, name), (term,), {}, term),
        Node("IntegerConv", node.inputs[:2], (sums,), {**window, "to": "int32"}, node.name),
    ]
    if z.any():
        extents = (result[0], group, *result[2:])
        seen, more, rest = (
            links.fresh(f"{node.outputs[0]}.{what}", name, extents) for what in ("seen", "more", "rest")
        )
        graph.specs[rest] = graph.specs[sums]
        ones = graph.add(f"{node.inputs[1]}.ones", np.ones((group, *filters.shape[1:]), INT8))
        factor = graph.add(f"{node.inputs[1]}.point", each[None, ..., 0].astype(np.int32))
        nodes += [
            Node("IntegerConv", (node.inputs[0], ones), (seen,), {**window, "to": "int32"}, seen),
            Node("Mul", (seen, factor), (more,), {}, more),
            Node("Sub", (sums, more), (rest,), {}, rest),
        ]
        sums = rest
    links.replace(node, *nodes, Node("Sub", (sums, term), node.outputs, {}, node.name))
    return True


@rule("DynamicRanges", "DynamicQuantizeLinear")
def split_dynamic(links: Links, node: Node) -> bool:
    """DynamicQuantizeLinear(x) -> its least and its largest element, and element-wise nodes that become programs.

    A program computes a node again that it does not share with others.
    """
    graph, x = links.graph, node.inputs[0]
    spec, shape = graph.spec(x), graph.static(x)
    if spec is None or spec.dtype != np.float32 or shape is None or len(shape) < 2 or 0 in shape:
        return False
    if not all(node.outputs):
        return False
    least, kind = (-128, INT8) if node.attribute("signed") else (0, UINT8)
    nodes, one = list[Node](), (1,) * len(shape)

    def number(value: float) -> str:
        return graph.add(f"{node.outputs[0]}.number", np.array(value, np.float32))

    def make(op: str, *inputs: str, wide: bool = False, result: str = "", **attributes: object) -> str:
        name = result or links.fresh(f"{node.outputs[0]}.{op.lower()}", x, shape if wide else one)
        nodes.append(Node(op, inputs, (name,), attributes, name))
        return name

    nothing, top = number(0), number(255)
    low, high = (make(f"Reduce{end}", x, keepdims=1, noop_with_empty_axes=0) for end in ("Min", "Max"))
    unit = make("Div", make("Sub", make("Max", high, nothing), make("Min", low, nothing)), top)
    same = make("Equal", unit, nothing)
    graph.specs[same] = graph.specs[same]._replace(dtype=np.dtype(bool))
    scale = make("Where", same, number(1), unit)
    zero = make("Add", make("Round", make("Div", make("Neg", make("Min", low, nothing)), scale)), number(least))
    place = make("Add", make("Round", make("Div", x, scale, wide=True), wide=True), zero, wide=True)
    ends = make("Max", make("Min", place, number(least + 255), wide=True), number(least), wide=True)
    make("Cast", ends, to=NUMBERS[kind], result=node.outputs[0])
    point = make("Cast", zero, to=NUMBERS[kind])
    graph.specs[point] = graph.specs[point]._replace(dtype=kind)
    scalar = graph.add(f"{node.outputs[0]}.shape", np.zeros(0, np.int64))
    make("Reshape", scale, scalar, result=node.outputs[1])
    make("Reshape", point, scalar, result=node.outputs[2])
    links.replace(node, *nodes)
    return True
