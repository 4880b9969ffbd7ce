"""A device whose array library is NumPy, with a recorder in place of kernels."""

import math

import numpy as np

from gensor_kernels.devices.device import Device
from gensor_kernels.dispatch.selection import library
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul as operator
from gensor_kernels.programs.core import params
from gensor_kernels.programs.space import Space

ARCH = lookup("sm_87")


class NumpyDevice(Device):
    """The array library is NumPy; launches are written down. `arch` and `capturing` are what the test says."""

    xp = np
    emulated = False
    unsupported = ""
    refusals = (ZeroDivisionError,)
    where = None

    def __init__(self):
        self.arch = ARCH
        self.is_capturing = False
        self.loaded, self.launched = [], []
        self.failure = None
        self.allows_tf32 = False
        self.pointer = lambda x: x.ctypes.data
        self.local = type("Local", (), {"arguments": (bytearray(params.SIZE), None)})()

    def is_array(self, value):
        return isinstance(value, np.ndarray)

    def is_local(self, array):
        return True

    def empty(self, shape, dtype):
        return np.full(shape, 77, dtype)

    def workspace(self, nbytes, zero):
        return np.empty(nbytes, np.uint8), 4096

    def capturing(self):
        return self.is_capturing

    def tf32(self):
        return self.allows_tf32

    def load(self, code, launches):
        if self.failure:
            raise self.failure
        self.loaded.append(code.digest)
        return self.launch

    def launch(self, arguments, arrays, steps, workspace):
        self.launched.append((bytes(arguments[0]), arrays))
        arrays[0][...] = 55

    def product(self, a, b, precision=None, out=None):
        return np.matmul(a, b, out=out)

    def erfc(self, x):
        return np.vectorize(math.erfc, otypes=[x.dtype])(x)


def workload(m=512, n=512, k=512, **keywords):
    return operator.workload(m, n, k, dtype=keywords.pop("dtype", "float32"), **keywords)


def starters(wanted):
    """The families' default Programs for a Workload, as kernels."""
    for family in Space(wanted, ARCH).families:
        for program in family.family.starters(wanted, ARCH):
            yield library.generate(program, wanted, ARCH)


def aligned(shape, dtype=np.float32):
    """Zeros at an address that is a multiple of 16."""
    raw = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + len(raw) - 16].view(dtype).reshape(shape)
