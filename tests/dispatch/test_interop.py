"""Arrays of other libraries: PyTorch's on the host under `emulated`, and stand-ins for tensors of a GPU."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.devices.cuda import CudaDevice
from gensor_kernels.devices.device import reach
from gensor_kernels.dispatch.api import interop
from tests.doubles.kernels import kernels, put, runtime_of, workload

cupy = pytest.importorskip("cupy")
from tests.doubles.strict.arrays import host  # noqa: E402
from tests.doubles.strict.capture import GLOBAL  # noqa: E402


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_host_tensors_under_emulation(torch):
    a, b, bias = torch.randn(33, 40), torch.randn(40, 24), torch.randn(24)
    h, z = torch.randn(16, 16).bfloat16(), torch.randn(8, 8, dtype=torch.complex64)
    out, ours = torch.empty(33, 24), np.empty((33, 24), np.float32)
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        assert gensor_kernels.matmul(a, b, out=out) is out and gensor_kernels.matmul(a, b, out=ours) is ours
        pairs = [
            (out, a @ b),
            (gensor_kernels.matmul(a, b, epilogue=[("bias", bias), "relu"]), torch.relu(a @ b + bias)),
            (gensor_kernels.einsum("ij,jk->ki", a, b), (a @ b).T),
            (gensor_kernels.matmul(h, h.T, dtype=torch.float32), h.float() @ h.T.float()),
            (gensor_kernels.softmax(a), a.softmax(-1)),
            (gensor_kernels.define("i j, j k -> i k", epilogue=[("bias", "k")])(a, b, bias), a @ b + bias),
            (gensor_kernels.matmul(z.conj(), z), z.conj() @ z),
            (gensor_kernels.matmul(a, b.numpy()), a @ b),
        ]
        assert gensor_kernels.matmul(h, h.T).dtype == torch.bfloat16
        assert gensor_kernels.explain(gensor_kernels.matmul, a, b).kernel
        assert gensor_kernels.matmul(torch.empty(0, 4), torch.empty(4, 3)).shape == (0, 3)
        assert isinstance(gensor_kernels.matmul(a.numpy(), b), np.ndarray)  # the first array's kind
    for found, expected in pairs:
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["float4_e2m1fn_x2", "float8_e8m0fnu"])
def test_tensors_of_block_scaled_formats_are_bytes(name):
    memory, no = np.arange(24, dtype=np.uint8).reshape(4, 6), bool
    tensor = SimpleNamespace(
        **{"dtype": f"torch.{name}", "shape": (4, 3), "is_cuda": False, "is_conj": no, "is_neg": no},
        stride=lambda: (6, 2),
        data_ptr=lambda: memory.ctypes.data,
    )
    with gensor_kernels.emulated("sm_87"):
        found = interop._of_tensor(tensor, interop.current.current_runtime().device)
    np.testing.assert_array_equal(found, memory[:, ::2])
    assert found.dtype == np.uint8


def test_refused_tensors(torch):
    a = torch.ones(8, 8)
    grown = torch.ones(8, 8, requires_grad=True)
    with gensor_kernels.emulated("sm_87"):
        assert isinstance(gensor_kernels.matmul(grown.detach(), a), torch.Tensor)
        for call, error, words in (
            (lambda: gensor_kernels.matmul(grown, a), RuntimeError, r"call it under torch\.no_grad\(\), or detach"),
            (lambda: gensor_kernels.matmul(a.to_sparse(), a), TypeError, r"layout torch\.sparse_coo is no array"),
            (lambda: gensor_kernels.matmul(a, torch.ones(7, 8)), ValueError, "mismatch in its core dimension"),
            (lambda: gensor_kernels.matmul([1.0], a), TypeError, "a must be a numpy array, not list"),
        ):
            with pytest.raises(error, match=words):
                call()


class Exporter:
    """An object with DLPack alone; NumPy 1.26 looks the methods up on its type."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_objects_give_the_devices_arrays():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.matmul(Exporter(x), Exporter(x.T.copy()))
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, x @ x.T)


# ---- tensors of a GPU, without a GPU


class Tensor:
    """The attributes of a CUDA tensor that are used; `made` is the interface that `as_tensor` was given.

    `allocate` gives device memory that CuPy's pool does not reuse.
    """

    is_cuda, layout, requires_grad, allocate = True, "torch.strided", False, None

    def __init__(self, shape, dtype="float32", address=None, strides=None, made=None, index=0):
        self.shape, self.dtype, self.made = tuple(shape), f"torch.{dtype}", made
        self.steps = strides or tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
        self.memory = None if address else Tensor.allocate(1 << 16)
        self.address, self.recorded = address or self.memory.ptr, []
        self.device = type("device", (), {"index": index})()

    @property
    def __cuda_array_interface__(self):
        raise TypeError("unexpected")

    def stride(self):
        return self.steps

    def data_ptr(self):
        return self.address

    def is_conj(self):
        return False

    is_neg = is_conj

    def record_stream(self, stream):
        self.recorded.append(stream.cuda_stream)

    def view(self, dtype):
        return Tensor(self.shape, dtype, self.address, self.steps, self.made)


@pytest.fixture
def theirs(orin):
    """PyTorch's current stream, which waits for no other."""
    return orin.cupy.cuda.Stream(non_blocking=True)


@pytest.fixture
def mixed(monkeypatch):
    """A list with an entry per call on PyTorch's stream: whether arrays of CuPy take part."""
    seen, running_on = [], CudaDevice.running_on

    def spied(device, address, number, mixed):
        seen.append(mixed)
        return running_on(device, address, number, mixed)

    monkeypatch.setattr(CudaDevice, "running_on", spied)
    return seen


@pytest.fixture
def gpu(orin, theirs, monkeypatch):
    """A Runtime with kernels of float32 and bfloat16 products over the strict double, and a stand-in for PyTorch."""

    def as_tensor(interface, device):
        facts = interface.__cuda_array_interface__
        size = np.dtype(facts["typestr"]).itemsize
        steps = tuple(step // size for step in facts["strides"])
        name = np.dtype(facts["typestr"]).name
        return Tensor(facts["shape"], name, facts["data"][0], steps, interface, device.index)

    stand_in = ModuleType("torch")
    stand_in.Tensor, stand_in.as_tensor, stand_in.is_grad_enabled = Tensor, as_tensor, lambda: True
    stand_in.bfloat16 = "bfloat16"
    stand_in.cuda = ModuleType("torch.cuda")
    stand_in.cuda.current_stream = lambda device: type("Stream", (), {"cuda_stream": theirs.ptr})()
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    monkeypatch.setattr(Tensor, "allocate", orin.pool)
    stored = kernels(workload(64, 64, 64)) | kernels(workload(64, 64, 64, dtype="bfloat16"))
    return put(monkeypatch, runtime_of(orin.device(), stored))


def addresses(orin):
    """The addresses of a, b and the result of the last launch."""
    return [int.from_bytes(orin.calls[-1][-1][at : at + 8], "little") for at in (0, 8, 16)]


def test_tensors_are_read_in_place_on_their_stream(gpu, orin, theirs, mixed):
    a, b = Tensor((64, 64)), Tensor((64, 64))
    pending = orin.cupy.full((64, 64), 1, np.float32)
    found = gensor_kernels.matmul(a, b)
    theirs.synchronize()
    assert np.isnan(host(pending)).all()  # it has not waited for CuPy's stream
    assert isinstance(found, Tensor) and found.shape == (64, 64) and found.dtype == "torch.float32"
    assert addresses(orin) == [a.address, b.address, found.address] and isinstance(found.made.array, cupy.ndarray)
    assert {each.stream for each in orin.context.launches} == {theirs.ptr} and mixed == [False]
    assert orin.cupy.cuda.get_current_stream().ptr == 0
    assert a.recorded == b.recorded == [theirs.ptr]


def test_a_call_in_a_capture_of_pytorch_keeps_its_memory_with_the_graph(gpu, orin, theirs):
    a = Tensor((64, 64))
    gensor_kernels.matmul(a, a)  # before the capture
    theirs.begin_capture(GLOBAL)  # on PyTorch's stream, not on CuPy's, in PyTorch's mode
    found = gensor_kernels.matmul(a, a)
    graph = theirs.end_capture()
    assert isinstance(found, Tensor) and len(graph.graph.retained) == 1
    del found
    others = orin.pool.everything()
    graph.launch()
    orin.synchronize()
    theirs.synchronize()
    assert others is not None


def test_out_of_the_same_kind_and_mixed_calls(gpu, orin, theirs, mixed):
    a, out = Tensor((64, 64)), Tensor((64, 64))
    assert gensor_kernels.matmul(a, a, out=out) is out and addresses(orin)[2] == out.address and out.recorded
    mine = orin.cupy.full((64, 64), 1, np.float32)
    assert isinstance(gensor_kernels.matmul(a, mine), Tensor)
    theirs.synchronize()
    assert (host(mine) == 1).all()  # their stream has waited for CuPy's
    assert isinstance(gensor_kernels.matmul(mine, a), cupy.ndarray)
    with theirs:
        written = orin.cupy.full((64, 64), 1, np.float32)
    assert gensor_kernels.matmul(a, a, out=mine) is mine
    orin.cupy.cuda.get_current_stream().synchronize()
    assert (host(written) == 1).all()  # CuPy's stream has waited for theirs
    assert mixed == [False, True, True, True]


def test_types_without_a_cupy_dtype_and_refused_tensors(gpu, orin, monkeypatch):
    a, half, host = Tensor((64, 64)), Tensor((64, 64), "bfloat16", strides=(128, 1)), Tensor((64, 64))
    found = gensor_kernels.matmul(half, Tensor((64, 64), "bfloat16"))
    assert found.dtype == "torch.bfloat16" and found.made.array.dtype == np.int16  # the type that is exchanged
    host.is_cuda, host.device = False, "cpu"
    grown = Tensor((64, 64))
    grown.requires_grad = True
    masked = SimpleNamespace(__cuda_array_interface__={**interface(a.memory.ptr), "mask": object()})
    for first, error, words in (
        (Tensor((64, 64), "quint4x2"), TypeError, r"a tensor of torch\.quint4x2 is no array"),
        (host, TypeError, r"a tensor in the memory of cpu: tensor\.cuda\(\) moves it to a GPU"),
        (grown, RuntimeError, "no gradients"),
        (masked, TypeError, "a masked SimpleNamespace is no array"),
    ):
        with pytest.raises(error, match=words):
            gensor_kernels.matmul(first, a)
    monkeypatch.setattr(sys.modules["torch"], "is_grad_enabled", lambda: False)
    assert isinstance(gensor_kernels.matmul(grown, a), Tensor) and len(orin.calls) == 2
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        with pytest.raises(gensor_kernels.ToolMissingError) as raised:
            gensor_kernels.matmul(Tensor((64, 64), dtype), a)
        assert str(raised.value) == f"arrays of {dtype} need ml_dtypes: pip install ml-dtypes"


def interface(address, **more):
    facts = {"shape": (64, 64), "typestr": "<f4", "data": (address, False), "version": 3, "stream": None}
    return {**facts, **more}


def test_the_interface_of_cuda_arrays(gpu, orin, theirs, mixed):
    with theirs:
        written = orin.cupy.full((4,), 1, np.float32)
    memory = [orin.pool(1 << 16) for _ in range(2)]
    options = {"stream": theirs.ptr}, {"strides": (512, 4)}
    arrays = [
        SimpleNamespace(__cuda_array_interface__=interface(each.ptr, **more))
        for each, more in zip(memory, options, strict=True)
    ]
    found = gensor_kernels.matmul(*arrays)
    assert isinstance(found, cupy.ndarray) and addresses(orin)[:2] == [each.ptr for each in memory]
    orin.cupy.cuda.get_current_stream().synchronize()
    assert (host(written) == 1).all() and not mixed  # this stream has waited for theirs


def test_calls_with_cupys_arrays_skip_the_exchange(gpu, monkeypatch):
    monkeypatch.setattr(interop, "_exchange", lambda *arguments: pytest.fail("looked for foreign arrays"))
    mine = cupy.empty((64, 64), np.float32)
    for _ in range(2):
        gensor_kernels.matmul(mine, mine)
        gensor_kernels.einsum("ij,jk->ik", mine, mine)


def test_memory_with_negative_strides_is_borrowed_whole():
    gpu = SimpleNamespace(cupy=cupy)
    array = CudaDevice.borrow(gpu, 0x7E0000000400, (4, 8), (-64, 4), np.float32, None, 0)
    assert array.data.ptr == 0x7E0000000400 and array.strides == (-64, 4)
    assert array.data.mem.ptr == 0x7E0000000400 - 192 and array.data.mem.size == 192 + 32
    assert reach((0, 8), (64, 4), 4) == (0, 0)
