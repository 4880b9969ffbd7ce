"""Chains of views, and the rows of products behind them."""

import numpy as np
import pytest

from ..models import node
from .checked import checked, drawn, operators, rules

pytest.importorskip("onnxruntime")


def views(*steps):
    """Nodes and constants of a chain x -> y: tuples of axes are transposes, lists of extents reshapes."""
    nodes, constants, name = [], {}, "x"
    for number, step in enumerate(steps):
        result = "y" if number == len(steps) - 1 else f"t{number}"
        if isinstance(step, tuple):
            nodes.append(node("Transpose", [name], [result], perm=step))
        else:
            constants[f"s{number}"] = np.array(step)
            nodes.append(node("Reshape", [name, f"s{number}"], [result]))
        name = result
    return nodes, constants


@pytest.mark.parametrize(
    "shape, steps, left",
    [
        ((2, 4, 3, 5), ([8, 3, 5], (0, 2, 1), [2, 4, 5, 3]), ["Transpose"]),
        ((2, 3, 20), ([2, 3, 4, 5], (0, 2, 1, 3), [8, 3, 5], (0, 2, 1), [2, 4, 5, 3]), ["Reshape", "Transpose"]),
        ((2, 3, 4), ([6, 4], [2, 3, 4], [3, 2, 4]), ["Reshape"]),
        ((2, 3, 4), ((1, 0, 2), [3, 2, 4, 1], (1, 0, 2, 3), [6, 4]), ["Reshape"]),
        ((2, 3, 4), ((1, 2, 0), (2, 0, 1), [6, 4]), ["Reshape"]),
        ((2, 3, 4), ((0, 2, 1), [2, 12], [24], [4, 6]), ["Transpose", "Reshape"]),
        ((6, 1, 4), ([2, 3, 4], (1, 0, 2), [3, 1, 8], [24]), ["Reshape", "Transpose", "Reshape"]),
        ((4, 6), ((1, 0), [8, 3]), ["Transpose", "Reshape"]),  # axes across each other: left as it is
    ],
)
def test_a_chain_becomes_the_shortest(shape, steps, left):
    nodes, constants = views(*steps)
    graph = checked([*nodes, node("Relu", ["y"], ["z"])], {"x": drawn(*shape)}, constants, ["z"])
    assert [each.op for each in graph.nodes if each.op != "Elementwise"] == left


def test_views_that_undo_each_other_disappear():
    nodes, constants = views([2, 12], [2, 3, 4])
    graph = checked([*nodes, node("Relu", ["y"], ["z"])], {"x": drawn(2, 3, 4)}, constants, ["z"])
    assert [each.op for each in graph.nodes] == ["Elementwise"]


def test_a_copy_that_others_read_is_made_once():
    nodes, constants = views([2, 3, 4], (0, 2, 1), [2, 12], (1, 0))
    nodes += [node("Relu", ["t2"], ["z"])]
    graph = checked(nodes, {"x": drawn(6, 4)}, constants, ["y", "z"])
    assert [each.op for each in graph.nodes].count("Reshape") == 2


def test_one_of_three_stacked_products_is_a_slice():
    """As torch's MultiheadAttention takes queries, keys and values apart."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Reshape", ["m", "shape"], ["r"]),
        node("Transpose", ["r"], ["t"], perm=[2, 0, 1, 3]),
        *(node("Gather", ["t", f"i{each}"], [f"g{each}"], axis=0) for each in range(3)),
        node("Relu", ["g0"], ["y"]),
        node("Tanh", ["g1"], ["z"]),
        node("Sigmoid", ["g2"], ["u"]),
    ]
    constants = {"w": drawn(8, 12), "shape": np.array([2, 5, 3, 4])} | {f"i{each}": np.array(each) for each in range(3)}
    graph = checked(nodes, {"x": drawn(2, 5, 8)}, constants, ["y", "z", "u"])
    assert "Gather" not in operators(graph) and [each.op for each in graph.nodes].count("Slice") == 3
    assert "Transpose" not in [each.op for each in graph.nodes]


def test_an_inner_part_of_an_axis_is_no_slice():
    nodes = [
        node("Reshape", ["x", "shape"], ["r"]),
        node("Gather", ["r", "i"], ["g"], axis=2),
        node("Relu", ["g"], ["y"]),
    ]
    constants = {"shape": np.array([2, 4, 3]), "i": np.array(1)}
    assert "Gather" in operators(checked(nodes, {"x": drawn(2, 12)}, constants))


@pytest.mark.parametrize("turned", [False, True])
def test_a_residual_joins_a_product_of_flattened_rows(turned):
    """GPT-2's Conv1D, and a Linear of two axes."""
    w, c, r = drawn(16, 8), drawn(8), drawn(2, 5, 8)
    nodes = [
        node("Reshape", ["x", "flat"], ["f"]),
        node("Gemm", ["f", "w", "c"], ["g"], transB=int(turned)),
        node("Reshape", ["g", "whole"], ["h"]),
        node("Add", ["h", "r"], ["y"]),
    ]
    constants = {"flat": np.array([-1, 16]), "whole": np.array([2, 5, 8]), "w": w.T.copy() if turned else w, "c": c}
    graph = checked(nodes, {"x": drawn(2, 5, 16), "r": r}, constants)
    (only,) = graph.nodes
    assert only.op == "MatMul" and [step.name for step in only.epilogue] == ["add", "add"]


def test_exchanged_rows_are_exchanged_behind_the_product():
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("MatMul", ["t", "w"], ["m"]),
        node("Add", ["m", "c"], ["b"]),
        node("Transpose", ["b"], ["u"], perm=[1, 0, 2]),
        node("Add", ["u", "r"], ["y"]),
    ]
    given = {"x": drawn(2, 5, 16), "r": drawn(2, 5, 8)}
    graph = checked(nodes, given, {"w": drawn(16, 8), "c": drawn(8)})
    assert [each.op for each in graph.nodes] == ["MatMul"]


def test_a_product_that_more_than_views_read_keeps_its_rows():
    nodes = [
        node("Reshape", ["x", "flat"], ["f"]),
        node("Gemm", ["f", "w"], ["g"]),
        node("Relu", ["g"], ["y"]),
    ]
    graph = checked(nodes, {"x": drawn(2, 5, 16)}, {"flat": np.array([-1, 16]), "w": drawn(16, 8)})
    assert [each.op for each in graph.nodes] == ["Reshape", "Gemm"] and "Linears" not in rules(graph)


@pytest.mark.parametrize("attributes", [{"alpha": 2.0}, {"transA": 1}])
def test_another_gemm_stays(attributes):
    nodes = [
        node("Reshape", ["x", "flat"], ["f"]),
        node("Gemm", ["f", "w"], ["g"], **attributes),
        node("Reshape", ["g", "whole"], ["y"]),
    ]
    k = 10 if "transA" in attributes else 16
    constants = {"flat": np.array([-1, 16]), "w": drawn(k, 8), "whole": np.array([2, -1, 8])}
    assert operators(checked(nodes, {"x": drawn(2, 5, 16)}, constants)) == ["Gemm"]
