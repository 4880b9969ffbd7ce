"""Programs for child processes: a Runtime over NumPy that tunes in the background, without a GPU."""

import os
import sys
import time

from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.dispatch.tuning import background
from gensor_kernels.dispatch.tuning.worker import Worker

from .numpy_device import workload
from .racing import RacingDevice, kernels, products


def runtime():
    """A Runtime with kernels for the products of `racing.products`."""
    return Runtime(RacingDevice(), library.Library(library.Contents(kernels(workload(64, 64, 64)))))


def tuning(code="import time; time.sleep(600)"):
    """A Runtime whose background thread waits for a process that runs `code`; that process's number."""
    os.environ["GENSOR_BACKGROUND"] = "1"
    background.WORKER = Worker((sys.executable, "-S", "-c", code))
    made = runtime()
    made.background.consider(workload(64, 64, 64))
    while background.WORKER._process is None:
        time.sleep(0.01)
    return made, background.WORKER._process.pid


__all__ = ["products", "runtime", "tuning"]
