"""Small exported networks: every fused node compared with onnxruntime and with float64."""

from collections import Counter

import numpy as np
import pytest

from gensor_kernels.graph.readers.onnx_file import Source
from tests.campaign_size import sample

from . import exported_graphs, exported_models
from .exported_models import MODELS, Difference, compare, judge, pool, wrong

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore")
CASES = [(f"{name}_small", dtype) for name, dtypes in MODELS.items() for dtype in dtypes]


@pytest.mark.parametrize(("name", "dtype"), sample(CASES, 3))
def test_every_fused_node_is_as_near_as_onnxruntime(name, dtype):
    found = judge(name, dtype)
    assert not wrong(found, dtype)
    assert len(found.nodes) > 10 and all(each.theirs_mean > 0 for each in found.results)
    assert not found.fallbacks, Counter(found.fallbacks)


def test_a_wrong_weight_is_found(monkeypatch):
    """The comparison sees a weight of ours that differs in one element by a percent."""

    def changed(model):
        made = exported_graphs.cast(model, "float32")
        tensor = next(each for each in made.graph.initializer if each.name == "heads.head.weight")
        weights = exported_graphs.numpy_helper.to_array(tensor).copy()
        weights[3, 5] *= 1.01
        tensor.CopyFrom(exported_graphs.numpy_helper.from_array(weights, tensor.name))
        return Source(made)

    monkeypatch.setattr(exported_models, "Source", changed)
    bad = wrong(compare("vit_b_16_small"), "float32")
    assert {each.node for each in bad} == {"y", "y (Gemm)"}


def test_draws_are_pooled_by_their_mean_squares():
    (found,) = pool([[Difference("y", 3e-7, 1e-7)], [Difference("y", 4e-7, 7e-7)]])
    assert found == ("y", pytest.approx(np.sqrt(12.5) * 1e-7), pytest.approx(5e-7))


def test_every_network_has_a_small_graph():
    known = set(exported_graphs.names())
    assert {f"{name}_small" for name in MODELS} <= known <= {name + size for name in MODELS for size in ("", "_small")}
