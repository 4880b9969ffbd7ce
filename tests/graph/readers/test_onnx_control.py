"""Loops, branches and sequences that are taken out of a model, next to onnxruntime, which runs them."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import gensor_kernels
from gensor_kernels.errors import GensorError, ModelError, UnsupportedError
from gensor_kernels.graph.readers.onnx_control import MOST_ITERATIONS

from ..models import by_onnxruntime, draw, nodes_of, operators, proto

pytestmark = pytest.mark.usefixtures("emulator")
X = {"x": ("float32", ("n", 8))}
NUMBERS = {"five": 5, "three": 3, "none": 0, "one": 1, "big": 2**63 - 1, "many": MOST_ITERATIONS + 1}
CONSTANTS = {name: np.int64(value) for name, value in NUMBERS.items()} | {
    "yes": np.array(True),
    "axes": np.array([0]),
    "w": draw(8, 8),
    "most": np.float32(1000),
}
CARRIED = "int64 i, bool c, float[N,8] v"
PLAIN = f"body = b ({CARRIED}) => (bool co, float[N,8] o, float[3,8] s) {{ co = Identity(c) m = MatMul(v, w) "
PLAIN += "o = Relu(m) s = Neg(o) }"
FIXED = f"body = b ({CARRIED}) => (bool co, float[N,8] o, float[2] s) <bool co = {{1}}, float[2] s = {{3.0, 4.0}}> "
FIXED += "{ o = Add(v, v) }"
COUNTS = f"body = b ({CARRIED}, int64 k) => (bool co, float[N,8] o, int64 ko) {{ ko = Add(k, one) co = Less(ko, five) "
COUNTS += "o = Add(v, v) }"
BRANCHES = f"body = b ({CARRIED}) => (bool co, float[N,8] o) {{ co = Identity(c) p = Equal(i, one) "
BRANCHES += "o = If<then_branch = t () => (float[N,8] a) { a = Relu(v) }, "
BRANCHES += "else_branch = e () => (float[N,8] d) { d = Add(v, x) }>(p) }"
NESTED = f"body = b ({CARRIED}) => (bool co, float[N,8] o) {{ co = Identity(c) o = Loop<body = b2 "
NESTED += "(int64 j, bool c2, float[N,8] u) => (bool c2o, float[N,8] uo) { c2o = Identity(c2) f = Cast<to=1>(j) "
NESTED += "g = Cast<to=1>(i) h = Add(u, f) uo = Add(h, g) }>(three, yes, v) }"
LISTS = "body = b (int64 i, bool c, seq(float[N,8]) v) => (bool co, seq(float[N,8]) o) { co = Identity(c) "
LISTS += "f = Cast<to=1>(i) r = Mul(x, f) o = SequenceInsert(v, r) }"
LISTED = f"e = SequenceEmpty<dtype = 1>(); q = Loop<{LISTS}>(three, yes, e)"
ROWS = "body = b (float[8] h, float[8] r) => (float[8] ho, float[8] o) { ho = Add(h, r) o = Mul(ho, r) }"
BOTH = "then_branch = t () => (float[N,8] a) { a = Relu(x) }, else_branch = e () => (float[N,8] d) { d = Neg(x) }"
PEEKS = f"body = b ({CARRIED}) => (bool co, float[N,8] o) {{ m = ReduceSum<keepdims = 0>(v) co = Less(m, most) "
PEEKS += "o = Add(v, v) }"


def made(text, outputs, more=None):
    """Return a model of some nodes; the constants that they read are part of it."""
    words = {each.strip("(),<>{}[];=") for each in text.replace("(", " ").replace(",", " ").split()}
    constants = {name: value for name, value in CONSTANTS.items() if name in words}
    return proto(text, X | (more or {}), outputs, constants)


@pytest.mark.parametrize(
    "text, outputs",
    [
        (f"y, z = Loop<{PLAIN}>(five, yes, x)", {"y": (None, 8), "z": (None, None, 8)}),
        (f"n = Shape<end = 1>(x); k = Squeeze(n, axes); y, z = Loop<{PLAIN}>(k, yes, x)", ["y", "z"]),
        (f"y, z = Loop<{PLAIN}>(none, yes, x)", ["y", "z"]),
        (f"y, z = Loop<{FIXED}>(five, yes, x)", ["y", "z"]),
        (f"y, k = Loop<{COUNTS}>(big, yes, x, none); z = Cast<to = 1>(k)", ["y", "z"]),
        (f"y = Loop<{BRANCHES}>(three, yes, x)", ["y"]),
        (f"y = Loop<{NESTED}>(three, yes, x)", ["y"]),
        (f"{LISTED}; y = ConcatFromSequence<axis = 0>(q)", ["y"]),
        (f"{LISTED}; y = SequenceAt(q, one)", ["y"]),
        ("q = SequenceConstruct(x, x); r = SequenceErase(q, none); y = ConcatFromSequence<axis = 1>(r)", ["y"]),
        (f"y, z = Scan<{ROWS}, num_scan_inputs = 1>(h, x)", ["y", "z"]),
        (
            f"y, z = Scan<{ROWS}, num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1], "
            "scan_output_axes = [-1]>(h, x)",
            ["y", "z"],
        ),
        (f"y = If<{BOTH}>(g)", ["y"]),
        (f"p = ReduceMax<keepdims = 0>(x); g2 = Less(p, most); y = If<{BOTH}>(g2)", ["y"]),
    ],
)
def test_results_are_those_of_onnxruntime(text, outputs):
    known = outputs if isinstance(outputs, dict) else dict.fromkeys(outputs, ())
    more = {"h": ("float32", (8,))} if "(h, x)" in text else {"g": ("bool", ())} if "(g)" in text else {}
    model = made(text, known, more)
    if isinstance(outputs, list):
        for each in model.graph.output:
            each.type.tensor_type.ClearField("shape")
    given = {"x": draw(3, 8)} | ({"h": draw(8)} if "h" in more else {"g": np.array(False)} if "g" in more else {})
    found = gensor_kernels.load(model)(**given)
    for ours, theirs in zip(found if isinstance(found, tuple) else (found,), by_onnxruntime(model, given), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


def test_copies_of_a_body_share_its_constants():
    """Weights in the body of a loop count once among those of the file."""
    made_ = made(f"y = Loop<{NESTED}>(three, yes, x)", ["y"])
    body = made_.graph.node[-1].attribute[0].g
    weights = numpy_helper.from_array(draw(8, 400) / 20, "inner")
    back = numpy_helper.from_array(draw(400, 8) / 20, "back")
    body.initializer.append(weights)
    constant = helper.make_node("Constant", [], ["constant"], value=back)
    steps = [constant, *nodes_of("p = MatMul(v, inner); q = MatMul(p, constant)")]
    body.node[-1].input[2] = "q"
    rest = [*body.node]
    del body.node[:]
    body.node.extend([*steps, *rest])
    x = draw(3, 8)
    graph = gensor_kernels.load(made_)._prepare({"x": x.shape}).graph
    assert sorted(value.size for value in graph.constants.values())[-2:] == [3200, 3200]
    assert sum(value.size == 3200 for value in graph.constants.values()) == 2
    np.testing.assert_allclose(gensor_kernels.load(made_)(x), by_onnxruntime(made_, {"x": x})[0], 1e-5, 1e-5)


@pytest.mark.parametrize(
    "text",
    [
        f"y, z = Loop<{PLAIN}>(many, yes, x)",
        f"y = Loop<{PEEKS}>(five, yes, x)",
        "y = If<then_branch = t () => (float[N,8] a) { a = Relu(x) }, "
        "else_branch = e () => (float[1,N,8] d) { d = Unsqueeze(x, axes) }>(g)",
    ],
)
def test_what_values_decide_is_refused_with_a_remedy(text):
    model = made(text, ["y"], {"g": ("bool", ())} if "(g)" in text else {})
    with pytest.raises(UnsupportedError, match=r"of at most 1,024 iterations .* load\(path, inputs="):
        gensor_kernels.load(model)(draw(3, 8))


def test_both_branches_of_an_open_condition_are_part_of_the_list():
    text = f"y = If<{BOTH.replace('Neg(x)', 'RandomNormalLike(x)')}>(g)"
    with pytest.raises(UnsupportedError, match=r"^operator RandomNormalLike \(node '.*'\) is not served"):
        gensor_kernels.load(made(text, ["y"], {"g": ("bool", ())}))


def test_an_input_that_never_changes_decides_a_branch_and_leaves_the_calls():
    rates = "then_branch = t () => (float[N,8] a) { a = Relu(x) }, else_branch = e () => (float[N] d) "
    rates += "{ d = ReduceMean<keepdims = 0>(x, one1) }"
    model = proto(
        f"c = Equal(sr, rate); y = If<{rates}>(c)",
        X | {"sr": ("int64", ()), "scale": ("float32", (8,))},
        {"y": (None,)},
        {"rate": np.int64(16000), "one1": np.array([1])},
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(GensorError, match="operator If"):
        gensor_kernels.load(model)(draw(3, 8), np.array(8000), draw(8))
    x = draw(3, 8)
    fast, slow = (gensor_kernels.load(model, inputs={"sr": rate, "scale": x[0]}) for rate in (16000, 8000))
    assert list(fast.inputs) == ["x"] and operators(fast._prepare({"x": (3, 8)}).graph) == "Relu"
    np.testing.assert_array_equal(fast(x), np.maximum(x, 0))
    np.testing.assert_allclose(slow(x), x.mean(1), 1e-5, 1e-6)
    for wrong, text in [
        ({"sr": 8000.5}, "input 'sr' is float64, the model takes int64"),
        ({"sr": [8000]}, r"input 'sr' cannot be \[8000\], the model takes int64 \(\)"),
        ({"rate": 1}, "input 'rate' is none of 'x', 'sr', 'scale'"),
    ]:
        with pytest.raises(ModelError, match=f"^{text}$"):
            gensor_kernels.load(model, inputs=wrong)


def test_a_default_that_is_given_is_a_constant_from_then_on():
    model = proto("y = Mul(x, w)", X | {"w": ("float32", (8,))}, ["y"], {"w": np.ones(8, np.float32)})
    loaded = gensor_kernels.load(model, inputs={"w": np.full(8, 3)})
    x = draw(2, 8)
    assert not loaded.defaults
    np.testing.assert_array_equal(loaded(x), 3 * x)
