"""CudaDevice without a GPU: a module, functions and a driver that write down what they are asked for."""

import ctypes
import struct
from contextlib import nullcontext

import cupy

from gensor_kernels.devices import cuda
from gensor_kernels.devices.dependent import LaunchAttribute, LaunchConfig
from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.core import params


class Refused(RuntimeError):
    """What the driver raises."""


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
    """Writes down what it is launched with, reading the argument where the driver would."""

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


class DeviceWithoutGpu(cuda.CudaDevice):
    """Everything of CudaDevice but the calls that need a driver."""

    def __init__(self, part="h200", several=False):
        self.xp = self.cupy = cupy
        self.number = 0
        self.arch, self.unsupported = lookup(part), ""
        self._prepare(several)
        self.refusals = (Refused,)
        self.driver = FakeDriver
        self.is_capturing = False

    def capturing(self):
        return self.is_capturing

    def current(self):
        return nullcontext()
