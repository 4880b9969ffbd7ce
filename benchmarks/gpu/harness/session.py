"""The state of a step on one device, and the loop over its items."""

from __future__ import annotations

import os
import re
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from gensor_database.store import Store
from gensor_kernels.devices import cupy_internals
from gensor_kernels.devices.device import Device
from gensor_kernels.devices.emulator.run import KernelFault
from gensor_kernels.errors import ToolMissingError
from gensor_kernels.machine.arch import Arch, lookup

from .journal import Journal
from .supervise import COMPLETE, OUT_OF_TIME, POISONED

EMULATED_ARCH = "sm_87"


@dataclass(frozen=True)
class Item:
    """A unit of work: `run` returns its findings, with an `outcome` where that is not "ok".

    `limit`: seconds after which it counts as hanging, where the supervisor's own limit is too short. `always`: a run
    that resumes repeats it.
    """

    name: str
    run: Callable[[], dict[str, Any]]
    limit: float | None = None
    always: bool = False


@dataclass
class Session:
    """The device, the folder for results, the deadline, and the options of the command."""

    out: Path
    journal: Journal
    deadline: float  # of time.monotonic()
    emulate: bool = False
    arch_name: str | None = None
    db: Path | None = None
    since: float = 0.0  # items that broke before this time run again, seconds since 1970
    only: str = ""  # items whose name matches this expression
    sanitized: bool = False  # under compute-sanitizer
    #: vendors to compare with
    vendors: tuple[str, ...] = ("cupy", "cublaslt", "torch", "flash", "cudnn", "compiled")
    cupy_tests: Path | None = None  # a checkout of CuPy
    timed: bool = False  # whether the step times vendors' calls
    _poisoned: bool = field(default=False, repr=False)

    @cached_property
    def device(self) -> Device:
        """The GPU, or the emulator. Raises ToolMissingError, with a sentence, where there is none."""
        if self.emulate:
            from .rehearsal import RehearsedDevice

            return RehearsedDevice(lookup(self.arch_name or EMULATED_ARCH))
        if self.timed:  # the vendor's call of a TF32 row must also be TF32; IEEE rows switch it off call by call
            os.environ.setdefault("CUPY_TF32", "1")
        from gensor_kernels.devices import cuda

        device = cuda.CudaDevice(cuda.current_device()())
        if self.sanitized:
            device.cupy.cuda.set_allocator(None)  # a pool would hide accesses beyond an allocation
        if self.arch_name is not None:
            device.arch = lookup(self.arch_name)
        if device.arch is None:
            raise ToolMissingError(f"this GPU is not supported: {device.unsupported}")
        return device

    @property
    def arch(self) -> Arch:
        """The device's Arch."""
        assert self.device.arch is not None
        return self.device.arch

    @property
    def part(self) -> str:
        """The part under which rows are stored: rows of a rehearsal must never pass for a part's."""
        return f"{self.arch.part}-emulated" if self.emulate else self.arch.part

    def left(self) -> float:
        """Return the seconds until the worker has to end."""
        return self.deadline - time.monotonic()

    def store(self) -> Store:
        """Open the database of results; close it after use, so that it is one file."""
        return Store.open(self.out / "device.db")

    def synchronize(self) -> None:
        """Wait for the device, and raise the errors of its kernels."""
        self.device.synchronize()

    def healthy(self) -> bool:
        """Return whether the device still answers: after an illegal access every call of the process fails."""
        if self.emulate:
            return not self._poisoned
        try:
            return float(self.device.xp.ones(64, "float32").sum()) == 64.0
        except Exception:  # the driver's errors have no common base
            return False

    def is_fault(self, error: Exception) -> bool:
        """Return whether an error comes from the device.

        The emulator recovers from all of its faults; in a rehearsal they end the process like a GPU's.
        """
        if self.emulate:
            self._poisoned |= isinstance(error, KernelFault)
            return isinstance(error, KernelFault)
        return cupy_internals.raised_by_cupy(error)

    def wants(self, item: str) -> bool:
        """Return whether the item matches `only`."""
        return re.search(self.only, item) is not None

    def work(self, step: str, items: Iterable[Item]) -> int:
        """Run the items that are not done yet, and return the worker's exit code."""
        done = self.journal.finished(step, self.since)
        for item in items:
            if (item.name in done and not item.always) or not self.wants(item.name):
                continue
            if self.left() <= 0:
                return OUT_OF_TIME
            self.journal.write(event="begin", step=step, item=item.name, limit=item.limit)
            self._end(step, item.name, self._run(item))
            if not self.healthy():
                return POISONED
        return COMPLETE

    def _run(self, item: Item) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            found = {"outcome": "ok", **item.run()}
        except Exception as error:
            self.is_fault(error)
            found = {"outcome": "error", "error": f"{type(error).__name__}: {error}"}
            found["traceback"] = traceback.format_exc()
        return {**found, "seconds": round(time.perf_counter() - began, 4)}

    def _end(self, step: str, item: str, found: dict[str, Any]) -> None:
        self.journal.write(event="end", step=step, item=item, emulated=self.emulate, **found)
