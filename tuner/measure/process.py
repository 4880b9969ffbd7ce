"""The child process of `gensor-tune measure`, which times stored kernels and the array library's call.

A kernel that faults or hangs destroys this process's CUDA context, not the command's. Requests are lines of JSON on
stdin: {} requests a description of the device, {"workload": key, "without": kernel digests} for the times of one
Workload. Each gets one line of answer on stdout. A line {"trying": digest} precedes a kernel's first run, and
{"trying": null} says that all kernels have returned. Nothing is compiled.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from gensor_database import Catalog, Store, Timing, canonical, quiet
from gensor_kernels.devices.device import Code
from gensor_kernels.dispatch.calls.problem import Problem
from gensor_kernels.dispatch.selection import load
from gensor_kernels.dispatch.selection.library import Kernel, Library
from gensor_kernels.dispatch.selection.tiers import Request, candidates
from gensor_kernels.errors import BuildError, GensorError
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.validation import MALFORMED, workload_of
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import free_memory, limit_memory, open_any_gpu, out_of_memory
from gensor_tuner.output import take_stdout, write_line

from .timer import CudaClock, Timer, vendor_name

CANDIDATES = 8  # kernels timed per Workload, the recorded kernel first

Say = Callable[[dict[str, Any]], None]
Entrant = tuple[Kernel, Candidate, Code]


class StoredTimes:
    """Times the kernels that the databases at `paths` hold for one device."""

    def __init__(self, timer: Timer, paths: Sequence[Path], memory: int | None = None):
        device = timer.device
        if device.arch is None:
            raise GensorError(f"no kernel runs on the GPU here: {device.unsupported}")
        self.timer, self.device, self.arch, self.memory = timer, device, device.arch, memory
        self.conditions = device.conditions()
        #: the kernel that is running for the first time
        self.trying: str | None = None
        self.stores = [Store.open(path, readonly=True) for path in paths if path.exists()]
        abis = {name: family.abi for name, family in FAMILIES.items()}
        self.catalog = Catalog(self.stores, self.arch.name, abis)
        self.library = Library(load.contents(self.catalog, self.arch))

    def about(self) -> dict[str, Any]:
        """Return the key that times of this device are stored under."""
        facts = {"arch": self.arch.name, "part": self.arch.part, "conditions": self.conditions}
        return {"status": "ok", **facts, "untrusted": [str(each.path) for each in self.stores if not each.trusted]}

    def answer(self, key: str, without: Collection[str], say: Say) -> dict[str, Any]:
        """Time the Workload with this key: "ok" with new rows, "known" without, or "unsupported" with the reason.

        Kernels in `without` are not run.
        """
        try:
            workload = workload_of(key)
        except MALFORMED as error:
            return {"status": "unsupported", "error": f"not a workload of this version: {error}"}
        try:
            return self._times(workload, without, say)
        except MemoryError as error:
            return {"status": "unsupported", "error": f"out of device memory: {error}"}
        finally:
            free_memory(self.device)

    def _times(self, workload: Workload, without: Collection[str], say: Say) -> dict[str, Any]:
        left: dict[str, str] = {}
        found = [kernel for kernel in self._candidates(workload) if kernel.digest not in without]
        chosen = [each for kernel in found if (each := self._entrant(kernel, workload, left))]
        done = self._measure(workload)
        todo = [each for each in chosen if each[0].digest not in done]
        told = {"kernels": len(chosen), "left": left}
        if not chosen:
            reason = next(iter(left.values()), self._why_none(workload))
            return {"status": "unsupported", "error": reason, **told}
        if not todo:
            return {"status": "known", **told}
        needed = workload.bytes_moved()
        if self.memory is not None and needed > self.memory:
            raise MemoryError(f"its arrays have {needed} bytes, {self.memory} are allowed")

        def before(index: int) -> None:
            self.trying = todo[index][0].digest if index < len(todo) else None
            say({"trying": self.trying})

        times, vendor = self.timer.time(workload, [(each, code) for _, each, code in todo], before=before)
        place = (workload.key(), self.arch.name, self.arch.part)
        rows = [
            Timing(*place, kernel.digest, None, time.median_us, time.samples(), self.conditions)
            for (kernel, *_), time in zip(todo, times, strict=True)
        ]
        if vendor is not None:
            name = vendor_name(workload)
            rows.append(Timing(*place, None, name, vendor.median_us, vendor.samples(), self.conditions))
        return {"status": "ok", "rows": [{n: getattr(row, n) for n in row.columns()} for row in rows], **told}

    def _candidates(self, workload: Workload) -> list[Kernel]:
        """Return the recorded kernel, then matching kernels of portfolios by descending likelihood."""
        request = Request(Problem(workload, Geometry((1, 1, 1)), ()), self.arch, False, True)
        ranked = sorted(candidates(request, self.library), key=lambda entry: entry[:3])
        recorded = self.library.record(workload)
        found = [*([recorded] if recorded is not None else []), *(entry[3] for entry in ranked)]
        return list(dict.fromkeys(found))[:CANDIDATES]

    def _entrant(self, kernel: Kernel, workload: Workload, left: dict[str, str]) -> Entrant | None:
        """Load a kernel for the timer; where that needs a compiler, return None and put the reason into `left`."""
        code, family = _stored_code(kernel), FAMILIES[kernel.program.family]
        if code is None:
            left[kernel.digest] = "it would have to be compiled: no cubin that may be loaded is stored for this arch"
            return None
        try:
            self.device.load(code, family.launches(kernel.program, workload))
        except BuildError as error:
            left[kernel.digest] = str(error)
            return None
        return kernel, Candidate(kernel.program, family, canonical(dict(code.constants))), code

    def _measure(self, workload: Workload) -> set[str]:
        """Return the kernels timed under the current conditions.

        Races of the runtime (fewer samples) and times taken in the background of a program do not count.
        """
        rows = [row for store in self.stores for row in store.rows(Timing, key=workload.key(), part=self.arch.part)]
        current = [row for row in quiet(rows) if row.device == self.conditions]
        current = [row for row in current if not json.loads(row.samples).get("race")]
        return {row.kernel_digest for row in current if row.kernel_digest is not None}

    def _why_none(self, workload: Workload) -> str:
        key, arch = workload.key(), self.arch.name
        records = [row for store in self.stores for row in store.records(key, arch) if row.kernel_digest]
        for record in records:
            found = self.catalog.kernel(record.kernel_digest or "")
            if found is None:
                return "its kernel is missing, or of another ABI version: gensor-tune refresh rebuilds it"
            if not found.usable:
                return f"its kernel {found.kernel.digest[:12]} is not usable: verified {found.verified}"
        return "no stored kernel fits it"


def _stored_code(kernel: Kernel) -> Code | None:
    try:
        return kernel.code if kernel.code.cubin else None
    except BuildError:  # its rows are missing
        return None


def open_timer(memory: int | None) -> Timer:
    """Return a timer on this machine's GPU, whatever its part, that compiles nothing; GpuError without a GPU."""
    os.environ.setdefault("CUPY_TF32", "1")  # see timer.open_timer
    device = open_any_gpu()
    device.compiles = False
    limit_memory(device, memory)
    return Timer(device, CudaClock(device, memory), memory)


def serve(open_device: Callable[[int | None], Timer] = open_timer) -> None:
    """Answer requests on stdin. Arguments: a memory limit in bytes (0 for none), and the databases to read."""
    out = take_stdout()

    def say(message: dict[str, Any]) -> None:
        write_line(out, json.dumps(message))

    memory, *paths = sys.argv[1:]
    limit = int(memory) or None
    try:
        times = StoredTimes(open_device(limit), [Path(path) for path in paths], limit)
    except (GensorError, MemoryError) as error:
        return say({"status": "failed", "error": str(error)})
    while line := sys.stdin.readline():
        reply = reply_to(times, json.loads(line), say)
        say(reply)
        if reply["status"] == "fault":
            os._exit(0)  # freeing arrays of a lost context would print errors
    return None


def reply_to(times: StoredTimes, request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return the answer to one request; "fault" means that the kernel "trying" has destroyed the device's context."""
    if "workload" not in request:
        return times.about()
    try:
        return times.answer(request["workload"], request.get("without", ()), say)
    except times.device.faults as error:
        text = f"{type(error).__name__}: {error}"
        if out_of_memory(error):
            return {"status": "unsupported", "error": f"out of device memory: {text}"}
        return {"status": "fault", "error": text, "trying": times.trying}
    except Exception as error:  # an error of the driver or a library, at one Workload
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    serve()
