"""A CudaDevice without a GPU: a module, functions and a driver that record their calls.

CuPy and its arrays are real; their addresses have no memory. `fake_cupy` (tests/conftest.py) puts this in place.
"""

import ctypes
import struct
from contextlib import contextmanager, nullcontext

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
