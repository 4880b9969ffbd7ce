"""Which Runtime a call made here and now is for: a GPU's, or inside `emulated` the emulator's. Imports little."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from gensor_kernels import config, forking

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: The Runtime of the innermost `emulated` block of this thread or task.
inside: ContextVar[Runtime | None] = ContextVar("gensor_kernels_emulated", default=None)
_lock = threading.Lock()
_emulators: dict[tuple[str, ...], Runtime] = {}
#: The Runtimes of all open `emulated` blocks, of any thread.
_open: list[Runtime] = []


def current_runtime() -> Runtime:
    """The Runtime a call made here and now would use."""
    return only or inside.get() or lookup()


def _cuda() -> Runtime:
    """First use of a GPU: imports CuPy, and leaves the lookup of the current device's Runtime in its place.

    Devices outlive their Runtimes: captured graphs launch functions of modules that a device has loaded.
    """
    global lookup
    from gensor_kernels.devices import cuda
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.library import Library
    from gensor_kernels.dispatch.selection.load import library

    runtimes: dict[int, Runtime] = {}
    devices: dict[int, cuda.CudaDevice] = {}
    current_device = cuda.current_device()

    def of_device() -> Runtime:
        global only
        number = current_device()
        runtime = runtimes.get(number)
        if runtime is None:
            with _lock:
                runtime = runtimes.get(number)
                if runtime is None:
                    if number not in devices:
                        devices[number] = cuda.CudaDevice(number)
                    device = devices[number]
                    runtime = runtimes[number] = Runtime(device, library(device.arch) if device.arch else Library())
                    only = runtime if device.where is None and not _emulates else None
        return runtime

    _forget_devices.append(runtimes.clear)
    lookup = of_device
    return of_device()


@forking.in_child
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


lookup: Callable[[], Runtime] = _cuda
#: The one Runtime there can be, so that nobody need ask which device is current: where there is one GPU, and nothing
#: was ever emulated.
only: Runtime | None = None
_emulates = False
_forget_devices: list[Callable[[], None]] = []


def refresh() -> None:
    """Forgets every plan and what was read from databases and settings: the next call looks again.

    Inside `emulated` the databases that the environment names now are read at once. Loaded kernels stay loaded, because
    captured graphs may launch them.
    """
    global only
    with _lock:
        only = None
        _emulators.clear()
        for forget in _forget_devices:
            forget()
        inside = set(_open)
    for runtime in inside:
        runtime.refresh()


@contextmanager
def emulated(arch: str) -> Iterator[None]:
    """Within it, calls take NumPy arrays and run the kernels of `arch` ("sm_87", "h200") on the CPU.

    Slow, exact in what it executes, and strict: a call that no kernel serves raises UnsupportedError instead of
    going to an array library. Needs g++ (ToolMissingError). bfloat16 arrays have the dtype of `ml_dtypes`.
    """
    global _emulates, only
    runtime = _emulator(arch)
    with _lock:
        _emulates, only = True, None
        _open.append(runtime)
    token = inside.set(runtime)
    try:
        yield
    finally:
        inside.reset(token)
        with _lock:
            _open.remove(runtime)


def _emulator(name: str) -> Runtime:
    from gensor_kernels.devices.emulator.device import EmulatorDevice
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.load import library
    from gensor_kernels.machine import arch as machine

    arch = machine.lookup(name)
    # Databases are named by the environment: another environment, another Runtime.
    key = (arch.part, str(config.own_database()), str(config.site_database()))
    with _lock:
        if key not in _emulators:
            _emulators[key] = Runtime(EmulatorDevice(arch), library(arch))
        return _emulators[key]
