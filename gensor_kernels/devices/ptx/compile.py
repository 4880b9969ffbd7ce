"""From a kernel's source to PTX by NVRTC, and from translated PTX to a library by g++."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gensor_kernels.build import tools
from gensor_kernels.build.compile_process import OPTIONS, directive
from gensor_kernels.devices.emulator.build import UNFINISHED, build_host, cache_errors, compiler, usable_folder
from gensor_kernels.errors import BuildError, MachineError

MACHINE = Path(__file__).resolve().parent / "machine"
#: what translated code includes, and what the scheduler consists of
INCLUDED, WHOLE = ("machine.h", "numbers.h", "warpgroup.h"), ("*.h", "*.cpp")
#: No contraction: a multiplication and an addition are fused where PTX says fma, and nowhere else.
FLAGS = ("-std=c++20", "-march=native", "-ffp-contract=off", "-fPIC", "-w")
MACHINE_FLAGS = ("-O2", "-frounding-math")
#: A kernel runs for less time than its compilation takes, and the loops of products are in machine.cpp, which has -O2.
KERNEL_FLAGS = ("-Og",)


def ptx_of(source: str, target: str, *, fused: bool = True, more: Sequence[str] = ()) -> str:
    """Return the PTX that NVRTC makes of a bound source for a target such as sm_87; BuildError with its log.

    `fused`: whether NVRTC may make one fma of a product and a sum. `more` are further options.
    """
    from cuda.bindings import nvrtc

    def read(size: object, get: object) -> str:
        _, count = size(program)  # type: ignore[operator]
        text = bytearray(count)
        get(program, text)  # type: ignore[operator]
        return bytes(text).rstrip(b"\0").decode("utf-8", "replace")

    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    if status:
        raise BuildError(status.name)
    try:
        architecture = f"--gpu-architecture={target.replace('sm_', 'compute_')}"  # stops at PTX
        fusion = f"--fmad={str(fused).lower()}"
        name, own = directive(source.encode())
        if name:
            nvrtc.nvrtcAddNameExpression(program, name)
        options = [each.encode() for each in (architecture, fusion, *OPTIONS, *more, *own) if "ptxas" not in each]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status:
            raise BuildError(read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog))
        return read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@functools.cache
def machine() -> ctypes.CDLL:
    """Return the scheduler's library; kernels' libraries find its functions."""
    text = "".join(f'#include "{each.name}"\n' for each in sorted(MACHINE.glob("*.cpp")))
    path = _build(text, (*FLAGS, *MACHINE_FLAGS), MACHINE, _contents(WHOLE))
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def library(text: str) -> ctypes.CDLL:
    """Return the library of a translated module."""
    machine()
    included = _contents(INCLUDED)
    return ctypes.CDLL(str(_build(text, (*FLAGS, *KERNEL_FLAGS), _precompiled(included), included)))


def _contents(patterns: Sequence[str]) -> str:
    """Return a digest of the files that a text includes, and of what -march=native stands for here."""
    files = [each for pattern in patterns for each in sorted(MACHINE.glob(pattern))]
    return hashlib.sha256(b"".join([each.read_bytes() for each in files]) + _processor().encode()).hexdigest()


def _build(text: str, flags: Sequence[str], folder: Path, included: str) -> Path:
    return build_host(f"// {included}\n{text}", flags, folder)


def _precompiled(included: str) -> Path:
    """Return a folder with machine.h, precompiled: reading it takes as long as compiling a small kernel."""
    flags = (*FLAGS, *KERNEL_FLAGS)
    digest = hashlib.sha256(repr((included, flags, compiler())).encode()).hexdigest()
    folder = usable_folder() / f"headers-{digest[:32]}"
    if not folder.is_dir():
        with cache_errors():
            scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=UNFINISHED))
            for each in MACHINE.glob("*.h"):
                shutil.copy(each, scratch)
        command = [compiler()[0], *flags, "-x", "c++-header", str(scratch / "machine.h")]
        done = tools.run([*command, "-o", str(scratch / "machine.h.gch")])
        if done.returncode:
            raise MachineError(f"the C++ compiler {command[0]} failed on this machine: {done.stderr[:1000]}")
        with suppress(OSError):  # another process was first
            scratch.rename(folder)
    return folder


@functools.cache
def _processor() -> str:
    return tools.run([compiler()[0], "-march=native", "-Q", "--help=target"]).stdout
