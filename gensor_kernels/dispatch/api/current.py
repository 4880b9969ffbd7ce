"""Which Runtime a call made here and now is for: a GPU's, or inside `emulated` the emulator's. Imports little."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from gensor_kernels import config, forking
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from gensor_kernels.devices.emulator.device import EmulatorDevice
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
        _emulators.clear()
        for forget in _forget_devices:
            forget()
        inside = set(_open)
    for runtime in inside:
        runtime.refresh()


@contextmanager
def emulated(arch: str) -> Iterator[None]:
    """Run kernels on the CPU, with NumPy arrays in place of CuPy arrays.

    Parameters
    ----------
    arch : str
        Capability or part whose kernels run, such as "sm_87" or "h200".
        `gensor-tune archs` lists them.

    Returns
    -------
    context manager
        Within it, the calls of this thread or task run on the emulator.

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
    from gensor_kernels.devices.emulator.rehearsal import RehearsalDevice

    with _inside(_emulator(arch, RehearsalDevice)):
        yield


@contextmanager
def _inside(runtime: Runtime) -> Iterator[None]:
    """Let calls of this thread or task use an emulator's Runtime."""
    global _emulates, only
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


def _emulator(name: str, kind: type[EmulatorDevice] | None = None) -> Runtime:
    """Return the Runtime of a part's emulator, or of a device of the class `kind`."""
    from gensor_kernels.devices.emulator.device import EmulatorDevice
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.load import library
    from gensor_kernels.machine import arch as machine

    arch, made = machine.lookup(name), kind or EmulatorDevice
    # Databases are named by the environment: another environment, another Runtime.
    key = (made.__name__, arch.part, str(config.own_database()), str(config.site_database()))
    with _lock:
        if key not in _emulators:
            _emulators[key] = Runtime(made(arch), library(arch))
        return _emulators[key]
