"""Arrays of other libraries: PyTorch's on the host under `emulated`; stand-ins for those on a GPU without one."""

import sys
from types import ModuleType

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.devices import borrowed
from gensor_kernels.devices.device import reach
from tests.doubles.kernels import kernels, put, runtime_of, workload

cupy = pytest.importorskip("cupy")
from tests.doubles.strict.arrays import host  # noqa: E402
from tests.doubles.strict.capture import GLOBAL  # noqa: E402


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_host_tensors_under_emulation(torch):
    a, b, bias = torch.randn(33, 40), torch.randn(40, 24), torch.randn(24)
    out = torch.empty(33, 24)
    with gensor_kernels.emulated("sm_87"), torch.no_grad():
        assert gensor_kernels.matmul(a, b, out=out) is out
        fused = gensor_kernels.matmul(a, b, epilogue=[("bias", bias), "relu"])
        turned = gensor_kernels.einsum("ij,jk->ki", a, b)
        half = gensor_kernels.matmul(a.bfloat16(), b.bfloat16(), dtype=torch.float32)
        rows = gensor_kernels.softmax(a)
        scaled = gensor_kernels.define("i j, j k -> i k", epilogue=[("bias", "k")])(a, b, bias)
        assert gensor_kernels.explain(gensor_kernels.matmul, a, b).kernel
        assert gensor_kernels.matmul(torch.empty(0, 4), torch.empty(4, 3)).shape == (0, 3)
    for found, expected in (
        (out, a @ b),
        (fused, torch.relu(a @ b + bias)),
        (turned, (a @ b).T),
        (half, a.bfloat16().float() @ b.bfloat16().float()),
        (rows, a.softmax(-1)),
        (scaled, a @ b + bias),
    ):
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_lazy_conjugates_and_bfloat16_results(torch):
    z = torch.randn(8, 8, dtype=torch.complex64)
    h = torch.randn(16, 16).bfloat16()
    with gensor_kernels.emulated("sm_87"):
        product, half = gensor_kernels.matmul(z.conj(), z), gensor_kernels.matmul(h, h.T)
    torch.testing.assert_close(product, z.conj() @ z, rtol=1e-4, atol=1e-4)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), h.float() @ h.T.float(), rtol=2e-2, atol=2e-2)


def test_the_first_array_gives_the_kind(torch):
    a, x = torch.ones(8, 8), np.ones((8, 8), np.float32)
    out = np.empty((8, 8), np.float32)
    with gensor_kernels.emulated("sm_87"):
        assert isinstance(gensor_kernels.matmul(a, x), torch.Tensor)
        assert isinstance(gensor_kernels.matmul(x, a), np.ndarray)
        assert gensor_kernels.matmul(a, a, out=out) is out and out[0, 0] == 8


def test_what_no_kernel_can_see_to_is_said(torch):
    a = torch.ones(8, 8)
    grown = torch.ones(8, 8, requires_grad=True)
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(RuntimeError, match=r"no gradients: call it under torch\.no_grad\(\), or detach"):
            gensor_kernels.matmul(grown, a)
        assert isinstance(gensor_kernels.matmul(grown.detach(), a), torch.Tensor)
        with pytest.raises(TypeError, match=r"layout torch\.sparse_coo is no array"):
            gensor_kernels.matmul(a.to_sparse(), a)
        with pytest.raises(ValueError, match="mismatch in its core dimension"):
            gensor_kernels.matmul(a, torch.ones(7, 8))
        with pytest.raises(TypeError, match="a must be a numpy array, not list"):
            gensor_kernels.matmul([1.0], a)


class Dlpack:
    """An array of a library that speaks DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_objects_give_the_devices_arrays():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    with gensor_kernels.emulated("sm_87"):
        found = gensor_kernels.matmul(Dlpack(x), Dlpack(x.T.copy()))
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, x @ x.T)


# ---- a GPU's tensors, without one


class Tensor:
    """As much of a CUDA tensor as is asked for; `made` of an interface where `as_tensor` gave it.

    `allocate` gives device memory, which is never CuPy's to give to others.
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
        raise TypeError("not asked for")

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
    """Of each call on PyTorch's stream, whether CuPy's own arrays take part."""
    seen, running_on = [], borrowed.running_on

    def spied(cupy, address, number, mixed):
        seen.append(mixed)
        return running_on(cupy, address, number, mixed)

    monkeypatch.setattr(borrowed, "running_on", spied)
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
    """Those of a, b and the result of the launch just made."""
    return [int.from_bytes(orin.calls[-1][-1][at : at + 8], "little") for at in (0, 8, 16)]


def test_a_gpus_tensors_are_read_where_they_lie_on_their_stream(gpu, orin, theirs, mixed):
    a, b = Tensor((64, 64)), Tensor((64, 64))
    found = gensor_kernels.matmul(a, b)
    assert isinstance(found, Tensor) and found.shape == (64, 64) and found.dtype == "torch.float32"
    assert addresses(orin) == [a.address, b.address, found.address] and isinstance(found.made.array, cupy.ndarray)
    assert {each.stream for each in orin.context.launches} == {theirs.ptr} and mixed == [False]
    assert orin.cupy.cuda.get_current_stream().ptr == 0
    assert a.recorded == b.recorded == [theirs.ptr]


def test_a_call_on_a_stream_of_pytorchs_that_records_has_memory_of_its_graph(gpu, orin, theirs):
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
    assert gensor_kernels.matmul(a, a, out=mine) is mine
    assert mixed == [False, True, True, True]


def test_strides_and_types_without_a_word_for_them(gpu):
    a = Tensor((64, 64), "bfloat16", strides=(128, 1))
    found = gensor_kernels.matmul(a, Tensor((64, 64), "bfloat16"))
    assert found.dtype == "torch.bfloat16" and found.made.array.dtype == np.int16  # as it travelled
    with pytest.raises(TypeError, match=r"a tensor of torch\.quint4x2 is no array"):
        gensor_kernels.matmul(Tensor((64, 64), "quint4x2"), a)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_whose_types_need_a_package_name_it(gpu, monkeypatch, dtype):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(gensor_kernels.ToolMissingError) as raised:
        gensor_kernels.matmul(Tensor((64, 64), dtype), Tensor((64, 64), dtype))
    assert str(raised.value) == f"arrays of {dtype} need ml_dtypes: pip install ml-dtypes"


def test_gradients_and_host_tensors_are_refused(gpu, orin, monkeypatch):
    a, host = Tensor((64, 64)), Tensor((64, 64))
    host.is_cuda, host.device = False, "cpu"
    with pytest.raises(TypeError, match=r"a tensor in the memory of cpu: tensor\.cuda\(\) moves it to a GPU"):
        gensor_kernels.matmul(host, a)
    a.requires_grad = True
    with pytest.raises(RuntimeError, match="no gradients"):
        gensor_kernels.matmul(a, a)
    monkeypatch.setattr(sys.modules["torch"], "is_grad_enabled", lambda: False)
    assert isinstance(gensor_kernels.matmul(a, a), Tensor)
    assert len(orin.calls) == 1


class Interface:
    """An array of a library that speaks `__cuda_array_interface__`."""

    def __init__(self, stream=None, **more):
        self.memory = Tensor.allocate(1 << 16)
        self.__cuda_array_interface__ = {
            "shape": (64, 64),
            "typestr": "<f4",
            "data": (self.memory.ptr, False),
            "version": 3,
            "stream": stream,
            **more,
        }


def test_the_interface_of_cuda_arrays(gpu, orin, theirs, mixed):
    with theirs:
        written = orin.cupy.full((4,), 1, np.float32)
    a, wide = Interface(stream=theirs.ptr), Interface(strides=(512, 4))
    found = gensor_kernels.matmul(a, wide)
    assert isinstance(found, cupy.ndarray) and addresses(orin)[:2] == [each.memory.ptr for each in (a, wide)]
    orin.cupy.cuda.get_current_stream().synchronize()
    assert (host(written) == 1).all() and not mixed  # this stream has waited for theirs
    with pytest.raises(TypeError, match="a masked Interface is no array"):
        gensor_kernels.matmul(a, Interface(mask=object()))


def test_calls_of_cupys_arrays_do_not_come_here(gpu, monkeypatch):
    from gensor_kernels.dispatch.api import interop

    monkeypatch.setattr(interop, "_exchange", lambda *arguments: pytest.fail("looked for foreign arrays"))
    mine = cupy.empty((64, 64), np.float32)
    for _ in range(2):
        gensor_kernels.matmul(mine, mine)
        gensor_kernels.einsum("ij,jk->ik", mine, mine)


def test_memory_with_negative_strides_is_borrowed_whole():
    array = borrowed.array(cupy, 0x7E0000000400, (4, 8), (-64, 4), np.float32, None, 0)
    assert array.data.ptr == 0x7E0000000400 and array.strides == (-64, 4)
    assert array.data.mem.ptr == 0x7E0000000400 - 192 and array.data.mem.size == 192 + 32
    assert reach((0, 8), (64, 4), 4) == (0, 0)


class FakeStream:
    """Writes down what is recorded and waited for."""

    def __init__(self, ptr, told):
        self.ptr, self.told = ptr, told

    def record(self):
        self.told.append(("record", self.ptr))
        return self.ptr

    def wait_event(self, event):
        self.told.append(("wait", self.ptr, event))

    def __enter__(self):
        self.told.append(("enter", self.ptr))

    def __exit__(self, *error):
        self.told.append(("leave", self.ptr))


@pytest.mark.parametrize("mixed", [True, False])
def test_streams_wait_for_each_other_where_arrays_are_mixed(monkeypatch, mixed):
    told = []
    fake = ModuleType("cupy")
    fake.cuda = ModuleType("cupy.cuda")
    fake.cuda.Device = lambda number: FakeStream(f"device {number}", told)
    fake.cuda.get_current_stream = lambda: FakeStream(1, told)
    monkeypatch.setattr(borrowed, "stream", lambda cupy, address: FakeStream(address, told))
    with borrowed.running_on(fake, 9, 2, mixed):
        told.append("called")
    within = [("enter", 9), "called", ("leave", 9)]
    if mixed:
        within = [("record", 1), ("wait", 9, 1), *within, ("record", 9), ("wait", 1, 9)]
    assert told == [("enter", "device 2"), *within, ("leave", "device 2")]
    told.clear()
    borrowed.wait_for(fake, 9)
    assert told == [("record", 9), ("wait", 1, 9)]
