"""Launches that reach the driver, as JSON: `python -m tests.driver_standin.launched [SCENARIO ...]`."""

import json
import platform
import re
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

from tests.driver_standin.runtime import allocator, installed

runtime = installed()

import cupy  # noqa: E402
import numpy as np  # noqa: E402

import gensor_kernels  # noqa: E402
from gensor_kernels.devices import cuda, cupy_internals  # noqa: E402
from gensor_kernels.devices.emulator.run import encode  # noqa: E402
from gensor_kernels.errors import BuildError  # noqa: E402
from gensor_kernels.operators.types.geometry import Geometry, Strides  # noqa: E402
from gensor_kernels.programs.core import params  # noqa: E402
from gensor_kernels.programs.core.params import Tiling  # noqa: E402
from gensor_kernels.programs.core.tensor_maps import MAPS_OFFSET, description  # noqa: E402
from tests.doubles.strict.streams import Stream  # noqa: E402
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


def kernel(family: str, launches: int = 1, maps: int = 0, cluster: bool = False) -> Stored:
    """Return a stored kernel of a family, and of a form of launch."""
    for each in stored("sm_90", family):
        found = (
            len(each.launches),
            max(len(one.maps) for one in each.launches),
            any(one.cluster > 1 for one in each.launches),
        )
        if found == (launches, maps, cluster):
            return each
    raise LookupError(family)


SEVERAL, ONE = kernel("contraction_packed", 3), kernel("contraction_simt")


def several(device):
    """Three launches of one call, of which two are dependent, from a thread's Params and from Params of a Plan's."""
    launch = device.load(SEVERAL.code, SEVERAL.launches)
    buffer, _ = device.local.arguments
    buffer[:] = bytes(index % 251 for index in range(params.SIZE))
    runtime.calls()
    launch(device.local.arguments, (), (), None)
    words, given = device.ready(bytes(params.SIZE))
    words[1] = 0x1234567890ABCDEF
    launch((words, given), (), (), None)
    wanted = [
        [each.entry, [each.grid, 1, 1], [each.block, 1, 1], each.shared_bytes, each.dependent]
        for each in SEVERAL.launches
    ]
    found = [
        [each.function.name, each.grid, each.block, each.shared_bytes, each.dependent, each.parameters.hex()]
        for each in runtime.launches()
    ]
    passed = [bytes(buffer).hex(), words.tobytes().hex()]
    return {"wanted": [[*each, given] for given in passed for each in wanted], "found": found, "calls": runtime.calls()}


def mapped(device):
    """A launch with two tensor maps after Params, on a grid that is walked, with more shared memory than is plain."""
    chosen = kernel("contraction_wgmma", maps=2, cluster=True)
    launch, (wanted,) = device.load(chosen.code, chosen.launches), chosen.launches
    buffer, _ = device.local.arguments
    lines = Strides((0, 0, 0), 64, 64)  # a map is of rows or columns, whose elements are adjacent
    buffer[:] = params.pack(Geometry((64, 64, 64), a=lines, b=lines), Tiling(1, 1, 1, 64, 1), pointers=(256, 512, 768))
    launch(device.local.arguments, (), (), None)
    (made,) = runtime.launches()
    maps = b"".join(encode(description(buffer, each)) for each in wanted.maps)
    return {
        "wanted": [[wanted.blocks(device.arch.sms), 1, 1], wanted.shared_bytes, wanted.shared_bytes],
        "found": [made.grid, made.shared_bytes, made.function.dynamic_bytes],
        "params": (bytes(buffer).ljust(MAPS_OFFSET, b"\0") + maps).hex(),
        "passed": made.parameters.hex(),
    }


def streams(device):
    """Launches on the default stream, the thread's own, and one of another library's."""
    runtime.context.streams[0x5000] = Stream(0x5000)
    launch = device.load(SEVERAL.code, SEVERAL.launches[:2])
    for address in (0, 1, 2, 0x5000):
        with cupy_internals.stream(cupy, address):
            launch(device.local.arguments, (), (), None)
    launch(device.local.arguments, (), (), None)
    return [each.stream for each in runtime.launches()]


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
    return sorted([*each.parameters[:2]] for each in runtime.launches())


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
    return {"first": first, "all": len(made), "launches": len(runtime.launches())}


def refused(device):
    """Errors of launches that the driver refuses, with attributes and without, and the calls that it received."""
    found, refuses = [], runtime.system.refuses
    for index in (0, 1):
        launch = device.load(SEVERAL.code, SEVERAL.launches[index : index + 1])
        runtime.calls()
        refuses |= {"cuLaunchKernel": 701, "cuLaunchKernelEx": 701}
        try:
            launch(device.local.arguments, (), (), None)
        except device.refusals as error:
            tried = [name for name in runtime.calls() if name.startswith("cuLaunch")]
            found.append([str(error), cupy_internals.raised_by_cupy(error), tried])
        refuses.clear()
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
    return {
        "pointers": [each.data.ptr for each in (a, b, out)],
        "passed": [each.parameters[:24].hex() for each in runtime.launches()],
    }


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
        found[name] = runtime.launches()[0].parameters == passed
    return found


def looked_up():
    """Functions that CuPy looks up in the driver library at its first call, by whether the stand-in has them."""
    lines = []
    with patch.object(cupy._environment, "_log", lines.append), suppress(cupy.cuda.driver.CUDADriverError):
        cupy.cuda.driver.moduleLoadData(bytes(64))
    names = [(re.search(r"\((cu\w+)\)", line), line.endswith("function loaded")) for line in lines]
    return {"found": [name[1] for name, found in names if found], "missing": [n[1] for n, f in names if n and not f]}


def main():
    names = looked_up()
    device = cuda.CudaDevice(0)
    found = {"cupy": cupy.__version__, "numpy": np.__version__, "python": platform.python_version(), "looked_up": names}
    scenarios = (several, mapped, streams, threads, warm, refused, refusals, planted, state, public)
    for scenario in [each for each in scenarios if each.__name__ in sys.argv[1:] or not sys.argv[1:]]:
        runtime.launches()
        found[scenario.__name__] = scenario(device)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
