"""Attention in the guises in which exporters write it."""

import numpy as np
import pytest

from ..models import node
from .checked import checked, drawn, operators, rules

pytest.importorskip("onnxruntime")
HALF = "float16"
LEAST = np.float16(np.finfo(np.float16).min)


def heads(name, perm):
    """Views from (batch, rows, heads * head) to heads."""
    return [
        node("Reshape", [name, "split"], [name + "4"]),
        node("Transpose", [name + "4"], [name + "h"], perm=perm),
    ]


def parts(mask="", guard=False, last=True, keys="kh"):
    """Scaled queries and keys, a mask, a softmax, a guard, and the values."""
    nodes = [
        *heads("q", [0, 2, 1, 3]),
        *heads("k", [0, 2, 3, 1]),
        *heads("v", [0, 2, 1, 3]),
        node("Mul", ["qh", "root"], ["qs"]),
        node("Mul", [keys, "root"], ["ks"]),
        node("MatMul", ["qs", "ks"], ["s"]),
    ]
    nodes += [node("Add", ["s", mask], ["m"])] if mask else []
    nodes += [node("Softmax", ["m" if mask else "s"], ["p"], axis=-1)]
    nodes += [node("IsNaN", ["p"], ["n"]), node("Where", ["n", "zero", "p"], ["g"])] if guard else []
    nodes += [node("MatMul", ["g" if guard else "p", "vh"], ["a"])]
    if last:
        nodes += [node("Transpose", ["a"], ["t"], perm=[0, 2, 1, 3]), node("Reshape", ["t", "join"], ["y"])]
    return nodes


def tensors(dtype=HALF, rows=8, keys=8):
    given = {"q": drawn(2, rows, 32, dtype=dtype), "k": drawn(2, keys, 32, dtype=dtype)}
    return given | {"v": drawn(2, keys, 32, dtype=dtype)}


def constants(dtype=HALF, **more):
    found = {"split": np.array([2, -1, 2, 16]), "join": np.array([2, -1, 32])}
    return found | {"root": np.array(0.5, dtype), "zero": np.array(0, dtype)} | more


def attention_of(graph):
    (found,) = [each for each in graph.nodes if each.op == "Attention"]
    return found


@pytest.mark.parametrize("guard", [False, True])
def test_scaled_queries_and_keys(guard):
    graph = checked(parts(guard=guard), tensors(), constants())
    assert operators(graph) == ["Attention"]
    found = attention_of(graph)
    assert found.attributes["scale"] == 0.25 and found.attributes["heads_last"] == 1
    assert [each.op for each in graph.nodes][-2:] == ["Attention", "Reshape"]  # a view: no copy


@pytest.mark.parametrize("least", [LEAST, np.float16(-np.inf)])
def test_a_triangle_is_a_causal_attention(least):
    mask = np.where(np.tri(8, dtype=bool), 0, least).astype(HALF)[None, None]
    graph = checked(parts("mask", True), tensors(), constants(mask=mask))
    found = attention_of(graph)
    assert found.attributes["is_causal"] == 1 and len(found.inputs) == 3


def test_another_mask_stays():
    mask = np.where(np.tri(8, k=1, dtype=bool), 0, LEAST).astype(HALF)[None, None]
    found = attention_of(checked(parts("mask"), tensors(), constants(mask=mask)))
    assert "is_causal" not in found.attributes and len(found.inputs) == 4


def test_a_small_bias_is_no_triangle():
    mask = np.where(np.tri(8, dtype=bool), 0, -5).astype(HALF)[None, None]
    assert len(attention_of(checked(parts("mask"), tensors(), constants(mask=mask))).inputs) == 4


def test_a_mask_that_hides_nothing_disappears():
    mask = np.zeros((1, 1, 1, 9), HALF)
    graph = checked(parts("mask"), tensors(rows=1, keys=9), constants(mask=mask))
    assert len(attention_of(graph).inputs) == 3


def test_padding_is_a_mask_that_a_kernel_makes():
    """A condition of the caller's, as BERT has it: no row is hidden whole."""
    nodes = [
        node("Cast", ["keep"], ["b"], to=9),
        node("Where", ["b", "zero", "least"], ["mask"]),
        *parts("mask", True),
    ]
    keep = np.ones((2, 1, 1, 8), HALF)
    keep[0, ..., 5:] = 0
    given = tensors() | {"keep": keep}
    graph = checked(nodes, given, constants(least=np.array(LEAST)))
    assert operators(graph) == ["Cast", "Elementwise", "Attention"]


def test_a_softmax_in_float32_is_the_kernels_own():
    nodes = parts("mask")
    place = next(place for place, each in enumerate(nodes) if each.op_type == "Softmax")
    nodes[place : place + 1] = [
        node("Cast", ["m"], ["wide"], to=1),
        node("Softmax", ["wide"], ["shares"], axis=-1),
        node("Cast", ["shares"], ["p"], to=10),
    ]
    bias = drawn(1, 2, 8, 8, dtype=HALF)  # as T5's positions
    assert operators(checked(nodes, tensors(), constants(mask=bias))) == ["Attention"]


def test_repeated_heads_are_read_once():
    """Keys and values of one head, repeated for two heads of queries."""
    repeat = []
    for name in "kv":
        repeat += [
            node("Unsqueeze", [name, "two"], [name + "u"]),
            node("Expand", [name + "u", "wide"], [name + "e"]),
            node("Reshape", [name + "e", "whole"], [name + "r"]),
        ]
    nodes = [
        *repeat,
        node("Transpose", ["kr"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Mul", ["s", "root"], ["f"]),
        node("Softmax", ["f"], ["p"]),
        node("MatMul", ["p", "vr"], ["y"]),
    ]
    given = {"q": drawn(2, 4, 8, 16, dtype=HALF)}
    given |= {name: drawn(2, 2, 8, 16, dtype=HALF) for name in "kv"}
    more = {"two": np.array([2]), "wide": np.array([2, 2, 2, 8, 16]), "whole": np.array([2, 4, 8, 16])}
    graph = checked(nodes, given, more | {"root": np.array(0.25, HALF)})
    assert "Expand" not in operators(graph) and "GroupedHeads" in rules(graph)
    assert graph.shape(attention_of(graph).inputs[1]) == (2, 2, 8, 16)


def test_heads_that_alternate_are_repeated():
    """Whole tensors repeated one behind the other share other heads: no grouped attention."""
    nodes = [
        node("Unsqueeze", ["k", "one"], ["u"]),
        node("Expand", ["u", "wide"], ["e"]),
        node("Reshape", ["e", "whole"], ["r"]),
        node("Transpose", ["r"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "r"], ["y"]),
    ]
    given = {"q": drawn(2, 4, 8, 16, dtype=HALF) / 4, "k": drawn(2, 2, 8, 16, dtype=HALF)}
    more = {"one": np.array([1]), "wide": np.array([2, 2, 2, 8, 16]), "whole": np.array([2, 4, 8, 16])}
    graph = checked(nodes, {name: each.astype(HALF) for name, each in given.items()}, more)
    assert "Expand" in operators(graph) and "Attention" in operators(graph)


def test_shares_that_are_a_result_stay():
    graph = checked(parts(), tensors(), constants(), ["y", "p"])
    assert "Softmax" in operators(graph) and "Attention" not in operators(graph)


def test_scores_that_something_else_reads_stay():
    nodes = [*parts(), node("Relu", ["s"], ["z"])]
    graph = checked(nodes, tensors(), constants(), ["y", "z"])
    assert "Attention" not in operators(graph)


@pytest.mark.parametrize("least, kept", [(np.finfo(np.float32).min, False), (-np.inf, True)])
def test_in_float32_only_a_useless_guard_disappears(least, kept):
    """With -inf a row may see no key, and the guard makes zeros of its NaN."""
    nodes = [
        node("Cast", ["keep"], ["b"], to=9),
        node("Where", ["b", "zero", "least"], ["mask"]),
        *parts("mask", True),
    ]
    keep = np.ones((2, 1, 1, 8), np.float32)
    keep[0] = 0 if kept else 1
    given = tensors("float32") | {"keep": keep}
    graph = checked(nodes, given, constants("float32", least=np.array(least, np.float32)))
    assert ("IsNaN" in operators(graph)) == kept
    products = [each for each in graph.nodes if each.op == "MatMul"]
    assert len(products) == 2 and [step.name for step in products[0].epilogue] == ["scale", "add"]


def test_a_transposition_of_other_axes_stays():
    nodes = [*parts(last=False), node("Transpose", ["a"], ["y"], perm=[2, 0, 1, 3])]
    graph = checked(nodes, tensors(), constants())
    assert "heads_last" not in attention_of(graph).attributes and graph.nodes[-1].op == "Transpose"
