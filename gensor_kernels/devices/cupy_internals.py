"""Undocumented parts of CuPy, each used by one function.

They were read in CuPy 13.3.0, 13.6.0, 14.0.0 and 14.2.0; each docstring names the source file.  The tests in
tests/driver_standin/ check them against the installed CuPy, and `make test-oldest` against 13.3.0.

The launch itself is a call `function(grid, block, arguments, shared_bytes)` of `cupy.cuda.Function`
(cupy/cuda/function.pyx).  It uses the calling thread's current stream and passes each argument's address to
cuLaunchKernel.  It is on the path of every call and therefore has no function here.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np

from gensor_kernels.arrays import DeviceArray, Dtype

FLOAT32 = np.dtype(np.float32)
#: Objects of CuPy, which has no types: a kernel (cupy.cuda.Function) and its module, a stream, an event, memory.
Kernel: TypeAlias = Any
KernelModule: TypeAlias = Any
Stream: TypeAlias = Any
Event: TypeAlias = Any
Memory: TypeAlias = Any


class _Struct:
    """A struct at an address, by NumPy's array interface (version 3)."""

    def __init__(self, address: int):
        self.__array_interface__ = {"data": (address, False), "shape": (1,), "typestr": "|u1", "version": 3}


def argument_type(cupy: Any) -> type:
    """Return a class whose instances pass the struct at an address to a launch, as its kernel argument.

    A launch passes `CPointer.ptr` to the driver as the address of an argument (cupy/cuda/function.pyx).
    `CPointer(address)` holds that address in CuPy 14 only: in CuPy 13 it holds the address of the Python integer. Its
    subclass `CNumpyArray` holds `__array_interface__["data"][0]` of its argument in all versions.  An instance also has
    `pointers`, the argument list of the driver library's own launch.
    """

    class Argument(cupy.cuda.function.CNumpyArray):
        __slots__ = ("pointers",)

        def __init__(self, address: int):
            super().__init__(_Struct(address))
            self.pointers = (ctypes.c_void_p * 1)(address)

    return Argument


def load_module(cupy: ModuleType, image: bytes) -> KernelModule:
    """Return a module of a cubin in memory (cupy/cuda/function.pyx); the documented `RawModule` loads from files
    only."""
    module = cupy.cuda.function.Module()
    module.load(image)
    return module


def entry(module: KernelModule, name: str) -> Kernel:
    """Return the named kernel of a loaded module (cupy/cuda/function.pyx); it keeps the module loaded."""
    return module.get_function(name)


def set_constant(cupy: ModuleType, module: KernelModule, name: str, array: DeviceArray) -> None:
    """Enqueue the copy of a C-contiguous array into a module's ``__constant__`` variable (cupy/cuda/function.pyx)."""
    address: int = module.get_global_var(name)
    memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, array.nbytes, module), 0)
    memory.copy_from_device_async(array.data, array.nbytes)


def entry_address(function: Kernel) -> int:
    """Return the driver's handle of a kernel, a CUfunction (cupy/cuda/function.pyx)."""
    return int(function.ptr)


def allow_shared_bytes(driver: ModuleType, function: Kernel, nbytes: int) -> None:
    """Allow a kernel this much dynamic shared memory (cupy_backends/cuda/api/driver.pyx); `driver` is driver_api's."""
    attribute = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.funcSetAttribute(entry_address(function), attribute, nbytes)


def driver_api(cupy: ModuleType) -> ModuleType:
    """Return CuPy's module of driver functions, with its error CUDADriverError (cupy_backends/cuda/api/driver.pyx)."""
    return cupy.cuda.driver


def errors(cupy: ModuleType) -> tuple[type[Exception], type[Exception]]:
    """Return the error classes of driver and runtime; both are RuntimeErrors (cupy_backends/cuda/api)."""
    return cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError


def raised_by_cupy(error: BaseException) -> bool:
    """Return whether an error is of CuPy's own classes: its libraries' errors have no common base."""
    return type(error).__module__.partition(".")[0] in ("cupy", "cupy_backends")


def tf32_switch(cupy: ModuleType) -> tuple[Callable[[Dtype], object], object, Callable[[bool], None]]:
    """Return (CuPy's query of its TF32 switch, the state that means TF32, a function that sets the switch).

    `cupy._core.get_compute_type` and `set_compute_type`, with the states of cupy/_core/_routines_linalg.pyx.  Without
    them only the documented environment variable `CUPY_TF32` is left, and setting has no effect.
    """
    core = cupy._core
    if not hasattr(core, "get_compute_type"):
        return lambda dtype: os.environ.get("CUPY_TF32", "0").strip() not in ("", "0"), True, lambda on: None
    constants = core._routines_linalg
    states = {True: constants.COMPUTE_TYPE_TF32, False: constants.COMPUTE_TYPE_DEFAULT}
    return core.get_compute_type, states[True], lambda on: core.set_compute_type(FLOAT32, states[on])


class _Stream:
    """A stream by its address, by NVIDIA's protocol for streams (version 0)."""

    def __init__(self, address: int):
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def stream(cupy: ModuleType, address: int) -> Stream:
    """Return CuPy's object for the stream at an address: 0 and 1 are the legacy default stream, 2 the thread's own.

    `Stream.from_external` came with CuPy 14, which deprecates `ExternalStream`; CuPy 13 has only the latter
    (cupy/cuda/stream.pyx).
    """
    if address in (0, 1):
        return cupy.cuda.Stream.null
    if address == 2:
        return cupy.cuda.Stream.ptds
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Stream(address))
    return cupy.cuda.ExternalStream(address)


def null_stream(cupy: ModuleType) -> int:
    """Return the stream that a launch goes to where the current stream is 0: 2, the thread's own, if CuPy is set so.

    A launch by CuPy goes there (`get_current_stream_ptr` of cupy_backends/cuda/stream.pyx), although `Stream.null.ptr`
    stays 0 with `CUPY_CUDA_PER_THREAD_DEFAULT_STREAM`.
    """
    from cupy_backends.cuda.stream import get_default_stream_ptr

    per_thread = int(cupy.cuda.Stream.ptds.ptr)
    return per_thread if get_default_stream_ptr() == per_thread else 0


def cublas_version(cupy: ModuleType) -> int:
    """Return the version of cuBLAS, such as 120800.

    `cublasGetProperty` is found through the module that is linked with it (cupy_backends/cuda/libs/cublas.pyx):
    CuPy's `getVersion` needs a handle, and with it memory of the device.
    """
    ask, number = ctypes.CDLL(cupy.cuda.cublas.__file__).cublasGetProperty, ctypes.c_int()
    version = 0
    for part in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        if ask(part, ctypes.byref(number)):
            raise RuntimeError("cuBLAS does not say its version")
        version = version * 100 + number.value
    return version


def backends(cupy: ModuleType) -> dict[str, str | int]:
    """Return what computes CuPy's products: `CUPY_ACCELERATORS` where it is set, and the versions of cuBLAS and, if it
    is among these, of cuTENSOR (cupy_backends/cuda/libs/cutensor.pyx); each is left out if it cannot be found."""
    named = os.environ.get("CUPY_ACCELERATORS", "").replace(" ", "").lower()
    found: dict[str, str | int] = {"accelerators": named} if named else {}
    with suppress(Exception):  # it is not installed, or a platform where no symbol is found this way
        found["cublas"] = cublas_version(cupy)
    if "cutensor" in named.split(","):
        with suppress(Exception):
            found["cutensor"] = int(import_module("cupy_backends.cuda.libs.cutensor").get_version())
    return found
