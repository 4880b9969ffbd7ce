"""Loading, calling and printing a model, and what does not fit."""

import numpy as np
import onnx
import pytest

import gensor_kernels
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import load

from ..models import model, node, proto

W = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)


def linear(rows="n"):
    nodes = [node("MatMul", ["x", "w"], ["m"], name="first"), node("Relu", ["m"], ["y"], name="second")]
    return proto(nodes, {"x": ("float32", (rows, 16))}, {"y": (rows, 8)}, {"w": W})


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
    nodes = [node("Add", ["x", "z"], ["y"])]
    made = model(nodes, {"x": ("float32", ("n", 4)), "z": ("float32", ("n", 4))}, ["y"])
    expected = pytest.raises(ValueError, match=r"input 'z' has shape \(3, 4\), .* with n = 2")
    with gensor_kernels.emulated("sm_87"), expected:
        made(np.ones((2, 4), np.float32), np.ones((3, 4), np.float32))


def test_what_a_call_must_not_be(file):
    loaded, x = load(file), np.ones((2, 16), np.float32)
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(ValueError, match="needs the inputs x, too"):
            loaded()
        with pytest.raises(ValueError, match="has 1 inputs, not 2"):
            loaded(x, x)
        with pytest.raises(ValueError, match="input 'z' is none of x"):
            loaded(x, z=x)
        with pytest.raises(ValueError, match="input 'x' is given twice"):
            loaded(x, x=x)
        with pytest.raises(TypeError, match="has dtype float64, the model takes float32"):
            loaded(x.astype(np.float64))
        with pytest.raises(TypeError, match="must be an array, not"):
            loaded([1.0])
        with pytest.raises(ValueError, match=r"has shape \(2, 15\), the model takes float32 \(n, 16\)"):
            loaded(x[:, :15])


def test_it_prints_its_nodes_and_what_serves_them(file):
    loaded = load(file)
    assert "linear.onnx (x: float32 (n, 16))" in str(loaded)
    assert "MatMul + Relu" in str(loaded) and "linear.onnx: x -> y" in repr(loaded)
    with gensor_kernels.emulated("sm_87"):
        (layer,) = loaded.explain(np.ones((64, 16), np.float32))
        text = str(loaded.explain(np.ones((64, 16), np.float32)))
    assert (layer.name, layer.operators) == ("first", "MatMul + Relu")
    assert layer.by in ("gemv", "contraction_mma", "contraction_simt") and layer.predicted_us > 0
    assert "1 layers" in text and "100.0%" in text and layer.by in text
    assert "to be bound once nothing is raced" in text


def test_one_layer_is_found_by_its_name(file):
    loaded = load(file)
    with gensor_kernels.emulated("sm_87"):
        layers = loaded.explain(np.ones((64, 16), np.float32))
    assert layers.named("first") is layers[0]
    text = str(layers.named("first"))
    assert text.startswith("first: MatMul + Relu -> float32 (64, 8), served by") and "Kernel" in text
    with pytest.raises(KeyError, match="no layer is named 'second'"):
        layers.named("second")


def test_several_results_are_a_tuple():
    made = model([node("Split", ["x"], ["a", "b"], num_outputs=2)], {"x": ("float32", (4, 2))}, ["a", "b"])
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    with gensor_kernels.emulated("sm_87"):
        first, second = made(x)
    np.testing.assert_array_equal(np.concatenate([first, second]), x)


def test_old_operators_are_lifted():
    old = proto([node("Squeeze", ["x"], ["y"], axes=[0])], {"x": ("float32", (1, 3))}, ["y"], opset=11)
    from gensor_kernels.graph.execution.model import Model
    from gensor_kernels.graph.readers.onnx_file import Source

    with gensor_kernels.emulated("sm_87"):
        assert Model(Source(old), "old")(np.ones((1, 3), np.float32)).shape == (3,)


def test_sizes_computed_in_the_model_follow_the_inputs():
    """Flattening by Shape, Gather and Reshape, as exporters write it, is folded for each signature."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Unsqueeze", ["n", "axes"], ["u"]),
        node("Concat", ["u", "minus"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "axes": np.array([0]), "minus": np.array([-1])}
    made = model(nodes, {"x": ("float32", ("n", 3, 4))}, ["y"], constants)
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


def test_external_data_that_is_missing(tmp_path):
    path = tmp_path / "large.onnx"
    onnx.save(linear(), path, save_as_external_data=True, location="large.data", size_threshold=0)
    with gensor_kernels.emulated("sm_87"):
        assert load(path)(np.ones((2, 16), np.float32)).shape == (2, 8)
    (tmp_path / "large.data").unlink()
    with pytest.raises(ModelError, match=r"large\.data"):
        load(path)


def test_cycles_are_refused(tmp_path):
    nodes = [node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"])]
    onnx.save(proto(nodes, {"x": ("float32", (2, 2))}, {"b": (2, 2)}), tmp_path / "cycle.onnx")
    with pytest.raises(ModelError, match="no valid ONNX model"):
        load(tmp_path / "cycle.onnx")


def test_operators_that_are_not_served_are_named():
    x = {"x": ("float32", (2, 2))}
    with pytest.raises(UnsupportedError, match=r"operator Det \(node 'odd'\) is not served; onnx\.utils"):
        model([node("Det", ["x"], ["y"], name="odd")], x, ["y"])
    with pytest.raises(UnsupportedError, match=r"operator Own of domain 'com\.own' \(node 'mine'\) is not served"):
        model([node("Own", ["x"], ["y"], name="mine", domain="com.own")], x, ["y"])


@pytest.mark.parametrize("shape", [[2**62, 2], [-1, 3], [-(2**63), 1]])
def test_reshapes_that_do_not_fit_name_their_node(shape):
    inputs = {"x": ("float32", (2, 2)), "s": ("int64", (2,))}
    made = model([node("Reshape", ["x", "s"], ["y"], name="turn")], inputs, ["y"])
    with gensor_kernels.emulated("sm_87"), pytest.raises((ModelError, UnsupportedError), match="node 'turn'"):
        made(np.ones((2, 2), np.float32), np.array(shape))


def test_without_onnx_the_extra_is_named(monkeypatch, tmp_path):
    import builtins

    real = builtins.__import__

    def refuse(name, *args, **keywords):
        if name.split(".")[0] in ("onnx", "onnxscript"):
            raise ImportError(f"no module {name}", name=name)
        return real(name, *args, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModelError, match=r"pip install 'gensor-kernels\[onnx\]'"):
        load(tmp_path / "any.onnx")


def test_a_new_signature_infers_shapes_alone(file, monkeypatch):
    """The rules of onnxscript are matched once, when the file is read."""
    import onnxscript.optimizer

    loaded = load(file)
    monkeypatch.setattr(onnxscript.optimizer, "optimize_ir", lambda *_, **__: pytest.fail("optimised again"))
    with gensor_kernels.emulated("sm_87"):
        for rows in (1, 7):
            assert loaded(np.ones((rows, 16), np.float32)).shape == (rows, 8)


def test_declared_results_do_not_override_inputs():
    """A file may declare the shape of one call: another call's shape follows from its inputs."""
    inputs = {"x": ("float32", (2, 6)), "s": ("int64", (2,))}
    made = model([node("Reshape", ["x", "s"], ["y"])], inputs, {"y": (3, 4)})
    with gensor_kernels.emulated("sm_87"):
        for shape in ((3, 4), (4, 3), (12, 1)):
            assert made(np.ones((2, 6), np.float32), np.array(shape)).shape == shape
