"""A GPU with a clock that the test sets: kernels take as long as their code says, and fail as the plan says."""

import json
import os
import pickle
from dataclasses import replace

import numpy as np

from gensor_kernels.errors import BuildError
from gensor_tuner.measure.board import Board
from gensor_tuner.measure.timer import Timer

from .device import FakeDevice, Fault, Numpy, Prices, zero_product
from .kernels import ARCH

#: The device's behaviour, as JSON: microseconds of a launch of ours ("ours") and of the library's ("theirs"), pieces
#: of cubins that are "slow" (ten times as long), "faulty", "deadly" or "refused", "memory" in bytes, "conditions".
PLAN = "GENSOR_TESTS_PLAN"
#: The setting by which boards open this device.
DEVICE = {"GENSOR_FLEET_DEVICE": "tests.doubles.timed:open_timer"}


def open_timer(number, memory=None):
    plan = json.loads(os.environ[PLAN])
    limit = memory or plan.get("memory", 1 << 30)

    def named(what, code):
        return any(piece.encode() in code.cubin for piece in plan.get(what, ()))

    def execute(device, code, launches):
        if named("refused", code):
            raise BuildError("the driver refused the stored cubin: planted")

        def launch(arguments, arrays, steps, workspace):
            if named("faulty", code):
                raise Fault("planted: an illegal memory access")
            if named("deadly", code):
                os._exit(9)

        return launch

    def full(shape, value, dtype):
        if np.prod(shape) * np.dtype(dtype).itemsize > limit:
            raise MemoryError("planted: out of memory")
        return np.full(shape, value, dtype)

    ours = plan.get("ours", 500.0)
    clock = Prices(lambda code: ours * (10 if named("slow", code) else 1), plan.get("theirs", 2000.0))
    clock.conditions = json.dumps(plan.get("conditions", {"driver": 1}), separators=(",", ":"))
    arch = replace(ARCH, l2_mb=0.05)  # few sets of operands exceed it
    return Timer(FakeDevice(arch, execute, clock, xp=Numpy(full=full), multiply=zero_product), clock, memory)


class Here(Board):
    """A board in this process: as quick as a test wants it, and it cannot be killed."""

    timer = None

    def _start(self):
        self.timer = self.timer or self.open_device()

    def ask(self, question, on_note=lambda note: None):
        self._start()
        found, last = pickle.loads(pickle.dumps(self.answer(self.timer, question, on_note)))
        if last:
            self.timer = None
        return found
