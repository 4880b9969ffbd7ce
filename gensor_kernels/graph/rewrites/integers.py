"""Quantised models: products and convolutions between DequantizeLinear and QuantizeLinear in int8, one kernel each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings import compute
from gensor_kernels.graph.lowerings.base import Host
from gensor_kernels.graph.lowerings.contractions import padding

from .base import floats, rule
from .quantised import find_weights

INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)
#: Operators of integers whose results are elements of their first input.
MOVES = ("Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
#: Products of int8 that an int32 surely holds.
MOST_TERMS = 2**17 - 1
#: A float32 of this size plus a number below 2^22 is rounded to a whole number, half to even.
ROUNDER = 1.5 * 2**23
#: The upper bound of relu6, which clamps where the range of a result is scaled to it.
SIX = 6.0


class Quantised(NamedTuple):
    """A tensor of int8 that stands for (x - zero) * scale."""

    x: str
    scale: np.ndarray
    zero: int
    #: Axis of a vector of scales.
    axis: int


def find_quantised(links: Links, name: str) -> Quantised | None:
    """Return the int8 tensor that makes `name` by a DequantizeLinear with known scales and one known zero point."""
    graph, node = links.graph, links.maker(name, "DequantizeLinear")
    if node is None or node.attribute("block_size"):
        return None
    spec, scale, shape = graph.spec(node.inputs[0]), graph.constants.get(node.inputs[1]), graph.shape(name)
    zero = graph.constants.get(node.input(2)) if node.input(2) else np.zeros(1, INT8)
    if spec is None or spec.dtype != INT8 or scale is None or zero is None or not zero.size or shape is None:
        return None
    if (zero != zero.ravel()[0]).any() or scale.ndim > 1:
        return None
    axis = node.attribute("axis") % len(shape) if scale.size > 1 else 0
    return Quantised(node.inputs[0], scale.astype(np.float64), int(zero.ravel()[0]), axis)


@rule("SignedIntegers", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger")
def sign_integers(links: Links, node: Node) -> bool:
    """Make uint8 tensors and their zero points int8, both 128 less: kernels multiply int8."""
    graph = links.graph
    if node.op == "QuantizeLinear":
        return _sign_result(links, node)
    if node.op == "DynamicQuantizeLinear":
        return _sign_dynamic(links, node)
    operand, zero = (0, 2) if node.op == "DequantizeLinear" else (1, 3)
    constant = graph.constants.get(node.input(operand))
    if constant is None or constant.dtype != UINT8 or not _has_known_zero(graph, node, zero):
        return False
    signed = graph.derived.array("signed", [constant], lambda: (constant ^ 128).view(INT8))
    inputs = [*node.inputs, *[""] * (zero + 1 - len(node.inputs))]
    inputs[operand] = graph.add(f"{node.inputs[operand]}.signed", signed)
    inputs[zero] = _signed_zero(graph, node, zero)
    links.change(node, inputs=tuple(inputs))
    return True


def _sign_result(links: Links, node: Node) -> bool:
    """Let a QuantizeLinear give int8, if all that reads its numbers, or moves them, is DequantizeLinear."""
    graph, waiting, moved, readers = links.graph, [node.outputs[0]], list[str](), list[Node]()
    spec = graph.spec(node.outputs[0])
    if spec is None or spec.dtype != UINT8 or not _has_known_zero(graph, node, 2):
        return False
    while waiting:
        name = waiting.pop()
        moved.append(name)
        if links.is_result(name):
            return False
        for each in links.readers(name):
            if each.op in MOVES and each.inputs[0] == name and len(each.outputs) == 1:
                waiting.append(each.outputs[0])
            elif each.op == "DequantizeLinear" and _has_known_zero(graph, each, 2):
                readers.append(each)
            else:
                return False
    attributes = {name: value for name, value in node.attributes.items() if name != "output_dtype"}
    links.change(node, inputs=(*node.inputs[:2], _signed_zero(graph, node, 2)), attributes=attributes)
    for each in readers:
        links.change(each, inputs=(*each.inputs[:2], _signed_zero(graph, each, 2)))
    for name in moved:
        if (found := graph.spec(name)) is not None:
            graph.specs[name] = found._replace(dtype=INT8)
    return True


def _sign_dynamic(links: Links, node: Node) -> bool:
    """Let a DynamicQuantizeLinear give int8, if only products read it, as their first operand, with its zero point."""
    if node.attribute("signed") or not all(node.outputs):
        return False
    y, _, zero = node.outputs
    readers = [each for name in (y, zero) for each in links.readers(name)]
    if (
        links.is_result(y)
        or links.is_result(zero)
        or not all(
            each.op in ("MatMulInteger", "ConvInteger") and (each.inputs[0], each.input(2)) == (y, zero)
            for each in readers
        )
    ):
        return False
    for name in (y, zero):
        links.graph.specs[name] = links.graph.specs[name]._replace(dtype=INT8)
    links.change(node, attributes={**node.attributes, "signed": 1})
    return True


def _has_known_zero(graph: Graph, node: Node, place: int) -> bool:
    name = node.input(place)
    return not name or (name in graph.constants and graph.constants[name].dtype == UINT8)


def _signed_zero(graph: Graph, node: Node, place: int) -> str:
    name = node.input(place)
    zero = graph.constants[name] if name else np.zeros((), UINT8)
    return graph.add(f"{name or node.outputs[0]}.signed", (zero ^ UINT8.type(128)).view(INT8))


@rule("IntegerViews", "QuantizeLinear")
def move_integers(links: Links, node: Node) -> bool:
    """QuantizeLinear(Reshape(DequantizeLinear(x))) -> Reshape(x), where scales and zero points are equal.

    Also views of other kinds, and maxima of windows.
    """
    graph, view = links.graph, links.maker(node.inputs[0], *MOVES)
    given = find_quantised(links, node.inputs[0] if view is None else view.inputs[0])
    scale, zero = (graph.constants.get(node.input(place)) for place in (1, 2))
    if given is None or view is None or not links.alone(node.inputs[0]) or scale is None or zero is None:
        return False
    if len(view.outputs) > 1:
        return False
    if zero.dtype != INT8 or zero.size != 1 or scale.size != 1 or given.scale.size > 1:
        return False
    if scale.ravel()[0] != given.scale.ravel()[0] or zero.ravel()[0] != given.zero:
        return False
    links.replace(node, replace(view, inputs=(given.x, *view.inputs[1:]), outputs=node.outputs))
    return True


@rule("IntegerProducts", "MatMul", "Gemm")
def multiply_integers(links: Links, node: Node) -> bool:
    """MatMul(DequantizeLinear(a), DequantizeLinear(b)) -> IntegerMatMul(a, b; scale, add), also for Gemm.

    A zero point of `a` is a term for each column of a constant `b`; that of `b` is 0. Terms are added as floats.
    """
    graph, a, b = links.graph, find_quantised(links, node.inputs[0]), find_quantised(links, node.inputs[1])
    spec, matrix = graph.spec(node.outputs[0]), None if b is None else graph.constants.get(b.x)
    if a is None or b is None or a.scale.size > 1 or b.zero or spec is None or not floats(graph, node.outputs[0]):
        return False
    turned, shape = bool(node.attribute("transB")), graph.shape(b.x)
    if node.op == "Gemm" and (node.attribute("transA") or node.attribute("alpha") != 1):
        return False
    if shape is None or len(shape) < 2 or (matrix is None and (a.zero or turned)):
        return False
    size = shape[-1 if turned else -2]
    if not isinstance(size, int) or size > MOST_TERMS:
        return False
    if b.scale.size > 1 and b.axis != (len(shape) - 1 if not turned else 0):
        return False
    factor, term, name = a.scale.ravel()[0] * b.scale, np.zeros(()), b.x
    if matrix is not None:
        matrix = matrix.T if turned else matrix
        name = graph.add(f"{b.x}.turned", matrix) if turned else b.x
        if a.zero:
            term = -a.zero * matrix.sum(axis=-2, dtype=np.int64) * factor
            term = term if matrix.ndim == 2 else term[..., None, :]
    if node.op == "Gemm" and node.input(2) and node.attribute("beta") != 0:
        bias = _known(links, node.inputs[2])
        if bias is None:
            return False
        term = term + node.attribute("beta") * bias.astype(np.float64)
    return _put(links, node, "IntegerMatMul", (a.x, name), factor, term, {})


@rule("IntegerConvolutions", "Conv")
def convolve_integers(links: Links, node: Node) -> bool:
    """Conv(DequantizeLinear(x), DequantizeLinear(w), b) -> IntegerConv(x, w; scale, add), for constant filters.

    Where the padding is not 0 in int8, the term of the zero point is an image: its sum has the taps inside `x` alone.
    """
    graph, x, w = links.graph, find_quantised(links, node.inputs[0]), find_quantised(links, node.inputs[1])
    if x is None or w is None or x.scale.size > 1 or w.zero or not floats(graph, node.outputs[0]):
        return False
    filters, shape, result = graph.constants.get(w.x), graph.static(x.x), graph.static(node.outputs[0])
    if filters is None or shape is None or result is None or len(shape) not in (3, 4):
        return False
    if (w.scale.size > 1 and w.axis) or filters[0].size > MOST_TERMS:
        return False
    each = (1, -1, *(1,) * (len(shape) - 2))
    factor = x.scale.ravel()[0] * (w.scale.reshape(each) if w.scale.size > 1 else w.scale.reshape(()))
    term = np.zeros(()) if not x.zero else -x.zero * inside(node, filters, shape, result) * factor
    if node.input(2):
        bias = _known(links, node.inputs[2])
        if bias is None:
            return False
        term = term + bias.astype(np.float64).reshape(each)
    window = {name: node.attribute(name) for name in ("auto_pad", "dilations", "group", "pads", "strides")}
    return _put(links, node, "IntegerConv", (x.x, w.x), factor, term, window)


def inside(node: Node, filters: np.ndarray, shape: Sequence[int], result: Sequence[int]) -> np.ndarray:
    """Return the sums of each filter's taps inside the image, (1, filters, positions) or with axes of one position."""
    spatial = len(shape) - 2
    strides, dilations = (node.attribute(each) or (1,) * spatial for each in ("strides", "dilations"))
    found = filters.sum(axis=1, dtype=np.int64)
    pads = padding(node, shape[2:], filters.shape[2:], strides, dilations)
    for axis, (low, high) in enumerate(pads):
        if not low and not high:
            found = found.sum(axis=1 + axis, keepdims=True)
            continue
        taps, positions = np.arange(filters.shape[2 + axis]), np.arange(result[2 + axis])
        places = positions[:, None] * strides[axis] - low + taps * dilations[axis]
        seen = ((places >= 0) & (places < shape[2 + axis])).astype(np.int64)
        found = np.moveaxis(np.tensordot(seen, found, axes=(1, 1 + axis)), 0, 1 + axis)
    return found[None]


def _known(links: Links, name: str) -> np.ndarray | None:
    """Return a constant, also one that a DequantizeLinear makes of constants."""
    if name in links.graph.constants:
        return links.graph.constants[name]
    node = links.maker(name, "DequantizeLinear")
    return None if node is None else dequantised(links.graph, node)


def _put(
    links: Links,
    node: Node,
    op: str,
    inputs: tuple[str, str],
    factor: np.ndarray,
    term: np.ndarray,
    more: dict[str, object],
) -> bool:
    """Put a node of integers, whose epilogue multiplies by a factor and adds a term, in the place of one of floats.

    Return False where it is predicted to be slower, as without kernels.
    """
    graph, steps = links.graph, [_scaled(links.graph, node, factor)]
    if term.any():
        steps.append(Step("add", graph.add(f"{node.outputs[0]}.term", term.astype(np.float32))))
    spec = graph.spec(node.outputs[0])
    assert spec is not None
    attributes = {**more, "to": spec.dtype.name}
    new = Node(op, inputs, node.outputs, attributes, node.name, tuple(steps), node.joined)
    if links.is_slower([new], [_pass(node.inputs[0], node), node]):
        links.why = "in int8, it is predicted to be slower"
        return False
    links.replace(node, new)
    return True


def _pass(name: str, node: Node) -> Node:
    """Return a pass over a tensor, which takes no longer than to quantise it or to dequantise it."""
    return Node("Elementwise", (name,), (f"{node.outputs[0]}.pass",), {}, node.name, (Step("relu"),))


def _scaled(graph: Graph, node: Node, factor: np.ndarray) -> Step:
    if factor.size == 1:
        return Step("scale", "", float(factor.ravel()[0]))
    return Step("mul", graph.add(f"{node.outputs[0]}.factor", factor.astype(np.float32)))


#: Ranges of an activation, by step.
RANGES = {"relu": (0.0, np.inf), "relu6": (0.0, 6.0)}


@rule("Requantised", "QuantizeLinear")
def requantise(links: Links, node: Node) -> bool:
    """QuantizeLinear(IntegerMatMul(a, b; scale, add, relu)) -> IntegerMatMul of int8 results, also for IntegerConv.

    The sum becomes steps of an epilogue: it is scaled so that relu6 clamps it to the range of int8 (or of the
    activation), scaled back, and rounded by adding and taking off ROUNDER. All of it is in float32, so that a result
    differs from one of exact arithmetic by one quantum at most, next to a tie.
    """
    graph, product = links.graph, links.maker(node.inputs[0], "IntegerMatMul", "IntegerConv")
    scale, zeros, spec = (
        graph.constants.get(node.inputs[1]),
        graph.constants.get(node.input(2)),
        graph.spec(node.outputs[0]),
    )
    if product is None or not links.alone(node.inputs[0]) or product.attribute("to") == "int8":
        return False
    if spec is None or spec.dtype != INT8 or scale is None or scale.size != 1 or zeros is None or zeros.size != 1:
        return False
    steps = list(product.epilogue)
    low, high = RANGES[steps.pop().name] if steps[-1].name in RANGES else (-np.inf, np.inf)
    if [each.name for each in steps[1:]] not in ([], ["add"]) or not all(
        each.operand in graph.constants for each in steps if each.operand
    ):
        return False
    zero, quantum = float(zeros.ravel()[0]), float(scale.ravel()[0])
    least, most = (float(np.clip(np.rint(each / quantum) + zero, -128, 127)) for each in (low, high))
    if not quantum > 0 or least >= most:
        return False
    first = graph.constants[steps[0].operand].astype(np.float64) if steps[0].operand else np.array(steps[0].scalar)
    term = graph.constants[steps[1].operand].astype(np.float64) if steps[1:] else np.zeros(())
    unit = SIX / (most - least)

    def number(value: float, what: str) -> str:
        return graph.add(f"{node.outputs[0]}.{what}", np.array(value, np.float32))

    place = graph.add(f"{node.outputs[0]}.term", ((term / quantum + (zero - least)) * unit).astype(np.float32))
    new = (
        _scaled(graph, node, first / quantum * unit),
        Step("add", place),
        Step("relu6"),
        Step("scale", "", 1 / unit),
        Step("add", number(ROUNDER + least - zero, "up")),
        Step("add", number(zero - ROUNDER, "down")),
    )
    attributes = {**product.attributes, "to": "int8"}
    taken = replace(product, outputs=node.outputs, epilogue=new, attributes=attributes)
    if links.is_slower([taken], [product, _pass(node.inputs[0], node)]):
        links.why = "with the rounding in the product, it is predicted to be slower"
        return False
    links.take_in(product, node, epilogue=new, attributes=attributes, joined=(*product.joined, node.op))
    return True


@rule("KnownWeights", "DequantizeLinear")
def dequantise_constants(links: Links, node: Node) -> bool:
    """DequantizeLinear of constants -> a constant, as are casts and views of it; weights of 16-bit products stay."""
    if any(_stays(links, each) for each in _products(links, node.outputs[0])):
        return False
    return fold_constants(links, node)


@rule("KnownWeights", "DequantizeLinear")
def dequantise_others(links: Links, node: Node) -> bool:
    """DequantizeLinear of constants -> a constant, also where a product was to keep it."""
    return fold_constants(links, node)


def fold_constants(links: Links, node: Node) -> bool:
    """Replace a node of constants by its result, and casts and views of that in turn."""
    found = None if links.is_result(node.outputs[0]) else dequantised(links.graph, node)
    if found is None:
        return False
    name = links.graph.add(f"{node.outputs[0]}.known", found)
    after = [each for each in links.readers(node.outputs[0]) if each.op in (*MOVES, "Cast")]
    links.rename(node.outputs[0], name)
    links.remove(node)
    for each in after:
        if (made := links.maker(each.outputs[0])) is not None:
            fold_constants(links, made)
    return True


def _products(links: Links, name: str) -> list[Node]:
    """Return the products whose second operand is a tensor, or casts and transposes of it."""
    found = []
    for node in links.readers(name):
        if node.op in ("Cast", "Transpose"):
            found += _products(links, node.outputs[0])
        elif node.op in ("MatMul", "Gemm") and node.input(1) == name:
            found.append(node)
    return found


def _stays(links: Links, node: Node) -> bool:
    return find_weights(links, node) is not None


def dequantised(graph: Graph, node: Node) -> np.ndarray | None:
    """Return the result of a node of constants, or None."""
    if not all(each in graph.constants for each in node.reads()):
        return None
    sources = [graph.constants[each] for each in node.reads()]

    def make() -> np.ndarray:
        run = Host()
        run.values = {each: graph.constants[each] for each in node.reads()}
        (found,) = compute(run, node)
        return np.asarray(found)

    return graph.derived.array((node.op, repr(sorted(node.attributes.items()))), sources, make)
