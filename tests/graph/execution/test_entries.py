"""Kept models: equal plans without planning, and entries that are of another file, part, database, version or user."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import onnx
import pytest

import gensor_kernels
from gensor_kernels.graph import conditions
from gensor_kernels.graph.execution import entries
from gensor_kernels.graph.execution import plan as planning

from ...doubles.store_rows import stock
from ..models import draw
from .test_saved import X, build, refuse


@pytest.fixture
def file(tmp_path, cache, emulator):
    path = tmp_path / "model.onnx"
    onnx.save(build(), path)
    return path


def models(cache):
    return [*cache.glob("*.gensor")]


def is_kept(model, *arrays):
    """Return whether a model has a kept plan for inputs, which it does not make."""
    with pytest.MonkeyPatch.context() as within:
        within.setattr(planning, "rewrite", refuse)
        try:
            model._plan(dict(zip(model.inputs, arrays or [X], strict=True)))
        except gensor_kernels.ModelError as error:
            assert "planned again" in str(error)
            return False
    return True


@pytest.mark.parametrize("options", [{}, {"dtype": "float16", "weights": "int4"}])
def test_a_second_load_has_the_same_plan(file, options):
    first = gensor_kernels.load(file, **options)
    assert not is_kept(first)
    wanted = first(X)
    second = gensor_kernels.load(file, **options)
    assert is_kept(second)
    np.testing.assert_array_equal(second(X), wanted)
    assert (str(second), repr(second), second.weight_files) == (str(first), repr(first), ())
    ((old,), (new,)) = (each._plans.values() for each in (first, second))
    assert (old.graph.nodes, old.graph.decisions, old.layouts) == (new.graph.nodes, new.graph.decisions, new.layouts)
    assert old.graph.specs == new.graph.specs
    for name, constant in old.graph.constants.items():
        np.testing.assert_array_equal(new.graph.constants[name], constant)
        assert new.graph.constants[name].strides == constant.strides
    assert not is_kept(second, X[:1])
    np.testing.assert_array_equal(second(X[:1]), first(X[:1]))
    assert is_kept(gensor_kernels.load(file), X[:1]) == (not options)
    assert is_kept(gensor_kernels.load(file, **options), X[:1])
    assert is_kept(gensor_kernels.load(file, **options), X)


def test_a_second_process_imports_no_onnx(file, cache):
    text = f"""
import sys, numpy, gensor_kernels
from gensor_kernels.graph import conditions
conditions.FOLDER = {cache.name!r}
with gensor_kernels.emulated("sm_87"):
    gensor_kernels.load({str(file)!r})._plan({{"x": numpy.zeros((2, 3, 8, 8), "float32")}})
assert ("onnx" in sys.modules) == (sys.argv[1] == "first")
"""
    for each in ("first", "second"):
        subprocess.run([sys.executable, "-c", text, each], check=True)
    assert len(models(cache)) == 1


def test_an_entry_is_of_the_contents_of_one_file(file):
    gensor_kernels.load(file)(X)
    facts, data = file.stat(), bytearray(file.read_bytes())
    copied = file.with_name("copy.onnx")
    copied.write_bytes(data)
    assert is_kept(gensor_kernels.load(copied))
    assert "copy.onnx" in repr(gensor_kernels.load(copied))
    (weights,) = (onnx.numpy_helper.to_array(each) for each in onnx.load(file).graph.initializer if each.name == "v")
    data[data.index(weights.tobytes()) + 3] ^= 0x40
    file.write_bytes(data)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert not is_kept(gensor_kernels.load(file))


def test_entries_are_of_one_part_database_version_and_settings(file, monkeypatch, tmp_path):
    gensor_kernels.load(file)(X)
    assert is_kept(gensor_kernels.load(file))
    for options in ({"dtype": "float16"}, {"dtype": "bfloat16"}, {"weights": "int8", "dtype": "float16"}):
        assert not is_kept(gensor_kernels.load(file, **options))
    for part in ("sm_90", "agx-orin-64gb"):
        with gensor_kernels.emulated(part):
            assert not is_kept(gensor_kernels.load(file))
    with gensor_kernels.deterministic():
        assert not is_kept(gensor_kernels.load(file))
    for change in (
        lambda within: within.setenv("GENSOR_TUNE", "predicted"),
        lambda within: within.setattr(conditions, "sources", lambda: "others"),
        lambda within: within.setattr(conditions, "packages", lambda: ["numpy 99"]),
        lambda within: within.setattr(conditions, "packaged_digest", lambda arch: "others"),
        lambda within: within.setenv("GENSOR_PLANS", "0"),
    ):
        with monkeypatch.context() as within:
            change(within)
            assert not is_kept(gensor_kernels.load(file))
    assert is_kept(gensor_kernels.load(file))


def test_entries_are_of_one_state_of_the_users_database(file, monkeypatch, tmp_path):
    path = tmp_path / "own" / "user.db"
    monkeypatch.setenv("GENSOR_DB", str(path))
    gensor_kernels.refresh()
    with gensor_kernels.emulated("sm_87"):
        gensor_kernels.load(file)(X)
        assert is_kept(gensor_kernels.load(file))
        path.parent.mkdir(mode=0o700)
        stock(path, 1)
        assert not is_kept(gensor_kernels.load(file))  # what was read is older
        gensor_kernels.refresh()
        again = gensor_kernels.load(file)
        assert not is_kept(again)
        again(X)
        assert is_kept(gensor_kernels.load(file))


def test_fixed_inputs_are_of_the_entry(tmp_path, cache, emulator):
    tensor, path = onnx.helper.make_tensor_value_info, tmp_path / "m.onnx"
    node = onnx.helper.make_node("Mul", ["x", "by"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [tensor("x", 1, [4]), tensor("by", 1, [])], [tensor("y", 1, [4])])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9), path)
    x = draw(4)
    for _ in range(2):
        for by in (2.0, 3.0):
            np.testing.assert_array_equal(gensor_kernels.load(path, inputs={"by": by})(x), x * np.float32(by))
    assert is_kept(gensor_kernels.load(path, inputs={"by": 3.0}), x)
    assert not is_kept(gensor_kernels.load(path, inputs={"by": 4.0}), x)


def test_entries_that_were_cut_or_changed_are_ignored(file, cache):
    wanted = gensor_kernels.load(file)(X)
    (entry,) = models(cache)
    data = entry.read_bytes()
    header = 48 + int.from_bytes(data[8:16], "little")
    rng = np.random.default_rng(0)
    for place in [3, 12, 30, 60, *rng.integers(48, header, 4), *rng.integers(-(-header // 256) * 256, len(data), 8)]:
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        entry.write_bytes(changed)
        assert not is_kept(gensor_kernels.load(file)), place
    for kept in (0, 5, 50, header // 2, header, len(data) - 1):
        entry.write_bytes(data[:kept])
        assert not is_kept(gensor_kernels.load(file)), kept
    np.testing.assert_array_equal(gensor_kernels.load(file)(X), wanted)  # and writes it again
    assert is_kept(gensor_kernels.load(file))


@pytest.mark.skipif(os.name != "posix", reason="access is controlled by lists")
def test_entries_that_others_can_write_are_ignored(file, cache, monkeypatch, tmp_path):
    gensor_kernels.load(file)(X)
    (entry,) = models(cache)
    assert cache.stat().st_mode & 0o777 == 0o700
    entry.chmod(0o666)
    assert not is_kept(gensor_kernels.load(file))
    entry.chmod(0o600)
    assert is_kept(gensor_kernels.load(file))
    moved = entry.with_name("moved")
    entry.rename(moved)
    entry.symlink_to(moved)
    assert not is_kept(gensor_kernels.load(file))
    monkeypatch.setenv("GENSOR_CACHE_DIR", str(tmp_path / "open"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert gensor_kernels.load(file)._entry is None


def test_a_kept_model_outlasts_its_entry_and_its_file(file, cache, tmp_path):
    wanted = gensor_kernels.load(file)(X)
    second = gensor_kernels.load(file)
    second.save(tmp_path / "model.gensor", external_weights=True)
    np.testing.assert_array_equal(gensor_kernels.load(tmp_path / "model.gensor")(X), wanted)
    (entry,) = models(cache)
    entry.unlink()
    file.write_bytes(b"")
    pickled = pickle.dumps(second)
    for each in (second, copy.deepcopy(second), pickle.loads(pickled)):
        np.testing.assert_array_equal(each(X), wanted)
        np.testing.assert_array_equal(each(X[:1]), wanted[:1])
    second.save(tmp_path / "again.gensor")
    np.testing.assert_array_equal(gensor_kernels.load(tmp_path / "again.gensor")(X), wanted)


def test_few_plans_and_bytes_are_kept(file, cache, monkeypatch):
    first = gensor_kernels.load(file)
    for count in range(1, entries.MOST_PLANS + 3):
        first(np.repeat(X[:1], count, 0))
    found = [is_kept(gensor_kernels.load(file), np.repeat(X[:1], count, 0)) for count in range(1, 7)]
    assert found == [True] * entries.MOST_PLANS + [False] * 2
    (entry,) = models(cache)
    monkeypatch.setattr(entries, "MOST_BYTES", 2 * entry.stat().st_size)
    for number in range(3):
        assert is_kept(gensor_kernels.load(file), X[:1])  # the one that was opened last
        other = build()
        other.producer_name = f"{number}"
        onnx.save(other, file.with_name("other.onnx"))
        gensor_kernels.load(file.with_name("other.onnx"))(X)
        assert sum(each.stat().st_size for each in cache.iterdir()) <= entries.MOST_BYTES
    assert entry.exists()
    assert len(models(cache)) == 2


def test_what_is_not_kept(file, cache, tmp_path, monkeypatch):
    outside = tmp_path / "outside.onnx"
    onnx.save(build(), outside, save_as_external_data=True, location="w.data", size_threshold=0)
    gensor_kernels.load(outside)(X)
    assert not models(cache)
    with monkeypatch.context() as within:
        within.setattr(entries, "LARGEST", file.stat().st_size)  # enough for the model, not for its plan as well
        gensor_kernels.load(file)(X)
        within.setattr(entries, "LARGEST", file.stat().st_size - 1)
        assert gensor_kernels.load(file)._entry is None
    with monkeypatch.context() as within:
        reading, data = gensor_kernels.graph.readers.onnx_file.read, file.read_bytes()

        def changes(path, inputs):
            source = reading(path, inputs)
            file.write_bytes(data[::-1])
            return source

        within.setattr(gensor_kernels.graph.readers.onnx_file, "read", changes)
        gensor_kernels.load(file)(X)
    assert not models(cache)
