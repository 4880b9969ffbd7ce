"""The cost of planning, which an index of makers and readers keeps proportional to the nodes."""

import sys

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.rewrites import rewrite

SPEC = Spec(np.dtype(np.float32), (4, 4))


def graph(*nodes, outputs=("y",)):
    names = [name for each in nodes for name in each.outputs]
    return Graph(list(nodes), {"x": SPEC}, list(outputs), {}, dict.fromkeys(names, SPEC))


def test_planning_makes_calls_in_proportion_to_the_nodes():
    """Rules keep their index: a graph of four times the nodes makes about four times the calls, not sixteen times."""

    def calls(count):
        nodes = []
        for place in range(count):
            nodes.append(Node("Exp", (f"t{place}" if place else "x",), (f"e{place}",), {}, f"e{place}"))
            nodes.append(Node("Relu", (f"e{place}",), (f"r{place}",), {}, f"r{place}"))
            nodes.append(Node("Neg", (f"r{place}",), (f"t{place + 1}",), {}, f"t{place + 1}"))
        made, made_calls = graph(*nodes, outputs=(f"t{count}",)), 0

        def counting(frame, event, argument):
            nonlocal made_calls
            made_calls += event.endswith("call")  # of Python and of C

        sys.setprofile(counting)
        try:
            found = rewrite(made, lambda graph, nodes: None)
        finally:
            sys.setprofile(None)
        assert len(found.nodes) == 2 * count
        return made_calls

    calls(50)
    assert 200 < calls(200) < calls(800) < 5 * calls(200)
