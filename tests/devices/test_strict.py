"""The real CudaDevice over the strict double of the driver: what it refuses, and when faults show.

A kernel's binary is NVRTC's; the emulator runs its launches at the end of their stream's queue.
"""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.devices import cuda, tensor_maps
from gensor_kernels.devices.emulator.run import encode
from gensor_kernels.dispatch.api import current
from gensor_kernels.errors import BuildError
from gensor_kernels.families.core.params import SIZE
from gensor_kernels.families.core.tensor_maps import MAP_BYTES, MAPS_OFFSET, TensorMap, description
from gensor_kernels.machine.arch import archs
from tests.devices.test_tensor_maps import packed

cupy = pytest.importorskip("cupy")
from tests.devices.strict_machine import PART, loaded, make_product, operands, raises, written  # noqa: E402
from tests.doubles.strict.arrays import host  # noqa: E402
from tests.doubles.strict.machine import installed, without_races  # noqa: E402
from tests.doubles.strict.part import listed  # noqa: E402


def test_every_listed_part_is_identified_by_the_device_itself(monkeypatch):
    known = {each.part for each in archs()}
    parts = [row[0] for row in listed("devices.csv") if row[0] in known] + [row[0] for row in listed("orin_modes.csv")]
    assert len(parts) > 50
    for name in dict.fromkeys(parts):
        with installed([name]) as made:
            device = made.device()
            assert device.arch.part == name and not device.unsupported
            assert device.integrated == (device.arch.name == "sm_87") and not device.capturing()
    with installed(["h200"]) as made:
        made.context.part = replace(made.context.part, name="NVIDIA Thor", capability=(11, 0))
        device = made.device()
        assert device.arch is None and "Jetson Thor" in device.unsupported


def test_modules_belong_to_the_device_that_was_current(monkeypatch):
    image = written(capability=(9, 0), specific=True)
    with installed([PART, "h200"]) as machine:
        other = machine.device(1)
        function = loaded(other, image)
        assert machine.system.current.number == 0 and other.arch.part == "h200"
        with raises("INVALID_HANDLE"):
            function(other.local.arguments, (), (), None)
        with machine.cupy.cuda.Device(1):
            function(other.local.arguments, (), (), None)
        monkeypatch.setattr(cuda.CudaDevice, "current", lambda self: nullcontext())
        with pytest.raises(BuildError, match="NO_BINARY_FOR_GPU"):
            loaded(machine.device(1), image)


def test_tensor_maps_are_the_driver_librarys(monkeypatch):
    wanted = description(packed(), TensorMap("a", False, 2, 128))
    with installed(["h200"]):
        assert tensor_maps.encode(wanted) == encode(wanted)
        for wrong in (
            {"address": wanted.address + 8},
            {"box": (64, 300)},
            {"strides": (24, *wanted.strides[1:])},
            {"strides": (0, *wanted.strides[1:])},
        ):
            with pytest.raises(BuildError, match="CUresult 1"):
                tensor_maps.encode(replace(wanted, **wrong))
    with installed([PART]), pytest.raises(BuildError, match="CUresult 801"):
        tensor_maps.encode(wanted)


def test_a_product_is_there_when_its_stream_has_come_so_far(machine, product):
    a, b, exact = operands(machine)
    result = product(a, b)
    launches = [(each.function.name, len(each.parameters)) for each in machine.context.launches]
    assert launches == [("contraction_mma", SIZE), ("contraction_reduce", SIZE)]
    assert np.isnan(host(result)).all()  # nobody has asked yet
    np.testing.assert_array_equal(result.get(), exact)


@pytest.mark.parametrize(("index", "launched"), [(2, "split"), (3, "clusters")])
def test_a_product_of_hoppers_reads_by_the_drivers_tensor_maps(monkeypatch, needs_emulator, index, launched):
    with without_races(monkeypatch, "h200") as hopper:
        product = make_product(hopper, monkeypatch, "h200", "contraction_wgmma", index)
        a, b, exact = operands(hopper)
        np.testing.assert_array_equal(product(a, b).get(), exact)
        first, *others = hopper.context.launches
        assert len(first.parameters) == MAPS_OFFSET + 2 * MAP_BYTES and first.shared_bytes > 48 * 1024
        assert [each.dependent for each in others] == [True] * (launched == "split")
        assert first.function.entry.cluster == (2 if launched == "clusters" else 1)

        def without_maps(self, packed):
            buffer, handle = self._local.arguments
            buffer[:] = bytes(packed).ljust(len(buffer), b"\0")
            return handle

        monkeypatch.setattr(tensor_maps.Mapped, "__call__", without_maps)
        product(a, b)
        with raises("LAUNCH_FAILED"):
            hopper.synchronize()


def test_faults_of_kernels_come_late_and_stay(machine, product):
    a, b, _ = operands(machine)
    product(a, b)
    machine.synchronize()
    device = current.only.device
    beyond = device.borrow(a.data.ptr, (1024, 256), (512, 2), np.float16, a, 0)  # of which 128 rows are there
    result = product(beyond, b)
    assert machine.context.failed is None
    with pytest.raises(device.faults, match=r"ILLEGAL_ADDRESS: .*contraction_mma"):
        device.synchronize()
    for call in (
        lambda: product(a, b),
        lambda: device.synchronize(),
        lambda: machine.cupy.empty((64,), np.float32),
        lambda: loaded(device, written()),
        lambda: machine.cupy.cuda.Event().record(),
    ):
        with pytest.raises((RuntimeError, BuildError), match="ILLEGAL_ADDRESS"):
            call()
    del result
    machine.context.reset()
    assert machine.cupy.asarray(np.arange(3)).get().tolist() == [0, 1, 2]


@pytest.mark.parametrize("ordered", [True, False])
def test_streams_that_do_not_wait_read_too_early(machine, ordered):
    first, second = (machine.cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    values = machine.cupy.empty((4,), np.float32)
    with first:
        values.fill(3)
        written_to = first.record()
    with second:
        if ordered:
            second.wait_event(written_to)
        doubled = values + values
        assert (doubled.get() == 6).all() == ordered


@pytest.mark.parametrize("ordered", [True, False])
def test_memory_that_another_stream_uses_must_not_be_freed(machine, ordered):
    first, second = (machine.cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with first:
        values = machine.cupy.asarray(np.ones(4, np.float32))
        second.wait_event(first.record())
    with second:
        doubled = values + values
    if ordered:
        first.wait_event(second.record())
    del values
    with nullcontext() if ordered else raises("ILLEGAL_ADDRESS"), second:
        assert doubled.get().tolist() == [2, 2, 2, 2]


def test_freed_memory_is_the_next_ones_at_once_in_its_own_stream(machine):
    values = machine.cupy.asarray(np.ones(4, np.float32))
    place, doubled = values.data.ptr, values + values
    del values
    other = machine.cupy.empty((4,), np.float32)
    assert other.data.ptr == place and np.isnan(other.get()).all() and doubled.get().tolist() == [2] * 4
    with machine.cupy.cuda.Stream():
        assert machine.cupy.empty((4,), np.float32).data.ptr not in (place, doubled.data.ptr)
