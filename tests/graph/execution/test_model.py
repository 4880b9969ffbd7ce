"""Loading, calling and printing a model, and what does not fit."""

import numpy as np
import onnx
import onnxscript.optimizer
import pytest

import gensor_kernels
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import load

from ..models import hide_packages, model, proto

W = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def linear(rows="n"):
    inputs, outputs = {"x": ("float32", (rows, 16))}, {"y": (rows, 8)}
    return proto("[first] m = MatMul(x, w); [second] y = Relu(m)", inputs, outputs, {"w": W})


@pytest.fixture
def file(tmp_path):
    onnx.save(linear(), tmp_path / "linear.onnx")
    return tmp_path / "linear.onnx"


def test_a_symbolic_size_is_what_a_call_gives(file):
    loaded = load(file)
    assert str(loaded.inputs["x"]) == "float32 (n, 16)" and loaded.outputs == ["y"]
    with gensor_kernels.emulated("sm_87"):
        for rows in (1, 7, 64, 7):
            x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
            np.testing.assert_allclose(loaded(x), np.maximum(x @ W, 0), rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(loaded(x=x), loaded(x))
    plans = list(loaded._plans.values())
    assert len(plans) == 3 and len({id(plan.graph.constants["w"]) for plan in plans}) == 1  # weights are shared


def test_the_oldest_plan_gives_way(file, monkeypatch):
    monkeypatch.setattr("gensor_kernels.graph.execution.model.MOST_PLANS", 2)
    loaded = load(file)
    with gensor_kernels.emulated("sm_87"):
        for rows in (1, 2, 3, 1):
            assert loaded(np.ones((rows, 16), np.float32)).shape == (rows, 8)
    assert len(loaded._plans) == 2


def test_one_size_by_two_names_must_agree():
    made = model("y = Sub(z, x)", dict.fromkeys("xz", ("float32", ("n", 4))), ["y"])
    two, three = (np.ones((rows, 4), np.float32) for rows in (2, 3))
    with gensor_kernels.emulated("sm_87"):
        np.testing.assert_array_equal(made(z=3 * two, x=two), 2 * two)  # in any order
        with pytest.raises(ValueError, match=r"input 'z' has shape \(3, 4\), .* with n = 2"):
            made(two, three)


X = np.ones((2, 16), np.float32)


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
    loaded = load(file)
    with gensor_kernels.emulated("sm_87"), pytest.raises(error, match=says):
        loaded(*args, **keywords)


def test_it_prints_its_nodes_and_what_serves_them(file):
    loaded = load(file)
    assert "linear.onnx (x: float32 (n, 16))" in str(loaded)
    assert "MatMul + Relu" in str(loaded) and "linear.onnx: x -> y" in repr(loaded)
    with gensor_kernels.emulated("sm_87"):
        layers = loaded.explain(np.ones((64, 16), np.float32))
    (layer,), text, row = layers, str(layers), str(layers.named("first"))
    assert (layer.name, layer.operators) == ("first", "MatMul + Relu")
    assert layer.by in ("gemv", "contraction_mma", "contraction_simt") and layer.predicted_us > 0
    assert "1 layers" in text and "100.0%" in text and layer.by in text
    assert "to be bound once nothing is raced" in text
    assert layers.named("first") is layer and "Kernel" in row
    assert row.startswith("first: MatMul + Relu -> float32 (64, 8), served by")
    with pytest.raises(KeyError, match="no layer is named 'second'"):
        layers.named("second")


def test_sizes_computed_in_the_model_follow_the_inputs():
    """Flattening by Shape, Gather and Reshape, as exporters write it, is folded for each signature."""
    text = "s = Shape(x); n = Gather(s, zero); u = Unsqueeze(n, axes); to = Concat<axis = 0>(u, minus)"
    constants = {"zero": np.int64(0), "axes": np.array([0]), "minus": np.array([-1])}
    made = model(f"{text}; y = Reshape(x, to)", {"x": ("float32", ("n", 3, 4))}, ["y"], constants)
    with gensor_kernels.emulated("sm_87"):
        for rows in (1, 5):
            assert made(np.ones((rows, 3, 4), np.float32)).shape == (rows, 12)
    assert [[each.op for each in plan.graph.nodes] for plan in made._plans.values()] == [["Reshape"]] * 2


def test_files_that_are_no_models(tmp_path, file):
    with pytest.raises(FileNotFoundError, match="no ONNX file is there"):
        load(tmp_path / "absent.onnx")
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ModelError, match=r"cut\.onnx: no valid ONNX model"):
        load(cut)
    for content in (b"", b"text\n", b"\x0a" * 10_000):
        cut.write_bytes(content)
        with pytest.raises(ModelError, match="no valid ONNX model"):
            load(cut)


def test_cycles_are_refused():
    with pytest.raises(ModelError, match="no valid ONNX model"):
        load(proto("a = Add(x, b); b = Relu(a)", {"x": ("float32", (2, 2))}, {"b": (2, 2)}))


@pytest.mark.parametrize("shape", [[2**62, 2], [-1, 3], [-(2**63), 1]])
def test_reshapes_that_do_not_fit_name_their_node(shape):
    inputs = {"x": ("float32", (2, 2)), "s": ("int64", (2,))}
    made = model("[turn] y = Reshape(x, s)", inputs, ["y"])
    with gensor_kernels.emulated("sm_87"), pytest.raises((ModelError, UnsupportedError), match="node 'turn'"):
        made(np.ones((2, 2), np.float32), np.array(shape))


def test_without_onnx_the_extra_is_named(monkeypatch, tmp_path):
    hide_packages(monkeypatch, "onnx", "onnxscript")
    with pytest.raises(ModelError, match=r"pip install 'gensor-kernels\[onnx\]'"):
        load(tmp_path / "any.onnx")


def test_a_new_signature_only_infers_shapes(file, monkeypatch):
    """The rules of onnxscript are matched once, when the file is read."""
    loaded = load(file)
    monkeypatch.setattr(onnxscript.optimizer, "optimize_ir", lambda *_, **__: pytest.fail("optimised again"))
    with gensor_kernels.emulated("sm_87"):
        for rows in (1, 7):
            assert loaded(np.ones((rows, 16), np.float32)).shape == (rows, 8)


def test_declared_results_do_not_override_inputs():
    """A file may declare the shape of one call: another call's shape follows from its inputs."""
    inputs = {"x": ("float32", (2, 6)), "s": ("int64", (2,))}
    made = model("y = Reshape(x, s)", inputs, {"y": (3, 4)})
    with gensor_kernels.emulated("sm_87"):
        for shape in ((3, 4), (4, 3), (12, 1)):
            assert made(np.ones((2, 6), np.float32), np.array(shape)).shape == shape
