"""A pretend board: the emulator as the device of a worker, whose kernels may fail as on a GPU."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

from gensor_kernels.devices.emulator import KernelFault
from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.machine.arch import lookup
from gensor_tuner.gpu import GpuError
from gensor_tuner.measure.timer import HostClock, Timer

#: The failure of a kernel whose constants have the text of BOARD_BLAMED: fault, die, hang, memory, or killed
#: (by somebody). Where BOARD_ONCE names a file, it happens once.
FAULT, BLAMED, ONCE = "BOARD_FAULT", "BOARD_BLAMED", "BOARD_ONCE"
#: Where this file is, the GPU is gone; BOARD_LEAVES makes it when a kernel fails. GPUs of the machine.
GONE, LEAVES, COUNT = "BOARD_GONE", "BOARD_LEAVES", "BOARD_COUNT"
#: The power mode that the conditions name.
MODE = "BOARD_MODE"


class Board(EmulatorDevice):
    def __init__(self, arch, number):
        super().__init__(arch)
        self.number = number
        count = int(os.environ.get(COUNT, "1"))
        self.cupy = SimpleNamespace(
            cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: count)),
            get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
        )

    def load(self, code, launches):
        launch = super().load(code, launches)
        if os.environ.get(FAULT) and os.environ.get(BLAMED, "") in repr(dict(code.constants).items()) and not _done():
            return failing
        return launch

    def conditions(self):
        return f'{{"number":{self.number},"power_mode":"{os.environ.get(MODE, "15W")}"}}'


def failing(*_):
    if os.environ.get(ONCE):
        Path(os.environ[ONCE]).touch()
    if os.environ.get(LEAVES):
        Path(os.environ[GONE]).touch()
    fault = os.environ[FAULT]
    if fault == "fault":
        raise KernelFault("out_of_bounds", "an illegal memory access was encountered")
    if fault == "memory":
        raise MemoryError("out of memory allocating 4096 bytes")
    if fault == "die":
        os._exit(7)
    if fault == "killed":
        os.kill(os.getpid(), 9)
    time.sleep(600)


def _done():
    return bool(os.environ.get(ONCE)) and os.path.exists(os.environ[ONCE])


def open_part(arch):
    """A timer whose device is an arch's part; see timer.open_timer."""
    return Timer(Board(arch, 0), HostClock())


def open_timer(number, memory=None):
    if os.environ.get(GONE) and os.path.exists(os.environ[GONE]):
        raise GpuError("the pretend GPU has fallen off the bus")
    return Timer(Board(lookup("orin-nano-8gb"), number), HostClock())
