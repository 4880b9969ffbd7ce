"""From a bound source to a cubin, with NVRTC through NVIDIA's own Python bindings.

Works without a GPU and without a driver: only the compiler library is called. `compile_many` uses every core: NVRTC
works on one source at a time, so other processes also compile (compilers.py). A source that does not compile
is a `Binary` with `error` set, never an exception.

Over ten kernels the front end takes 8 % of a compilation, the optimizer 50 % and ptxas 42 %. Precompiled headers, or
several kernels in one source, would shorten the front end alone.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from types import ModuleType

from gensor_kernels import forking, install
from gensor_kernels.errors import MachineError, ToolMissingError

from .compile_process import compile_text, version
from .compilers import COMPILERS, Lost
from .parallel import ordered_map, usable_cores
from .resources import EntryResources, parse_ptxas

_TARGET = re.compile(r"sm_[0-9]+[af]?\Z")
_FLAGS = ("NVRTC_PREPEND_FLAGS", "NVRTC_APPEND_FLAGS")
_WHEELS = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc")
#: Errors that say nothing about a source: no memory, or a library missing next to NVRTC's.
_MACHINE = tuple(f"NVRTC_ERROR_{name}" for name in ("OUT_OF_MEMORY", "BUILTIN_OPERATION_FAILURE"))
_count = 0
_lock = forking.lock(sys.modules[__name__], "_lock", threading.Lock)


@dataclass(frozen=True)
class Binary:
    """One compiled source, or the reason for its absence (`error`).

    `registers`, `stack_bytes` and `shared_bytes` (static shared memory) are maxima over the entry points, `spill_bytes`
    (spill stores plus spill loads, as ptxas counts them) is the sum; `entries` lists them by entry point.
    """

    target: str
    cubin: bytes = b""
    entries: dict[str, EntryResources] = field(default_factory=dict)
    log: str = ""
    toolchain: str = ""
    seconds: float = field(default=0.0, compare=False)
    error: str | None = None

    @property
    def registers(self) -> int:
        """Registers per thread."""
        return max((entry.registers for entry in self.entries.values()), default=0)

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores plus spill loads in the code."""
        return sum(entry.spill_bytes for entry in self.entries.values())

    @property
    def stack_bytes(self) -> int:
        """Bytes of local stack per thread."""
        return max((entry.stack_bytes for entry in self.entries.values()), default=0)

    @property
    def shared_bytes(self) -> int:
        """Bytes of static shared memory per block; the kernels' own shared memory is dynamic."""
        return max((entry.shared_bytes for entry in self.entries.values()), default=0)


def compile_cubin(source: str, target: str) -> Binary:
    """Compiles one source for one target such as "sm_87" or "sm_90a".

    The bytes depend on source, target and toolchain alone. Raises ToolMissingError where NVRTC is not installed, and
    MachineError where it fails whatever the source.
    """
    library = _nvrtc()
    text = source.encode("utf-8")
    if not _TARGET.match(target):
        return Binary(target, error=f"{target!r} is not a compile target such as 'sm_87'")
    if b"\0" in text:
        return Binary(target, error="the source contains a NUL character")
    global _count
    with _lock:
        _count += 1
    start = time.perf_counter()
    error, log, cubin = _compile(library, text, target)
    seconds = time.perf_counter() - start
    if error in _MACHINE:
        reason = " ".join([error, *log.splitlines()[:1]])
        raise MachineError(f"NVRTC failed on this machine ({reason}): it needs memory, and its wheel's other libraries")
    if error is not None:
        return Binary(target, log=log, toolchain=toolchain(), seconds=seconds, error=log or error)
    return Binary(target, cubin, parse_ptxas(log), log, toolchain(), seconds)


def compile_many(
    requests: Sequence[tuple[str, str]], jobs: int | None = None, done: Callable[[int, Binary], None] | None = None
) -> list[Binary]:
    """Compiles (source, target) pairs, `jobs` at a time (default: every usable core); results in the order given.

    Equal pairs are compiled once; `done(index, binary)` is called as in `parallel.ordered_map`.
    """
    _nvrtc()
    with COMPILERS.allow((jobs or usable_cores()) - 1):
        return ordered_map(lambda request: compile_cubin(*request), requests, jobs, done)


def compile_count() -> int:
    """Compilations this process has started: the proof that a cache was, or was not, used."""
    return _count


@cache
def toolchain() -> str:
    """Name and version of the compiler, e.g. "nvrtc 12.9.86", with the flags the environment adds to it, if any.

    Raises ToolMissingError where NVRTC is not installed.
    """
    short = version(_nvrtc())
    flags = [f" {name}={os.environ[name]}" for name in _FLAGS if os.environ.get(name)]
    return f"nvrtc {_wheel_version(f'{short}.') or short}" + "".join(flags)


def toolchain_note() -> str | None:
    """Return one sentence if the NVRTC found is not the 12.9 of the shipped cubins, else None."""
    found = toolchain().split()[1]
    if found.startswith("12.9"):
        return None
    note = f"NVRTC {found} is installed, but cubins are built with 12.9 ({install.command('tune')})"
    if int(found.split(".")[0]) > 12:
        note += ": cubins of this one need a driver of the same CUDA major version"
    return note


@cache
def _nvrtc() -> ModuleType:
    """Return the bindings module, after a first answer of its library."""
    try:
        from cuda.bindings import nvrtc

        error, *_ = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as reason:  # no bindings, or bindings without their library
        first_line = next(iter(str(reason).splitlines()), type(reason).__name__)
        raise ToolMissingError(
            f"the NVRTC compiler was not found ({first_line}): {install.command('tune')}"
        ) from reason
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise ToolMissingError(f"the NVRTC compiler does not answer ({error.name}): {install.command('tune')}")
    return nvrtc


def _wheel_version(prefix: str) -> str | None:
    """Return the full version of the NVRTC wheel; the library itself reports no patch level."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = os.path.realpath(load_nvidia_dynamic_lib("nvrtc").abs_path or "")
    except (ImportError, RuntimeError):
        return None
    for name in _WHEELS:
        try:
            wheel = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if wheel.version.startswith(prefix) and path.startswith(os.path.realpath(str(wheel.locate_file("")))):
            return wheel.version
    return None


def _compile(library: ModuleType, text: bytes, target: str) -> tuple[str | None, str, bytes]:
    """Return (error name or None, log, cubin) of one compilation, by this process or another one."""
    with suppress(Lost), COMPILERS.lend(version(library)) as process:
        return compile_text(library, text, target) if process is None else process.compile(text, target)
    return compile_text(library, text, target)
