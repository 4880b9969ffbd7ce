"""Light models of onnx: every fused node beside onnxruntime. `light_models` runs the others by command."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.graph.execution.model import load

from . import light_models

pytest.importorskip("onnxruntime")
#: Operators of these models that the array library computes: views, copies, and the norm over neighbouring channels.
LIBRARY = {"Reshape", "Transpose", "Concat", "LRN"}


@pytest.mark.parametrize(("name", "least"), [("squeezenet", 31), ("shufflenet", 31), ("bvlc_alexnet", 14)])
def test_every_fused_node_is_right(name, least, tmp_path):
    """Sums of float32 in another order differ by a few units in the last place of the largest element."""
    with gensor_kernels.emulated("sm_87"):
        found = light_models.errors(light_models.drawn(name, tmp_path))
    assert len(found) >= least
    assert max(found.values()) < 64 * np.finfo(np.float32).eps, max(found.items(), key=lambda item: item[1])


def test_the_expected_result_of_the_wheel():
    model = load(light_models.path_of("squeezenet"))
    with gensor_kernels.emulated("sm_87"):
        layers = model.explain(*light_models.ones(model))
        np.testing.assert_allclose(model(*light_models.ones(model)), light_models.expected("squeezenet"), rtol=1e-3)
    assert {layer.operators for layer in layers if layer.by == "array library"} <= LIBRARY
    assert sum("Conv" in layer.operators for layer in layers) == 26
    assert not any(layer.operators == "Relu" for layer in layers)  # all are fused
    assert "Conv + Relu" in str(layers) and "contraction" in str(layers)
