"""`from_torch`: modules as models, what is refused, the memory of weights, and the check of PyTorch's exporter."""

import copy
import pickle
import sys

import numpy as np
import pytest

import gensor_kernels
import gensor_kernels.torch
from gensor_kernels.errors import ModelError, UnsupportedError
from tests.campaign_size import sample

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gensor_kernels.graph.readers import torch_checked  # noqa: E402

nn, F = torch.nn, torch.nn.functional
pytestmark = pytest.mark.usefixtures("emulator", "no_gradients")
IMAGE = torch.linspace(-2, 2, 2 * 4 * 81).reshape(2, 4, 9, 9).sin()
WHOLE = torch.arange(-6, 6).reshape(3, 4)
BYTES = torch.arange(0, 240, 20).to(torch.uint8)
ROWS = IMAGE[0, 0]
X = torch.linspace(-1, 1, 24).reshape(3, 8)


@pytest.fixture
def no_gradients():
    with torch.no_grad():
        yield


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x, shift=None):
        y = torch.relu(self.linear(x))
        return y if shift is None else (y + shift, {"shift": shift * 2})


class Calling(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_tensors_and_arrays_go_in_and_come_out():
    module = Small().eval()
    model = gensor_kernels.from_torch(module, X, dynamic_shapes={"x": {0: "rows"}})
    assert str(model.inputs["x"]) == "float32 (rows, 8)" and "Small" in repr(model)
    for count in (1, 5):
        x = torch.randn(count, 8)
        found, other = model(x), model(x.numpy())
        assert isinstance(found, torch.Tensor) and isinstance(other, np.ndarray)
        close(found, module(x))
        np.testing.assert_array_equal(other, found.numpy())
        assert [each.operators for each in model.explain(x)] == ["Gemm + Relu"]
    with pytest.raises(ValueError, match=r"input 'x' has shape \(3, 7\)"):
        model(torch.ones(3, 7))
    with pytest.raises(TypeError, match="has dtype float64, the model takes float32"):
        model(X.double())


def test_keywords_and_results_in_structures():
    module, shift = Small().eval(), torch.randn(4)
    model = gensor_kernels.from_torch(module, (X,), {"shift": torch.ones(4)})
    expected, structure = module(X, shift)
    close(model(X, shift=shift), (expected, structure["shift"]))


def test_weights_are_not_copied_and_changes_are_refused():
    module = Small().eval()
    model = gensor_kernels.from_torch(module, X, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    addresses = {each.const_value.numpy().ctypes.data for each in model._source._model.graph.initializers.values()}
    assert {each.data_ptr() for each in module.parameters()} <= addresses
    model(torch.ones(2, 8))
    module.linear.weight.mul_(2)
    with pytest.raises(ModelError, match="have changed: call from_torch again"):
        model(X)


def test_precision_and_quantised_weights():
    """Within the roundings of 16 and 8 bits of the module, and not within those of float32."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)).eval()
    x = torch.randn(3, 128)
    exact = module(x)
    half = gensor_kernels.from_torch(module, x, dtype="float16")
    quantised = gensor_kernels.from_torch(module, x, dtype="float16", weights="int8")
    for model, least, most in ((half, 1e-6, 2e-3), (quantised, 1e-4, 2e-2)):
        found = model(x)
        assert found.dtype == torch.float32
        assert least < (found - exact).norm() / exact.norm() < most
    operators = [each.operators for each in quantised.explain(x)]
    assert operators == ["Cast", "QuantisedLinear + Add + Relu", "Gemm", "Cast"]
    assert gensor_kernels.from_torch(module, x, dtype=torch.float16)._options == half._options
    with pytest.raises(ValueError, match="dtype must be None, 'float16' or 'bfloat16', not 'float64'"):
        gensor_kernels.from_torch(module, x, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="weights='int8' needs products of 16 bits, not of float32"):
        gensor_kernels.from_torch(module, x, weights="int8")


def change(x):
    x.add_(1)
    return x * 2


def branch(x):
    return x + 1 if x.sum() > 0 else x


TWO = torch.ones(2, 2)
META = nn.Linear(2, 2, device="meta").eval()
NUMBER = "result 1 of the module is the number 7; a model returns tensors alone"


@pytest.mark.parametrize(
    ("module", "x", "error", "says"),
    [
        (nn.Sequential(nn.ReLU()), TWO, ValueError, r"Sequential is in training mode: call module\.eval\(\) first"),
        (nn.ReLU, TWO, TypeError, r"module must be a torch\.nn\.Module or .*, not"),
        (nn.ReLU().eval(), np.ones((2, 2)), TypeError, r"args must be a tensor or a tuple of tensors, not .*array"),
        (change, TWO, UnsupportedError, "the module changes x in place"),
        (branch, TWO, ModelError, r"torch\.export cannot trace Calling"),
        (torch.special.bessel_j0, TWO, UnsupportedError, "operator '.*bessel_j0.*' .* no translation to ONNX"),
        (nn.ReLU().eval(), torch.ones(3, dtype=torch.complex64), UnsupportedError, "complex64|relu"),
        (lambda x: (x + 1, 7), TWO, UnsupportedError, NUMBER),
        (META, TWO.to("meta"), ModelError, "parameters of the module are on the device meta"),
        # translations of the exporter that compute something else
        (
            lambda x: F.avg_pool2d(x, 2, divisor_override=3),
            IMAGE,
            UnsupportedError,
            "avg_pool2d.default .*other values",
        ),
        (lambda x: x >> 1, BYTES, UnsupportedError, "__rshift__.Scalar .*gives int8 in place of uint8"),
        (lambda x: x * 70000, ROWS.half() / 100, UnsupportedError, r"operator aten\.mul.Tensor .*other values"),
        (lambda x: x + torch.rand(9), ROWS, UnsupportedError, r"operator aten\.rand.default .*other values"),
        (lambda x: torch.view_as_real(x * x), torch.complex(ROWS, ROWS), UnsupportedError, "mul.Tensor"),
    ],
)
def test_what_is_refused_says_why(module, x, error, says):
    module = module if isinstance(module, (nn.Module, type)) else Calling(module).eval()
    with pytest.raises(error, match=says):
        gensor_kernels.from_torch(module, x)


def test_programs_and_sizes_are_refused_as_modules_are():
    program = torch.export.export(Calling(change), (TWO,)).run_decompositions({})
    with pytest.raises(UnsupportedError, match="the module changes x in place"):
        gensor_kernels.from_torch(program)
    with pytest.raises(ModelError, match=r"that the module fixes \(batch is 1 in every call\): take them out, or give"):
        gensor_kernels.from_torch(nn.Linear(2, 2).eval(), torch.ones(1, 2), dynamic_shapes=({0: "batch"},))


def test_without_pytorch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"torch is not installed: pip install 'gensor-kernels\[torch\]'"):
        gensor_kernels.from_torch(None)
    with pytest.raises(ModuleNotFoundError, match=r"needs PyTorch: pip install 'gensor-kernels\[torch\]'"):
        gensor_kernels.torch.register()


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"]
)
def test_models_are_copied_and_pickled(copied):
    module = nn.Sequential(Small(), nn.LayerNorm(4)).eval().bfloat16()
    model = gensor_kernels.from_torch(module, X.bfloat16(), dynamic_shapes=({0: "rows"},))
    other, x = copied(model), X[:2].bfloat16()
    assert str(other) == str(model)
    expected = model(x)
    module[0].linear.weight.zero_()
    torch.testing.assert_close(other(x), expected, rtol=0, atol=0)


def test_sizes_are_within_their_dim():
    rows = torch.export.Dim("rows", min=3, max=5)
    model = gensor_kernels.from_torch(Small().eval(), X, dynamic_shapes={"x": {0: rows}})
    for count in (2, 6):
        with pytest.raises(ValueError, match=f"size rows is {count}, the model takes from 3 to 5"):
            model(torch.ones(count, 8))
    assert model(torch.ones(5, 8)).shape == (5, 4)
    with pytest.raises(TypeError, match="memory of meta"):
        model(torch.ones(4, 8, device="meta"))


def test_layers_have_the_path_of_their_module():
    module = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 4)).eval()
    lines = str(gensor_kernels.from_torch(module, X)).splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["0.0/linear", "1/linear"]


def test_each_distinct_call_is_checked_once(monkeypatch):
    def double(x):
        return torch.relu(torch.relu(x) * 1.625) * 1.625

    exported, real = [], torch_checked._model
    monkeypatch.setattr(torch_checked, "_model", lambda calls, export: exported.append(calls) or real(calls, export))
    for _ in range(2):
        gensor_kernels.from_torch(Calling(double).eval(), torch.ones(300, 700))
    (calls,) = exported
    names = [str(each.target) for each in calls]
    assert names.count("aten.mul.Tensor") == 1 and len(names) == len(set(names))
    assert all(each.elements() < 1000 for each in calls)  # not with the extents of the program


def test_extents_that_arguments_repeat_are_made_smaller_together():
    module = nn.Sequential(nn.Conv2d(96, 96, 3, groups=96), Calling(lambda x: x.reshape(1, 96, -1))).eval()
    model = gensor_kernels.from_torch(module, torch.randn(1, 96, 40, 40))
    assert [spec.shape for spec in model.inputs.values()] == [(1, 96, 40, 40)]


CASES = {
    "promotion": (lambda x: (x + 1.5, x / 2, x // -3, x % 3, x > 1.5, x.clamp(-2, 3)), WHOLE),
    "bytes": (lambda x: (x - 1, x * 3, x + 1.5, x // 7, x.clamp(3, 100)), BYTES),
    "half": (lambda x: (x * 2.5, x + torch.tensor(1.5), x.softmax(1, dtype=torch.float32)), ROWS.half()),
    "norms": (lambda x: (F.layer_norm(x, (9,)), F.rms_norm(x, (9,)), F.group_norm(x, 2), F.instance_norm(x)), IMAGE),
    "pools": (
        lambda x: (F.avg_pool2d(x, 3, 2, 1, True, False), F.max_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, 3)),
        IMAGE,
    ),
    "pads": (
        lambda x: (F.pad(x, (1, 2, 0, 1), "reflect"), F.pad(x, (1, 2, 1, 0), "circular"), F.pad(x, (-1, 2))),
        IMAGE,
    ),
    "einsum": (lambda x: torch.einsum("bchw,bdhw->bcd", x, x), IMAGE),
    "masks": (lambda x: (x.masked_fill(x > 0, 2.0), torch.where(x > 0, x, 0), (x > 0).sum(1)), ROWS),
    "sums": (lambda x: (x.cumsum(1), x.sum(0), x.prod(1), x.amax(1)), WHOLE),
    "order": (lambda x: (*torch.topk(x, 3), *torch.sort(x), x.argmax(1)), ROWS),
    "places": (lambda x: (x[:, 1::2], x[:, torch.tensor([0, -1])], x.gather(1, torch.tensor([[0, 3]]))), ROWS),
    "upsample": (lambda x: (F.interpolate(x, scale_factor=2.0), F.interpolate(x, (5, 7), mode="bilinear")), IMAGE),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), IMAGE),
    "convolution": (lambda x: F.conv2d(x, IMAGE[:, :2, :3, :3], padding=1, groups=2), IMAGE),
    "rounding": (lambda x: (x.round(), torch.div(x, 0.7, rounding_mode="floor"), x.sign(), x % -0.7), ROWS),
    "layout": (lambda x: (x.roll(2, 1), x.flip(1), x.tril(-1), x.repeat(2, 3), *x.split([1, 8], 1)), ROWS),
    "batch norm in bfloat16": (
        nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)).bfloat16().requires_grad_(False),
        IMAGE.bfloat16(),
    ),
}


@pytest.mark.parametrize("name", sample(sorted(CASES), 4))
def test_common_functions_are_right(name):
    function, x = CASES[name]
    module = (function if isinstance(function, nn.Module) else Calling(function)).eval()
    leaves = torch.utils._pytree.tree_leaves
    for mine, true in zip(leaves(gensor_kernels.from_torch(module, x)(x)), leaves(module(x)), strict=True):
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 5e-2}.get(true.dtype, 1e-4)
        torch.testing.assert_close(mine, true, rtol=tolerance, atol=tolerance)
