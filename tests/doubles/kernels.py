"""Kernels in memory for devices that do not look at binaries, and Runtimes that have them."""

import os
import sys
import time
from contextvars import ContextVar
from dataclasses import replace

import numpy as np

from gensor_kernels import blocks
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.observe.dry_run import Question
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import library
from gensor_kernels.dispatch.tuning import background
from gensor_kernels.dispatch.tuning.worker import Worker
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products import matmul as operator

from .device import FakeDevice, Race
from .strict.stored import cubin as written

ARCH = lookup("sm_87")


def workload(m=512, n=512, k=512, **keywords):
    return operator.workload(m, n, k, dtype=keywords.pop("dtype", "float32"), **keywords)


def starters(wanted):
    """The families' default Programs for a Workload, as kernels without binaries."""
    for family in Space(wanted, ARCH).families:
        for program in family.family.starters(wanted, ARCH):
            yield library.generate(program, wanted, ARCH)


def kernels(wanted, cubin=None):
    """Kernels of the default Programs with binaries without code, by digest."""
    found = {}
    for kernel in starters(wanted):
        launches = FAMILIES[kernel.program.family].launches(kernel.program, wanted)
        image = written(ARCH.target, kernel.code.text, launches) if cubin is None else cubin
        made = replace(kernel.code, cubin=image)
        found[kernel.digest] = library.Kernel(kernel.digest, kernel.program, wanted, lambda made=made: made)
    return found


def aligned(shape, dtype=np.float32):
    raw = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start : start + len(raw) - 16].view(dtype).reshape(shape)


def runtime_of(device=None, stored=(), records=(), timings=()):
    """A Runtime with kernels by digest; records and timings are by Workload key."""
    return Runtime(
        device or FakeDevice(), library.Library(library.Contents(dict(stored), dict(records), dict(timings)))
    )


def raced(ours=5.0, theirs=10.0):
    """A Runtime with kernels for the products of `products`, on a device on which races go so."""
    return runtime_of(FakeDevice(clock=Race(ours, theirs)), kernels(workload(64, 64, 64)))


def put(patch, made):
    """Make `made` the Runtime of public calls, in whatever thread, until `patch` is undone."""
    inside = ContextVar("test", default=made)
    patch.setattr(current, "inside", inside)
    patch.setattr(blocks.emulated, "own", inside)
    return made


def forget_gpus(patch):
    """Forget the GPUs that were found, and their Runtimes, until `patch` is undone."""
    for name, value in (("lookup", current._cuda), ("only", None), ("_has_blocks", False), ("_runtimes", {})):
        patch.setattr(current, name, value)


def products(made, runs, out=False):
    """The results' first elements: 55 where a kernel served, 0 where the library did."""
    a, b = aligned((64, 64)), aligned((64, 64))
    c = aligned((64, 64)) if out else None
    return [float(made.call(a, b, c, (), None, None)[0, 0]) for _ in range(runs)]


def asked(runtime, a, b, out=None, steps=(), dtype=None, precision=None):
    """What `runtime.call` would ask the tiers: a kind of call and its operands."""
    with runtime.dry_run():
        try:
            runtime.call(a, b, out, steps, dtype, precision)
        except Question as question:
            return question.call, question.operands
    raise AssertionError("the call was made")


def tuning(code="import time; time.sleep(600)"):
    """A Runtime whose background thread waits for a process that runs `code`; that process's number."""
    os.environ["GENSOR_BACKGROUND"] = "1"
    background.BACKGROUND_WORKER = Worker((sys.executable, "-S", "-c", code))
    made = raced()
    made.background.consider(workload(64, 64, 64))
    while background.BACKGROUND_WORKER._process is None:
        time.sleep(0.01)
    return made, background.BACKGROUND_WORKER._process.pid
