"""From a kernel's source to PTX by NVRTC, and from translated PTX to a library by g++."""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from gensor_kernels.build.compile_process import OPTIONS
from gensor_kernels.config import cache_dir
from gensor_kernels.errors import BuildError

MACHINE = Path(__file__).resolve().parent / "machine"
#: what translated code includes, and what the scheduler consists of
INCLUDED, WHOLE = ("machine.h", "numbers.h", "warpgroup.h"), ("*.h", "*.cpp")
#: No contraction: a multiplication and an addition are fused where PTX says fma, and nowhere else.
FLAGS = ("-std=c++20", "-march=native", "-ffp-contract=off", "-fPIC", "-w")
#: A kernel runs for less time than its compilation takes, and the loops of products are in machine.cpp, which has -O2.
KERNEL_FLAGS = ("-Og",)


def ptx_of(source: str, target: str, *, fused: bool = True) -> str:
    """Return the PTX that NVRTC makes of a bound source for a target such as sm_87; BuildError with its log.

    `fused`: whether NVRTC may make one fma of a product and a sum.
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
        options = [each.encode() for each in (architecture, fusion, *OPTIONS) if "ptxas" not in each]
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
    path = _build(text, "machine", "-O2", "-frounding-math", files=WHOLE)
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def library(text: str) -> ctypes.CDLL:
    """Return the library of a translated module."""
    machine()
    return ctypes.CDLL(str(_build(text, "kernel", *KERNEL_FLAGS)))


def _build(text: str, name: str, *flags: str, files: tuple[str, ...] = INCLUDED) -> Path:
    """Compile a C++ text, unless the cache folder has its library."""
    included = b"".join(each.read_bytes() for pattern in files for each in sorted(MACHINE.glob(pattern)))
    digest = hashlib.sha256(repr((text, included, FLAGS, flags, _processor())).encode()).hexdigest()
    folder = cache_dir() / "ptx"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}-{digest[:32]}.so"
    if path.is_file():
        return path
    scratch = path.with_suffix(f".{os.getpid()}")
    headers = MACHINE if "*.cpp" in files else _precompile(included, *flags)
    _compile(["-shared", *flags, f"-I{headers}", "-x", "c++", "-"], scratch, text)
    scratch.replace(path)
    return path


def _precompile(included: bytes, *flags: str) -> Path:
    """Return a folder with machine.h, precompiled: reading it takes as long as compiling a small kernel."""
    digest = hashlib.sha256(repr((included, FLAGS, flags, _processor())).encode()).hexdigest()
    folder = cache_dir() / "ptx" / f"headers-{digest[:32]}"
    if not folder.is_dir():
        scratch = Path(tempfile.mkdtemp(dir=folder.parent))
        for each in MACHINE.glob("*.h"):
            shutil.copy(each, scratch)
        _compile([*flags, "-x", "c++-header", str(scratch / "machine.h")], scratch / "machine.h.gch")
        with suppress(OSError):  # another process was first
            scratch.rename(folder)
    return folder


def _compile(arguments: list[str], to: Path, text: str = "") -> None:
    command = ["g++", *FLAGS, *arguments, "-o", str(to)]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(done.stderr[:4000])


@functools.cache
def _processor() -> str:
    """What -march=native stands for here, and the compiler."""
    command = ["g++", "-march=native", "-Q", "--help=target", "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
