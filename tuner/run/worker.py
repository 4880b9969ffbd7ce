"""The worker process that tunes workloads for the runtime: a bad candidate can ruin its own CUDA context alone.

Requests are lines of JSON on stdin: {"workload": {...}, "arch": name of a capability or part, "db": path, "device":
number of the requesting GPU, by default the current one}. With "background": true the program continues meanwhile, and
times are stored with that remark (`gensor_database.quiet`). With "first": true the answer comes as soon as one kernel
is verified (first.py).

Each request gets one answer on stdout: {"status": "ok" | "failed" | "unsupported", "kernel": digest or null, "error":
text or null}. Before it come lines {"trying": digest}: that kernel, whose rows are stored already, runs on the device
from now on; {"trying": null} ends this. The process ends with stdin, its parent, or at its memory limit.

"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from gensor_database.store import Store
from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.errors import GensorError, UnknownArchError
from gensor_kernels.machine.arch import Arch, stored
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.gpu import GpuError, open_any_gpu, open_gpu
from gensor_tuner.measure.timer import Timer, open_timer
from gensor_tuner.output import take_stdout, write_json
from gensor_tuner.parent_watch import follow
from gensor_tuner.shapes.reader import Row
from gensor_tuner.store.kernel_rows import kernel_rows
from gensor_tuner.verify.device_process import DeviceVerifier

from .class_run import Options
from .first import FirstKernels
from .tune import Run

Say = Callable[[dict[str, Any]], None]
NICENESS = 5
MEMORY_SHARE = 0.5  # of the machine's memory; on a small board the program needs the rest


def answer(request: dict[str, Any], say: Say = lambda message: None) -> dict[str, Any]:
    """Tune the requested workload; errors become answers unless the process cannot be trusted afterwards."""
    try:
        workload = Workload.from_json(json.dumps(request["workload"]))
        number = _number(request.get("device"))
        arch = _arch(request["arch"], number)
        # A board may lack g++; elsewhere kernels are executed on the emulator.
        verifying: AbstractContextManager[DeviceVerifier | None] = nullcontext()
        if shutil.which("g++") is None:
            verifying = DeviceVerifier(partial(open_gpu, arch, number))
        with Store.open(Path(request["db"])) as store, verifying as verifier:
            verify, beside = "device" if verifier is not None else "emulator", request.get("background") is True
            options = Options(jobs=usable_cores(), verify=verify, background=beside)
            timer: Timer | None = None
            trying = _announce(store, arch, say)
            with suppress(GpuError):
                timer = open_timer(arch, number)
            kind = FirstKernels if request.get("first") is True else Run
            run = kind(arch, store, options, timer=timer, verifier=verifier, trying=trying)
            ((_, result),) = run.rows([Row(0, "request", workload=workload)])
    except (GensorError, ValueError, KeyError, TypeError, MemoryError, OSError) as error:
        return _failure(error)
    return {"status": result.status, "kernel": result.kernel, "error": result.error}


@cache
def _step_back() -> None:
    """Let the program, and calls that wait for a kernel, have the processor first, once and for all."""
    with suppress(OSError, AttributeError):  # not on Windows
        os.nice(NICENESS)


def _failure(error: Exception) -> dict[str, Any]:
    return {"status": "failed", "kernel": None, "error": f"{type(error).__name__}: {error}"}


def _number(device: Any) -> int | None:
    """Return the requested GPU number; raise ValueError for a malformed one."""
    if device is None or (type(device) is int and device >= 0):
        return device
    raise ValueError(f"device must be the number of a GPU, not {device!r}")


def _announce(store: Store, arch: Arch, say: Say) -> Callable[[Candidate | None, Binary | None, Workload], None]:
    def trying(candidate: Candidate | None, binary: Binary | None, workload: Workload) -> None:
        if candidate is None or binary is None:
            return say({"trying": None})
        rows = kernel_rows(candidate, binary, workload, arch)
        store.add(*rows)
        return say({"trying": rows[-1].digest})

    return trying


def _arch(name: str, number: int | None) -> Arch:
    """Return the arch called `name`; a part that archs.toml does not list must be this machine's GPU."""
    try:
        return stored(name)
    except UnknownArchError:
        found: Arch | None = open_any_gpu(number).arch
        if found is None or found.part != name:
            raise
        return found


def main() -> None:
    """Answer requests on stdin."""
    out = take_stdout()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    follow(os.getppid(), MEMORY_SHARE * memory)
    running: str | None = None  # the kernel that was announced

    def say(message: dict[str, Any]) -> None:
        nonlocal running
        running = message.get("trying")
        write_json(out, message)

    while line := sys.stdin.readline():
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            request = {"error": str(error)}
        if isinstance(request, dict) and request.get("background") is True:
            _step_back()
        try:
            found = answer(request, say)
        except Exception as error:
            if running is None:  # otherwise the parent blames that kernel when this process ends
                say(_failure(error))
            raise  # the CUDA context may be lost
        say(found)
    out.close()


if __name__ == "__main__":
    main()
