"""Compiles kernel sources, the same text that NVRTC gets, into shared libraries that a CPU executes.

The emulator itself (host/) is compiled once into an object; each kernel is a small file linked with it.  Everything is
cached under `cache_dir()/emulator`, named by a digest of the source, the emulator's files, the flags and the
compiler's version, and put in place by renaming, so that processes can share the folder.

The files are code that is loaded into this process.  They come from an open folder that no other user can have
replaced (database/trust.py), belong to root or to the user, are writable by no other user, and end in the SHA-256 of
all preceding bytes (ELF files may be longer than they declare).  Other files count as missing, and are built again.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType

from gensor_database import trust
from gensor_kernels import forking
from gensor_kernels.build import tools
from gensor_kernels.build.parallel import ordered_map
from gensor_kernels.config import cache_dir
from gensor_kernels.errors import BuildError, ConfigError, GensorError, MachineError, ToolMissingError

#: The C++ side of the emulator: headers and emulator.cpp.
FOLDER = Path(__file__).resolve().parent / "host"
# No -march=native: a library must not depend on the machine it was built on, except by has_fma().
COMMON_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique")
# The models of tensor cores round where hardware does.
EMULATOR_FLAGS = (*COMMON_FLAGS, "-O1", "-ffp-contract=off")
# A frame too large for a fiber's stack must not get as far as running.
KERNEL_FLAGS = (*COMMON_FLAGS, "-O1", "-fno-exceptions", "-fno-rtti", "-Werror=frame-larger-than=65536")
# NVRTC contracts a multiplication and an addition into one rounding (-fmad=true is its default), and so does g++ here.
# At -O1 its pass that contracts is among the "expensive" ones.
FUSED_FLAGS = ("-ffp-contract=fast", "-fexpensive-optimizations")
UNFUSED_FLAGS = ("-ffp-contract=off",)
#: Diagnostics of g++: an error at a line of a kernel's source; no space, no memory or no headers on this machine.
_REFUSED = re.compile(r"^[^:\s]+:\d+:(\d+:)? error: .*", re.MULTILINE)
_FATAL = re.compile(r"fatal error: |Killed signal|out of memory|memory exhausted")
#: Several threads may need the emulator's object at once; it is compiled once.
_object_lock = forking.lock(sys.modules[__name__], "_object_lock", threading.Lock)
DIGEST_BYTES = hashlib.sha256().digest_size
#: Prefix of the names of unfinished files.
UNFINISHED = ".building-"
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class Kept:
    """An open folder of built files, by its absolute path; ConfigError if another user could write to or replace it."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.descriptor = trust.open_folder(path)
        except PermissionError as error:
            raise ConfigError(f"the folder of built files is not used: {error.strerror or error}") from error
        except OSError as error:
            raise ConfigError(f"the folder of built files {path} cannot be used: {error.strerror or error}") from error

    def __enter__(self) -> Kept:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def where(self, name: str) -> str:
        """Return a path of a file in this open folder, for this process and children that inherit the descriptor."""
        return f"/proc/self/fd/{self.descriptor}/{name}"

    def has(self, name: str) -> bool:
        """Return whether there is a whole file of this name that belongs to the user."""
        try:
            opened = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=self.descriptor)
        except OSError:
            return False
        with open(opened, "rb") as file:
            try:
                content = file.read() if trust.is_own(os.fstat(opened)) else b""
            except OSError:
                return False
        return hashlib.sha256(content[:-DIGEST_BYTES]).digest() == content[-DIGEST_BYTES:]

    def begin(self) -> str:
        """Return the name of a new, empty file that only the user can read and write."""
        name = UNFINISHED + secrets.token_hex(8)
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _FLAGS, 0o600, dir_fd=self.descriptor))
        return name

    def keep(self, unfinished: str, name: str) -> None:
        """Append a finished file's digest, rename it, and sync it to disk."""
        with open(os.open(unfinished, os.O_RDWR | _FLAGS, dir_fd=self.descriptor), "r+b") as file:
            os.fchmod(file.fileno(), 0o600)
            content = file.read()
            file.write(hashlib.sha256(content).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        with suppress(OSError):  # not every file system can
            os.fsync(self.descriptor)

    def remove(self, name: str) -> None:
        """Delete a file if it exists."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)


@functools.cache
def compiler() -> tuple[str, str]:
    """Return path and version line of g++. Raises ToolMissingError if it is absent, or if this is not Linux."""
    if sys.platform != "linux":
        raise ToolMissingError(
            "the emulator runs on Linux (x86-64, aarch64) only: use a container, for example "
            "docker run -it -v .:/work -w /work python:3.12 bash"
        )
    path = shutil.which("g++")
    if path is None:
        raise ToolMissingError(
            "the emulator needs the C++ compiler g++: install it (Debian, Ubuntu: apt install g++; "
            "Fedora: dnf install gcc-c++)"
        )
    done = tools.run([path, "--version"])
    if done.returncode or not done.stdout:
        raise ToolMissingError(f"the C++ compiler {path} does not work ({_reason(done)}): install g++ again")
    return path, done.stdout.splitlines()[0]


@functools.cache
def has_fma() -> bool:
    """Return whether this machine's CPUs have an instruction for a fused multiply-add.

    Without one, kernels' libraries are compiled under other names, and round a product before it is added where the
    source does not call fma_.
    """
    machine = platform.machine()
    if machine != "x86_64":
        return machine == "aarch64"  # part of the architecture
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return False
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return bool(flags) and all("fma" in each for each in flags)


def kernel_flags() -> tuple[str, ...]:
    """Return the flags that kernels are compiled with on this machine."""
    if not has_fma():
        return (*KERNEL_FLAGS, *UNFUSED_FLAGS)
    return (*KERNEL_FLAGS, *FUSED_FLAGS, *fma_flags())


def fma_flags() -> tuple[str, ...]:
    """Return the flags by which g++ uses this machine's fused multiply-add, if it has one."""
    return ("-mfma",) if has_fma() and platform.machine() == "x86_64" else ()


@functools.cache
def _emulator_digest() -> str:
    """Return the digest of all inputs of a library except the kernel's source: contents and names, not folders."""
    state = hashlib.sha256(repr((compiler()[1], platform.machine(), EMULATOR_FLAGS, kernel_flags())).encode())
    for file in sorted([*FOLDER.glob("*.h"), *FOLDER.glob("*.cpp")]):
        state.update(file.name.encode() + b"\0" + file.read_bytes())
    return state.hexdigest()


def library_digest(source: str) -> str:
    """Return the SHA-256 that names the library of a flattened and bound kernel source; also a key of verdicts."""
    return hashlib.sha256(f"{_emulator_digest()}\0{source}".encode()).hexdigest()


def usable_folder() -> Path:
    """Return the folder of built libraries; ConfigError or MachineError where it cannot be written or loaded from."""
    folder = cache_dir() / "emulator"
    with cache_errors():
        trust.make_folder(folder)
    if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
        raise ConfigError(
            f"no library can be loaded from {folder}, which is mounted noexec: set GENSOR_CACHE_DIR to a folder of "
            "another file system"
        )
    return folder


def cache_errors() -> AbstractContextManager[None]:
    """Return a block that writes to the cache folder; see `tools.folder_errors`."""
    return tools.folder_errors(f"the cache folder {cache_dir()}", "GENSOR_CACHE_DIR")


def _compile(folder: Kept, arguments: list[str], name: str, source: str | None = None) -> None:
    """Run g++ with `source` on standard input and keep its output as `name`."""
    with cache_errors():
        unfinished = folder.begin()
    try:
        command = [compiler()[0], *arguments, "-o", folder.where(unfinished)]
        done = tools.run(command, source or "", (folder.descriptor,))
        if done.returncode:
            refused = None if source is None or _FATAL.search(done.stderr) else _REFUSED.search(done.stderr)
            if refused is not None:
                raise BuildError(f"g++ refused the kernel: {refused[0]}", done.stderr)
            raise MachineError(
                f"the C++ compiler {command[0]} failed on this machine ({_reason(done)}): it needs memory, "
                f"space in {tempfile.gettempdir()} and {folder.path}, and its own headers and tools"
            )
        with cache_errors():
            folder.keep(unfinished, name)
    finally:
        folder.remove(unfinished)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return why a run of g++ failed: its first line about an error, or its last one, or how it ended."""
    if done.returncode > 128:
        return f"it was killed by signal {done.returncode - 128}"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.search("error|no space|memory|cannot|denied|no such", line, re.IGNORECASE)]
    reason = [*errors, *lines, f"exit code {done.returncode}"][0][:200]
    return "".join(c if c.isprintable() else " " for c in reason)


def _emulator_object(folder: Kept) -> str:
    """Return the name of the emulator's object, compiled unless it is cached."""
    name = f"{_emulator_digest()}.o"
    with _object_lock:
        if not folder.has(name):
            _compile(folder, [*EMULATOR_FLAGS, "-c", str(FOLDER / "emulator.cpp")], name)
    return name


def prepare() -> None:
    """Start compiling the emulator itself in a thread, to save two seconds when the first kernel is built.

    Errors are left for `build` to raise.
    """

    def compile_object() -> None:
        with suppress(GensorError, OSError), Kept(usable_folder()) as folder:
            _emulator_object(folder)

    with suppress(RuntimeError):  # no thread can be started
        threading.Thread(target=compile_object, name="gensor-emulator").start()


def is_built(source: str) -> bool:
    """Return whether the cache has the library of a source. Raises ToolMissingError without g++."""
    with Kept(usable_folder()) as folder:
        return folder.has(f"{library_digest(source)}.so")


def build(source: str) -> Path:
    """Return the path of the shared library of a flattened, constant-bound kernel source, compiled unless cached.

    Raises ToolMissingError without g++ and BuildError (with g++'s log) for a source that does not compile.
    """
    name = f"{library_digest(source)}.so"
    with Kept(usable_folder()) as folder:
        if not folder.has(name):
            kernel = [*kernel_flags(), "-shared", "-I", str(FOLDER), "-x", "c++", "-", "-x", "none"]
            _compile(folder, [*kernel, folder.where(_emulator_object(folder))], name, source)
        return folder.path / name


def build_host(source: str, flags: Sequence[str], include: Path | None = None) -> Path:
    """Return the path of the shared library of any C++ text, compiled with these flags unless cached.

    What it includes from the folder `include` is not part of its key: a comment of the text should name its digest.
    Raises ToolMissingError without g++, BuildError for a text that does not compile.
    """
    command = [*flags, "-fPIC", "-shared", "-x", "c++", "-"]
    digest = hashlib.sha256(repr((compiler()[1], platform.machine(), command, source)).encode()).hexdigest()
    with Kept(usable_folder()) as folder:
        if not folder.has(f"{digest}.so"):
            _compile(folder, [*([f"-I{include}"] if include else []), *command], f"{digest}.so", source)
        return folder.path / f"{digest}.so"


def build_many(
    sources: Iterable[str], jobs: int | None = None, done: Callable[[int, Path | BuildError], None] | None = None
) -> list[Path | BuildError]:
    """Return the libraries of several sources in their order, with `jobs` compilers at a time (default: one per usable
    core).

    A source that does not compile gives its BuildError as a value.  `done` is that of `ordered_map`.  Raises
    ToolMissingError without g++.
    """

    def one(source: str) -> Path | BuildError:
        try:
            return build(source)
        except BuildError as error:
            return error

    with Kept(usable_folder()) as folder:
        _emulator_object(folder)  # once, not by every job
    return ordered_map(one, list(sources), jobs, done)
