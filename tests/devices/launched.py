"""Launches that reach the driver, as JSON: `python -m tests.devices.launched`, without a GPU."""

import ctypes
import json
import threading

from gensor_kernels.programs.core import params
from tests.doubles.driver_double import Driver

driver = Driver(params.SIZE)
driver.install()

import cupy  # noqa: E402
import numpy as np  # noqa: E402

import gensor_kernels  # noqa: E402
from gensor_kernels.devices import cuda, cupy_internals  # noqa: E402
from gensor_kernels.dispatch.selection import library  # noqa: E402
from gensor_kernels.operators.types.geometry import Geometry, Strides  # noqa: E402
from gensor_kernels.programs.core.family import Launch  # noqa: E402
from gensor_kernels.programs.core.params import Tiling  # noqa: E402
from gensor_kernels.programs.core.tensor_maps import MAPS_OFFSET, TensorMap  # noqa: E402
from tests.doubles.fake_cuda import allocator  # noqa: E402
from tests.mutator.programs import configurations  # noqa: E402
from tests.threads import in_threads  # noqa: E402

IMAGE = b"\x7fELF image"
#: Of `cupy.cuda.Device.attributes`, whose names CuPy takes from CUDA's enumeration.
ATTRIBUTES = (
    "ClockRate",
    "GlobalMemoryBusWidth",
    "Integrated",
    "L2CacheSize",
    "MemoryClockRate",
    "MultiProcessorCount",
)

PACKED = next(each for each in configurations() if each.name == "packed first")
LAUNCHES = PACKED.candidate.family.launches(PACKED.candidate.program, PACKED.workload)


def loaded(device, launches):
    """The Launcher of these launches; the driver takes any image."""
    return device.load(library.code(PACKED.candidate.source(), {}, "sm_90a", IMAGE), launches)


def several(device):
    """Three launches of one call, of which two are dependent, from a thread's Params and from Params of a Plan's."""
    launch = loaded(device, LAUNCHES)
    buffer, _ = device.local.arguments
    buffer[:] = bytes(index % 251 for index in range(params.SIZE))
    launch(device.local.arguments, (), (), None)
    words, given = device.ready(bytes(params.SIZE))
    words[1] = 0x1234567890ABCDEF
    launch((words, given), (), (), None)
    asked = [
        [each.entry, [each.grid, 1, 1], [each.block, 1, 1], each.shared_bytes, each.dependent] for each in LAUNCHES
    ]
    return {"asked": asked, "params": [bytes(buffer).hex(), words.tobytes().hex()], "launches": driver.launches[:]}


def mapped(device):
    """A launch with a tensor map behind Params, on a grid that is walked, with more shared memory than is plain."""
    maps = (TensorMap("a", False, 2, 64),)
    launch = loaded(device, [Launch("mapped", 500, 128, 100_000, maps, per_sm=2, cluster=2)])
    buffer, _ = device.local.arguments
    a = Strides((0, 0, 0), 64, 1)
    buffer[:] = params.pack(Geometry((64, 64, 64), a=a), Tiling(1, 1, 1, 64, 1), pointers=(256, 512, 768))
    launch(device.local.arguments, (), (), None)
    (asked,) = driver.launches
    found = ctypes.string_at(asked["at"] + MAPS_OFFSET, 128).hex()
    return {"params": bytes(buffer).hex(), "map": found, "allowed": driver.allowed["mapped"], "launches": [asked]}


def streams(device):
    """Launches on the default stream, the thread's own, and one of another library's."""
    launch = loaded(device, LAUNCHES[:2])
    for address in (0, 1, 2, 0x5000):
        with cupy_internals.stream(cupy, address):
            launch(device.local.arguments, (), (), None)
    launch(device.local.arguments, (), (), None)
    return [each["stream"] for each in driver.launches]


def threads(device):
    """(thread, turn) as found in the Params of launches by eight threads, each with its own Params."""
    launch, barrier = loaded(device, [Launch("contraction_simt", 3, 128, 0)]), threading.Barrier(8)

    def work(number):
        arguments = device.local.arguments
        barrier.wait()
        for turn in range(20):
            arguments[0][:2] = bytes([number, turn])
            launch(arguments, (), (), None)

    in_threads(work, range(8))
    return sorted([*bytes.fromhex(each["passed"])[:2]] for each in driver.launches)


def warm(device):
    """How many handles a thread's and a Plan's launches make, beyond one for each buffer."""
    launch, made, struct = loaded(device, [Launch("contraction_simt", 3, 128, 0)]), [], cupy_internals._Struct
    cupy_internals._Struct = lambda address: made.append(address) or struct(address)
    ready = device.ready(bytes(params.SIZE))
    first = len(made)
    for _ in range(10):
        launch(device.local.arguments, (), (), None)
        launch(ready, (), (), None)
    cupy_internals._Struct = struct
    return {"first": first, "all": len(made), "launches": len(driver.launches)}


def refused(device):
    """What a launch raises that the driver refuses, with attributes and without."""
    found = []
    for index in (0, 1):
        launch = loaded(device, LAUNCHES[index : index + 1])
        driver.refuses = True
        try:
            launch(device.local.arguments, (), (), None)
        except device.refusals as error:
            found.append([str(error), cupy_internals.raised_by_cupy(error)])
        finally:
            driver.refuses = False
    return found


def public(device):
    """`gensor_kernels.matmul` from end to end, called three times."""
    cupy.cuda.set_allocator(allocator())
    a, b, out = (cupy.empty((64, 64), np.float32) for _ in range(3))
    for _ in range(3):
        assert gensor_kernels.matmul(a, b, out=out) is out
    return {"pointers": [each.data.ptr for each in (a, b, out)], "launches": driver.launches[:]}


def state(device):
    """What CuPy says of the device, of its streams, and of its switch for TF32."""
    said = {"part": device.arch.part, "integrated": device.integrated, "capturing": [device.capturing()]}
    said["attributes"] = {name: cupy.cuda.Device(0).attributes.get(name) for name in ATTRIBUTES}
    driver.capturing = True
    said["capturing"].append(device.capturing())
    driver.capturing = False
    said["tf32"] = [device.tf32()]
    for on in (True, False):
        device._set_switch(on)
        said["tf32"].append(device.tf32())
    return said


def main():
    device = cuda.CudaDevice(0)
    found = {"cupy": cupy.__version__, "numpy": np.__version__}
    for scenario in (several, mapped, streams, threads, warm, refused, state, public):
        driver.launches.clear()
        found[scenario.__name__] = scenario(device)
    print(json.dumps(found | {"images": [each.hex() for each in driver.images]}))


if __name__ == "__main__":
    main()
