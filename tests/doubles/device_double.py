"""Devices for the verifier: the emulator taken for a GPU, and ones that go wrong as GPUs do.

Functions of a module, so that a child process can call them.
"""

import ctypes
import os
import time

from gensor_kernels.devices.emulator import KernelFault
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.errors import BuildError
from gensor_kernels.machine.arch import lookup
from gensor_tuner.gpu import GpuError


class Double(EmulatorDevice):
    """The emulator, which is not taken for one; `after` spoils what a launch has done."""

    emulated = False
    after = staticmethod(lambda arrays, workspace: None)

    def load(self, code, launches):
        launch = super().load(code, launches)

        def spoiled(arguments, arrays, steps, workspace):
            launch(arguments, arrays, steps, workspace)
            self.after(arrays, workspace)

        return spoiled


def double(after=None, arch="sm_87"):
    device = Double(lookup(arch))
    if after is not None:
        device.after = after
    return device


def of(arch):
    """Stands for `open_gpu` where a GPU of every architecture is."""
    return double(arch=arch.name)


def poke(array, offset):
    """Write 7 at a distance in bytes from the end of an array."""
    ctypes.memset(array.ctypes.data + array.nbytes + offset, 7, 1)


def wrong_number(arrays, workspace):
    poke(arrays[0], -1)


def write_behind_result(arrays, workspace):
    poke(arrays[0], 3000)


def write_between_rows(arrays, workspace):
    poke(arrays[0], 1)


def write_into_operand(arrays, workspace):
    poke(arrays[1], -1)


def write_behind_operand(arrays, workspace):
    poke(arrays[2], 3000)


def write_before_workspace(arrays, workspace):
    if workspace is not None:
        poke(workspace, -workspace.nbytes - 1)


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
