"""Loading, calling, printing and explaining a model, what does not fit, and errors that name their node."""

import sys

import numpy as np
import onnx
import onnxscript.optimizer
import pytest

from gensor_database import duration
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.layers import reasons
from gensor_kernels.graph.execution.model import load
from gensor_kernels.graph.failures import fail
from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.rewrites import rewrite
from gensor_kernels.machine.arch import lookup
from gensor_kernels.machine.expected import expected_us

from ..models import model, node, proto

pytestmark = pytest.mark.usefixtures("emulator")
RNG = np.random.default_rng(0)
W = RNG.standard_normal((16, 8)).astype(np.float32)
X = np.ones((2, 16), np.float32)


@pytest.fixture
def file(tmp_path):
    text = "[first] m = MatMul(x, w); [second] y = Relu(m)"
    onnx.save(proto(text, {"x": ("float32", ("n", 16))}, {"y": ("n", 8)}, {"w": W}), tmp_path / "linear.onnx")
    return tmp_path / "linear.onnx"


def test_a_symbolic_size_is_what_a_call_gives(file, monkeypatch):
    """The rules of onnxscript are matched once, when the file is read; three of the four signatures are kept."""
    loaded = load(file)
    monkeypatch.setattr(onnxscript.optimizer, "optimize_ir", lambda *_, **__: pytest.fail("optimised again"))
    monkeypatch.setattr("gensor_kernels.graph.execution.model.MOST_PLANS", 3)
    assert str(loaded.inputs["x"]) == "float32 (n, 16)" and loaded.outputs == ["y"]
    for rows in (1, 7, 64, 7, 3, 1):
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        np.testing.assert_allclose(loaded(x), np.maximum(x @ W, 0), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(loaded(x=x), loaded(x))
    plans = list(loaded._plans.values())
    assert len(plans) == 3 and len({id(plan.graph.constants["w"]) for plan in plans}) == 1  # weights are shared


def test_one_size_by_two_names_must_agree():
    made = model("y = Sub(z, x)", dict.fromkeys("xz", ("float32", ("n", 4))), ["y"])
    two, three = (np.ones((rows, 4), np.float32) for rows in (2, 3))
    np.testing.assert_array_equal(made(z=3 * two, x=two), 2 * two)  # in any order
    with pytest.raises(ValueError, match=r"input 'z' has shape \(3, 4\), .* with n = 2"):
        made(two, three)


@pytest.mark.parametrize(
    ("args", "keywords", "error", "says"),
    [
        ([], {}, ValueError, "needs the inputs x"),
        ([X, X], {}, ValueError, "has 1 inputs, not 2"),
        ([X], {"z": X}, ValueError, "input 'z' is none of x"),
        ([X], {"x": X}, ValueError, "input 'x' is given twice"),
        ([X.astype(np.float64)], {}, TypeError, "has dtype float64, the model takes float32"),
        ([[1.0]], {}, TypeError, "must be an array, not"),
        ([X[:, :15]], {}, ValueError, r"has shape \(2, 15\), the model takes float32 \(n, 16\)"),
    ],
)
def test_calls_that_do_not_fit(file, args, keywords, error, says):
    with pytest.raises(error, match=says):
        load(file)(*args, **keywords)


def test_declared_results_do_not_override_inputs():
    """A file may declare the shape of one call: another call's shape follows from its inputs."""
    inputs = {"x": ("float32", (2, 6)), "s": ("int64", (2,))}
    made = model("[turn] y = Reshape(x, s)", inputs, {"y": (3, 4)})
    for shape in ((3, 4), (4, 3), (12, 1)):
        assert made(np.ones((2, 6), np.float32), np.array(shape)).shape == shape
    for shape in ((2**62, 2), (-1, 5), (-(2**63), 1)):
        with pytest.raises((ModelError, UnsupportedError), match="node 'turn'"):
            made(np.ones((2, 6), np.float32), np.array(shape))


def test_files_that_are_no_models(tmp_path, file):
    with pytest.raises(FileNotFoundError, match="no ONNX file is there"):
        load(tmp_path / "absent.onnx")
    cut = tmp_path / "cut.onnx"
    for content in (file.read_bytes()[:-40], b"", b"text\n", b"\x0a" * 10_000):
        cut.write_bytes(content)
        with pytest.raises(ModelError, match=r"cut\.onnx: no valid ONNX model"):
            load(cut)
    with pytest.raises(ModelError, match="no valid ONNX model"):  # a cycle
        load(proto("a = Add(x, b); b = Relu(a)", {"x": ("float32", (2, 2))}, {"b": (2, 2)}))


def test_without_onnx_the_extra_is_named(monkeypatch, tmp_path):
    for package in ("onnx", "onnxscript"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelError, match=r"pip install 'gensor-kernels\[onnx\]'"):
        load(tmp_path / "any.onnx")


def test_it_prints_its_nodes_and_what_serves_them(file):
    loaded = load(file)
    assert "linear.onnx (x: float32 (n, 16))" in str(loaded)
    assert "MatMul + Relu" in str(loaded) and "linear.onnx: x -> y" in repr(loaded)
    layers = loaded.explain(np.ones((64, 16), np.float32))
    (layer,), text, row = layers, str(layers), str(layers.named("first"))
    assert (layer.name, layer.operators) == ("first", "MatMul + Relu")
    assert layer.by in ("gemv", "contraction_mma", "contraction_simt") and layer.predicted_us > 0
    assert layer.library_us >= 2 * lookup("sm_87").launch_us  # of a product and a maximum
    gain = f"CuPy's calls {duration(layer.library_us)} (predicted), {layer.library_us / layer.predicted_us:.3g} times"
    for part in ("1 layers", "100.0%", layer.by, gain, "to be bound once nothing is raced"):
        assert part in text
    assert layer.expected_us == expected_us(layer.predicted_us, layer.by) == layers.expected_us
    assert all(max(map(len, layers.lines(width))) <= width for width in (60, 80, 120)) and " expected " in text
    assert layers.named("first") is layer and "Kernel" in row
    assert row.startswith("first: MatMul + Relu -> float32 (64, 8), served by")
    with pytest.raises(KeyError, match="no layer is named 'second'"):
        layers.named("second")


def test_a_name_has_its_rules_and_their_predictions():
    """A convolution with a factor and a term per channel, and two products of the means of its channels."""
    text = """
    [conv] c = Conv<pads = [1, 1, 1, 1]>(x, w); [times] m = Mul(c, factor); [plus] n = Add(m, term); [relu] r = Relu(n);
    [pool] p = GlobalAveragePool(r); [rows] f = Reshape(p, rows); [left] y = MatMul(f, u); [right] z = MatMul(f, v)
    """
    shapes = {"factor": (1, 16, 1, 1), "term": (1, 16, 1, 1), "u": (16, 8), "v": (16, 8), "w": (16, 8, 3, 3)}
    constants = {name: RNG.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    constants["rows"] = np.array([1, 16])
    made = model(text, {"x": ("float32", (1, 8, 8, 8))}, ["y", "z"], constants)
    for name in ("conv", "times", "plus", "relu"):  # without a run
        found = made.explain(name)
        assert (found.name, found.operators) == ("conv", "Conv + Mul + Add + Relu")
        assert {each.rule for each in found.decisions} >= {"ChannelScales", "Epilogues"}
    layers = made.explain(RNG.standard_normal((1, 8, 8, 8), np.float32))
    conv, product = str(layers.named("conv")), str(layers.named("left"))
    assert conv.startswith("conv: Conv + Mul + Add + Relu -> float32 (1, 16, 8, 8), ") and ", served by" in conv
    assert "Kernel" in conv and "  ChannelScales: " in conv and "  Epilogues: " in conv
    assert "  Siblings: right, left -> left (2 products read f): " in product and "µs after (predicted)" in product
    assert "Siblings" not in str(layers) and "Siblings" not in str(made)


def test_names_of_removed_and_of_unknown_nodes():
    spec = Spec(np.dtype(np.float32), (4,))
    nodes = [Node("Dropout", ("x",), ("d",), {}, "drop"), Node("Relu", ("d",), ("y",), {}, "relu")]
    graph = rewrite(Graph(nodes, {"x": spec}, ["y"], {}, {"d": spec, "y": spec}), lambda graph, nodes: None)
    assert str(reasons(graph, "drop")) == "drop: removed\n  Aliases: drop removed"
    with pytest.raises(KeyError, match="no node is named 'absent'"):
        reasons(graph, "absent")


def test_a_name_is_explained_for_the_signature_that_was_planned_last():
    made = model("[relu] y = Relu(x)", {"x": ("float32", ("n", 4))}, ["y"])
    assert made.explain("relu").result.shape == ("n", 4)
    made(np.ones((3, 4), np.float32))
    assert made.explain("relu").result.shape == (3, 4)


def test_names_in_tables_stay_on_their_line():
    made = model([node("Relu", ["x"], ["y"], name="a\x1b[2Jb\nc")], {"x": ("float32", (2, 2))}, ["y"])
    layers = made.explain(np.ones((2, 2), np.float32))
    assert str(layers).count("\n") == 2 and "\x1b" not in str(layers) + str(made) + str(layers[0]), layers


# ---- failures: ModelErrors that name the node and its operator, on one printable line

TWO, PAIR = np.ones(2, np.float32), np.ones((2, 2), np.float32)
#: Constant operands that no version of NumPy takes, by operator.
WRONG = [
    ("Concat", ["c", "c"], {"c": np.float32(1)}, {"axis": 0}),
    ("Squeeze", ["c", "axes"], {"c": PAIR, "axes": np.array([0])}, {}),
    ("Gather", ["c", "i"], {"c": TWO, "i": np.array([7])}, {}),
    ("ScatterND", ["c", "i", "c"], {"c": TWO, "i": np.array([[9], [0]])}, {}),
    ("CumSum", ["c", "i"], {"c": TWO, "i": np.array(7)}, {}),
    ("Range", ["c", "c", "zero"], {"c": np.float32(1), "zero": np.float32(0)}, {}),
    ("Unsqueeze", ["c", "axes"], {"c": TWO, "axes": np.array([5])}, {}),
]


@pytest.mark.parametrize(("op", "inputs", "constants", "attributes"), WRONG, ids=[each[0] for each in WRONG])
def test_a_node_of_constants_that_cannot_be_computed(op, inputs, constants, attributes):
    nodes = [node(op, inputs, ["wrong"], name="a\x1b[2Jb\n", **attributes), node("Add", ["x", "wrong"], ["y"])]
    with pytest.raises((ModelError, UnsupportedError)) as caught:
        model(nodes, {"x": ("float32", (2, 2))}, ["y"], constants)(PAIR)
    text = str(caught.value)
    assert op in text and "[2Jb" in text and text.isprintable(), text


def test_errors_of_the_environment_stay_what_they_are():
    for error in (OSError("no space"), UnsupportedError("no kernel")):
        with pytest.raises(type(error), match=str(error)):
            fail("node 'a' (Conv)", error)
    with pytest.raises(ModelError, match=r"^node 'a' \(Conv\): KeyError: 'b'; export it again$"):
        fail("node 'a' (Conv)", KeyError("b"), "export it again")
