"""Products that are joined, gated and scaled, and chains of element-wise operations."""

import numpy as np
import pytest

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.rewrites import rewritten

from ..models import node
from .checked import checked, drawn, operators, rules

pytest.importorskip("onnxruntime")
X = drawn(3, 5, 16)


def siblings(biases):
    """Three products that read x, with biases by name."""
    nodes = []
    for name in "qkv":
        nodes.append(node("MatMul", ["x", f"w{name}"], [f"m{name}"]))
        if name in biases:
            nodes.append(node("Add", [f"m{name}", f"b{name}"], [f"r{name}"]))
    last = [f"r{name}" if name in biases else f"m{name}" for name in "qkv"]
    nodes += [node("Relu", last[:1], ["y"]), node("Tanh", last[1:2], ["z"]), node("Sigmoid", last[2:], ["u"])]
    constants = {"wq": drawn(16, 8), "wk": drawn(16, 4), "wv": drawn(16, 4)}
    return nodes, constants | {"bq": drawn(8), "bk": drawn(4), "bv": drawn(4)}


@pytest.mark.parametrize("biases", ["", "qkv", "qv"])
def test_siblings_are_one_product(biases):
    nodes, constants = siblings(biases)
    graph = checked(nodes, {"x": X}, constants, ["y", "z", "u"])
    assert operators(graph) == ["MatMul"] + ["Elementwise"] * 3
    assert [each.op for each in graph.nodes][:2] == ["MatMul", "Split"]
    (decision,) = [each for each in graph.decisions if each.rule == "Siblings"]
    assert decision.before_us is not None and decision.after_us is not None
    assert decision.after_us <= decision.before_us and "3 products read x" in str(decision)


def made(*shapes):
    """A graph of two products of one tensor, without a model around it."""
    single = np.dtype(np.float32)
    specs = {name: Spec(single, (3, 5, shape[1])) for name, shape in zip("yz", shapes, strict=True)}
    nodes = [Node("MatMul", ("x", f"w{name}"), (name,), {}, name) for name in "yz"]
    constants = {f"w{name}": np.zeros(shape, single) for name, shape in zip("yz", shapes, strict=True)}
    return Graph(nodes, {"x": Spec(single, (3, 5, 16))}, ["y", "z"], constants, specs)


def test_the_potential_decides_whether_siblings_join():
    def slow(graph, nodes):
        return 3.0 if len(nodes) == 1 else 2.0

    graph = rewritten(made((16, 8), (16, 4)), slow)
    assert [each.op for each in graph.nodes] == ["MatMul", "MatMul"]
    (decision,) = graph.decisions
    assert str(decision) == (
        "Siblings: y left as they are (joined, it is predicted to be slower): 2.0 µs before, 3.0 µs after (predicted)"
    )
    assert graph.reasons("y") == [decision] and graph.reasons("other") == []


def test_siblings_join_where_nothing_is_predicted():
    graph = rewritten(made((16, 8), (16, 4)), lambda graph, nodes: None)
    assert [each.op for each in graph.nodes] == ["MatMul", "Split"]


def test_products_of_two_inputs_are_no_siblings():
    nodes = [node("MatMul", ["x", "a"], ["y"]), node("MatMul", ["x", "b"], ["z"])]
    given = {"x": X, "a": drawn(16, 4), "b": drawn(16, 4)}
    assert operators(checked(nodes, given, {}, ["y", "z"])) == ["MatMul", "MatMul"]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("gate", ["silu", "Swish", "Gelu", "tanh", "Relu"])
def test_a_gate_is_in_the_product(gate, biased, dtype):
    nodes = [node("MatMul", ["x", "g"], ["a"]), node("MatMul", ["x", "u"], ["b"])]
    nodes += [node("Add", ["a", "c"], ["a2"]), node("Add", ["d", "b"], ["b2"])] if biased else []
    a, b = ("a2", "b2") if biased else ("a", "b")
    if gate == "silu":
        nodes += [node("Sigmoid", [a], ["s"]), node("Mul", [a, "s"], ["f"])]
    elif gate == "tanh":
        nodes += [node("Gelu", [a], ["f"], approximate="tanh")]
    elif gate == "Swish":
        nodes += [node("Sigmoid", [a], ["s"]), node("Mul", ["s", a], ["f"])]
    else:
        nodes += [node(gate, [a], ["f"])]
    nodes += [node("Mul", ["f", b], ["p"]), node("Add", ["p", "r"], ["y"])]
    constants = {"g": drawn(16, 8), "u": drawn(16, 8), "c": drawn(8), "d": drawn(8)}
    constants = {name: (each / 4).astype(dtype) for name, each in constants.items()}
    given = {"x": X.astype(dtype), "r": drawn(3, 5, 8, dtype=dtype)}
    graph = checked(nodes, given, constants)
    assert operators(graph) == ["GatedMatMul"] and [step.name for step in graph.nodes[0].epilogue] == ["add"]
    assert [each.rule for each in graph.decisions].count("Gates") == 1


def test_the_potential_decides_whether_a_gate_joins():
    def slow(graph, nodes):
        return 1.0 + any(each.op == "GatedMatMul" for each in nodes)

    single = np.dtype(np.float32)
    graph = made((16, 8), (16, 8))
    graph.nodes += [Node("Swish", ("y",), ("f",), {}, "f"), Node("Mul", ("f", "z"), ("p",), {}, "p")]
    graph.specs |= dict.fromkeys("fp", Spec(single, (3, 5, 8)))
    graph.outputs = ["p"]
    found = rewritten(graph, slow)
    assert "GatedMatMul" not in [each.op for each in found.nodes]
    assert any("gate in the product" in each.why for each in found.reasons("f"))


@pytest.mark.parametrize("other", ["v", "read"])
def test_no_gate_of_other_tensors_or_of_products_read_elsewhere(other):
    x = "v" if other == "v" else "x"
    nodes = [node("MatMul", ["x", "g"], ["a"]), node("MatMul", [x, "u"], ["b"]), node("Relu", ["a"], ["f"])]
    nodes += [node("Mul", ["f", "b"], ["y"])] + ([node("Tanh", ["b"], ["z"])] if other == "read" else [])
    given = {"x": X, "v": drawn(3, 5, 16)} if other == "v" else {"x": X}
    graph = checked(nodes, given, {"g": drawn(16, 8), "u": drawn(16, 8)}, ["y", "z"] if other == "read" else ["y"])
    assert "GatedMatMul" not in operators(graph)


@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_factors_of_operands_are_behind_the_product(op):
    nodes = [
        node(op, ["a", "s"], ["c"]),
        node("Mul", ["t", "b"], ["d"]),
        node("MatMul", ["c", "d"], ["y"]),
    ]
    given = {"a": drawn(4, 8, 16, dtype="float16"), "b": drawn(4, 16, 8, dtype="float16")}
    graph = checked(nodes, given, {"s": np.float16(2), "t": np.float16(0.25)})
    (only,) = graph.nodes
    (step,) = only.epilogue
    assert only.op == "MatMul" and step.name == "scale" and step.scalar == (0.5 if op == "Mul" else 0.125)


def test_a_factor_per_column_stays_in_front():
    nodes = [node("Mul", ["a", "s"], ["c"]), node("MatMul", ["c", "b"], ["y"])]
    graph = checked(nodes, {"a": drawn(8, 16), "b": drawn(16, 8)}, {"s": drawn(16)})
    assert operators(graph) == ["Elementwise", "MatMul"] and "Scales" not in rules(graph)


@pytest.mark.parametrize(
    "nodes, count",
    [
        ([node("Sub", ["x", "c"], ["y"])], 1),
        ([node("Sub", ["c", "x"], ["y"])], 1),
        ([node("Sub", ["x", "v"], ["y"])], 1),
        ([node("Div", ["x", "seven"], ["y"])], 1),
        ([node("Div", ["x", "powers"], ["y"])], 1),
        ([node("Neg", ["x"], ["t"]), node("Mul", ["t", "v"], ["y"])], 1),
        ([node("HardSwish", ["x"], ["y"])], 1),
        ([node("HardSigmoid", ["x"], ["y"], alpha=0.3, beta=0.4)], 1),
        ([node("HardSigmoid", ["x"], ["t"], alpha=1 / 6, beta=0.5), node("Mul", ["t", "v"], ["y"])], 1),
        ([node("Clip", ["x", "zero", "six"], ["y"])], 1),
        ([node("Sigmoid", ["x"], ["t"]), node("Mul", ["t", "x"], ["y"])], 1),
        ([node("Greater", ["v", "zero"], ["k"]), node("Where", ["k", "x", "seven"], ["y"])], 1),
        ([node("Expand", ["x", "same"], ["t"]), node("Cast", ["t"], ["u"], to=1), node("Relu", ["u"], ["y"])], 1),
        ([node("Sum", ["x", "v"], ["y"])], 1),
    ],
)
def test_element_wise_operators_are_steps(nodes, count):
    constants = {"c": drawn(16), "powers": np.float32(2) ** np.arange(16, dtype=np.float32), "seven": np.float32(7)}
    constants |= {"zero": np.float32(0), "six": np.float32(6), "same": np.array([3, 5, 16])}
    graph = checked(nodes, {"x": X * 3, "v": drawn(3, 5, 16)}, constants)
    assert operators(graph).count("Elementwise") == count
    assert set(operators(graph)) <= {"Elementwise", "Greater"}


def test_what_a_kernel_lacks_stays():
    nodes = [node("Clip", ["x", "zero", "c"], ["t"]), node("Div", ["t", "v"], ["y"])]
    graph = checked(nodes, {"x": X, "v": drawn(3, 5, 16) + 9}, {"zero": np.float32(0), "c": np.float32(3)})
    assert operators(graph) == ["Clip", "Div"]


def test_rounded_reciprocals_are_not_taken():
    nodes = [node("Div", ["x", "c"], ["y"])]
    graph = checked(nodes, {"x": X.astype("float16")}, {"c": (np.arange(16) + 3).astype("float16")})
    assert operators(graph) == ["Div"]


def test_a_residual_of_a_later_product_joins():
    """The sum is in the place of its last operand, which may be made behind the product that takes it in."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Relu", ["m"], ["r"]),
        node("Exp", ["x"], ["e"]),
        node("ReduceMax", ["e", "axes"], ["late"], keepdims=1),
        node("Mul", ["r", "late"], ["y"]),
    ]
    graph = checked(nodes, {"x": X}, {"w": drawn(16, 16), "axes": np.array([-1])})
    assert operators(graph) == ["Exp", "ReduceMax", "MatMul"]
