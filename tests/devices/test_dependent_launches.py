"""Launches with attributes over the strict double of the driver library: machines without them, and several devices.

tests/driver_standin has their order, streams, threads, Params and tensor maps, with an unchanged CuPy.
"""

from functools import cache

import pytest

from gensor_kernels.devices import driver, tensor_maps
from gensor_kernels.devices.driver import driver_version
from gensor_kernels.dispatch.selection import library
from gensor_kernels.errors import BuildError
from tests.mutator.programs import configurations

cupy = pytest.importorskip("cupy")
from tests.doubles.strict.machine import installed  # noqa: E402
from tests.doubles.strict.stored import cubin  # noqa: E402

PACKED = next(each for each in configurations() if each.name == "packed first")  # split: three launches
TEAM = next(each for each in configurations() if each.group == "recurrent_slices")
EARLY = next(each for each in configurations() if each.candidate.program.get("early"))


def made_launches(each=PACKED):
    made = each.candidate
    return made.family.launches(made.program, each.workload)


def loaded(device, target="sm_90a", each=PACKED):
    source, launches = each.candidate.source(), made_launches(each)
    return device.load(library.code(source, {}, target, cubin(target, source, launches)), launches)


def called(machine):
    return [call[:4] for call in machine.calls]


def expected():
    return [(each.entry, (each.grid,), (each.block,), each.shared_bytes) for each in made_launches()]


def asked(machine):
    return [(each.function.name, each.stream) for each in machine.context.launches if each.dependent]


@cache
def missing_library(name):
    raise OSError(name)


@pytest.mark.parametrize("lacking", ["driver", "library", "function", "arch", "part"])
def test_without_the_feature_cupy_launches_all(monkeypatch, lacking):
    part, version = "orin-nano-super" if lacking == "arch" else "h200", 12020 if lacking == "driver" else 12030
    with installed([part], version) as machine:
        device = machine.device()
        if lacking == "library":
            assert driver_version() == version  # which stays known
            monkeypatch.setattr(driver, "driver_function", missing_library)
        elif lacking == "function":
            machine.lacks("cuLaunchKernelEx")
        elif lacking == "part":
            device.arch = None
        loaded(device, "sm_87" if lacking == "arch" else "sm_90a")(device.local.arguments, (), (), None)
        assert called(machine) == expected() and asked(machine) == []


@pytest.mark.parametrize("lacks", [(), ("cuLaunchKernelEx",)])
def test_blocks_that_all_wait_for_one_another_start_together(lacks):
    with installed(["orin-nano-super"]) as machine:
        machine.lacks(*lacks)  # then CuPy launches
        device = machine.device()
        loaded(device, "sm_87", TEAM)(device.local.arguments, (), (), None)
        (made,) = machine.context.launches
        assert made.together and made.blocks > 1 and not made.dependent


def test_a_missing_driver_has_no_version():
    with installed() as machine:
        machine.lacks("cuDriverGetVersion", "cuTensorMapEncodeTiled")
        assert driver_version() == 0
        with pytest.raises(BuildError, match="encodes no tensor maps"):
            tensor_maps._driver_function("cuTensorMapEncodeTiled")


def test_a_call_of_one_early_launch_does_not_wait_for_the_launch_before():
    with installed(["h200"], 12030) as machine:
        device = machine.device()
        loaded(device, each=EARLY)(device.local.arguments, (), (), None)
        assert asked(machine) == [("gemv", 0)]


def test_each_device_launches_its_own_functions(monkeypatch):
    with installed(["h200"] * 2, 12030) as two:
        devices = [two.device(number) for number in range(2)]
        for number, (device, launch) in enumerate([(device, loaded(device)) for device in devices]):
            with two.cupy.cuda.Device(number):
                launch(device.local.arguments, (), (), None)
                assert called(two) == expected()
                assert asked(two) == [("contraction_packed", 0), ("contraction_reduce", 0)]
