"""CuPy itself, unchanged, over a driver that writes down its launches: for a process of its own without a GPU.

`Driver.install` comes before the first import of CuPy. It puts Python functions in the place of the driver library,
which CuPy loads by ctypes, and an H200 in the place of what CuPy's modules ask the CUDA runtime: they call each other
by C functions that they look up in `__pyx_capi__` when they are imported.

It is no FakeDevice: the device over it is the real CudaDevice, and what CuPy gives the driver is what is looked at. It
replaces parts of the process that are bound at imports, so it cannot share one with other tests.
"""

import ctypes
import importlib
from types import SimpleNamespace

#: What the runtime says of an H200, by cudaDeviceAttr (driver_types.h); every other attribute is 0: clock rate in kHz,
#: multiprocessors, memory's clock rate and bus width, L2 cache, compute capability.
ATTRIBUTES = {13: 1_980_000, 16: 132, 36: 3_201_000, 37: 6144, 38: 60 << 20, 75: 9, 76: 0}
NAME = b"NVIDIA H200"
VERSION = 12080
REFUSED = 701, b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
INT, UINT, WORD, POINTER, OBJECT = ctypes.c_int, ctypes.c_uint, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.py_object


class Driver:
    """A driver of one GPU. `launches` has, in order, what each launch passed, as a dictionary.

    `refuses`: launches are refused. `capturing`: whether streams capture. `allowed`: dynamic shared memory by entry.
    """

    def __init__(self, nbytes: int):
        self.nbytes, self.launches, self.entries, self.allowed, self.images = nbytes, [], [], {}, []
        self.refuses = self.capturing = False
        self._error, self._kept = ctypes.create_string_buffer(REFUSED[1]), []
        self.library = SimpleNamespace()
        for name, function, *types in (
            ("cuModuleLoadData", self._load, POINTER, POINTER),
            ("cuModuleGetFunction", self._entry, POINTER, POINTER, ctypes.c_char_p),
            ("cuModuleUnload", lambda module: 0, POINTER),
            ("cuFuncSetAttribute", self._allow, WORD, INT, INT),
            ("cuLaunchKernel", self._launch, WORD, *[UINT] * 7, WORD, POINTER, WORD),
            ("cuLaunchKernelEx", self._launch_with_attributes, *[POINTER] * 4),
            ("cuTensorMapEncodeTiled", self._encode, POINTER, INT, UINT, *[POINTER] * 5, *[INT] * 4),
            ("cuGetErrorName", self._name, INT, POINTER),
            ("cuGetErrorString", self._name, INT, POINTER),
            ("cuDriverGetVersion", lambda place: _write(INT, place, VERSION), POINTER),
        ):
            setattr(self.library, name, ctypes.CFUNCTYPE(INT, *types)(function))

    def install(self) -> None:
        """Makes this the driver of the process, and the runtime's answers those of an H200."""
        runtime = importlib.import_module("cupy_backends.cuda.api.runtime")  # which does not import CuPy
        library = ctypes.CDLL

        def load(name, *rest, **keywords):
            return self.library if name in ("libcuda.so.1", "nvcuda.dll") else library(name, *rest, **keywords)

        ctypes.CDLL = load
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
        """Puts a C function of the same signature in the place of one that other modules import."""
        api, table = ctypes.pythonapi, module.__pyx_capi__
        api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [OBJECT]
        api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = OBJECT, [POINTER, ctypes.c_char_p, POINTER]
        signature = api.PyCapsule_GetName(table[name])
        self._kept += [function, signature]
        table[name] = api.PyCapsule_New(ctypes.cast(function, POINTER).value, signature, None)

    # ---- functions of the driver

    def _load(self, place, image):
        self.images.append(ctypes.string_at(image, 4))
        return _write(POINTER, place, len(self.images))

    def _entry(self, place, module, name):
        self.entries.append(name.decode())
        return _write(POINTER, place, len(self.entries))

    def _allow(self, function, attribute, value):
        if attribute == 8:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.allowed[self.entries[function - 1]] = value
        return 0

    def _launch(self, function, *sizes_and_rest):
        *sizes, shared, stream, arguments, extra = sizes_and_rest
        return self._write_down(function, sizes[:3], sizes[3:], shared, stream, arguments, extra, False)

    def _launch_with_attributes(self, config, function, arguments, extra):
        grid, block = ((UINT * 3).from_address(config + offset) for offset in (0, 12))
        shared = UINT.from_address(config + 24).value
        stream = POINTER.from_address(config + 32).value or 0
        return self._write_down(function, list(grid), list(block), shared, stream, arguments, extra, True)

    def _write_down(self, function, grid, block, shared, stream, arguments, extra, dependent):
        if self.refuses:
            return REFUSED[0]
        assert not extra
        at = POINTER.from_address(arguments).value
        asked = {"entry": self.entries[function - 1], "grid": grid, "block": block, "shared": shared, "stream": stream}
        passed = ctypes.string_at(at, self.nbytes).hex()
        self.launches.append({**asked, "dependent": dependent, "at": at, "passed": passed})
        return 0

    def _encode(self, place, *described):
        ctypes.memset(place, 9, 128)
        return 0

    def _name(self, status, place):
        return _write(POINTER, place, ctypes.addressof(self._error))


def _write(kind, place, value):
    kind.from_address(place).value = value
    return 0
