"""An unchanged CuPy over the strict double of the driver: `installed` comes before the first import of CuPy.

CuPy's driver calls go to the double's library, which its loader finds by `ctypes`. The CUDA runtime inside CuPy accepts
NVIDIA's driver only, so that arrays, events and captures need a GPU. Launches need little of the runtime: the number of
the current device, for example. CuPy's modules call each other by C functions that they look up in `__pyx_capi__` when
they are imported, some of which are replaced here. That changes the process until it ends: tests run it as a child.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.doubles.strict.context import Context
from tests.doubles.strict.launches import Launch
from tests.doubles.strict.library import NAMES, library
from tests.doubles.strict.part import part
from tests.doubles.strict.system import System

ROOT = Path(__file__).resolve().parents[2]
#: CuPy 14 deprecates the class for streams of other libraries, the only one that CuPy 13 has.
WARNINGS = ("-W", "error:ExternalStream is deprecated:DeprecationWarning")
VERSION = 12080  # of CUDA: dependent launches need 12.3
#: Names in `Part.attributes` by cudaDeviceAttr (driver_types.h); all other attributes are 0.
ATTRIBUTES = {
    13: "ClockRate", 16: "MultiProcessorCount", 36: "MemoryClockRate", 37: "GlobalMemoryBusWidth", 38: "L2CacheSize",
}  # fmt: skip
MAJOR, MINOR = 75, 76
INT, WORD, POINTER, OBJECT = ctypes.c_int, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.py_object
#: C functions and names to which CuPy's modules have pointers
_KEPT: list[object] = []


def run_child(module: str, *arguments: str, python: str = sys.executable, **settings: str) -> Any:
    command = [python, *WARNINGS, "-m", f"tests.driver_standin.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{module} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


class Runtime:
    """The double under CuPy, and the answers of the CUDA runtime; `capturing`: whether streams capture."""

    def __init__(self) -> None:
        self.system, self.capturing = System(["h200"], VERSION), False
        self._launches = self._calls = 0

    @property
    def context(self) -> Context:
        return self.system.contexts[0]

    def become(self, name: str, **attributes: int) -> None:
        """Replace the GPU by a new one of this part, with other attributes where given."""
        listed = part(name)
        self.system.contexts = [Context(replace(listed, attributes={**listed.attributes, **attributes}))]
        self._launches = 0

    def launches(self) -> list[Launch]:
        found = self.context.launches[self._launches :]
        self._launches += len(found)
        return found

    def calls(self) -> list[str]:
        found = self.system.called[self._calls :]
        self._calls += len(found)
        return [name for name, _ in found]

    def install(self) -> None:
        """Give CuPy the double's library, and its modules these answers instead of the runtime's."""
        double, load = library(self.system), ctypes.CDLL
        ctypes.CDLL = lambda name, *rest, **more: double if name in NAMES else load(name, *rest, **more)
        runtime = importlib.import_module("cupy_backends.cuda.api.runtime")  # which does not import CuPy
        for name, function, result, *types in (
            ("_ensure_context", lambda: None, OBJECT),
            ("getDevice", lambda skip: 0, INT, INT),
            ("setDevice", lambda number, skip: None, OBJECT, INT, INT),
            ("getDeviceCount", lambda skip: 1, INT, INT),
            ("deviceGetAttribute", lambda which, number, skip: self._attribute(which), INT, INT, INT, INT),
            ("streamIsCapturing", lambda stream, skip: self.capturing, INT, WORD, INT),
        ):
            _replace(runtime, name, ctypes.PYFUNCTYPE(result, *types)(function))
        public = importlib.import_module("cupy").cuda.runtime
        public.getDevice = lambda: 0
        public.getDeviceCount = lambda: 1
        public.getDeviceProperties = lambda number: {"name": self.context.part.name.encode()}

    def _attribute(self, which: int) -> int:
        own = self.context.part
        if which in (MAJOR, MINOR):
            return own.capability[which - MAJOR]
        return own.attributes[ATTRIBUTES[which]] if which in ATTRIBUTES else 0


def _replace(module: Any, name: str, function: Any) -> None:
    api, table = ctypes.pythonapi, module.__pyx_capi__
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [OBJECT]
    api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = OBJECT, [POINTER, ctypes.c_char_p, POINTER]
    signature = api.PyCapsule_GetName(table[name])
    _KEPT.extend((function, signature))
    table[name] = api.PyCapsule_New(ctypes.cast(function, POINTER).value, signature, None)


def installed() -> Runtime:
    runtime = Runtime()
    runtime.install()
    return runtime


def allocator() -> Callable[[int], object]:
    """Return an allocator for CuPy, of addresses without memory that do not overlap."""
    cuda, following = importlib.import_module("cupy").cuda, itertools.count(0x7F0000000000, 2**24)

    def allocate(size: int) -> object:
        return cuda.MemoryPointer(cuda.UnownedMemory(next(following), max(size, 1), None, 0), 0)

    return allocate
