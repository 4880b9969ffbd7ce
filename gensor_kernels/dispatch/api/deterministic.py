"""`deterministic`: calls whose kernels follow from call, device and stored kernels alone, or from a list of kernels."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from gensor_kernels import blocks, forking
from gensor_kernels.errors import PinError
from gensor_kernels.shown import shown

from . import current

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.pins import Pins


class Block:
    """A block of `deterministic`: its list of kernels, and its Runtimes in the place of those outside of it."""

    def __init__(self, pins: Pins | None = None):
        self.pins = pins
        self._runtimes: WeakKeyDictionary[Runtime, Runtime] = WeakKeyDictionary()
        self._lock = forking.lock(self, "_lock", threading.Lock)

    def of(self, runtime: Runtime) -> Runtime:
        """Return the block's Runtime in the place of another."""
        found = self._runtimes.get(runtime)
        if found is None:
            with self._lock:
                found = self._runtimes.get(runtime)
                if found is None:
                    found = self._runtimes[runtime] = runtime.with_pins(self.pins)
        return found


#: The one that all blocks without a list share, so that calls are planned once.
_unpinned = Block()


@contextmanager
def deterministic(pin: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Serve each kind of call by one fixed kernel, whatever was timed.

    Nothing is raced or tuned within the context, and no stored timing decides: what serves
    a call follows from the call, the device, and the kernels and records in the databases.
    `GENSOR_DETERMINISTIC=1` does the same for a process.

    Parameters
    ----------
    pin : path-like, optional
        A list of kernels (JSON). Where the file is absent, it is written when the block
        ends without an exception, with the kernels that have served; where it is there,
        each call is served by the kernel that it lists.

    Returns
    -------
    context manager
        It holds for this thread or task, and while it is open for threads without a
        block. A block without `pin` inside one with it keeps the list.

    Raises
    ------
    TypeError
        If `pin` is no path.
    PinError
        If the file is no such list or cannot be written. Calls raise it where the list has
        no kernel for them, or one that cannot be used here, and in a thread without a block
        while blocks with different lists are open in others.

    Notes
    -----
    Since no timing shows a win, the array library serves what it does in one call; with
    `GENSOR_TUNE=predicted` kernels serve it. The bits of the library's own calls depend on
    its version.

    Examples
    --------
    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     with gensor_kernels.deterministic(pin="pins.json"):
    ...         first = gensor_kernels.matmul(a, a.T)

    Another process computes the same bits:

    >>> with gensor_kernels.emulated("sm_87"):
    ...     with gensor_kernels.deterministic(pin="pins.json"):
    ...         second = gensor_kernels.matmul(a, a.T)
    """
    block = _block(pin)
    with blocks.deterministic.within(block), current.replaced(block.of):
        yield
    if block.pins is not None and pin is not None:
        block.pins.close()


def _block(pin: str | os.PathLike[str] | None) -> Block:
    if pin is None:
        return blocks.deterministic.own.get() or _unpinned
    from gensor_kernels.dispatch.selection.pins import Pins

    try:
        path = Path(pin).absolute()
    except TypeError:
        raise TypeError(f"pin must be a path, not {shown(pin)}") from None
    if not path.parent.is_dir():
        raise PinError(f"the pinned kernels cannot be written to {path}: there is no such folder")
    return Block(Pins(path))
