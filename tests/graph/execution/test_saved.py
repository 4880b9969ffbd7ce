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


def build():
    constants = {"w": draw(16, 3, 3, 3), "v": draw(1024, 32) / np.float32(8), "b": draw(32), "low": np.float32(-9)}
    constants["keep"] = np.arange(32) % 3 > 0
    return proto(TEXT, {"x": ("float32", ("n", 3, 8, 8))}, {"y": ("n", 32)}, constants)


def model(**options):
    return gensor_kernels.load(build(), **options)


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


@pytest.mark.parametrize("shape, axes", [((5, 1), (1, 0)), ((1, 5, 3), (1, 2, 0)), ((3, 1, 5), (2, 0, 1))])
def test_strides_are_kept_where_axes_have_one_element(shape, axes, tmp_path):
    writer, array = saved.Writer(), draw(*shape).transpose(axes)
    about = writer.array(array)
    writer.write({}, tmp_path / "file", 1000)
    data = (tmp_path / "file").read_bytes()
    start = -(-(48 + int.from_bytes(data[8:16], "little")) // saved.ALIGN) * saved.ALIGN
    found = saved.Arrays(tmp_path / "file", start, []).array(about)
    np.testing.assert_array_equal(found, array)
    assert (found.shape, found.strides) == (array.shape, array.strides)


def test_a_saved_model_is_opened_without_onnx(file, tmp_path):
    text = f"""
import sys, numpy, gensor_kernels
with gensor_kernels.emulated("sm_87"):
    gensor_kernels.load({str(file)!r})._plan({{"x": numpy.zeros((2, 3, 8, 8), "float32")}})
assert not {{"onnx", "onnxscript"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.mark.parametrize("outside", [False, True], ids=["in the ONNX file", "external data"])
def test_weights_stay_in_the_files_of_the_onnx_model(tmp_path, emulator, outside):
    places = {"location": "w.data", "size_threshold": 0} if outside else {}
    file, path, again = (tmp_path / name for name in ("model.onnx", "model.gensor", "again.gensor"))
    onnx.save(build(), file, save_as_external_data=outside, **places)
    made, held = gensor_kernels.load(file), tmp_path / "w.data" if outside else file
    wanted = made(X)
    made.save(again)
    made.save(path, external_weights=True)
    assert path.stat().st_size <= again.stat().st_size - 4 * 1024 * 32
    for _ in range(2):
        found = gensor_kernels.load(path)
        np.testing.assert_array_equal(found(X), wanted)
        np.testing.assert_array_equal(found(X[:1]), wanted[:1])
        found.save(path, external_weights=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="is not in the folder of the saved model"):
        made.save(tmp_path / "other" / "model.gensor", external_weights=True)
    with pytest.raises(ValueError, match="no weights of the model are in a file"):
        model().save(path, external_weights=True)
    data = bytearray(held.read_bytes())
    held.write_bytes(data)  # at another time
    np.testing.assert_array_equal(gensor_kernels.load(path)(X), wanted)
    (weights,) = (onnx.numpy_helper.to_array(each) for each in onnx.load(file).graph.initializer if each.name == "v")
    data[data.index(weights.tobytes()) + 8] ^= 1
    for content in (data, data[:-1]):
        held.write_bytes(content)
        with pytest.raises(ModelError, match="have changed since it was saved; load the ONNX file, and save it again"):
            gensor_kernels.load(path)
    held.unlink()
    with pytest.raises(ModelError, match="which is missing"):
        gensor_kernels.load(path)


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
