"""torch.compile(module, backend="gensor"): graphs that kernels serve, and those that run eagerly."""

import copy
import threading
import warnings

import numpy as np
import pytest

import gensor_kernels

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch._dynamo.exc import BackendCompilerFailed  # noqa: E402

from gensor_kernels.torch import gensor  # noqa: E402
from gensor_kernels.torch.served import Served  # noqa: E402
from tests.threads import in_threads  # noqa: E402

nn, F = torch.nn, torch.nn.functional
served_by_kernels = pytest.mark.usefixtures("no_gradients")


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    gensor.reset()
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


@pytest.fixture
def exports(monkeypatch):
    from gensor_kernels.graph.readers import torch_module

    return noted(monkeypatch, torch_module, "export")


@pytest.fixture
def served(monkeypatch):
    from gensor_kernels.torch import served

    return noted(monkeypatch, served.Frozen, "__call__")


def noted(monkeypatch, owner, name):
    """Return a list to which every call of a function adds its result."""
    found, real = [], getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: found.append(real(*args)) or found[-1])
    return found


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def compiled(function):
    return torch.compile(function, backend=gensor)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@served_by_kernels
def test_the_entry_point_names_the_backend():
    from importlib.metadata import entry_points

    (point,) = entry_points(group="torch_dynamo_backends", name="gensor") or [None]
    if point is None:
        pytest.skip("the installed metadata is older than the entry point")
    assert point.load() is gensor and "gensor" in torch._dynamo.list_backends()
    module, x = Small().eval(), torch.randn(3, 8)
    close(torch.compile(module, backend="gensor")(x), module(x))


@served_by_kernels
def test_sizes_share_one_export_and_weights_are_constants(exports, served):
    module = Small().eval()
    fast = compiled(module)
    for rows in (2, 3, 4, 5, 3):
        x = torch.randn(rows, 8)
        close(fast(x), module(x))
    # Dynamo's own: the first size alone, then all sizes
    assert [len(each.graph_signature.user_inputs) for each in exports] == [1, 1] and len(served) == 5


@served_by_kernels
def test_it_is_recorded_and_fused(tmp_path):
    fast = compiled(Small().eval())
    fast(torch.randn(2, 8))
    with gensor_kernels.record(tmp_path / "shapes.csv"), warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(torch.randn(2, 8))
    assert len((tmp_path / "shapes.csv").read_text().splitlines()) == 3  # a header and two products
    with (
        pytest.warns(RuntimeWarning, match="nothing was recorded"),
        gensor_kernels.record(tmp_path / "empty.csv"),
    ):
        Small()(torch.randn(2, 8))


@served_by_kernels
def test_changed_parameters_are_seen():
    module = Small().eval()
    fast, x = compiled(module), torch.randn(3, 8)

    def replace_layer():
        module.second = nn.Linear(16, 4)

    def replace_data():
        module.second.bias.data = torch.ones(4)

    for change in (
        lambda: None,
        lambda: module.first.weight.mul_(2),
        lambda: module.load_state_dict(Small().state_dict()),
        replace_layer,
        replace_data,
    ):
        change()
        close(fast(x), module(x))


@served_by_kernels
def test_buffers_that_change_become_inputs(exports, served):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total += x.sum(0)
            return self.linear(x) + self.total

    module, other = Counting().eval(), Counting().eval()
    other.load_state_dict(module.state_dict())
    fast = compiled(module)
    for _ in range(4):
        x = torch.randn(3, 4)
        close(fast(x), other(x))
        close(module.total, other.total)
    assert len(exports) <= 2 and len(served) == 4


@served_by_kernels
def test_inputs_that_are_changed_in_place_and_results_that_are_views(served):
    def change(x, w):
        x.add_(1)
        return x @ w

    def views(x, w):
        return x @ w, x.view(-1), w

    def shared(x, w):
        y = x @ w
        return y, y.t()

    x, w = torch.randn(4, 8), torch.randn(8, 8)
    mine, other = x.clone(), x.clone()
    close(compiled(change)(mine, w), change(other, w))
    close(mine, other)
    y, flat, same = compiled(views)(x, w)
    assert flat.data_ptr() == x.data_ptr() and same is w
    close(y, x @ w)
    assert len(served) == 2
    with pytest.warns(UserWarning, match="results share memory with each other"):
        y, turned = compiled(shared)(x, w)
    turned.zero_()
    assert not y.any() and len(served) == 2


def copies(x, w):
    y = x + 0
    return x.clone(), y, y.clone(), x.clone().reshape(-1), x[:1].expand(3, 8).clone()


def turned(x, w):
    return (x @ w).transpose(0, 1), (x @ w).permute(1, 0).contiguous(), torch.ones(3) * 2, None, 7


@served_by_kernels
@pytest.mark.parametrize("function", [copies, turned])
def test_results_lie_in_memory_as_pytorchs_and_apart(function, served):
    x, w = torch.randn(4, 8), torch.randn(8, 6)
    wanted = function(x, w)
    for _ in range(2):
        found = compiled(function)(x, w)
        tensors = [each for each in found if isinstance(each, torch.Tensor)]
        assert len({each.data_ptr() for each in (x, *tensors)}) == len(tensors) + 1
        for each, expected in zip(found, wanted, strict=True):
            if not isinstance(each, torch.Tensor):
                assert each == expected
                continue
            close(each, expected)
            assert each.stride() == expected.stride() and each.is_contiguous() == expected.is_contiguous()
            each.zero_()  # the caller's: the next call does not see it
    assert served


@served_by_kernels
def test_graph_breaks_and_numbers_as_arguments():
    def broken(x, factor, name=None):
        y = torch.relu(x) * factor
        if y.sum() > 0:  # a graph break
            y = y + x.shape[0]
        return {"y": y, "n": x.shape[0], "name": name}

    fast = compiled(broken)
    for rows, factor in ((2, 2), (3, 2), (3, 5), (4, 1.5)):
        x = torch.randn(rows, 8)
        found, expected = fast(x, factor, "a"), broken(x, factor, "a")
        close(found.pop("y"), expected.pop("y"))
        assert found == expected


def test_gradients_run_eagerly_with_one_warning():
    module = Small()
    fast, x = compiled(module), torch.randn(3, 8)
    with gensor_kernels.emulated("sm_87"):
        with pytest.warns(UserWarning, match="computes no gradients") as said:
            fast(x).sum().backward()
            fast(torch.randn(5, 8)).sum().backward()
            compiled(Small())(x)
        assert len([each for each in said if "computes no gradients" in str(each.message)]) == 1
        assert module.first.weight.grad is not None
        with torch.no_grad():  # afterwards kernels serve it
            close(fast(x), module(x))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(8))
        self.register_buffer("running_var", torch.ones(8))

    def forward(self, x):
        return F.batch_norm(x, self.running_mean, self.running_var, training=True)


@served_by_kernels
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4)).train(),
        lambda: nn.BatchNorm1d(8).train(),  # alone: another operator that runs eagerly takes the whole graph with it
        lambda: Functional().eval(),
    ],
    ids=["network", "batch norm", "function"],
)
def test_training_mode_is_right(make):
    module = make()
    other = copy.deepcopy(module)
    fast, x = compiled(module), 5 * torch.randn(6, 8)
    for seed in (0, 1):
        torch.manual_seed(seed)
        found = fast(x)
        torch.manual_seed(seed)
        close(found, other(x))
    for mine, true in zip(module.buffers(), other.buffers(), strict=True):
        close(mine, true)


@served_by_kernels
@pytest.mark.parametrize(
    ("function", "x", "reason"),
    [
        (lambda x: x * x, torch.complex(torch.ones(4), torch.ones(4)), ""),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=3), torch.ones(1, 1, 4, 4), ""),
        (lambda x: (F.conv3d(x, x), x.shape[0], 7), torch.ones(2, 2, 3, 3, 3), ""),
        (lambda x: x + 1, torch.ones(3, device="meta"), ""),
        (lambda x: F.cross_entropy(x, torch.arange(4)), torch.eye(4), "SoftmaxCrossEntropyLoss .* is not served"),
    ],
    ids=["complex", "translation", "conv3d", "meta", "unserved"],
)
def test_whatever_fails_runs_eagerly(function, x, reason):
    with pytest.warns(UserWarning, match=f"runs eagerly: .*{reason}"):
        found = compiled(function)(x)
    for mine, true in zip(*map(torch.utils._pytree.tree_leaves, (found, function(x))), strict=True):
        assert type(mine) is type(true) and (not isinstance(mine, torch.Tensor) or mine.dtype == true.dtype)
        if not isinstance(mine, torch.Tensor) or mine.device.type != "meta":
            torch.testing.assert_close(mine, true)


def test_outside_of_emulation_the_hosts_tensors_run_eagerly_with_one_warning():
    module = Small().eval()
    fast, x = compiled(module), torch.randn(3, 8)
    with torch.inference_mode():
        with pytest.warns(UserWarning, match=r"runs eagerly: tensors lie in the memory of cpu; .*emulated") as said:
            close(fast(x), module(x))
            close(fast(x), module(x))
        assert len(said) == 1
        with gensor_kernels.emulated("sm_87"):
            close(fast(x), module(x))


@served_by_kernels
def test_an_exception_of_the_module_is_its_own():
    def look(x, index):
        return F.embedding(index, x) + 1

    fast, x = compiled(look), torch.randn(4, 4)
    close(fast(x, torch.tensor([1, 3])), x[[1, 3]] + 1)
    with pytest.raises(IndexError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast(x, torch.tensor([1, 9]))
    close(fast(x, torch.tensor([0, 2])), x[[0, 2]] + 1)


def test_threads_share_a_graph(exports):
    module = Small().eval()
    fast, right = compiled(module), []
    inputs = [torch.randn(3, 8) for _ in range(4)]

    def work(x):
        with gensor_kernels.emulated("sm_87"), torch.no_grad():
            close(fast(x), module(x))
        right.append(x)

    in_threads(work, inputs)  # Dynamo compiles in several of them, while others export what it has compiled
    count = len(exports)
    in_threads(work, inputs)
    assert 1 <= count == len(exports) and len(right) == 8


def test_dynamo_waits_while_a_program_is_exported():
    """It would trace methods of modules that torch.export replaces, and guard on them."""
    from torch._dynamo.convert_frame import compile_lock

    free = []

    class Looking(nn.Module):
        def forward(self, x):
            other = threading.Thread(target=lambda: free.append(compile_lock.acquire(blocking=False)))
            other.start()
            other.join()
            return x + 1

    gensor_kernels.from_torch(Looking().eval(), torch.ones(3))
    assert free and not any(free)


@served_by_kernels
def test_sixteen_bits_and_autocast():
    module, half = Small().eval(), Small().eval().half()
    fast, x = compiled(module), torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = fast(x), module(x)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(compiled(half)(x.half()), half(x.half()), rtol=1e-2, atol=1e-2)


@served_by_kernels
def test_options_choose_the_precision(served):
    module, x, options = Small().eval(), torch.randn(3, 8), {"dtype": "float16"}
    exact, found = module(x), torch.compile(module, backend=gensor, options=options)(x)
    close(compiled(module)(x), exact)
    changed = x.clone()  # in place, so that AOTAutograd makes the graph functional
    other = torch.compile(lambda y: module(y.add_(1)), backend=gensor, options=options)(changed)
    assert len(served) == 3
    for mine, true in ((found, exact), (changed, x + 1), (other, module(x + 1))):
        assert mine.dtype == torch.float32
        assert 1e-6 < (mine - true).norm() / true.norm() < 2e-3


def test_other_options_are_refused():
    module, x = Small().eval(), torch.randn(3, 8)
    for given, text in (
        ({"options": {"fast": 1}}, "has the options dtype and weights, not 'fast'"),
        ({"options": {"dtype": "float8"}}, "dtype must be None, 'float16' or 'bfloat16', not 'float8'"),
        ({"mode": "max-autotune"}, "has no mode 'max-autotune': leave it out"),
    ):
        with torch.no_grad(), pytest.raises(BackendCompilerFailed, match=text):
            torch.compile(module, backend=gensor, **given)(x)


def test_a_graph_without_tensors_runs_eagerly():
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.ones, (3,)),))
    served = Served(torch.fx.GraphModule({}, graph))
    with gensor_kernels.emulated("sm_87"), pytest.warns(UserWarning, match="no tensor as an input"):
        np.testing.assert_array_equal(served()[0], 1)
