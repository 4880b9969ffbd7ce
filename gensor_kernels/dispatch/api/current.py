"""The Runtime of a call: that of the current GPU, or inside `emulated` that of an emulator. Imports little."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from gensor_kernels import blocks, config, forking
from gensor_kernels.errors import PinError, ToolMissingError
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from gensor_kernels.devices.emulator.device import EmulatorDevice
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: The Runtime of the innermost `emulated` block of this thread or task.
inside: ContextVar[Runtime | None] = blocks.emulated.own
_lock = forking.lock(sys.modules[__name__], "_lock", threading.Lock)
_emulators: dict[tuple[str, ...], Runtime] = {}


def current_runtime() -> Runtime:
    """Return the Runtime of calls at this point of this thread or task."""
    return only or inside.get() or lookup()


def _cuda() -> Runtime:
    """Import CuPy at the first use of a GPU, and replace `lookup` by a function that reads the current device.

    Devices outlive their Runtimes: captured graphs launch functions of modules that a device has loaded.
    """
    global lookup
    from gensor_kernels.devices import cuda
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.library import Library
    from gensor_kernels.dispatch.selection.load import library

    runtimes = _runtimes
    devices: dict[int, cuda.CudaDevice] = {}
    try:
        current_device = cuda.current_device()
    except ToolMissingError as error:
        if not blocks.emulated.open:
            raise
        raise ToolMissingError(f"{error}; another thread is inside emulated(...): {blocks.REMEDY}") from error

    def make_runtime(number: int) -> Runtime:
        global only
        with _lock:
            if number not in runtimes:
                if number not in devices:
                    devices[number] = cuda.CudaDevice(number)
                device = devices[number]
                runtimes[number] = Runtime(device, library(device.arch) if device.arch else Library())
                only = runtimes[number] if device.where is None and not _has_blocks else None
            return runtimes[number]

    block = blocks.deterministic

    def device_runtime() -> Runtime:
        number = current_device()
        found = runtimes.get(number) or make_runtime(number)
        return deterministic_runtime(found) if block.open or block.own.get() is not None else found

    lookup = device_runtime
    return device_runtime()


lookup: Callable[[], Runtime] = _cuda
#: The Runtime of all calls, which then skip `lookup`: set if there is one GPU, and no `emulated` or `deterministic`
#: block was ever open.
only: Runtime | None = None
_has_blocks = False
#: Runtimes of GPUs, by number.
_runtimes: dict[int, Runtime] = {}


def refresh() -> None:
    """Forget all plans, and read databases and settings again at the next call.

    Inside `emulated`, the databases that the environment names now are read at once.
    Loaded kernels stay loaded, because captured graphs may launch them.

    Examples
    --------
    >>> import os
    >>> os.environ["GENSOR_TUNE"] = "off"
    >>> gensor_kernels.refresh()
    """
    global only
    with _lock:
        only = None
        inside = blocks.emulated.values()
        for known in (_emulators, _runtimes):
            for runtime in known.values():
                runtime.expire()
            known.clear()
    for runtime in inside:
        runtime.refresh()


@contextmanager
def emulated(arch: str) -> Iterator[None]:
    """Run kernels on the CPU, with NumPy arrays in place of CuPy arrays.

    Parameters
    ----------
    arch : str
        Capability or part whose kernels run, such as "sm_87" or
        "Jetson Orin Nano". `gensor-tune archs` lists them.

    Returns
    -------
    context manager
        Within it, the calls of this thread or task run on the emulator. So do those of
        another thread whose work is run by `contextvars.copy_context().run`.

    Raises
    ------
    TypeError
        If `arch` is no string.
    UnknownArchError
        If there is no such capability or part.
    ToolMissingError
        If g++ is missing.

    Notes
    -----
    The emulator is slow, and exact in what it executes. It is also strict: a call that
    no kernel serves raises UnsupportedError in place of going to an array library.
    bfloat16 arrays have the dtype of `ml_dtypes`.

    Examples
    --------
    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     gensor_kernels.matmul(a, a.T)
    array([[3., 3.],
           [3., 3.]], dtype=float32)
    """
    if not isinstance(arch, str):
        raise TypeError(f"arch must be a name such as 'sm_87', not {shown(arch)}")
    with _inside(_emulator(arch)):
        yield


@contextmanager
def rehearsed(arch: str) -> Iterator[None]:
    """Plan the calls made within the context as inside `emulated`, and compute nothing: every result is zeros.

    No kernel is built or executed, and g++ is not needed. Recordings and `explain` see the calls that a run makes, as
    long as no shape depends on computed values.
    """
    from gensor_kernels.devices.emulator.device import RehearsalDevice

    with _inside(_emulator(arch, RehearsalDevice)):
        yield


@contextmanager
def _inside(runtime: Runtime) -> Iterator[None]:
    """Let calls of this thread or task use an emulator's Runtime."""
    _disable_only()
    with blocks.emulated.within(runtime):
        yield


@contextmanager
def replaced(replacement: Callable[[Runtime], Runtime]) -> Iterator[None]:
    """Let calls of this thread or task that are inside `emulated` use the replacement of its Runtime."""
    _disable_only()
    runtime = inside.get()
    with nullcontext() if runtime is None else blocks.emulated.within(replacement(runtime)):
        yield


def _disable_only() -> None:
    """Look up the Runtime of every call from now on."""
    global _has_blocks, only
    with _lock:
        _has_blocks, only = True, None


def deterministic_runtime(runtime: Runtime) -> Runtime:
    """Return the Runtime that replaces `runtime` in this thread's `deterministic` block, else in the only open one."""
    block = blocks.deterministic.own.get()
    if block is None and blocks.deterministic.open:
        block, *others = blocks.deterministic.innermost() or [None]  # it may have ended just now
        if others:
            raise PinError(f"other threads are within deterministic(...) blocks with different lists: {blocks.REMEDY}")
    return runtime if block is None else block.of(runtime)


def _emulator(name: str, kind: type[EmulatorDevice] | None = None) -> Runtime:
    """Return the Runtime of an emulator of a part, which is of the class `kind`."""
    from gensor_kernels.devices.emulator.device import EmulatorDevice
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.load import library
    from gensor_kernels.machine import arch as machine

    arch, device_class = machine.lookup(name), kind or EmulatorDevice
    # The environment names databases: each environment has its own Runtime.
    key = (device_class.__name__, arch.part, str(config.own_database()), str(config.site_database()))
    with _lock:
        if key not in _emulators:
            _emulators[key] = Runtime(device_class(arch), library(arch))
        runtime = _emulators[key]
    return deterministic_runtime(runtime)
