"""The stand-in as a library: built, put in front of a process's other libraries, set up as a part, its calls read."""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gensor_kernels.config import cache_dir
from gensor_kernels.devices.emulator.build import compiler
from gensor_kernels.machine.arch import Arch

FOLDER = Path(__file__).resolve().parent
NAME = "libcuda.so.1"
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
#: CuPy 14 warns of the class for streams that CuPy 13 has alone.
WARNINGS = ("-W", "error:ExternalStream is deprecated:DeprecationWarning")
#: of CUDA: dependent launches need 12.3
VERSION = 12080


def built() -> Path:
    """Return the path of the library, compiled unless it is cached; ToolMissingError without g++."""
    path, version = compiler()
    sources = [each.read_bytes() for each in sorted((*FOLDER.glob("*.h"), *FOLDER.glob("*.cpp")))]
    digest = hashlib.sha256(repr((version, FLAGS, sources)).encode()).hexdigest()
    library = cache_dir() / "driver_standin" / digest[:16] / NAME
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        subprocess.run([path, *FLAGS, "-o", str(unfinished), str(FOLDER / "libcuda.cpp")], check=True)
        unfinished.replace(library)
    return library


def child(folder: Path, module: str, *arguments: str, python: str = sys.executable, **settings: str) -> Any:
    """Return the JSON that a module of this folder prints, in a process that finds the stand-in; RuntimeError if it
    fails.

    `folder` is for the calls, `python` an interpreter whose CuPy is to be used, `settings` are environment variables.
    """
    calls = folder / f"{module}-calls.jsonl"
    calls.write_text("")
    found = os.pathsep.join([str(built().parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    environment = {**os.environ, "LD_LIBRARY_PATH": found, "STANDIN_CALLS": str(calls), **settings}
    command = [python, *WARNINGS, "-m", f"tests.driver_standin.{module}", *arguments]
    done = subprocess.run(command, cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def become(arch: Arch) -> None:
    """Make the stand-in of this process a driver of a part."""
    capability = "".join(map(str, arch.capability))
    os.environ["STANDIN_TARGET"], os.environ["STANDIN_SHARED"] = capability, str(arch.smem_per_block)
    os.environ["STANDIN_VERSION"] = str(VERSION)


class Calls:
    """The calls that this process made, in their order: `take` returns the calls since it was called last."""

    def __init__(self) -> None:
        self._file = open(os.environ["STANDIN_CALLS"])  # noqa: SIM115  read as it grows, until the process ends

    def take(self, *names: str) -> list[dict[str, Any]]:
        """Return calls of some functions, or of all."""
        made = [json.loads(line) for line in self._file]
        return [each for each in made if not names or each["call"] in names]

    def launches(self) -> list[dict[str, Any]]:
        """Return launches that the driver took, with attributes or without."""
        return [each for each in self.take("cuLaunchKernel", "cuLaunchKernelEx") if not each["result"]]


def refuse(call: str, result: int) -> None:
    """Let every later call of this kind end with a CUresult, until it is 0."""
    ctypes.CDLL(NAME).standin_refuse(call.encode(), result)
