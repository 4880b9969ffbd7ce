"""A CudaDevice without a GPU: a module, functions and a driver that record their calls.

CuPy and its arrays are real; their addresses have no memory. `fake_cupy` (tests/conftest.py) puts this in place.
"""

import ctypes
import importlib
import struct
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import cupy

from gensor_kernels.devices import cuda
from gensor_kernels.devices.dependent import LaunchAttribute, LaunchConfig
from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.core import params

LOWEST = 0x7F0000000000


class Refused(RuntimeError):
    """An error of the driver."""


class FakeModule:
    """Accepts images that begin with an ELF mark."""

    loads = 0

    def load(self, image):
        FakeModule.loads += 1
        if not image.startswith(b"\x7fELF"):
            raise Refused("CUDA_ERROR_NO_BINARY_FOR_GPU")

    def get_function(self, name):
        return FakeFunction(name)


class FakeFunction:
    """Records its launches, reading the argument where the driver would."""

    calls = []  # noqa: RUF012
    addresses = []  # noqa: RUF012
    names = {}  # noqa: RUF012

    def __init__(self, name):
        self.name, self.ptr = name, int.from_bytes(name.encode()[-6:], "little")
        FakeFunction.names[self.ptr] = name

    def __call__(self, grid, block, arguments, shared=0):
        (argument,) = arguments
        FakeFunction.addresses.append(address(argument))
        FakeFunction.calls.append((self.name, grid, block, shared, ctypes.string_at(address(argument), params.SIZE)))


def address(argument):
    """The address a CPointer holds; its field is not visible from Python, its memory is."""
    size = cupy.cuda.function.CPointer.__basicsize__
    body = ctypes.string_at(id(argument), size)
    return struct.unpack_from("<Q", body, size - 8)[0]


class FakeLaunchKernelEx:
    """The driver's launch with attributes: writes down what CuPy's launches do, and whether and where it was asked."""

    def __init__(self, status=0):
        self.status = status
        self.asked = []

    def __call__(self, config, entry, pointers, extra):
        config = LaunchConfig.from_address(ctypes.addressof(config._obj))
        attribute = LaunchAttribute.from_address(config.attributes)
        assert config.attribute_count == 1 and (attribute.id, attribute.value) == (6, 1)
        assert (*config.grid[1:], *config.block[1:]) == (1, 1, 1, 1) and extra is None and len(pointers) == 1
        name = FakeFunction.names[entry.value]
        self.asked.append((name, config.stream or 0))
        if not self.status:
            FakeFunction.addresses.append(pointers[0])
            argument = ctypes.string_at(pointers[0], params.SIZE)
            FakeFunction.calls.append((name, (config.grid[0],), (config.block[0],), config.shared_bytes, argument))
        return self.status


class FakeDriver:
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    allowed = {}  # noqa: RUF012

    @staticmethod
    def funcSetAttribute(function, attribute, value):
        FakeDriver.allowed[function] = value


class FakeCudaDevice(cuda.CudaDevice):
    """Everything of CudaDevice but the calls that need a driver.

    `xp` replaces CuPy (touching.py); `several`: the machine has more than one GPU; `function(entry)` replaces the
    function of every kernel, so that no module is loaded; `capturing` None: the stream says whether it captures.
    `streams` and `waited` list the streams of other libraries that calls ran on, and waited for.
    """

    def __init__(
        self, part="h200", *, xp=cupy, several=False, number=0, emulated=False, capturing=False, function=None
    ):
        self.xp = self.cupy = cupy
        self.arch, self.unsupported, self.number = lookup(part), "", number
        self._prepare(several)
        self.refusals = (Refused,)
        self.driver = FakeDriver
        self.emulated, self.is_capturing, self.function = emulated, capturing, function
        self.streams, self.waited = [], []
        if xp is not cupy:
            self.xp = self.cupy = xp
            self.empty, self.erfc = xp.empty, xp.erfc

    def capturing(self):
        return super().capturing() if self.is_capturing is None else self.is_capturing

    def current(self):
        return nullcontext()

    def load(self, code, launches):
        if self.function is None:
            return super().load(code, launches)
        return cuda.launcher([(self.function(each.entry), each) for each in launches])

    @contextmanager
    def running_on(self, stream, number, mixed):
        self.streams.append((stream, number, mixed))
        yield
        self.streams.append("left")

    def wait_for(self, stream):
        self.waited.append(stream)


def allocator():
    """An allocator for CuPy, of addresses without memory that do not overlap."""
    following = [LOWEST]

    def allocate(size):
        memory = cupy.cuda.UnownedMemory(following[0], max(size, 1), None, 0)
        following[0] += -(-max(size, 1) // 512) * 512
        return cupy.cuda.MemoryPointer(memory, 0)

    return allocate


@contextmanager
def allocating(allocate):
    """Within it, CuPy's memory comes from `allocate`."""
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(allocate)
    try:
        yield
    finally:
        cupy.cuda.set_allocator(before)


# ---- CuPy itself, unchanged, over a driver that writes down its launches: for a process of its own without a GPU

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
