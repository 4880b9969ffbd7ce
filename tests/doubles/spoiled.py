"""The emulator taken for a GPU whose kernels go wrong as on GPUs: functions of a module, for child processes."""

import ctypes
import os
import time
from functools import partial

from gensor_kernels.devices.emulator import KernelFault
from gensor_kernels.errors import BuildError
from gensor_tuner.gpu import GpuError

from .device import FakeDevice, emulate


def device(after=None, arch="sm_87"):
    """A device where `after(arrays, workspace)` runs after each launch, to corrupt memory for example."""
    return FakeDevice(arch, partial(emulate, after=after))


def of(arch):
    """Stands for `open_gpu` where a GPU of every architecture is."""
    return device(arch=arch.name)


def poke(which, offset, arrays, workspace):
    """Write 7 at a distance in bytes from the end of an array."""
    ctypes.memset(arrays[which].ctypes.data + arrays[which].nbytes + offset, 7, 1)


wrong_number = partial(poke, 0, -1)
write_behind_result = partial(poke, 0, 3000)
write_between_rows = partial(poke, 0, 1)
write_into_operand = partial(poke, 1, -1)
write_behind_operand = partial(poke, 2, 3000)


def write_before_workspace(arrays, workspace):
    if workspace is not None:
        poke(0, -workspace.nbytes - 1, [workspace], None)


def fault(arrays, workspace):
    raise KernelFault("out_of_bounds", "an illegal memory access was encountered")


def no_memory(arrays, workspace):
    raise MemoryError("out of memory allocating 4096 bytes")


def die(arrays, workspace):
    os._exit(9)


def hang(arrays, workspace):
    time.sleep(600)


def refuse(arrays, workspace):
    raise BuildError("the driver refused contraction_mma: too many resources")


def absent():
    raise GpuError("CuPy is not installed: a command")


def broken():
    os._exit(5)
