"""Whole networks through `from_torch` and `torch.compile`, against eager PyTorch.

A float32 result is correct if its distance from the float64 result is at most four times eager float32's, and a few
roundings of the largest value: kernels and eager PyTorch sum the same terms in other orders, and the errors of both
grow equally with depth.
"""

import copy
import os

import pytest

import gensor_kernels

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gensor_kernels.torch import gensor  # noqa: E402
from tests.graph.networks.exported_torch import EXPORTS  # noqa: E402

#: Two networks by default; all of them with TORCH_NETWORKS=all, for they take minutes.
NETWORKS = ["mobilenet_v2", "bert_base", "resnet50", "gpt2", "llama"]
CHOSEN = NETWORKS if os.environ.get("TORCH_NETWORKS") == "all" else NETWORKS[:2]


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    gensor.reset()


def draw(name):
    """Return a small network in evaluation mode, inputs of three entries, and the names of their symbolic axes."""
    library = "torchvision" if name in ("mobilenet_v2", "resnet50") else "transformers"
    pytest.importorskip(library, reason=f"{library} is not installed")
    torch.manual_seed(0)
    export = EXPORTS[name](True)
    for each in export.module.modules():  # statistics as after training
        if isinstance(each, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(each.running_var, 0.5, 1.5)
            torch.nn.init.normal_(each.running_mean)
    inputs = []
    for key, example in export.inputs.items():
        shape = (3, *example.shape[1:])
        most = 128 if "input_ids" in key or key == "tokens" else 2
        inputs.append(torch.randn(shape) if example.is_floating_point() else torch.randint(most, shape))
        if "mask" in key:
            inputs[-1][:, 0] = 1
    return export.module.eval(), tuple(inputs), export.dynamic.values()


def check(found, network, inputs):
    with torch.no_grad():
        single = results_of(network, inputs)
        wide = [each.double() if each.is_floating_point() else each for each in inputs]
        exact = results_of(copy.deepcopy(network).double(), wide)
    assert len(found) == len(single)
    for mine, eager, true in zip(found, single, exact, strict=True):
        assert mine.dtype == eager.dtype and mine.shape == eager.shape
        rounding = 8 * torch.finfo(torch.float32).eps * true.abs().max()
        assert (mine - true).abs().max() <= 4 * (eager - true).abs().max() + rounding
        assert true.abs().max() > 0


def results_of(network, inputs):
    found = network(*inputs)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("compiles", [False, True], ids=["from_torch", "compile"])
@pytest.mark.parametrize("name", CHOSEN)
def test_networks(name, compiles, recwarn):
    network, inputs, axes = draw(name)
    if compiles:
        computed = torch.compile(network, backend=gensor)
    else:
        shapes = tuple(dict.fromkeys(each, torch.export.Dim.DYNAMIC) for each in axes)
        shapes = shapes if len(inputs) == 1 else (shapes,)  # of `*values`
        computed = gensor_kernels.from_torch(network, inputs, dynamic_shapes=shapes)
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        for count in (3, 2):
            given = tuple(each[:count] for each in inputs)
            check(results_of(computed, given), network, given)
    assert not [str(each.message) for each in recwarn if "eagerly" in str(each.message)]
