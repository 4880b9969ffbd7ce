"""The worker: tunes one workload for the runtime, in a process of its own.

A bad candidate can poison a CUDA context; then it is this process's, not the user's. One request is read as a line
of JSON from stdin, {"workload": {...}, "arch": name of a capability or part, "db": path}, and one line of JSON is
written to stdout: {"status": "ok" | "failed" | "unsupported", "kernel": digest or null, "error": text or null}.
Whatever a library prints meanwhile goes to stderr, so the answer is the only line there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from gensor_database.store import Store, StoreError
from gensor_kernels.build.parallel import usable_cores
from gensor_kernels.errors import GensorError, UnknownArchError
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.workload import Workload

from .construct import Options
from .gpu import GpuError
from .measure import Timer, open_timer
from .shapes import Row
from .tune import Run


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Tune what `request` asks for; errors are answers."""
    try:
        workload = Workload.from_json(json.dumps(request["workload"]))
        arch = _arch(request["arch"])
        with Store.open(Path(request["db"])) as store:
            run = Run(arch, store, Options(jobs=usable_cores()), timer=_timer(arch))
            ((_, result),) = run.rows([Row(0, "request", workload=workload)])
    except (GensorError, StoreError, ValueError, KeyError, TypeError) as error:
        return {"status": "failed", "kernel": None, "error": f"{type(error).__name__}: {error}"}
    return {"status": result.status, "kernel": result.kernel, "error": result.error}


def _arch(name: str) -> Arch:
    """The arch called `name`; a part that archs.toml does not list is the one of the GPU here, which asked."""
    try:
        return lookup(name)
    except UnknownArchError:
        from gensor_kernels.devices import cuda

        found = cuda.CudaDevice(cuda.current_device()()).arch
        if found is None or found.part != name:
            raise
        return found


def _timer(arch: Arch) -> Timer | None:
    try:
        return open_timer(arch)
    except GpuError:
        return None


def main() -> None:
    """Answer the one request on stdin."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # stray prints of libraries must not be taken for the answer
    try:
        request = json.loads(sys.stdin.readline())
    except ValueError as error:
        request = {"error": str(error)}
    out.write(json.dumps(answer(request)) + "\n")
    out.close()


if __name__ == "__main__":
    main()
