"""Norms of a product's rows in its kernel."""

from __future__ import annotations

from gensor_kernels.graph.ir.graph import Node, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.operators.types.epilogue import MAX_STEPS

from .base import is_last, operators_of, rule

#: Norms of an epilogue, and the default of their epsilon, by operator.
NORMS = {"LayerNormalization": "layernorm", "RMSNormalization": "rmsnorm"}


@rule("NormedProducts", *NORMS)
def join_norms(links: Links, node: Node) -> bool:
    """LayerNormalization(MatMul(a, b), w, c) -> MatMul(a, b; layernorm, mul w, add c); also RMS norms.

    The rule applies if the kernel, whose blocks hold whole rows, is predicted to be faster than both.
    """
    graph, product = links.graph, links.maker(node.inputs[0], "MatMul")
    shape = graph.static(node.inputs[0])
    if product is None or shape is None or not links.alone(node.inputs[0]) or len(node.outputs) > 1:
        return False
    if not is_last(node.attribute("axis"), shape):
        return False
    operands = [each for each in node.inputs[1:] if each]
    spec = graph.spec(node.inputs[0])
    vector = None if spec is None else spec._replace(shape=shape[-1:])
    if any(graph.spec(each) != vector for each in operands):
        return False
    norm = Step(NORMS[node.op], "", float(node.attribute("epsilon")))
    steps = (*product.epilogue, norm, *map(Step, ("mul", "add"), operands))
    if len(steps) - 1 > MAX_STEPS or any(step.name in NORMS.values() for step in product.epilogue):
        return False
    taken = Node("MatMul", product.inputs, node.outputs, {}, product.name, steps, operators_of(product, node))
    links.is_slower([taken], [product, node])
    before, after = links.predicted
    if before is None or after is None or after >= before:
        links.why = "the norm in the product is predicted to be no faster" if before is not None else ""
        return False
    links.take_in(product, node, epilogue=steps, joined=taken.joined)
    return True
