"""Models as exporters write them: what onnxruntime runs is computed, or refused in one sentence."""

import copy
import logging
import pickle

import numpy as np
import onnx_ir
import pytest
from onnx import TensorProto

from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import load
from gensor_kernels.graph.readers.onnx_file import library

from ..models import by_onnxruntime, model, node, nodes_of, operators, proto

pytestmark = pytest.mark.usefixtures("emulator")
ROWS = "s = Shape(x); rows = Gather(s, zero); c = Equal(rows, one)"
X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
GIVEN = {"x": ("float32", ("n", 8))}


def check(made, wanted, *args, **keywords):
    found = made(*args, **keywords)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 2, 0, 3)])
def test_a_sliced_gate_is_sorted(order):
    """A rule of onnxscript joins both slices at the place of the later one, after readers of the other."""
    text = "a = Slice(x, zero, four, one); g = Slice(x, four, eight, one); s = Sigmoid(g); y = Mul(a, s)"
    nodes = nodes_of(text)
    constants = {name: np.array([value]) for name, value in {"zero": 0, "one": 1, "four": 4, "eight": 8}.items()}
    made = model([nodes[each] for each in order], GIVEN, ["y"], constants)
    check(made, X[:, :4] / (1 + np.exp(-X[:, 4:])), X)


def test_errors_of_libraries_are_one_sentence(monkeypatch):
    constants = {"zero": np.int64(0), "one": np.int64(1), "axes": np.array([0])}
    made = model(f"{ROWS}; {branches(20)}; y = Relu(z)", {"x": ("float32", ("n", 8))}, ["y"], constants)

    def fail(self, *_, **__):
        raise RuntimeError(f"a pass failed:{20_000 * ' its graph'}\n{20_000 * ' its graph'}")

    monkeypatch.setattr(onnx_ir.Model, "clone", fail)
    with pytest.raises(ModelError, match=r"a pass failed: its graph .*; export the model again$") as caught:
        made(X)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("missing", ["shape", "type"])
def test_results_without_a_shape_or_a_type(missing):
    made = proto("y = Relu(x)", GIVEN, {"y": ("n", 8)})
    made.graph.output[0].type.tensor_type.ClearField("shape")
    if missing == "type":
        made.graph.output[0].ClearField("type")
    check(load(made.SerializeToString()), np.maximum(X, 0), X)


def test_weights_that_a_file_says_are_inside():
    """onnxruntime's quantiser writes the default location of data after them."""
    x, w = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((2, 64), (64, 64)))
    made = proto("y = MatMul(x, w)", {"x": ("float32", ("n", 64))}, ["y"], {"w": w})
    made.graph.initializer[0].data_location = TensorProto.DEFAULT
    check(load(made.SerializeToString()), x @ w, x)


@pytest.mark.parametrize("names", [("?", "?"), ("-1", "-1"), (-1, -1), ("2 * n", "2 * n"), ("", "")])
def test_sizes_without_names_are_distinct(names):
    """Paddle's exporter gives every open size the same name; no rewrite may take them for one."""
    text = "h = Shape<start = 2, end = 3>(x); w = Shape<start = 3, end = 4>(x); turned = Concat<axis = 0>(batch, w, h)"
    made = proto(
        f"{text}; y = Reshape(x, turned)", {"x": ("float32", (1, 1, 2, 2))}, {"y": (1, 2, 2)}, {"batch": np.array([1])}
    )
    for value, axis in ((made.graph.input[0], 2), (made.graph.output[0], 1)):
        for extent, name in zip(value.type.tensor_type.shape.dim[axis:], names, strict=True):
            extent.Clear()
            setattr(extent, "dim_value" if isinstance(name, int) else "dim_param", name)
    made = load(made)
    assert made.inputs["x"].shape == (1, 1, None, None)
    assert made(np.ones((1, 1, 6, 4), np.float32)).shape == (1, 4, 6)


def branches(opset=20):
    """Squeeze rows if there is one, as PyTorch's older exporter writes `squeeze(0)`."""
    squeeze = "Squeeze<axes = [0]>(x)" if opset < 13 else "Squeeze(x, axes)"
    then, other = f"then () => (float[] a) {{ a = {squeeze} }}", "other () => (float[] b) { b = Identity(x) }"
    return f"[turn] z = If<then_branch = {then}, else_branch = {other}>(c)"


@pytest.mark.parametrize(("opset", "rows"), [(11, 1), (11, "n"), (20, 1), (20, 2), (20, "n")])
def test_branches_that_shapes_decide(opset, rows):
    nodes = f"{ROWS}; {branches(opset)}; y = Relu(z)"
    constants = {"zero": np.int64(0), "one": np.int64(1), "axes": np.array([0])}
    made = model(nodes, {"x": ("float32", (rows, 8))}, ["y"], constants, opset)
    assert "turn" in str(made) or rows != "n"
    for count in (1, 2) if rows == "n" else (rows,):
        x = X[:count]
        check(made, np.maximum(x[0] if count == 1 else x, 0), x)


#: Paddings of the last two axes as PyTorch exports F.pad: extended by zeros, turned, and cast.
PADDED = (
    "n = Shape(pads); rest = Sub(eight, n); zeros = ConstantOfShape<value = int64[1] {0}>(rest)",
    "whole = Concat<axis = 0>(pads, zeros); pairs = Reshape(whole, two)",
    "turned = Slice(pairs, last, least, zero, last)",
    "columns = Transpose<perm = [1, 0]>(turned); row = Reshape(columns, last); all = Cast<to = 7>(row)",
    'p = Pad<mode = "constant">(x, all, none); y = Conv<kernel_shape = [3, 3]>(p, w)',
)


@pytest.mark.parametrize("rows", [9, "rows"])
def test_shapes_after_the_padding_of_pytorch_are_known_and_it_takes_no_launch(rows):
    w = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    integers = {"pads": [1, 0, 2, 1], "two": [-1, 2], "last": [-1], "least": [1 - 2**63], "zero": [0], "eight": [8]}
    constants = {name: np.array(values) for name, values in integers.items()} | {"none": np.float32(0), "w": w}
    then, other = "then () => (float[] a) { a = Relu(y) }", "other () => (float[] b) { b = Neg(y) }"
    nodes = "; ".join(PADDED) + "; s = Shape<start = 2, end = 3>(y); c = Equal(s, ten)"
    nodes += f"; [turn] z = If<then_branch = {then}, else_branch = {other}>(c); t = Shape(z); o = Reshape(z, t)"
    given = {"x": ("float32", (1, 3, rows, 11))}
    made = model(nodes, given, ["o"], constants | {"ten": np.array([10])})
    graph = made._prepare({"x": (1, 3, 9, 11)}).graph
    assert operators(graph) == "Conv + Relu" and graph.nodes[0].attribute("pads") == (2, 1, 1, 0)
    assert all(graph.static(name) == (1, 4, 10, 10) for node in graph.nodes for name in node.outputs)
    x = np.random.default_rng(2).standard_normal((1, 3, 9, 11)).astype(np.float32)
    (wanted,) = by_onnxruntime(proto(nodes, given, ["o"], constants | {"ten": np.array([10])}), {"x": x})
    check(made, wanted, x)


def test_nodes_in_any_order_and_branches_that_a_constant_decides():
    constants = {"no": np.array(False), "axes": np.array([0])}
    made = proto(f"y = Relu(z); {branches()}; c = Not(no)", GIVEN, ["y"], constants)
    check(load(made), np.maximum(X[0], 0), X[:1])


def test_old_files_with_the_other_name_of_the_standards_domain_and_constants_that_are_no_inputs():
    """onnx's checker refuses such constants, onnxruntime runs them."""
    made = proto([node("Mul", ["x", "w"], ["y"], domain="ai.onnx")], GIVEN, ["y"], {"w": np.float32([2])}, opset=7)
    made.ir_version, made.opset_import[0].domain = 3, "ai.onnx"
    check(load(made), 2 * X, X)


def test_sequences_that_fold():
    text, constants = "s = SplitToSequence<axis = 1>(x, four); y = SequenceAt(s, one)", {"one": np.int64(1)}
    made = model(text, {"x": ("float32", (2, 8))}, ["y"], constants | {"four": np.array([4, 4])})
    check(made, X[:, 4:], X)


def test_operators_that_are_not_served_are_listed_together():
    nodes = [
        *[node("Bernoulli", ["m"], [f"d{each}"], f"coin{each}") for each in range(3)],
        node("RegexFullMatch", ["x"], ["q"], "text"),
        node("Trilu", ["x"], ["g"], "cut", domain="com.microsoft"),
        node("HannWindow", ["eight"], ["window"], "folded"),
    ]
    given = {"x": ("float32", (2, 8)), "m": ("float32", (2, 2))}
    with pytest.raises(UnsupportedError) as caught:
        model(nodes, given, ["g"], {"eight": np.int64(8)})
    text = str(caught.value)
    assert text.startswith("operators Bernoulli (3 nodes, the first is 'coin0'), RegexFullMatch (node 'text'), ")
    assert "Trilu of domain 'com.microsoft' (node 'cut') are not served; " in text and "HannWindow" not in text
    assert all(each in text for each in ("onnx.utils.extract_model", "onnxruntime optimises it"))
    with pytest.raises(UnsupportedError, match=r"^operator Own of domain 'com\.own' \(node 'mine'\) is not served"):
        model([node("Own", ["x"], ["y"], "mine", domain="com.own")], GIVEN, ["y"])


def test_trees_are_refused_for_what_they_are():
    """Their attributes hold megabytes of texts."""
    modes = ["BRANCH_LEQ", "LEAF"] * 100_000
    trees = node("TreeEnsembleRegressor", ["x"], ["y"], "trees", None, "ai.onnx.ml", nodes_modes=modes)
    with pytest.raises(UnsupportedError, match=r"TreeEnsembleRegressor .* is not served; trees .* onnxruntime$"):
        load(proto([trees], GIVEN, ["y"]).SerializeToString())


def test_bytes_and_protos():
    made = proto("y = Relu(x)", GIVEN, ["y"])
    before = made.SerializeToString()
    for each in (made, before, bytearray(before), memoryview(before)):
        check(load(each), np.maximum(X, 0), X)
    assert made.SerializeToString() == before
    tensor = made.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="w.bin")
    with pytest.raises(ModelError, match="weights 'w' are in another file: load the model by its path"):
        load(made)
    with pytest.raises(ModelError, match=r"^no valid ONNX model"):
        load(before[:-4])
    with pytest.raises(TypeError, match="load takes a path, bytes or an onnx"):
        load(made.graph)


@pytest.mark.parametrize("version", [3, 9])
def test_constants_among_the_inputs(version):
    """From version 4 of the format on they are defaults that a call may override; before, all constants are listed."""
    w, u = (np.full((8, 200), value, np.float32) for value in (1, 2))
    given = GIVEN | {"w": ("float32", (8, 200)), "bias": ("float32", ("k",))}
    made = proto("m = MatMul(x, w); y = Add(m, bias)", given, ["y"], {"w": w, "bias": np.float32([3])}, opset=7)
    made.ir_version = version
    made = load(made)
    assert list(made.inputs) == ["x"] and list(made.defaults) == (["w", "bias"] if version > 3 else [])
    if version == 3:
        check(made, X @ w + 3, X)
        with pytest.raises(ValueError, match="input 'w' is none of x"):
            made(X, w=u)
        return
    bias = np.ones(200, np.float32)
    check(made, X @ u + 1, X, bias=bias, w=u)
    check(made, X @ u + 3, X, w=u)
    for again in (made, pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        check(again, X @ w + 3, X)
        check(again, X @ w + 1, X, bias=bias)
    with pytest.raises(ValueError, match=r"input 'w' has shape \(8, 4\), the model takes float32 \(8, 200\)"):
        made(X, w=u[:, :4])


def test_log_lines_of_libraries_stay_out_of_stderr(monkeypatch, capsys):
    library()
    monkeypatch.setattr(logging.root, "handlers", [])
    for name in ("onnxscript.optimizer", "onnx_ir.passes", "other"):
        logging.getLogger(name).warning("a line of %s", name)
    assert capsys.readouterr().err == "a line of other\n"


def test_unknown_types_are_refused():
    made = proto("y = Relu(x)", GIVEN, ["y"])
    made.graph.input[0].type.tensor_type.elem_type = 999
    with pytest.raises(ModelError):
        load(made)
