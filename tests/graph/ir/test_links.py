"""The index of makers and readers that rules use to change nodes."""

import sys

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec, Step
from gensor_kernels.graph.ir.links import Links
from gensor_kernels.graph.rewrites import rewrite

SPEC = Spec(np.dtype(np.float32), (4, 4))


def graph(*nodes, outputs=("y",)):
    names = [name for each in nodes for name in each.outputs]
    return Graph(list(nodes), {"x": SPEC}, list(outputs), {}, dict.fromkeys(names, SPEC))


def chain():
    nodes = [Node("Relu", ("x",), ("a",)), Node("Tanh", ("a",), ("b",)), Node("Add", ("a", "b"), ("y",))]
    return Links(graph(*nodes))


def test_nodes_in_the_place_of_one_keep_their_order():
    links = chain()
    links.put(links.maker("b"), Node("Exp", ("a",), ("c",)), Node("Log", ("c",), ("b",)))
    assert [each.op for each in links.nodes()] == ["Relu", "Exp", "Log", "Add"]
    links.put(links.maker("c"), Node("Sin", ("a",), ("d",)), Node("Cos", ("d",), ("c",)))
    assert [each.op for each in links.store().nodes] == ["Relu", "Sin", "Cos", "Log", "Add"]
    assert links.when("d") < links.when("c") < links.when("b")


def test_a_tensor_by_another_name():
    steps = (Step("add", "b"),)
    nodes = [Node("Relu", ("x",), ("a",)), Node("Tanh", ("a",), ("b",))]
    links = Links(graph(*nodes, Node("Elementwise", ("b",), ("y",), {}, "", steps)))
    links.rename("b", "a")
    (last,) = [each for each in links.readers("a") if each.op == "Elementwise"]
    assert last.inputs == ("a",) and last.epilogue[0].operand == "a" and links.readers("b") == []
    links.drop(["b"])
    assert [each.op for each in links.nodes()] == ["Relu", "Elementwise"]


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
