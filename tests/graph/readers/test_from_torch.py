"""`from_torch`: modules as models, what is refused, and the memory of weights."""

import copy
import pickle

import numpy as np
import pytest

import gensor_kernels
import gensor_kernels.torch
from gensor_kernels.errors import ModelError, UnsupportedError

from ..models import hide_packages

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x, shift=None):
        y = torch.relu(self.linear(x))
        return y if shift is None else (y + shift, {"shift": shift * 2})


def test_tensors_and_arrays_go_in_and_come_out():
    module = Small().eval()
    model = gensor_kernels.from_torch(module, torch.ones(3, 8), dynamic_shapes={"x": {0: "rows"}})
    assert str(model.inputs["x"]) == "float32 (rows, 8)" and "Small" in repr(model)
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        for count in (1, 5):
            x = torch.randn(count, 8)
            found = model(x)
            assert isinstance(found, torch.Tensor)
            torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-5)
            other = model(x.numpy())
            assert isinstance(other, np.ndarray)
            np.testing.assert_array_equal(other, found.numpy())
            assert [each.operators for each in model.explain(x)] == ["Gemm + Relu"]
        with pytest.raises(ValueError, match=r"input 'x' has shape \(3, 7\)"):
            model(torch.ones(3, 7))
        with pytest.raises(TypeError, match="has dtype float64, the model takes float32"):
            model(torch.ones(3, 8).double())


def test_keywords_and_results_in_structures():
    module = Small().eval()
    model = gensor_kernels.from_torch(module, (torch.ones(2, 8),), {"shift": torch.ones(4)})
    x, shift = torch.randn(2, 8), torch.randn(4)
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        first, second = model(x, shift=shift)
        expected = module(x, shift)
    torch.testing.assert_close(first, expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(second, expected[1]["shift"])


def test_weights_are_not_copied_and_changes_are_refused():
    module = Small().eval()
    model = gensor_kernels.from_torch(module, torch.ones(2, 8), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    addresses = {each.const_value.numpy().ctypes.data for each in model._source._model.graph.initializers.values()}
    assert {each.data_ptr() for each in module.parameters()} <= addresses
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        model(torch.ones(2, 8))
        module.linear.weight.mul_(2)
        with pytest.raises(ModelError, match="have changed: call from_torch again"):
            model(torch.ones(3, 8))


def test_precision_and_quantised_weights():
    """Within the roundings of 16 and 8 bits of the module, and not within those of float32."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)).eval()
    x = torch.randn(3, 128)
    half = gensor_kernels.from_torch(module, x, dtype="float16")
    quantised = gensor_kernels.from_torch(module, x, dtype="float16", weights="int8")
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        exact = module(x)
        for model, least, most in ((half, 1e-6, 2e-3), (quantised, 1e-4, 2e-2)):
            found = model(x)
            assert found.dtype == torch.float32
            assert least < (found - exact).norm() / exact.norm() < most
        assert [each.operators for each in quantised.explain(x)] == [
            "Cast",
            "QuantisedLinear + Add + Relu",
            "Gemm",
            "Cast",
        ]
    assert gensor_kernels.from_torch(module, x, dtype=torch.float16)._options == half._options
    with pytest.raises(ValueError, match="dtype must be None, 'float16' or 'bfloat16', not 'float64'"):
        gensor_kernels.from_torch(module, x, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="weights='int8' needs products of 16 bits, not of float32"):
        gensor_kernels.from_torch(module, x, weights="int8")


def test_what_is_refused_says_why():
    with pytest.raises(ValueError, match=r"Sequential is in training mode: call module\.eval\(\) first"):
        gensor_kernels.from_torch(nn.Sequential(nn.Linear(2, 2)), torch.ones(2, 2))

    with pytest.raises(TypeError, match=r"module must be a torch\.nn\.Module or .*, not"):
        gensor_kernels.from_torch(nn.ReLU, torch.ones(2, 2))
    with pytest.raises(TypeError, match=r"args must be a tensor or a tuple of tensors, not .*array"):
        gensor_kernels.from_torch(nn.ReLU().eval(), np.ones((2, 2)))
    with pytest.raises(ModelError, match=r"that the module fixes \(batch is 1 in every call\): take them out, or give"):
        gensor_kernels.from_torch(nn.Linear(2, 2).eval(), torch.ones(1, 2), dynamic_shapes=({0: "batch"},))

    class Changing(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    with pytest.raises(UnsupportedError, match="the module changes x in place"):
        gensor_kernels.from_torch(Changing().eval(), torch.ones(2, 2))
    with pytest.raises(UnsupportedError, match="the module changes x in place"):
        gensor_kernels.from_torch(torch.export.export(Changing(), (torch.ones(2, 2),)).run_decompositions({}))

    class Branching(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(ModelError, match=r"torch\.export cannot trace Branching"):
        gensor_kernels.from_torch(Branching().eval(), torch.ones(2, 2))

    class Odd(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    with pytest.raises(UnsupportedError, match=r"operator '.*bessel_j0.*' .* no translation to ONNX"):
        gensor_kernels.from_torch(Odd().eval(), torch.ones(2, 2))


def test_without_pytorch_the_extra_is_named(monkeypatch):
    hide_packages(monkeypatch, "torch")
    with pytest.raises(ModelError, match=r"torch is not installed: pip install 'gensor-kernels\[torch\]'"):
        gensor_kernels.from_torch(None)
    with pytest.raises(ModuleNotFoundError, match=r"needs PyTorch: pip install 'gensor-kernels\[torch\]'"):
        gensor_kernels.torch.register()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_models_are_copied_and_pickled(copied):
    module = nn.Sequential(Small(), nn.LayerNorm(4)).eval().bfloat16()
    model = gensor_kernels.from_torch(module, torch.ones(3, 8).bfloat16(), dynamic_shapes=({0: "rows"},))
    other, x = copied(model), torch.randn(2, 8).bfloat16()
    assert str(other) == str(model)
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        expected = model(x)
        module[0].linear.weight.zero_()
        torch.testing.assert_close(other(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("module", "x", "text"),
    [
        (nn.Conv3d(1, 2, 3), torch.ones(1, 1, 4, 4, 4), "node 'conv3d' .*one or two spatial axes, not 3"),
        (nn.ReLU(), torch.ones(3, dtype=torch.complex64), "complex64|relu"),
    ],
    ids=["conv3d", "complex"],
)
def test_what_no_call_can_compute_is_refused_at_once(module, x, text):
    with pytest.raises(UnsupportedError, match=text):
        gensor_kernels.from_torch(module.eval(), x)


def test_sizes_are_within_their_dim():
    rows = torch.export.Dim("rows", min=3, max=5)
    model = gensor_kernels.from_torch(Small().eval(), torch.ones(4, 8), dynamic_shapes={"x": {0: rows}})
    with gensor_kernels.emulated("sm_87"):
        for count in (2, 6):
            with pytest.raises(ValueError, match=f"size rows is {count}, the model takes from 3 to 5"):
                model(torch.ones(count, 8))
        assert model(torch.ones(5, 8)).shape == (5, 4)
        with pytest.raises(TypeError, match="memory of meta"):
            model(torch.ones(4, 8, device="meta"))


def test_results_are_tensors():
    class Counting(nn.Module):
        def forward(self, x):
            return x + 1, 7

    with pytest.raises(UnsupportedError, match="result 1 of the module is the number 7; a model returns tensors alone"):
        gensor_kernels.from_torch(Counting().eval(), torch.ones(3))
    with pytest.raises(ModelError, match="parameters of the module are on the device meta"):
        gensor_kernels.from_torch(nn.Linear(4, 4, device="meta").eval(), torch.ones(2, 4, device="meta"))


def test_layers_have_the_path_of_their_module():
    module = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 4)).eval()
    lines = str(gensor_kernels.from_torch(module, torch.ones(3, 8))).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["0.0/linear", "1/linear"]
