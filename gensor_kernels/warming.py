"""`warmup`: what a program will need, loaded before it is asked for. Imports little."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from . import config
from .dispatch.api import current_runtime
from .errors import BuildError, GensorError

if TYPE_CHECKING:
    from .dispatch.library import Kernel
    from .dispatch.runtime import Runtime
    from .operators.workload import Workload


READER = (sys.executable, "-m", "gensor_tuner.shapes")


def warmup(source: str | os.PathLike[str] | None = None) -> int:
    """Loads the kernels that the calls of `source` would be served by; how many there are on the device now.

    `source` is a shapes file (CSV), such as `record` writes, or a database of `gensor-tune`, whose kernels must be in
    the databases in use too; None stands for every Workload that those databases have a record of. Afterwards the
    first call of a kind loads nothing and can stand in a graph capture. Nothing is compiled, raced or tuned.

    Raises FileNotFoundError without a file, GensorError for one that is neither.
    """
    runtime = current_runtime()
    if runtime.device.arch is None:
        return 0
    for workload in _workloads(runtime, None if source is None else Path(source)):
        kernel = _kernel(runtime, workload)
        if kernel is not None:
            _load(runtime, kernel, workload)
    return len(runtime.loaded)


def _workloads(runtime: Runtime, path: Path | None) -> Iterable[Workload]:
    from .operators.workload import Workload

    if path is None:
        return [Workload.from_json(key) for key in runtime.library.contents.records]
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no shapes file or database is there")
    with path.open("rb") as file:
        is_database = file.read(16) == b"SQLite format 3\0"
    if is_database:
        from .dispatch.stored import records_of

        assert runtime.device.arch is not None
        return [Workload.from_json(key) for key in records_of(path, runtime.device.arch)]
    import subprocess

    # Shapes files are the tuner's to read, which runs in processes of its own.
    done = subprocess.run([*READER, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise GensorError(done.stderr.strip() or f"{path}: could not be read")
    return [Workload.from_json(line) for line in done.stdout.splitlines()]


def _kernel(runtime: Runtime, workload: Workload) -> Kernel | None:
    """The kernel that would serve, in a graph or outside of one."""
    from .dispatch import tiers
    from .dispatch.problem import Problem
    from .operators.geometry import Geometry

    arch = runtime.device.arch
    assert arch is not None
    problem = Problem(workload, False, Geometry((1, 1, 1)), ())
    request = tiers.Request(problem, arch, runtime.device.emulated, one_call=True, captured=True)
    return tiers.choose(request, runtime.library).kernel


def _load(runtime: Runtime, kernel: Kernel, workload: Workload) -> None:
    from .programs.families import FAMILIES

    try:
        if not runtime.device.emulated and not kernel.code.cubin:
            return
        runtime.device.load(kernel.code, FAMILIES[kernel.program.family].launches(kernel.program, workload))
        runtime.loaded.add(kernel.digest)
    except BuildError as error:
        config.logger().info("kernel %s is not loaded: %s", kernel.digest[:12], error)
