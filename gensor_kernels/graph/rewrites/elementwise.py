"""Element-wise operators: simpler forms, and operations that kernels compute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.lowerings.elementwise import STEPS
from gensor_kernels.operators.types.epilogue import MAX_STEPS

from .base import broadcasts, floats, number, operators_of, rule


@rule("Aliases", "Identity", "Dropout", "Sum", "Cast", "Expand", "Reshape")
def drop_aliases(links: Links, node: Node) -> bool:
    """Dropout(x), Identity(x), a Cast to x's own dtype, an Expand to x's own shape -> x; Sum(a, b) -> Add(a, b)."""
    if node.op == "Sum":
        return len(node.inputs) == 2 and bool(links.change(node, op="Add"))
    return _changes_nothing(links, node) and links.bypass(node, node.inputs[0])


def _changes_nothing(links: Links, node: Node) -> bool:
    if len(node.outputs) > 1:
        return False
    if node.op in ("Identity", "Dropout"):
        return node.op == "Identity" or len(node.inputs) < 3
    given, found = links.graph.spec(node.inputs[0]), links.graph.spec(node.outputs[0])
    if node.op == "Cast":
        return given is not None and found is not None and given.dtype == found.dtype
    first = links.graph.static(node.inputs[0])
    return first is not None and first == links.graph.static(node.outputs[0])


@rule("Constants", "Sub", "Div", "Neg")
def turn_constants(links: Links, node: Node) -> bool:
    """x - c -> x + (-c); x / c -> x * (1 / c), of floating-point tensors; -x -> x * (-1).

    Reciprocals of 16-bit constants are used only if they are exact.
    """
    graph = links.graph
    spec = graph.spec(node.outputs[0])
    if spec is None or not floats(graph, node.outputs[0]):
        return False
    if node.op == "Neg":
        factor = graph.add(node.outputs[0] + ".sign", np.array(-1, spec.dtype))
        return bool(links.change(node, op="Mul", inputs=(node.inputs[0], factor)))
    constant = graph.constants.get(node.inputs[1])
    if constant is None or node.inputs[0] in graph.constants:
        return False
    if node.op == "Sub":
        name = graph.add(node.inputs[1] + ".negative", -constant)
        return bool(links.change(node, op="Add", inputs=(node.inputs[0], name)))
    if constant.size == 1:
        return False  # Scales and Activations take the exact quotient
    wide = constant.astype(np.float64)
    with np.errstate(all="ignore"):
        inverse = (1 / wide).astype(constant.dtype)
    if not np.isfinite(inverse).all() or (constant.dtype.itemsize < 4 and (inverse.astype(float) * wide != 1).any()):
        return False
    return bool(links.change(node, op="Mul", inputs=(node.inputs[0], graph.add(node.inputs[1] + ".inverse", inverse))))


#: Operators of two tensors, by operation.
PAIRS = {"Add": "add", "Mul": "mul", "Sub": "sub", "Div": "div"}

Found = tuple[str, tuple[Step, ...]]


@rule("Activations", *STEPS, *PAIRS, "Gelu", "Swish", "Clip", "HardSigmoid", "HardSwish", "Where")
def make_elementwise(links: Links, node: Node) -> bool:
    """Relu(x) -> Elementwise(x; relu); Add(x, y) -> Elementwise(x; add y); Clip(x, 0, 6) -> Elementwise(x; relu6).

    x - y is (-y) + x or, as x + (-c), an addition; x / c is a scale; HardSigmoid and HardSwish are a shifted and scaled
    relu6; Where(keep, x, c) is a mask. If both operands have the shape of the result, x is the one computed last, whose
    kernel can then compute the operation.
    """
    if not floats(links.graph, node.outputs[0]):
        return False
    found = _chain(links, node)
    if found is None or not links.graph.shape(found[0]):
        return False
    links.replace(node, Node("Elementwise", (found[0],), node.outputs, {}, node.name, found[1], (node.op,)))
    return True


def _chain(links: Links, node: Node) -> Found | None:
    graph, x = links.graph, node.inputs[0]
    if node.op in STEPS:
        return x, (Step(STEPS[node.op]),)
    if node.op == "Gelu":
        return x, (Step("gelu_tanh" if node.attribute("approximate") == "tanh" else "gelu"),)
    if node.op == "Swish":
        return (x, (Step("silu"),)) if node.attribute("alpha") == 1 else None
    if node.op == "Clip":
        low, high = (number(graph, each) if each else None for each in (*node.inputs[1:], "", "")[:2])
        return (x, (Step("relu6"),)) if (low, high) == (0.0, 6.0) else None
    if node.op == "HardSwish":
        return x, (*_hard(graph, node, 1 / 6, 0.5), Step("mul", x))
    if node.op == "HardSigmoid":
        return x, _hard(graph, node, node.attribute("alpha"), node.attribute("beta"))
    return _where(graph, node) if node.op == "Where" else _pair(links, node)


def _hard(graph: Graph, node: Node, alpha: float, beta: float) -> tuple[Step, ...]:
    """Return max(0, min(1, alpha * x + beta)) as steps: relu6 reaches to 6."""
    spec = graph.spec(node.inputs[0])
    assert spec is not None
    term = Step("add", graph.add(node.outputs[0] + ".term", np.array(6 * beta, spec.dtype)))
    first = () if alpha == 1 / 6 else (Step("scale", "", 6 * alpha),)
    return (*first, term, Step("relu6"), Step("scale", "", 1 / 6))


def _where(graph: Graph, node: Node) -> Found | None:
    keep, x, fill = node.inputs
    value, shape = number(graph, fill), graph.shape(keep)
    result = graph.spec(node.outputs[0])
    if value is None or result is None or shape is None or result.shape is None:
        return None
    if (other := number(graph, x)) is not None and (extents := graph.static(node.outputs[0])):
        x = graph.add(node.outputs[0] + ".other", np.broadcast_to(np.array(other, result.dtype), extents))
    if graph.spec(x) != result:
        return None
    tail = result.shape[len(result.shape) - len(shape) :]
    if len(shape) > len(result.shape) or any(a not in (1, b) for a, b in zip(shape, tail, strict=True)):
        return None
    return x, (Step("mask", keep, value),)


def _pair(links: Links, node: Node) -> Found | None:
    graph, result = links.graph, links.graph.spec(node.outputs[0])
    whole = [each for each in node.inputs if result is not None and graph.spec(each) == result]
    if not whole:
        return None
    x = max(whole, key=links.when)
    first = node.inputs[0] == x
    other = node.inputs[1] if first else node.inputs[0]
    factor = number(graph, other)
    if node.op == "Div":
        return (x, (Step("scale", "", 1 / factor),)) if first and factor else None
    if node.op == "Mul" and factor is not None:
        return x, (Step("scale", "", factor),)
    if not broadcasts(graph, other, node.outputs[0]):
        return None
    if node.op == "Sub":
        if not first:  # other - x
            return x, (Step("scale", "", -1.0), Step("add", other))
        if graph.spec(other) == result:  # x - other, as -other + x
            return other, (Step("scale", "", -1.0), Step("add", x))
        return None
    return x, (Step(PAIRS[node.op], other),)


@rule("Epilogues", "Elementwise")
def join_epilogues(links: Links, node: Node) -> bool:
    """Elementwise(MatMul(a, b); add c, gelu) -> MatMul(a, b; add c, gelu), also for Gemm, Conv and Elementwise.

    A convolution takes one term and one activation, in this order; the others up to six operations.
    """
    first = links.maker(node.inputs[0], *OWN, "Conv")
    if first is None or not links.alone(node.inputs[0]):
        return False
    steps = (*first.epilogue, *node.epilogue)
    if not _fits(links.graph, first, steps):
        return False
    links.take_in(first, node, epilogue=steps, joined=operators_of(first, node))
    return True


#: Steps of an epilogue that a node of this operator needs for itself.
OWN = {"Gemm": 2, "MatMul": 0, "Elementwise": 0, "GatedMatMul": 1, "IntegerConv": 0, "IntegerMatMul": 0}


def _fits(graph: Graph, node: Node, steps: Sequence[Step]) -> bool:
    if not floats(graph, node.outputs[0]):
        return False
    if node.op == "Conv":
        names = [step.name for step in steps]
        terms = names[1:] if names[:1] == ["add"] else names
        return len(terms) < 2 and not {"add", "mul", "scale"} & set(terms)
    return len(steps) + OWN[node.op] <= MAX_STEPS
