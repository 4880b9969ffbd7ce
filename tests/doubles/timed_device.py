"""A GPU with a clock that the test sets: kernels are written down, and take as long as their code says."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from gensor_kernels.errors import BuildError
from gensor_tuner.measure.process import StoredTimes, reply_to, serve
from gensor_tuner.measure.timer import Timer

from .numpy_device import NumpyDevice

#: What the device is to do, as JSON: see TimedDevice.
PLAN = "GENSOR_TESTS_PLAN"


class Fault(RuntimeError):
    """What the driver raises after a kernel has gone wrong."""


class Memory:
    """NumPy, on a device that has so many bytes."""

    def __init__(self, limit):
        self.limit = limit

    def __getattr__(self, name):
        return getattr(np, name)

    def full(self, shape, value, dtype):
        if np.prod(shape) * np.dtype(dtype).itemsize > self.limit:
            raise MemoryError("planted: out of memory")
        return np.full(shape, value, dtype)


class TimedDevice(NumpyDevice):
    """`microseconds` per launch of ours and of the library's, `slow` codes take ten times as long; `faulty`, `deadly`
    and `refused` name codes by a piece of their cubins. Everything comes from the plan."""

    faults = (Fault,)

    def __init__(self, plan, memory=None):
        super().__init__()
        self.arch = replace(self.arch, l2_mb=0.05)  # few sets of operands exceed it
        self.plan, self.now, self.loads = plan, 0.0, 0
        self.xp = Memory(memory or plan.get("memory", 1 << 30))

    def conditions(self):
        return json.dumps(self.plan.get("conditions", {"driver": 1}), separators=(",", ":"))

    def synchronize(self):
        pass

    def _is(self, what, code):
        return any(piece.encode() in code.cubin for piece in self.plan.get(what, ()))

    def load(self, code, launches):
        self.loads += 1
        if self._is("refused", code):
            raise BuildError("the driver refused the stored cubin: planted")

        def launch(arguments, arrays, steps, workspace):
            if self._is("faulty", code):
                raise Fault("planted: an illegal memory access")
            if self._is("deadly", code):
                os._exit(9)
            self.now += self.plan.get("ours", 500.0) * (10 if self._is("slow", code) else 1)

        return launch

    def product(self, a, b, precision=None, out=None):
        self.now += self.plan.get("theirs", 2000.0)
        return np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype) if out is None else out


class DeviceClock:
    """Reads the device's own time."""

    def __init__(self, device):
        self.device = device

    def measure(self, calls):
        began = self.device.now
        for call in calls:
            call()
        return (self.device.now - began) * 1e-6


def open_timer(memory=None):
    device = TimedDevice(json.loads(os.environ[PLAN]), memory)
    return Timer(device, DeviceClock(device), memory)


class Here:
    """A worker in this process: as quick as a test wants it, and it cannot be killed."""

    def __init__(self, arguments):
        self.arguments, self.times = arguments, None

    def ask(self, request):
        if self.times is None:
            memory, *paths = self.arguments
            limit = int(memory) or None
            self.times = StoredTimes(open_timer(limit), [Path(path) for path in paths], limit)
        return json.loads(json.dumps(reply_to(self.times, request, lambda message: None)))

    def close(self):
        self.times = None


COMMAND = (sys.executable, "-m", "tests.doubles.timed_device")

if __name__ == "__main__":
    serve(open_timer)
