"""Dependent launches as the driver library gets them, over a fake one: order, configuration, streams, fallbacks."""

import threading
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gensor_kernels.devices import cuda, dependent, tensor_maps
from gensor_kernels.devices.driver import driver_function, driver_version
from gensor_kernels.dispatch.selection import library
from gensor_kernels.errors import BuildError
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.programs.core import params
from gensor_kernels.programs.core.family import Launch
from gensor_kernels.programs.core.params import Tiling
from gensor_kernels.programs.core.tensor_maps import MAPS_OFFSET, TensorMap
from tests.mutator.programs import configurations

cupy = pytest.importorskip("cupy")
from tests.doubles.fake_cuda import FakeCudaDevice, FakeFunction, FakeLaunchKernelEx  # noqa: E402
from tests.threads import in_threads  # noqa: E402

PACKED = next(each for each in configurations() if each.name == "packed first")  # split: three launches


@pytest.fixture
def streams(monkeypatch):
    """The address of each thread's current stream."""
    local = threading.local()
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda: SimpleNamespace(ptr=getattr(local, "stream", 0)))
    return local


@pytest.fixture
def driver(fake_cupy, monkeypatch, streams):
    """A driver of CUDA 12.3."""
    fake = FakeLaunchKernelEx()
    monkeypatch.setattr(dependent, "driver_function", {"cuLaunchKernelEx": fake}.__getitem__)
    monkeypatch.setattr(dependent, "driver_version", lambda: 12030)
    return fake


def made_launches():
    made = PACKED.candidate
    return made.family.launches(made.program, PACKED.workload)


def loaded(device):
    made = PACKED.candidate
    code = library.code(made.source(), {}, "sm_90a", b"\x7fELF")
    return device.load(code, made_launches())


def called():
    return [call[:4] for call in FakeFunction.calls]


def expected():
    return [(each.entry, (each.grid,), (each.block,), each.shared_bytes) for each in made_launches()]


def dependent_ones(stream=0):
    """Return the requests of one call to the driver library."""
    return [("contraction_packed", stream), ("contraction_reduce", stream)]


def test_all_launches_but_the_first_are_dependent_and_made_in_order(driver, streams):
    device, streams.stream = FakeCudaDevice(), 77
    buffer, _ = device.local.arguments
    buffer[:4] = b"abcd"
    launch = loaded(device)
    launch(device.local.arguments, (), (), None)
    assert called() == expected() and len(called()) == 3
    assert driver.asked == dependent_ones(77)
    assert {call[4][:4] for call in FakeFunction.calls} == {b"abcd"} and len(set(FakeFunction.addresses)) == 1
    streams.stream = 78  # for any stream that is current at the call
    launch(device.local.arguments, (), (), None)
    assert driver.asked[2:] == dependent_ones(78) and called() == 2 * expected()


def test_params_of_a_plans_own_arrive_too(driver):
    device = FakeCudaDevice()
    words, given = device.ready(bytes(params.SIZE))
    words[0] = 99
    loaded(device)((words, given), (), (), None)
    assert called() == expected() and {call[4][0] for call in FakeFunction.calls} == {99}
    assert set(FakeFunction.addresses) == {words.buffer_info()[0]}


def test_threads_launch_on_their_own_streams(driver, streams):
    device, barrier = FakeCudaDevice(), threading.Barrier(8)
    launch = loaded(device)

    def work(number):
        streams.stream = number
        barrier.wait()
        for _ in range(50):
            launch(device.local.arguments, (), (), None)

    in_threads(work, (1 + number for number in range(8)))
    assert sorted(driver.asked) == sorted(50 * [each for i in range(8) for each in dependent_ones(1 + i)])


def test_a_refused_launch_is_made_by_cupy(driver):
    driver.status = 801  # CUDA_ERROR_NOT_SUPPORTED
    device = FakeCudaDevice()
    loaded(device)(device.local.arguments, (), (), None)
    assert called() == expected() and driver.asked == dependent_ones()


@pytest.mark.parametrize("lacking", ["driver", "function", "library", "arch", "part"])
def test_without_the_feature_cupy_launches_all(driver, monkeypatch, lacking):
    device = FakeCudaDevice("orin-nano-super" if lacking == "arch" else "h200")
    if lacking == "driver":
        monkeypatch.setattr(dependent, "driver_version", lambda: 12020)
    elif lacking in ("function", "library"):

        def missing(name):
            raise AttributeError(name) if lacking == "function" else OSError(name)

        monkeypatch.setattr(dependent, "driver_function", missing)
    elif lacking == "part":
        device.arch = None
    loaded(device)(device.local.arguments, (), (), None)
    assert called() == expected() and driver.asked == []


def test_a_missing_driver_has_no_version():
    driver_version.cache_clear()
    try:
        driver_function("cuDriverGetVersion")
    except (OSError, AttributeError):
        assert driver_version() == 0
    else:
        assert driver_version() >= 11000
    finally:
        driver_version.cache_clear()
    with pytest.raises((OSError, AttributeError)):
        driver_function("cuNoSuchFunction")
    with pytest.raises(BuildError, match="encodes no tensor maps"):
        tensor_maps._driver_function("cuNoSuchFunction")


def test_maps_and_grids_that_are_walked_arrive_as_with_cupy(driver, monkeypatch):
    monkeypatch.setattr(tensor_maps, "_driver_function", lambda name: lambda place, *rest: 0)
    device = FakeCudaDevice()
    launches = [
        Launch("front", 3, 128, 0),
        Launch("behind!", 500, 32, 1000, (TensorMap("a", False, 2, 64),), per_sm=2, cluster=2, dependent=True),
    ]
    functions = [dependent.started(FakeFunction(each.entry), each, device.arch, device._stream) for each in launches]
    assert isinstance(functions[0], FakeFunction)
    buffer, _ = device.local.arguments
    a = Strides((0, 0, 0), 64, 1)
    buffer[:] = params.pack(Geometry((64, 64, 64), a=a), Tiling(1, 1, 1, 64, 1), pointers=(256, 512, 768))
    cuda._mapped(list(zip(functions, launches, strict=True)), device._handle, 132)(device.local.arguments, (), (), None)
    assert called() == [("front", (3,), (128,), 0), ("behind!", (264,), (32,), 1000)]
    assert [call[4] for call in FakeFunction.calls] == [bytes(buffer)] * 2 and driver.asked == [("behind!", 0)]
    assert FakeFunction.addresses[0] != FakeFunction.addresses[1] and MAPS_OFFSET >= params.SIZE


def test_each_device_launches_its_own_functions(driver, monkeypatch):
    one, other = FakeCudaDevice(), FakeCudaDevice()
    other.arch = replace(lookup("h200"), sms=1)
    monkeypatch.setattr(other, "current", nullcontext)
    first, second = (loaded(each) for each in (one, other))
    first(one.local.arguments, (), (), None)
    second(other.local.arguments, (), (), None)
    assert called() == 2 * expected() and driver.asked == 2 * dependent_ones()
