"""Which Runtime a call made here and now is for: a GPU's, or inside `emulated` the emulator's. Imports little."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from gensor_kernels import blocks, config, forking
from gensor_kernels.errors import PinError, ToolMissingError
from gensor_kernels.shown import shown

if TYPE_CHECKING:
    from gensor_kernels.devices.emulator.device import EmulatorDevice
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: The Runtime of the innermost `emulated` block of this thread or task.
inside: ContextVar[Runtime | None] = blocks.emulated.own
_lock = threading.Lock()
_emulators: dict[tuple[str, ...], Runtime] = {}


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
    try:
        current_device = cuda.current_device()
    except ToolMissingError as error:
        if not blocks.emulated.open:
            raise
        raise ToolMissingError(f"{error}; another thread is inside emulated(...): {blocks.REMEDY}") from error

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
                    only = runtime if device.where is None and not _has_blocks else None
        return deterministic_runtime(runtime)

    _forget_devices.append(runtimes.clear)
    lookup = of_device
    return of_device()


@forking.in_child
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


lookup: Callable[[], Runtime] = _cuda
#: The Runtime of every call, if there is one GPU and no block of `emulated` or `deterministic` was ever open: calls
#: then do not look up the current device.
only: Runtime | None = None
_has_blocks = False
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
        inside = blocks.emulated.values()
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
        Within it, the calls of this thread or task run on the emulator. Another thread's do
        where its work is run by `contextvars.copy_context().run`.

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
    _look_for_blocks()
    with blocks.emulated.within(runtime):
        yield


@contextmanager
def within(block: Any) -> Iterator[None]:
    """Let calls of this thread or task use the Runtimes of a `deterministic` block."""
    _look_for_blocks()
    runtime = inside.get()
    with nullcontext() if runtime is None else blocks.emulated.within(block.of(runtime)):
        yield


def _look_for_blocks() -> None:
    global _has_blocks, only
    with _lock:
        _has_blocks, only = True, None


def deterministic_runtime(runtime: Runtime) -> Runtime:
    """Return the Runtime in the place of one that a `deterministic` block has: this thread's, or the one that is
    open."""
    block, elsewhere = blocks.deterministic.own.get(), blocks.deterministic
    if block is None and elsewhere.open:
        block, *more = elsewhere.innermost() or [None]  # it may have ended just now
        if more:
            raise PinError(f"other threads are within deterministic(...) blocks with different lists: {blocks.REMEDY}")
    return runtime if block is None else block.of(runtime)


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
        runtime = _emulators[key]
    return deterministic_runtime(runtime)
