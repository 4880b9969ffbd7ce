"""`warmup`: load the kernels that a program will need. Imports little."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gensor_kernels import config
from gensor_kernels.errors import BuildError, GensorError, PinError, UnsupportedError

from .current import current_runtime

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Code
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.library import Kernel
    from gensor_kernels.families.core.family import Launch
    from gensor_kernels.operators.types.workload import Workload


READER = (sys.executable, "-m", "gensor_tuner.shapes.reader")


def warmup(source: str | os.PathLike[str] | None = None) -> int:
    """Load the kernels that a program will need, before its first calls.

    Afterwards, the first call of a kind loads nothing and can stand in a graph capture.

    Parameters
    ----------
    source : path, optional
        Shapes file (CSV), such as `record` writes, or a database of `gensor-tune`,
        whose kernels must be in the databases in use too. By default, every workload
        that the databases in use have a record of.

    Returns
    -------
    int
        Number of kernels that are ready now.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    GensorError
        If the file is neither a shapes file nor a database.

    Notes
    -----
    Nothing is raced or tuned. On a GPU, nothing is compiled except a stored binary that
    the driver refuses.

    Inside `emulated`, a kernel is a library that g++ builds in a second or more. With a
    `source`, its libraries are built, several at a time. Without one, which may mean
    hundreds of kernels, kernels are chosen and bound, libraries that were built before
    are loaded, and the others are built by their first calls.

    A bar on stderr shows the progress where that is a terminal and tqdm is installed
    (as with the `tune` extra); `GENSOR_LOG=info` logs the progress elsewhere.

    Examples
    --------
    Record the calls of one run, and load their kernels in the next run:

    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     with gensor_kernels.record("shapes.csv"):
    ...         y = gensor_kernels.matmul(a, a.T)
    ...     gensor_kernels.warmup("shapes.csv")
    1
    """
    runtime = current_runtime()
    device = runtime.device
    if device.arch is None:
        return 0
    placed: dict[str, list[BoundKernel]] = {}
    for workload in _workloads(runtime, None if source is None else Path(source)):
        found = _bind(runtime, workload)
        if found is not None:
            placed.setdefault(found.kernel.stored, []).append(found)
    builds = device.emulated and source is not None
    codes = [code for kernels in placed.values() if (code := _code(kernels[0].kernel)) is not None]
    if builds:
        missing = [code for code in codes if not device.is_built(code)]
        with _progress(len(missing)) as done:
            device.build(missing, lambda index, built: done())
    with _progress(len(placed)) as done:
        for kernels in placed.values():
            _load(runtime, kernels)
            done()
    return len(placed) if device.emulated and not builds else len(runtime.loaded)


class BoundKernel(NamedTuple):
    """A kernel bound to one Workload."""

    kernel: Kernel
    launches: Sequence[Launch]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Return a function to call after each of `total` steps."""
    try:
        from tqdm import tqdm
    except ImportError:
        log, number = config.logger(), count(1)
        yield lambda: log.info("warmup: kernel %d of %d", next(number), total)
        return
    with tqdm(total=total, desc="warmup", unit=" kernels", delay=1, leave=False, disable=None) as bar:
        yield bar.update


def _workloads(runtime: Runtime, path: Path | None) -> Iterable[Workload]:
    from gensor_kernels.operators.types.workload import Workload

    if path is None:
        runtime.library.include(None)
        return [Workload.from_json(key) for key in runtime.library.contents.records]
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no shapes file or database is there")
    with path.open("rb") as file:
        is_database = file.read(16) == b"SQLite format 3\0"
    if is_database:
        from gensor_kernels.dispatch.selection.load import records_of

        assert runtime.device.arch is not None
        return [Workload.from_json(key) for key in records_of(path, runtime.device.arch)]
    import subprocess

    # The tuner reads shapes files, and runs in its own processes.
    done = subprocess.run([*READER, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise GensorError(done.stderr.strip() or f"{path}: could not be read")
    return [Workload.from_json(line) for line in done.stdout.splitlines()]


def _bind(runtime: Runtime, workload: Workload) -> BoundKernel | None:
    """Return the kernel that would serve, in a graph or outside of one, with its sizes, or None if there is none."""
    from gensor_kernels.dispatch.calls.problem import Problem
    from gensor_kernels.dispatch.selection import tiers
    from gensor_kernels.operators import operator

    arch, declared = runtime.device.arch, operator(workload.operator)
    assert arch is not None
    if declared.empty(workload):
        return None
    try:
        # Families also check strides and windows, here of arrays without gaps.
        strides = {each.name: each.strides() for each in declared.operands(workload)}
        problem = Problem(workload, declared.geometry(workload, strides), ())
        request = tiers.Request(problem, arch, runtime.device.emulated, one_call=True, captured=True)
        choice = tiers.choose(request, runtime.library)
        if runtime.pins is not None:
            choice = runtime.pins.choose(request, choice, False, runtime.library)
        kernel = choice.kernel
        if kernel is None:
            return None
        return BoundKernel(kernel, kernel.launches(workload))
    except (BuildError, PinError, UnsupportedError) as error:
        config.logger().info("no kernel is loaded for %s: %s", workload.key(), error)
        return None


def _code(kernel: Kernel) -> Code | None:
    """Return the code that a device loads, or None if it is no longer in a database."""
    try:
        return kernel.code
    except BuildError as error:
        config.logger().info("kernel %s is not loaded: %s", kernel.digest[:12], error)
        return None


def _load(runtime: Runtime, placed: Sequence[BoundKernel]) -> None:
    """Load one kernel for all Workloads it is to serve, unless that would compile it."""
    kernel, device = placed[0].kernel, runtime.device
    code = _code(kernel)
    if code is None or not device.is_built(code):
        return
    try:
        for each in placed:  # larger ones may need more shared memory
            device.load(code, each.launches)
        runtime.loaded.add(kernel.stored)
    except BuildError as error:
        config.logger().info("kernel %s is not loaded: %s", kernel.digest[:12], error)
