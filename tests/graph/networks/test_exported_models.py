"""Small exported networks: every fused node beside onnxruntime and float64. `exported_models` runs them full-size."""

from collections import Counter

import numpy as np
import pytest

from . import exported_graphs, exported_models
from .exported_models import MODELS, compared, wrong

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")
CASES = [(f"{name}_small", dtype) for name, dtypes in MODELS.items() for dtype in dtypes]
#: Operators without a kernel, by model, and why.
OPEN: dict[str, dict[str, str]] = {
    "bert_base_traced_small": dict.fromkeys(
        ("Add", "Where"), "the older exporter makes the mask from booleans by these"
    ),
}


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_every_fused_node_is_as_near_as_onnxruntime(name, dtype):
    found = compared(name, dtype)
    assert not wrong(found, dtype)
    assert len(found.nodes) > 10 and all(each.theirs_mean > 0 for each in found.results)
    assert set(found.fallbacks) == set(OPEN.get(name, {})), Counter(found.fallbacks)


def test_a_wrong_weight_is_found(monkeypatch):
    """The comparison sees a weight that differs in one element by a percent."""
    whole = exported_graphs.cast

    def changed(model, dtype):
        made = whole(model, dtype)
        if dtype == "float64":
            tensor = next(each for each in made.graph.initializer if each.name.endswith("mlp.0.weight"))
            weights = exported_graphs.numpy_helper.to_array(tensor).copy()
            weights[3, 5] *= 1.01
            tensor.CopyFrom(exported_graphs.numpy_helper.from_array(weights, tensor.name))
        return made

    monkeypatch.setattr(exported_graphs, "cast", changed)
    assert wrong(compared("vit_b_16_small"), "float32")


def test_graphs_are_small_and_have_no_weights():
    known = set(exported_graphs.names())
    assert {f"{name}_small" for name in MODELS} <= known <= {name + size for name in MODELS for size in ("", "_small")}
    assert {"resnet50", "mobilenet_v2", "vit_b_16", "bert_base", "gpt2", "gpt2_step", "llama", "llama_step"} <= known
    for name in exported_graphs.names():
        assert (exported_graphs.FOLDER / f"{name}.onnx.gz").stat().st_size < 40_000
        model = exported_graphs.stripped(name)
        assert any(exported_graphs._is_weight(each) for each in model.graph.initializer)


def test_weights_follow_the_seed():
    first, second, other = (exported_graphs.drawn("llama_small", seed=seed) for seed in (0, 0, 1))
    assert first == second and first != other
    norms = [each for each in first.graph.initializer if each.name.endswith("norm.weight")]
    for each in norms:
        values = exported_graphs.numpy_helper.to_array(each)
        assert values.min() >= 0.5 and values.max() <= 1.5
    half = exported_graphs.drawn("llama_small", "float16")
    for narrow, wide in zip(half.graph.initializer, first.graph.initializer, strict=True):
        left, right = map(exported_graphs.numpy_helper.to_array, (narrow, wide))
        np.testing.assert_array_equal(left, right.astype(left.dtype))


def test_the_allowance_is_twice_onnxruntimes_error():
    assert exported_models.allowed(1e-3, "float32") == 2e-3
    assert 0 < exported_models.allowed(0.0, "float16") < np.finfo("float16").eps
