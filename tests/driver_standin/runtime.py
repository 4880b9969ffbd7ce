"""CuPy's questions of the CUDA runtime, answered as by one H200: the runtime itself is never entered.

The runtime inside CuPy refuses a driver that is not NVIDIA's, so that arrays, events and captures need a GPU. Launches
need no more of it than the number of the current device. CuPy's modules call each other by C functions that they look
up in `__pyx_capi__` when they are imported: `install` replaces some of them, and comes before the first import of CuPy.
It changes the process for good, so that the process cannot be shared with other tests.
"""

import ctypes
import importlib
import itertools
from collections.abc import Callable

#: By cudaDeviceAttr (driver_types.h); every other attribute is 0: clock rate in kHz, multiprocessors, memory's clock
#: rate and bus width, L2 cache, compute capability.
ATTRIBUTES = {13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144, 38: 60 << 20, 75: 9, 76: 0}
NAME = b"NVIDIA H200"
INT, WORD, POINTER, OBJECT = ctypes.c_int, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.py_object
#: what CuPy's modules have the addresses of
_KEPT: list[object] = []


class Runtime:
    """The answers; `capturing`: whether streams capture."""

    def __init__(self) -> None:
        self.capturing = False

    def install(self) -> None:
        """Give CuPy's modules the answers in place of their calls of the runtime."""
        runtime = importlib.import_module("cupy_backends.cuda.api.runtime")  # which does not import CuPy
        for name, function, result, *types in (
            ("_ensure_context", lambda: None, OBJECT),
            ("getDevice", lambda skip: 0, INT, INT),
            ("setDevice", lambda number, skip: None, OBJECT, INT, INT),
            ("getDeviceCount", lambda skip: 1, INT, INT),
            ("deviceGetAttribute", lambda which, number, skip: ATTRIBUTES.get(which, 0), INT, INT, INT, INT),
            ("streamIsCapturing", lambda stream, skip: self.capturing, INT, WORD, INT),
        ):
            self._replace(runtime, name, ctypes.PYFUNCTYPE(result, *types)(function))
        public = importlib.import_module("cupy").cuda.runtime
        public.getDevice = lambda: 0
        public.getDeviceCount = lambda: 1
        public.getDeviceProperties = lambda number: {"name": NAME}

    def _replace(self, module, name, function):
        """Put a C function of the same signature in the place of a function that other modules import."""
        api, table = ctypes.pythonapi, module.__pyx_capi__
        api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [OBJECT]
        api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = OBJECT, [POINTER, ctypes.c_char_p, POINTER]
        signature = api.PyCapsule_GetName(table[name])
        _KEPT.extend((function, signature))
        table[name] = api.PyCapsule_New(ctypes.cast(function, POINTER).value, signature, None)


def allocator() -> Callable[[int], object]:
    """Return an allocator for CuPy, of addresses without memory that do not overlap."""
    cuda, following = importlib.import_module("cupy").cuda, itertools.count(0x7F0000000000, 2**24)

    def allocate(size: int) -> object:
        return cuda.MemoryPointer(cuda.UnownedMemory(next(following), max(size, 1), None, 0), 0)

    return allocate
