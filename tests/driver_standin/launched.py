"""Launches that reach the driver, as JSON: `python -m tests.driver_standin.launched [SCENARIO ...]`."""

import json
import platform
import re
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

from tests.driver_standin.runtime import Runtime, allocator

runtime = Runtime()
runtime.install()

import cupy  # noqa: E402
import numpy as np  # noqa: E402

import gensor_kernels  # noqa: E402
from gensor_kernels.devices import cuda, cupy_internals  # noqa: E402
from gensor_kernels.errors import BuildError  # noqa: E402
from gensor_kernels.operators.types.geometry import Geometry, Strides  # noqa: E402
from gensor_kernels.programs.core import params  # noqa: E402
from gensor_kernels.programs.core.params import Tiling  # noqa: E402
from tests.driver_standin.host_device import maps_of  # noqa: E402
from tests.driver_standin.library import Calls, become, refuse  # noqa: E402
from tests.driver_standin.planted import ARGUMENTS, BUGS  # noqa: E402
from tests.driver_standin.stored import Stored, stored  # noqa: E402
from tests.threads import in_threads  # noqa: E402

#: Of `cupy.cuda.Device.attributes`, whose names CuPy takes from CUDA's enumeration.
ATTRIBUTES = (
    "ClockRate",
    "GlobalMemoryBusWidth",
    "Integrated",
    "L2CacheSize",
    "MemoryClockRate",
    "MultiProcessorCount",
)

KERNELS = list(stored("sm_90"))
calls = Calls()


def kernel(family: str, launches: int = 1, maps: int = 0, cluster: bool = False) -> Stored:
    """Return a stored kernel of a family, and of a form of launch."""
    for each in KERNELS:
        found = (
            len(each.launches),
            max(len(one.maps) for one in each.launches),
            any(one.cluster > 1 for one in each.launches),
        )
        if each.family == family and found == (launches, maps, cluster):
            return each
    raise LookupError(family)


SEVERAL, ONE = kernel("contraction_packed", 3), kernel("contraction_simt")


def several(device):
    """Three launches of one call, of which two are dependent, from a thread's Params and from Params of a Plan's."""
    launch = device.load(SEVERAL.code, SEVERAL.launches)
    buffer, _ = device.local.arguments
    buffer[:] = bytes(index % 251 for index in range(params.SIZE))
    launch(device.local.arguments, (), (), None)
    words, given = device.ready(bytes(params.SIZE))
    words[1] = 0x1234567890ABCDEF
    launch((words, given), (), (), None)
    asked = [
        [each.entry, [each.grid, 1, 1], [each.block, 1, 1], each.shared_bytes, [6, 1] if each.dependent else None]
        for each in SEVERAL.launches
    ]
    return {"asked": asked, "params": [bytes(buffer).hex(), words.tobytes().hex()], "launches": calls.launches()}


def mapped(device):
    """A launch with two tensor maps behind Params, on a grid that is walked, with more shared memory than is plain."""
    chosen = kernel("contraction_wgmma", maps=2, cluster=True)
    launch = device.load(chosen.code, chosen.launches)
    buffer, _ = device.local.arguments
    lines = Strides((0, 0, 0), 64, 64)  # a map is of lines, whichever they are, whose elements are adjacent
    buffer[:] = params.pack(Geometry((64, 64, 64), a=lines, b=lines), Tiling(1, 1, 1, 64, 1), pointers=(256, 512, 768))
    launch(device.local.arguments, (), (), None)
    made = calls.take()
    (asked,) = (each for each in made if each["call"] == "cuLaunchKernel")
    found = {"params": bytes(buffer).hex(), "launch": asked, "grid": chosen.launches[0].blocks(device.arch.sms)}
    found["elements"] = [each.element for each in chosen.launches[0].maps]
    found["maps"] = [[each.address, *each.box] for each in maps_of(bytes.fromhex(asked["passed"]))]
    found["encoded"] = [each["map"] for each in made if each["call"] == "cuTensorMapEncodeTiled"]
    found["allowed"] = [[each["attribute"], each["value"]] for each in made if each["call"] == "cuFuncSetAttribute"]
    return found


def streams(device):
    """Launches on the default stream, the thread's own, and one of another library's."""
    launch = device.load(SEVERAL.code, SEVERAL.launches[:2])
    for address in (0, 1, 2, 0x5000):
        with cupy_internals.stream(cupy, address):
            launch(device.local.arguments, (), (), None)
    launch(device.local.arguments, (), (), None)
    return [each["stream"] for each in calls.launches()]


def threads(device):
    """(thread, turn) as found in the Params of launches by eight threads, each with its own Params."""
    launch, barrier = device.load(ONE.code, ONE.launches), threading.Barrier(8)

    def work(number):
        arguments = device.local.arguments
        barrier.wait()
        for turn in range(20):
            arguments[0][:2] = bytes([number, turn])
            launch(arguments, (), (), None)

    in_threads(work, range(8))
    return sorted([*bytes.fromhex(each["passed"])[:2]] for each in calls.launches())


def warm(device):
    """How many handles a thread's and a Plan's launches make, beyond one for each buffer."""
    launch, made, struct = device.load(ONE.code, ONE.launches), [], cupy_internals._Struct
    cupy_internals._Struct = lambda address: made.append(address) or struct(address)
    ready = device.ready(bytes(params.SIZE))
    first = len(made)
    for _ in range(10):
        launch(device.local.arguments, (), (), None)
        launch(ready, (), (), None)
    cupy_internals._Struct = struct
    return {"first": first, "all": len(made), "launches": len(calls.launches())}


def refused(device):
    """What a launch raises that the driver refuses, with attributes and without, and what reached the driver."""
    found = []
    for index in (0, 1):
        launch = device.load(SEVERAL.code, SEVERAL.launches[index : index + 1])
        calls.take()
        refuse("launch", 701)
        try:
            launch(device.local.arguments, (), (), None)
        except device.refusals as error:
            tried = [each["call"] for each in calls.take()]
            found.append([str(error), cupy_internals.raised_by_cupy(error), tried])
        finally:
            refuse("launch", 0)
    return found


def refusals(device):
    """What `load` says of code that the driver does not take, where nothing is compiled."""
    device.compiles = False
    other = next(iter(stored("sm_80")))
    simt = ONE.launches[0]
    cases = {
        "no image": (replace(ONE.code, digest="1", cubin=b"no cubin"), ONE.launches),
        "another part": (replace(other.code, digest="2"), other.launches),
        "another entry": (ONE.code, [replace(simt, entry="missing")]),
        "too much shared memory": (ONE.code, [replace(simt, shared_bytes=device.arch.smem_per_block + 1)]),
    }
    found = {}
    for name, (code, launches) in cases.items():
        try:
            device.load(code, launches)
        except BuildError as error:
            found[name] = str(error)
    device.compiles = True
    return found


def public(device):
    """`gensor_kernels.matmul` from end to end, called three times."""
    cupy.cuda.set_allocator(allocator())
    a, b, out = (cupy.empty((64, 64), np.float32) for _ in range(3))
    for _ in range(3):
        assert gensor_kernels.matmul(a, b, out=out) is out
    return {"pointers": [each.data.ptr for each in (a, b, out)], "launches": calls.launches()}


def state(device):
    """What CuPy says of the device, of its streams, and of its switch for TF32."""
    said = {"part": device.arch.part, "integrated": device.integrated, "capturing": [device.capturing()]}
    said["attributes"] = {name: cupy.cuda.Device(0).attributes.get(name) for name in ATTRIBUTES}
    runtime.capturing = True
    said["capturing"].append(device.capturing())
    runtime.capturing = False
    said["tf32"] = [device.tf32()]
    for on in (True, False):
        device._set_switch(on)
        said["tf32"].append(device.tf32())
    return said


def planted(device):
    """Whether Params still reach the driver with each bug in how their address is passed."""
    found, passed = {}, bytes(index % 251 for index in range(params.SIZE))
    for name in ARGUMENTS:
        with BUGS[name]():
            other = cuda.CudaDevice(0)
        launch = other.load(ONE.code, ONE.launches)
        other.local.arguments[0][:] = passed
        launch(other.local.arguments, (), (), None)
        found[name] = calls.launches()[0]["passed"] == passed.hex()
    return found


def looked_up():
    """Functions that CuPy looks up in the driver library at its first call, by whether the stand-in has them."""
    told = []
    with patch.object(cupy._environment, "_log", told.append), suppress(cupy.cuda.driver.CUDADriverError):
        cupy.cuda.driver.moduleLoadData(bytes(64))
    names = [(re.search(r"\((cu\w+)\)", line), line.endswith("function loaded")) for line in told]
    return {"found": [name[1] for name, found in names if found], "missing": [n[1] for n, f in names if n and not f]}


def main():
    names = looked_up()
    device = cuda.CudaDevice(0)
    become(device.arch)
    found = {"cupy": cupy.__version__, "numpy": np.__version__, "python": platform.python_version(), "looked_up": names}
    scenarios = (several, mapped, streams, threads, warm, refused, refusals, planted, state, public)
    for scenario in [each for each in scenarios if each.__name__ in sys.argv[1:] or not sys.argv[1:]]:
        calls.take()
        found[scenario.__name__] = scenario(device)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
