"""Norms, GELU and rotary embeddings in parts."""

import numpy as np
import pytest

from ..models import node
from .checked import checked, drawn, operators

pytest.importorskip("onnxruntime")


def rms(dtype, root, weight="behind"):
    """An RMS norm as transformers writes it: in float32, with the weight behind or in front of the cast."""
    wide = dtype != "float32"
    nodes = [node("Cast", ["x"], ["w"], to=1)] if wide else [node("Identity", ["x"], ["w"])]
    nodes += [
        node("Pow", ["w", "two"], ["p"]) if root != "Div" else node("Mul", ["w", "w"], ["p"]),
        node("ReduceMean", ["p", "axes"], ["m"]),
        node("Add", ["m", "eps"], ["a"]),
        node("Sqrt", ["a"], ["s"]),
    ]
    if root == "Reciprocal":
        nodes += [node("Reciprocal", ["s"], ["r"]), node("Mul", ["w", "r"], ["n"])]
    elif root == "One":
        nodes += [node("Div", ["one", "s"], ["r"]), node("Mul", ["r", "w"], ["n"])]
    else:
        nodes += [node("Div", ["w", "s"], ["n"])]
    back = [node("Cast", ["n"], ["c"], to=10 if wide else 1)]
    if weight == "behind":
        return [*nodes, *back, node("Mul", ["weight", "c"], ["y"])]
    if weight == "in front":
        return [*nodes, node("Mul", ["n", "wide"], ["f"]), node("Cast", ["f"], ["y"], to=10 if wide else 1)]
    return [*nodes, node("Cast", ["n"], ["y"], to=10 if wide else 1)]


def numbers(dtype, extent=24):
    found = {"two": np.float32(2), "axes": np.array([-1]), "eps": np.float32(1e-3), "one": np.float32(1)}
    weight = drawn(extent, dtype=dtype)
    return found | {"weight": weight, "wide": weight.astype(np.float32)}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("root", ["Reciprocal", "One", "Div"])
def test_an_rms_norm_in_parts_is_one_kernel(root, dtype):
    graph = checked(rms(dtype, root), {"x": drawn(2, 5, 24, dtype=dtype)}, numbers(dtype))
    assert operators(graph) == ["RMSNormalization"]
    assert graph.nodes[0].attributes["epsilon"] == pytest.approx(1e-3)


@pytest.mark.parametrize("weight", ["in front", "none"])
def test_a_weight_in_front_of_the_cast_and_none(weight):
    graph = checked(rms("float16", "Reciprocal", weight), {"x": drawn(2, 5, 24, dtype="float16")}, numbers("float16"))
    assert operators(graph) == ["RMSNormalization"]


def test_a_weight_that_16_bits_round_stays_in_float32():
    constants = numbers("float16") | {"wide": np.full(24, 1 / 3, np.float32)}
    graph = checked(rms("float16", "Reciprocal", "in front"), {"x": drawn(2, 24, dtype="float16")}, constants)
    assert operators(graph) != ["RMSNormalization"]


def test_a_norm_over_another_axis_is_none():
    constants = numbers("float32", 5) | {"axes": np.array([0])}
    graph = checked(rms("float32", "Div"), {"x": drawn(4, 5)}, constants)
    assert "RMSNormalization" not in operators(graph)


def test_a_root_of_another_tensor_is_no_norm():
    nodes = rms("float32", "Div")
    nodes[-3] = node("Div", ["v", "s"], ["n"])
    graph = checked(nodes, {"x": drawn(4, 24), "v": drawn(4, 24)}, numbers("float32"))
    assert "RMSNormalization" not in operators(graph)


def test_a_layer_norm_in_float32_of_16_bits():
    nodes = [
        node("Cast", ["x"], ["w"], to=1),
        node("ReduceMean", ["w", "axes"], ["m"]),
        node("Sub", ["w", "m"], ["d"]),
        node("Mul", ["d", "d"], ["p"]),
        node("ReduceMean", ["p", "axes"], ["v"]),
        node("Add", ["v", "eps"], ["s"]),
        node("Sqrt", ["s"], ["r"]),
        node("Div", ["d", "r"], ["n"]),
        node("Cast", ["n"], ["c"], to=10),
        node("Mul", ["c", "weight"], ["k"]),
        node("Add", ["k", "bias"], ["y"]),
    ]
    constants = numbers("float16") | {"bias": drawn(24, dtype="float16")}
    assert operators(checked(nodes, {"x": drawn(5, 24, dtype="float16")}, constants)) == ["LayerNormalization"]


def gelu(cube, low=0.7978845608):
    """GELU by a hyperbolic tangent, as GPT-2 has it."""
    nodes = [node("Pow", ["x", "three"], ["c"])] if cube == "Pow" else []
    nodes += [node("Mul", ["x", "x"], ["q"]), node("Mul", ["q", "x"], ["c"])] if cube == "Mul" else []
    nodes += [
        node("Mul", ["c", "small"], ["d"]),
        node("Add", ["x", "d"], ["e"]),
        node("Mul", ["e", "low"], ["f"]),
        node("Tanh", ["f"], ["t"]),
        node("Add", ["t", "one"], ["a"]),
        node("Mul", ["x", "half"], ["h"]),
        node("Mul", ["h", "a"], ["y"]),
    ]
    constants = {"three": np.float32(3), "small": np.float32(0.044715), "low": np.float32(low)}
    return nodes, constants | {"one": np.float32(1), "half": np.float32(0.5)}


@pytest.mark.parametrize("cube", ["Pow", "Mul"])
def test_a_gelu_by_tanh_is_one_kernel(cube):
    nodes, constants = gelu(cube)
    (only,) = checked(nodes, {"x": drawn(6, 16)}, constants).nodes
    assert [step.name for step in only.epilogue] == ["gelu_tanh"]


def test_a_tanh_of_another_factor_is_no_gelu():
    nodes, constants = gelu("Pow", 0.9)
    names = [step.name for each in checked(nodes, {"x": drawn(6, 16)}, constants).nodes for step in each.epilogue]
    assert "gelu_tanh" not in names and "tanh" in names


def rotary(split, halves=True):
    """Rotary embeddings as Llama has them."""
    if split == "Slice":
        nodes = [
            node("Slice", ["x", "none", "half", "axis"], ["a"]),
            node("Slice", ["x", "half", "many", "axis", "step"], ["b"]),
        ]
    else:
        nodes = [node("Split", ["x", "parts"], ["a", "b"], axis=-1)]
    nodes += [
        node("Neg", ["b"], ["c"]),
        node("Concat", ["c", "a"], ["r"], axis=-1),
        node("Mul", ["r", "sin"], ["s"]),
        node("Mul", ["x", "cos"], ["d"]),
        node("Add", ["d", "s"], ["y"]),
    ]
    angles = drawn(1, 1, 6, 8)
    second = angles if halves else -angles
    constants = {name: np.array([value]) for name, value in (("none", 0), ("half", 8), ("axis", 3), ("step", 1))}
    constants |= {"many": np.array([2**63 - 1]), "parts": np.array([8, 8])}
    for name, function in (("sin", np.sin), ("cos", np.cos)):
        constants[name] = function(np.concatenate([angles, second], axis=-1))
    return nodes, constants


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("split", ["Slice", "Split"])
def test_a_rotary_embedding_in_parts_is_one_node(split, dtype):
    nodes, constants = rotary(split)
    constants |= {name: constants[name].astype(dtype) for name in ("sin", "cos")}
    graph = checked(nodes, {"x": drawn(2, 3, 6, 16, dtype=dtype)}, constants)
    assert operators(graph) == ["Rotary"]


def test_angles_of_two_kinds_are_no_rotary_embedding():
    nodes, constants = rotary("Slice", halves=False)
    assert "Concat" in operators(checked(nodes, {"x": drawn(2, 3, 6, 16)}, constants))


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("faster", [True, False])
def test_a_norm_joins_the_product_where_that_is_predicted_faster(op, faster, monkeypatch):
    """BERT's, behind a bias and a residual."""

    def potential(graph, nodes):
        return 1.0 if (len(nodes) == 1) == faster else 2.0

    monkeypatch.setattr("gensor_kernels.graph.rewrites.predicted", potential)
    nodes = [
        node("MatMul", ["given", "k"], ["product"]),
        node("Add", ["product", "term"], ["sum"]),
        node("Add", ["sum", "r"], ["x"]),
    ]
    if op == "LayerNormalization":
        nodes += [node(op, ["x", "weight", "d"], ["y"], axis=-1, epsilon=1e-3)]
    else:
        nodes += rms("float32", "Div")
    constants = numbers("float32") | {"k": drawn(16, 24), "term": drawn(24), "d": drawn(24)}
    graph = checked(nodes, {"given": drawn(2, 5, 16), "r": drawn(2, 5, 24)}, constants)
    assert operators(graph) == (["MatMul"] if faster else ["MatMul", op])
    if faster:
        names = [step.name for step in graph.nodes[0].epilogue]
        assert names == ["add", "add", *(["layernorm", "mul", "add"] if op[0] == "L" else ["rmsnorm", "mul"])]
    else:
        assert any("no faster" in each.why for each in graph.reasons(graph.nodes[1].name))


def test_a_sum_that_is_read_beside_its_norm_keeps_the_norm_apart(monkeypatch):
    monkeypatch.setattr("gensor_kernels.graph.rewrites.predicted", lambda graph, nodes: float(len(nodes)))
    nodes = [
        node("MatMul", ["x", "m"], ["p"]),
        node("LayerNormalization", ["p", "w"], ["n"]),
        node("Add", ["n", "p"], ["y"]),
    ]
    graph = checked(nodes, {"x": drawn(5, 16)}, {"m": drawn(16, 24), "w": drawn(24)})
    assert "LayerNormalization" in operators(graph)
