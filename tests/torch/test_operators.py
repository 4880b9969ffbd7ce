"""Our functions as operators of PyTorch: their fake kernels, and programs that hold them."""

import pytest

import gensor_kernels
from gensor_kernels.errors import ModelError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gensor_kernels.torch import register  # noqa: E402

F = torch.nn.functional
pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture(scope="module", autouse=True)
def ops():
    register()
    register()  # a second call does nothing
    return torch.ops.gensor


def drawn(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def cases():
    x, w, parts = drawn(5, 8), drawn(8, 6), [drawn(3, *each) for each in ((5, 8), (8, 6), (5, 6))]
    image, taps = drawn(2, 4, 9, 9), drawn(6, 4, 3, 3)
    heads = drawn(1, 2, 16, 32, dtype=torch.float16)
    yield "matmul", (x, w), x @ w
    yield "matmul", (x, w, ["bias", "relu", "scale"], [w[0]], [0.5]), 0.5 * torch.relu(x @ w + w[0])
    yield "matmul", (*parts[:2], ["mul"], parts[2:]), parts[0] @ parts[1] * parts[2]
    yield "matmul", (x, w, ["swiglu"]), F.silu((x @ w)[:, :3]) * (x @ w)[:, 3:]
    yield "linear", (x, w.T.contiguous(), w[0], "gelu"), F.gelu(F.linear(x, w.T, w[0]))
    yield "conv2d", (image, taps, drawn(6), [2], [1]), F.conv2d(image, taps, drawn(6), 2, 1)
    last = image.contiguous(memory_format=torch.channels_last)
    yield "conv2d", (last, taps), F.conv2d(image, taps)
    causal = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    yield "attention", (heads, heads, heads, None, "upper_left"), causal
    yield "softmax", (x,), x.softmax(-1)
    yield "log_softmax", (x.T, 0), x.T.log_softmax(0)
    yield "layer_norm", (x, [8], drawn(8), drawn(8)), F.layer_norm(x, [8], drawn(8), drawn(8))
    yield "rms_norm", (x, [8], drawn(8), 1e-6), F.rms_norm(x, [8], drawn(8), 1e-6)
    yield "max_pool2d", (image, [2]), F.max_pool2d(image, 2)
    yield "avg_pool2d", (image, [3], [2], [1]), F.avg_pool2d(image, 3, 2, 1)
    yield "elementwise", (x, ["add", "tanh"], [x]), torch.tanh(x + x)


CASES = list(cases())


@pytest.mark.parametrize(("name", "args", "expected"), CASES, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(CASES)])
def test_operators_are_right_and_pass_opcheck(ops, name, args, expected):
    operator = getattr(ops, name).default
    found = operator(*args)
    torch.library.opcheck(operator, args)
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if expected.dtype == torch.float16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float16"), ("int8", "int8")], ids=str)
@pytest.mark.parametrize("name", ["matmul", "linear", "conv2d"])
def test_fakes_have_the_dtype_of_the_result(ops, name, dtypes):
    x, w = (drawn(2, 4, 4, 4).to(getattr(torch, each)) for each in dtypes)
    x, w = (x, w) if name == "conv2d" else (x[0, 0], w[0, 0])
    found = getattr(ops, name)(x, w)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = getattr(ops, name)(mode.from_tensor(x), mode.from_tensor(w))
    assert (fake.dtype, fake.shape) == (found.dtype, found.shape)


def test_gradients_are_refused(ops):
    grown = torch.ones(4, 4, requires_grad=True)
    with torch.enable_grad(), pytest.raises(RuntimeError, match="computes no gradients"):
        ops.matmul(grown, torch.ones(4, 4)).sum().backward()


def test_epilogues_that_lack_an_operand_say_so(ops):
    x = torch.ones(4, 4)
    with pytest.raises(ValueError, match=r"\['bias'\] takes 1 tensors, not 0"):
        ops.matmul(x, x, ["bias"])
    with pytest.raises(ValueError, match=r"\['scale'\] takes 1 numbers, not 2"):
        ops.elementwise(x, ["scale"], [], [1.0, 2.0])


class Block(torch.nn.Module):
    """A part of a network that calls our operators."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Parameter(drawn(8, 12)), torch.nn.Parameter(drawn(6, 12))
        self.scale = torch.nn.Parameter(drawn(8))

    def forward(self, x):
        normed = torch.ops.gensor.rms_norm(x, [8], self.scale)
        hidden = torch.ops.gensor.matmul(normed, self.first, ["silu", "scale"], [], [2.0])
        return torch.ops.gensor.softmax(torch.ops.gensor.linear(hidden, self.second, None, "relu")).relu()

    def plain(self, x):
        hidden = 2 * F.silu(F.rms_norm(x, [8], self.scale) @ self.first)
        return F.relu(F.linear(hidden, self.second)).softmax(-1)


def test_exported_programs_hold_them_with_open_sizes_and_come_back():
    block, rows = Block().eval(), torch.export.Dim("rows", min=2)
    program = torch.export.export(block, (drawn(4, 8),), dynamic_shapes=({0: rows},))
    targets = [str(each.target) for each in program.graph.nodes if each.op == "call_function"]
    assert targets[:2] == ["gensor.rms_norm.default", "gensor.matmul.default"]
    (result,) = program.graph.output_node().args[0]
    assert str(result.meta["val"].shape[0]).startswith("s") and result.meta["val"].shape[1] == 6
    model = gensor_kernels.from_torch(program)
    for count in (4, 7):
        x = drawn(count, 8)
        torch.testing.assert_close(model(x), block.plain(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(program.module()(x), block.plain(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "args"), [(n, a) for n, a, _ in CASES if "swiglu" not in str(a)], ids=lambda v: v if type(v) is str else ""
)
def test_every_operator_is_translated(name, args):
    tensors = [each for each in args if isinstance(each, torch.Tensor)]

    class Alone(torch.nn.Module):
        def forward(self, *given):
            rest = iter(given)
            filled = [next(rest) if isinstance(each, torch.Tensor) else each for each in args]
            return getattr(torch.ops.gensor, name)(*filled) * 1

    model = gensor_kernels.from_torch(Alone().eval(), tensors)
    found, expected = model(*tensors), getattr(torch.ops.gensor, name)(*args)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


def test_programs_without_a_translation_name_the_operation():
    class Gated(torch.nn.Module):
        def forward(self, x):
            return torch.ops.gensor.matmul(x, x, ["swiglu"])

    with pytest.raises(ModelError, match="the gate 'swiglu' has no operator of ONNX"):
        gensor_kernels.from_torch(Gated().eval(), drawn(4, 4))
