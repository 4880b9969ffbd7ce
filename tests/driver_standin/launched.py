"""What CuPy's launches pass to the driver: checks in a process of their own, with unchanged CuPy over the double.

`python -m tests.driver_standin.launched [CHECK ...]` prints the versions and, by check, the traceback of each failure.
"""

import json
import os
import platform
import re
import struct
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from unittest.mock import patch

from tests.driver_standin.runtime import allocator, installed

runtime = installed()

import cupy  # noqa: E402
import numpy as np  # noqa: E402

import gensor_kernels  # noqa: E402
from gensor_kernels import own  # noqa: E402
from gensor_kernels.devices import cuda, cupy_internals  # noqa: E402
from gensor_kernels.devices.emulator.run import encode  # noqa: E402
from gensor_kernels.errors import BuildError  # noqa: E402
from gensor_kernels.families.core import params  # noqa: E402
from gensor_kernels.families.core.params import Tiling  # noqa: E402
from gensor_kernels.families.core.tensor_maps import MAPS_OFFSET, description  # noqa: E402
from gensor_kernels.operators.types.geometry import Geometry, Strides  # noqa: E402
from tests.doubles.strict.capture import Stream  # noqa: E402
from tests.driver_standin.planted import ARGUMENTS, BUGS, HISTORICAL  # noqa: E402
from tests.driver_standin.stored import Stored, stored  # noqa: E402
from tests.threads import in_threads  # noqa: E402

#: Functions that CuPy looks up; the package itself looks up cuLaunchKernelEx, cuTensorMapEncodeTiled and -Im2col, and
#: cuDriverGetVersion.
NEEDED = {
    *("cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel"),
    *("cuGetErrorName", "cuGetErrorString"),
}
#: `cupy.cuda.Device.attributes`, whose names CuPy takes from CUDA's enumeration
ATTRIBUTES = {
    **{"ClockRate": 1_980_000, "MultiProcessorCount": 132, "L2CacheSize": 60 << 20, "Integrated": 0},
    **{"MemoryClockRate": 3_201_000, "GlobalMemoryBusWidth": 6144},
}
PATTERN = bytes(index % 251 for index in range(params.SIZE))


def kernel(family: str, launches: int = 1, maps: int = 0, cluster: bool = False) -> Stored:
    """Return a stored kernel of a family, and of a form of launch."""
    for each in stored("sm_90", family):
        most, clustered = max(len(one.maps) for one in each.launches), any(one.cluster > 1 for one in each.launches)
        if (len(each.launches), most, clustered) == (launches, maps, cluster):
            return each
    raise LookupError(family)


SEVERAL, ONE = kernel("contraction_packed", 3), kernel("contraction_simt")


def several(device):
    """Three launches of one call, of which two are dependent, pass a thread's Params, and those of a Plan."""
    launch = device.load(SEVERAL.code, SEVERAL.launches)
    buffer, _ = device.local.arguments
    buffer[:] = PATTERN
    runtime.calls()
    launch(device.local.arguments, (), (), None)
    words, given = device.ready(bytes(params.SIZE))
    words[1] = 0x1234567890ABCDEF
    launch((words, given), (), (), None)
    assert runtime.calls() == ["cuLaunchKernel", *["cuLaunchKernelEx"] * 2] * 2
    assert [
        (each.function.name, each.grid, each.block, each.shared_bytes, each.dependent, each.parameters)
        for each in runtime.launches()
    ] == [
        (each.entry, (each.grid, 1, 1), (each.block, 1, 1), each.shared_bytes, each.dependent, passed)
        for passed in (PATTERN, words.tobytes())
        for each in SEVERAL.launches
    ]


def mapped(device):
    """Tensor maps follow Params, on a grid that is walked, with more shared memory than without an attribute."""
    chosen = kernel("contraction_wgmma", maps=2, cluster=True)
    launch, (wanted,) = device.load(chosen.code, chosen.launches), chosen.launches
    buffer, _ = device.local.arguments
    lines = Strides((0, 0, 0), 64, 64)  # a map is of rows or columns, whose elements are adjacent
    buffer[:] = params.pack(Geometry((64, 64, 64), a=lines, b=lines), Tiling(1, 1, 1, 64, 1), pointers=(256, 512, 768))
    launch(device.local.arguments, (), (), None)
    (made,) = runtime.launches()
    assert made.grid == (wanted.blocks(device.arch.sms), 1, 1)
    assert made.shared_bytes == made.function.dynamic_bytes == wanted.shared_bytes > 48 * 1024
    maps = b"".join(encode(description(buffer, each)) for each in wanted.maps)
    assert made.parameters == bytes(buffer).ljust(MAPS_OFFSET, b"\0") + maps


def together(device):
    """Blocks that all wait for one another start together, or not at all."""
    for grid, status in ((3, 0), (10**6, 720)):
        launch = device.load(ONE.code, [replace(ONE.launches[0], grid=grid, together=True, per_sm=0)])
        with suppress(Exception):  # CuPy asks the driver how many blocks are resident, which the double does not know
            launch(device.local.arguments, (), (), None)
        assert ("cuLaunchKernelEx", status) in runtime.system.called[-2:], runtime.system.called[-2:]
    (made,) = runtime.launches()
    assert made.together and made.grid == (3, 1, 1)


def streams(device):
    """All launches of a call are on the current stream; stream 2 in place of 0 where threads have default streams."""
    runtime.context.streams[0x5000] = Stream(0x5000)
    launch = device.load(SEVERAL.code, SEVERAL.launches[:2])
    for address in (0, 1, 2, 0x5000):
        with cupy_internals.stream(cupy, address):
            launch(device.local.arguments, (), (), None)
    launch(device.local.arguments, (), (), None)
    default = 2 if os.environ.get("CUPY_CUDA_PER_THREAD_DEFAULT_STREAM") == "1" else 0
    expected = [each for stream in (default, default, 2, 0x5000, default) for each in (stream, stream)]
    found = [each.stream for each in runtime.launches()]
    assert found == expected, found


def threads(device):
    """Each of eight threads passes its own Params."""
    launch, barrier = device.load(ONE.code, ONE.launches), threading.Barrier(8)

    def work(number):
        arguments = device.local.arguments
        barrier.wait()
        for turn in range(20):
            arguments[0][:2] = bytes([number, turn])
            launch(arguments, (), (), None)

    in_threads(work, range(8))
    found = sorted((*each.parameters[:2],) for each in runtime.launches())
    assert found == [(number, turn) for number in range(8) for turn in range(20)]


def warm(device):
    """Arguments of a launch are made once for each buffer."""
    launch, made = device.load(ONE.code, ONE.launches), []
    struct = cupy_internals._Struct
    with patch.object(cupy_internals, "_Struct", lambda address: made.append(address) or struct(address)):
        ready = device.ready(bytes(params.SIZE))
        for _ in range(10):
            launch(device.local.arguments, (), (), None)
            launch(ready, (), (), None)
    assert len(made) == 1 and len(runtime.launches()) == 20


def refused(device):
    """A refused launch raises what dispatch expects; a dependent one goes to CuPy first, which raises the error."""
    found, refuses = [], runtime.system.refuses
    for index in (0, 1):
        launch = device.load(SEVERAL.code, SEVERAL.launches[index : index + 1])
        runtime.calls()
        refuses |= {"cuLaunchKernel": 701, "cuLaunchKernelEx": 701}
        try:
            launch(device.local.arguments, (), (), None)
        except device.refusals as error:
            assert cupy_internals.raised_by_cupy(error) and "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in str(error), error
            found.append([name for name in runtime.calls() if name.startswith("cuLaunch")])
        refuses.clear()
    assert found == [["cuLaunchKernel"], ["cuLaunchKernelEx", "cuLaunchKernel"]], found


def refusals(device):
    """Refused code that nothing compiles is a BuildError with the driver's reason."""
    other, simt = next(iter(stored("sm_80"))), ONE.launches[0]
    too_much = replace(simt, shared_bytes=device.arch.smem_per_block + 1)
    with patch.object(device, "compiles", False):
        for error, code, launches in (
            ("INVALID_PTX", replace(ONE.code, digest="1", cubin=b"no cubin"), ONE.launches),
            ("NO_BINARY_FOR_GPU", replace(other.code, digest="2"), other.launches),
            ("NOT_FOUND", ONE.code, [replace(simt, entry="missing")]),
            ("INVALID_VALUE", ONE.code, [too_much]),
        ):
            said = "nothing"
            try:
                device.load(code, launches)
            except BuildError as refusal:
                said = str(refusal)
            assert said.split(":")[1:2] == [f" CUDA_ERROR_{error}"], (error, said)


def public(device):
    """`gensor_kernels.matmul` passes its arrays every time."""
    cupy.cuda.set_allocator(allocator())
    a, b, out = (cupy.empty((64, 64), np.float32) for _ in range(3))
    for _ in range(3):
        assert gensor_kernels.matmul(a, b, out=out) is out
    pointers = b"".join(each.data.ptr.to_bytes(8, "little") for each in (a, b, out))
    assert [each.parameters[:24] for each in runtime.launches()] == [pointers] * 3


def fused(device):
    """CuPy's functions of what stands for an array are steps of a program; it computes arrays of nothing."""
    import cupyx.scipy.special

    from gensor_kernels.dispatch.fusion.traced import Tracing, result_dtype

    def function(x, y):
        found = cupy.where(x > 1, cupy.clip(cupy.sqrt(x), 0, 3) / (1 + cupy.tanh(y)), cupyx.scipy.special.erf(y**2))
        return cupy.maximum(found, cupyx.scipy.special.expit(x)).astype(cupy.float16)

    cupy.cuda.set_allocator(allocator())
    tracing = Tracing([cupy.empty((3, 4), np.float32), cupy.empty((3, 1), np.float16)])
    program = tracing.program(function(*tracing.arrays))
    assert {"where", "min", "sqrt", "erf", "sigmoid", "gt"} <= {step.name for step in program.steps}
    given = cupy.empty((0, 4), np.float32), cupy.empty((0, 1), np.float16)
    assert function(*given).dtype == result_dtype(program) and not runtime.launches()


def owned(device):
    """A user's kernel gets its arguments one by one, on the grid of the chosen configuration."""
    if find_spec("cuda") is None:
        return  # without the tuner's compiler there is no kernel to store
    cupy.cuda.set_allocator(allocator())
    text = """extern "C" __global__ void scale(float *x, int n, float by) {
        for (int i = blockIdx.x * threads + threadIdx.x; i < n; i += gridDim.x * threads) x[i] *= by; }"""
    arguments = [own.InOut("f4", "n"), own.Scalar("i4", "n"), own.Scalar("f4", 3)]
    kernel = own.Kernel(text, "scale", knobs={"threads": [64]}, block="threads", grid="ceil_div(n, 64)", args=arguments)
    best = kernel.tune("h200", {"n": 1000}, lambda x: 3 * x)
    with TemporaryDirectory() as folder:
        best.save(f"{folder}/scale.db")
        x = cupy.empty(900, np.float32)
        own.load(f"{folder}/scale.db")(x, 900, 0.5)
    (made,) = runtime.launches()
    assert (made.function.name, made.grid, made.block, made.shared_bytes) == ("scale", (15, 1, 1), (64, 1, 1), 0)
    assert made.parameters == struct.pack("<Qif", x.data.ptr, 900, 0.5)


def state(device):
    """CuPy names the device's attributes, says whether a stream captures, and has a switch for TF32."""
    assert device.arch.part == "h200" and device.integrated is False and not device.capturing()
    found = {name: cupy.cuda.Device(0).attributes.get(name) for name in ATTRIBUTES}
    assert found == ATTRIBUTES, found
    with patch.object(runtime, "capturing", True):
        assert device.capturing()
    switched = [device.tf32()]
    for on in (True, False):
        device._set_switch(on)
        switched.append(device.tf32())
    assert switched == [False, True, False]


def planted(device):
    """Params that are passed at another address are seen; CuPy 14 passes an integer's address by its own class."""
    arrived = set()
    for name in ARGUMENTS:
        with BUGS[name]():
            other = cuda.CudaDevice(0)
        launch = other.load(ONE.code, ONE.launches)
        other.local.arguments[0][:] = PATTERN
        launch(other.local.arguments, (), (), None)
        if runtime.launches()[0].parameters == PATTERN:
            arrived.add(name)
    assert arrived == (set() if cupy.__version__.startswith("13.") else {HISTORICAL}), arrived


def looked_up(device):
    """CuPy looks up each function by its plain name."""
    names = [(re.search(r"\((cu\w+)\)", line), line.endswith("function loaded")) for line in lines]
    assert {name[1] for name, found in names if name and found} == NEEDED
    missing = [name[1] for name, found in names if name and not found]
    assert not any("ProcAddress" in name or "_ptsz" in name for name in missing), missing


CHECKS = (
    *(looked_up, several, mapped, together, streams, threads, warm),
    *(refused, refusals, planted, state, public, fused, owned),
)
#: what CuPy logs of its look-ups in the driver library, at its first call
lines: list[str] = []


def main():
    with patch.object(cupy._environment, "_log", lines.append), suppress(cupy.cuda.driver.CUDADriverError):
        cupy.cuda.driver.moduleLoadData(bytes(64))
    device, failures = cuda.CudaDevice(0), {}
    for check in [each for each in CHECKS if each.__name__ in sys.argv[1:] or not sys.argv[1:]]:
        runtime.launches()
        try:
            check(device)
        except Exception:
            failures[check.__name__] = traceback.format_exc()
    versions = {"cupy": cupy.__version__, "numpy": np.__version__, "python": platform.python_version()}
    print(json.dumps({**versions, "failures": failures}))


if __name__ == "__main__":
    main()
