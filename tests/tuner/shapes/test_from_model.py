"""Shapes of a model: `gensor-tune shapes` and `gensor-tune --model`."""

import numpy as np
import onnx
import pytest

from gensor_kernels.errors import ModelError
from gensor_tuner.shapes.from_model import extents_of
from gensor_tuner.shapes.reader import read_shapes
from tests.graph.models import node, proto


@pytest.fixture
def file(tmp_path):
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("Flatten", ["r"], ["f"]),
        node("MatMul", ["f", "v"], ["y"]),
    ]
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "v": np.ones((144, 8), np.float32)}
    onnx.save(proto(nodes, {"x": ("float32", ("n", 3, 8, 8))}, {"y": ("n", 8)}, weights), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_a_model_becomes_a_shapes_file(file, tmp_path, gensor_tune):
    out = tmp_path / "shapes.csv"
    code, _, errors = gensor_tune("shapes", file, "--input", "x=2x3x8x8", "-o", out)
    assert code in (0, None), errors
    rows = [row.workload for row in read_shapes(out)]
    assert sorted((row.operator, row.epilogue) for row in rows) == [("conv2d", ("relu",)), ("matmul", ())]
    assert not list(tmp_path.glob("*.part"))


def test_a_model_is_tuned(file, gensor_tune):
    cheap = ("--top", "1", "--jobs", "1", "-q")
    model = ("--model", file, "--input", "x=2x3x8x8", "--db", "{}/kernels.db")
    code, out, errors = gensor_tune("--arch", "sm_87", *model, *cheap)
    assert code in (0, None), errors
    assert "conv2d" in out and "matmul" in out


def test_a_model_is_run(file, gensor_tune):
    code, out, errors = gensor_tune("run", file, "--emulate", "sm_87", "--input", "x=2x3x8x8")
    assert code in (0, None), errors
    assert "Conv + Relu" in out and "3 layers" in out


def test_what_does_not_fit_is_a_sentence(file, tmp_path, gensor_tune):
    for given, reason in (
        ((), "input x is float32 (n, 3, 8, 8): give its extents, as in --input x=1x128"),
        (("--input", "z=1x2"), "the model's inputs are x"),
        (("--input", "x=1,2"), "expected a name and extents"),
    ):
        code, _, errors = gensor_tune("shapes", file, *given, "-o", "{}/shapes.csv")
        assert code and reason in errors, errors
        assert not (tmp_path / "shapes.csv").exists()
    code, _, errors = gensor_tune("--arch", "sm_87", "--model", file, "--shapes", "shapes.csv")
    assert code == 2 and "leave one out" in errors


def test_extents():
    assert extents_of(["x=1x3", "a=b=7"]) == {"x": (1, 3), "a=b": (7,)}
    with pytest.raises(ModelError):
        extents_of(["x"])
