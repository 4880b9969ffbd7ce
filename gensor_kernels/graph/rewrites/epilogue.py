"""Operations after a product, in the product's kernel."""

from __future__ import annotations

from collections.abc import Sequence

from gensor_kernels.graph.ir.graph import Graph, Node, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.operators.types.epilogue import MAX_STEPS

from .base import Potential, Rewrite, floats, operators_of


class Epilogues(Rewrite):
    """Elementwise(MatMul(a, b); add c, gelu) -> MatMul(a, b; add c, gelu), also for Gemm, Conv and Elementwise.

    A convolution takes one term and one activation, in this order; the others up to six operations.
    """

    roots = ("Elementwise",)

    def _apply(self, links: Links, node: Node, potential: Potential) -> bool:
        first = links.maker(node.inputs[0], *OWN, "Conv")
        if first is None or not links.alone(node.inputs[0]):
            return False
        steps = (*first.epilogue, *node.epilogue)
        if not _fits(links.graph, first, steps):
            return False
        links.take_in(first, node, epilogue=steps, joined=operators_of(first, node))
        return True


#: Steps of an epilogue that a node of this operator needs for itself.
OWN = {"Gemm": 2, "MatMul": 0, "Elementwise": 0, "GatedMatMul": 1}


def _fits(graph: Graph, node: Node, steps: Sequence[Step]) -> bool:
    if not floats(graph, node.inputs[0]):
        return False
    if node.op == "Conv":
        names = [step.name for step in steps]
        terms = names[1:] if names[:1] == ["add"] else names
        return len(terms) < 2 and not {"add", "mul", "scale"} & set(terms)
    return len(steps) + OWN[node.op] <= MAX_STEPS
