"""The check of PyTorch's exporter: what it translates wrongly is refused with its name, and the rest is served."""

import pytest

import gensor_kernels
from gensor_kernels.errors import UnsupportedError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gensor_kernels.graph.readers import torch_checked  # noqa: E402

from ...campaign_size import sample  # noqa: E402

nn, F = torch.nn, torch.nn.functional
IMAGE = torch.linspace(-2, 2, 2 * 4 * 81).reshape(2, 4, 9, 9).sin()
WHOLE = torch.arange(-6, 6).reshape(3, 4)
BYTES = torch.arange(0, 240, 20).to(torch.uint8)
ROWS = IMAGE[0, 0]


class Calling(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Outer(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.inner = Calling(function)

    def forward(self, *args):
        return self.inner(*args)


@pytest.mark.parametrize(
    ("function", "x", "text"),
    [
        (lambda x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE, "avg_pool2d.default .*other values"),
        (lambda x: x >> 1, BYTES, "__rshift__.Scalar .*gives int8 in place of uint8"),
        (lambda x: x * 70000, ROWS.half() / 100, "mul.Tensor .*other values"),
        (lambda x: x + torch.rand(9), ROWS, "rand.default .*other values"),
        (lambda x: torch.view_as_real(x * x), torch.complex(ROWS, ROWS), "mul.Tensor"),
    ],
    ids=["divisor", "shift", "scalar", "random", "complex"],
)
def test_wrong_translations_are_refused_by_name(function, x, text):
    with pytest.raises(UnsupportedError, match=rf"operator aten\..*\(module 'inner'\).*{text}|operator aten\.{text}"):
        gensor_kernels.from_torch(Outer(function).eval(), x)


def test_each_distinct_call_is_checked_once(monkeypatch):
    def double(x):
        return torch.relu(torch.relu(x) * 1.625) * 1.625

    exported, real = [], torch_checked._model
    monkeypatch.setattr(torch_checked, "_model", lambda calls, export: exported.append(calls) or real(calls, export))
    gensor_kernels.from_torch(Calling(double).eval(), torch.ones(300, 700))
    gensor_kernels.from_torch(Calling(double).eval(), torch.ones(300, 700))
    (calls,) = exported
    names = [str(each.target) for each in calls]
    assert names.count("aten.mul.Tensor") == 1 and len(names) == len(set(names))
    assert all(each.elements() < 1000 for each in calls)  # not with the extents of the program


def test_extents_that_arguments_repeat_are_made_smaller_together():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(96, 96, 3, groups=96)

        def forward(self, x):
            return self.conv(x).reshape(1, 96, -1)

    x = torch.randn(1, 96, 40, 40)
    model = gensor_kernels.from_torch(Deep().eval(), x)
    assert model.inputs["x"].shape == (1, 96, 40, 40)


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
#: All of them at night.
CHOSEN = sample(sorted(CASES), 4)


@pytest.mark.parametrize("name", CHOSEN)
def test_common_functions_are_right(name):
    function, x = CASES[name]
    module = (function if isinstance(function, nn.Module) else Calling(function)).eval()
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        found, expected = gensor_kernels.from_torch(module, x)(x), module(x)
    leaves = torch.utils._pytree.tree_leaves
    for mine, true in zip(leaves(found), leaves(expected), strict=True):
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 5e-2}.get(true.dtype, 1e-4)
        torch.testing.assert_close(mine, true, rtol=tolerance, atol=tolerance)
