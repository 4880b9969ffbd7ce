"""Operations behind a product, in the product's kernel."""

from __future__ import annotations

from collections.abc import Sequence

from gensor_kernels.graph.ir.graph import Graph, Node, Step
from gensor_kernels.operators.types.epilogue import MAX_STEPS

from .base import Rewrite, alone, floats, joined, producers


class Epilogues(Rewrite):
    """Elementwise(MatMul(a, b); add c, gelu) -> MatMul(a, b; add c, gelu), likewise for Gemm, Conv and Elementwise.

    A convolution takes one term and one activation, in this order; the others up to six operations.
    """

    def apply(self, graph: Graph) -> bool:
        """Join the first such pair."""
        made = producers(graph)
        for place, node in enumerate(graph.nodes):
            position = made.get(node.inputs[0]) if node.op == "Elementwise" else None
            if position is None or not alone(graph, node.inputs[0]):
                continue
            first = graph.nodes[position]
            steps = (*first.epilogue, *node.epilogue)
            earlier = all(made.get(step.operand, -1) < position for step in node.epilogue if step.operand)
            if not earlier or not _fits(graph, first, steps):
                continue
            graph.replaced(position, outputs=node.outputs, epilogue=steps, joined=joined(first, node))
            del graph.nodes[place]
            return True
        return False


def _fits(graph: Graph, node: Node, steps: Sequence[Step]) -> bool:
    if not floats(graph, node.inputs[0]):
        return False
    if node.op == "Conv":
        names = [step.name for step in steps]
        terms = names[1:] if names[:1] == ["add"] else names
        return len(terms) < 2 and not {"add", "mul", "scale"} & set(terms)
    own = {"Gemm": 2, "MatMul": 0, "Elementwise": 0}.get(node.op)
    return own is not None and len(steps) + own <= MAX_STEPS
