"""A pretend board: the emulator as the device of a worker, whose kernels may fail as on a GPU."""

import os
import time

from gensor_kernels.devices.emulator.device import EmulatorDevice
from gensor_kernels.machine.arch import lookup
from gensor_tuner.gpu import GpuError
from gensor_tuner.measure.timer import HostClock, Timer

#: What happens when a kernel of BOARD_BLAMED runs: die or hang. A file of BOARD_ONCE limits that to a single time.
FAULT, BLAMED, GONE = "BOARD_FAULT", "BOARD_BLAMED", "BOARD_GONE"


class Board(EmulatorDevice):
    def load(self, code, launches):
        launch = super().load(code, launches)
        if os.environ.get(BLAMED) and os.environ[BLAMED] in dict(code.constants).items().__repr__():
            return {"die": lambda *_: os._exit(7), "hang": lambda *_: time.sleep(600)}[os.environ[FAULT]]
        return launch


def open_timer():
    """Return a timer on the pretend board."""
    if os.environ.get(GONE) and os.path.exists(os.environ[GONE]):
        raise GpuError("the pretend GPU has fallen off the bus")
    if os.environ.get(GONE):
        open(os.environ[GONE], "w").close()
    return Timer(Board(lookup("orin-nano-8gb")), HostClock())
