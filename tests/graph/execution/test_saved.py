"""Saved models: equal results, no planning, and files that are old, cut or changed."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest

import gensor_kernels
from gensor_kernels.errors import ModelError
from gensor_kernels.graph.execution import plan as planning
from gensor_kernels.graph.execution import saved

from ..models import draw, proto

TEXT = """
c = Conv<pads = [1, 1, 1, 1]>(x, w); r = Relu(c); t = Transpose<perm = [0, 2, 3, 1]>(r); f = Flatten(t);
g = MatMul(f, v); a = Add(g, b); k = Where(keep, a, low); y = Softmax<axis = -1>(k)
"""
X = draw(2, 3, 8, 8)


def model(**options):
    constants = {"w": draw(16, 3, 3, 3), "v": draw(1024, 32) / np.float32(8), "b": draw(32), "low": np.float32(-9)}
    constants["keep"] = np.arange(32) % 3 > 0
    made = proto(TEXT, {"x": ("float32", ("n", 3, 8, 8))}, {"y": ("n", 32)}, constants)
    return gensor_kernels.load(made, **options)


@pytest.fixture
def file(tmp_path, emulator):
    made, path = model(), tmp_path / "model.gensor"
    made(X)
    made.save(path)
    return path


def refuse(*_, **__):
    raise AssertionError("the model is planned again")


@pytest.mark.parametrize("options", [{}, {"dtype": "float16"}, {"dtype": "float16", "weights": "int4"}])
def test_a_saved_model_has_equal_results_and_constants(options, tmp_path, emulator, monkeypatch):
    made, path = model(**options), tmp_path / "model.gensor"
    wanted = [made(each) for each in (X, X[:1])]
    made.save(path)
    again = gensor_kernels.load(path)
    assert (again.inputs, again.outputs) == (made.inputs, made.outputs)
    with monkeypatch.context() as within:
        within.setattr(planning, "rewrite", refuse)
        found = [again(each) for each in (X, X[:1])]
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for old, new in zip(made._plans.values(), again._plans.values(), strict=True):
        assert (old.graph.decisions, old.layouts, str(old.graph.specs)) == (
            *(new.graph.decisions, new.layouts, str(new.graph.specs)),
        )
        for name, constant in old.graph.constants.items():
            kept = new.graph.constants[name]
            assert (kept.dtype, kept.shape, kept.strides) == (constant.dtype, constant.shape, constant.strides)
    three = np.concatenate([X, X[:1]])
    np.testing.assert_array_equal(again(three), made(three))  # planned from the simplified model


def test_a_saved_model_is_opened_without_onnx(file, tmp_path):
    text = f"""
import sys, numpy, gensor_kernels
with gensor_kernels.emulated("sm_87"):
    gensor_kernels.load({str(file)!r})._plan({{"x": numpy.zeros((2, 3, 8, 8), "float32")}})
assert not {{"onnx", "onnxscript"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", text], check=True)


def test_plans_of_other_sources_and_parts_are_made_again(file, monkeypatch):
    wanted = gensor_kernels.load(file)(X)
    with gensor_kernels.emulated("sm_90"), monkeypatch.context() as within:
        within.setattr(planning, "rewrite", refuse)
        with pytest.raises(ModelError, match="planned again"):
            gensor_kernels.load(file)(X)
    monkeypatch.setattr(saved, "sources", lambda: "others")
    again = gensor_kernels.load(file)
    assert not again._source.plans
    np.testing.assert_allclose(again(X), wanted, rtol=1e-4)


def test_copies_and_saved_copies_are_equal(file, tmp_path):
    again = gensor_kernels.load(file)
    for each in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        np.testing.assert_array_equal(each(X), again(X))
    again.save(tmp_path / "second.gensor")
    np.testing.assert_array_equal(gensor_kernels.load(tmp_path / "second.gensor")(X), again(X))


def test_defaults_can_be_overridden_after_saving(tmp_path, emulator):
    made = proto(
        "y = Add(x, d)", {"x": ("float32", (4,)), "d": ("float32", (4,))}, ["y"], {"d": np.ones(4, np.float32)}
    )
    first = gensor_kernels.load(made)
    first.save(tmp_path / "a.gensor")
    second = gensor_kernels.load(tmp_path / "a.gensor")
    second.save(tmp_path / "b.gensor")
    x = np.arange(4, dtype=np.float32)
    for each in (second, gensor_kernels.load(tmp_path / "b.gensor")):
        np.testing.assert_array_equal(each(x), x + 1)
        np.testing.assert_array_equal(each(x, d=x), x + x)


def test_options_are_those_of_the_file(file):
    with pytest.raises(ValueError, match="was saved with"):
        gensor_kernels.load(file, dtype="float16")


@pytest.mark.parametrize("kept", [4, 9, 60, 2000, 0.5, 0.99])
def test_a_file_that_was_cut_is_refused(file, kept):
    data = file.read_bytes()
    file.write_bytes(data[: int(kept * len(data)) if kept < 1 else kept])
    with pytest.raises(ModelError, match=r"model\.gensor.*(cut|no valid ONNX)"):
        gensor_kernels.load(file)(X)


def test_a_header_that_was_changed_is_refused(file):
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)
    with pytest.raises(ModelError, match="cut or changed"):
        gensor_kernels.load(file)


def test_text_is_not_saved(tmp_path):
    names = onnx.numpy_helper.from_array(np.array(["a", "b"], object), "names")
    made = proto("y = Relu(x)", {"x": ("float32", (2,))}, ["y"])
    made.graph.initializer.append(names)
    made.graph.node.append(onnx.helper.make_node("Identity", ["names"], ["n"]))
    made.graph.output.append(onnx.helper.make_tensor_value_info("n", onnx.TensorProto.STRING, [2]))
    with pytest.raises(gensor_kernels.UnsupportedError, match="text"):
        gensor_kernels.load(made).save(tmp_path / "text.gensor")
    assert not list(tmp_path.iterdir())
