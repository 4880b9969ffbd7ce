"""The report about this machine that is pasted into a bug report: `python -m gensor_kernels`, `gensor-tune doctor`."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from gensor_kernels import config
from gensor_kernels.build import nvrtc, parallel, resources
from gensor_kernels.devices.advice import install_cupy
from gensor_kernels.errors import GensorError
from gensor_kernels.install import command
from gensor_kernels.machine.arch import Arch, archs

#: Packages whose versions matter, whether they are dependencies, extras or a CuPy of any CUDA version.
PACKAGES = (
    *("gensor-kernels", "numpy", "cupy-cuda12x", "cupy-cuda13x", "cupy", "cuda-bindings", "cuda-pathfinder"),
    *("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc", "nvidia-cuda-nvdisasm"),
    *("msgspec", "sqlite-utils", "tqdm", "typer"),
)
VARIABLES = ("GENSOR_", "CUPY_", "CUDA_", "NVRTC_")


def report() -> Iterator[str]:
    """Yield the lines of the report; a failed probe becomes a line with its reason and remedy."""
    yield f"python      {platform.python_version()} ({sys.executable})"
    yield f"platform    {platform.platform()} {platform.machine()}, {parallel.usable_cores()} usable cores"
    yield f"sqlite      {sqlite3.sqlite_version}"
    for name in PACKAGES:
        version = _version(name)
        if version:
            yield f"package     {name} {version}"
    yield from _two_cupys()
    yield f"nvrtc       {_probe(nvrtc.toolchain)}"
    note = _probe(nvrtc.toolchain_note)
    if note != "None":
        yield f"            {note}"
    disassembler = f"; {command('tune')} (hot loops are then estimated, not read)"
    yield f"nvdisasm    {resources.find_nvdisasm() or 'not found' + disassembler}"
    yield f"g++         {_probe(_compiler)}"
    yield f"gpu         {_probe(_gpu)}"
    yield f"cache       {_probe(config.cache_dir)}"
    yield f"database    user {_probe(config.user_database)}; site {_probe(config.site_database)}"
    for name in sorted(os.environ):
        if name.startswith(VARIABLES):
            yield f"environment {name}={os.environ[name]}"


def _probe(read: Callable[[], object]) -> str:
    try:
        return str(read())
    except (GensorError, OSError, ImportError, RuntimeError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _two_cupys() -> Iterator[str]:
    found = [name for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if _version(name)]
    if len(found) > 1:
        yield f"            {' and '.join(found)} share one folder and break each other: pip uninstall all but one"


def _compiler() -> str:
    path = shutil.which("g++")
    if path is None:
        return "not found: the emulator, which verifies kernels, needs it (apt-get install g++)"
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20).stdout.splitlines()
    return f"{shown[0] if shown else 'does not answer'} ({path})"


def _gpu() -> str:
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed: {install_cupy()}"
    from gensor_kernels.devices import cuda

    device = cuda.CudaDevice(cuda.current_device()())
    if device.arch is None:
        return f"device {device.number} is not served: {device.unsupported}"
    return f"device {device.number}: {describe(device.arch)}"


def describe(arch: Arch) -> str:
    """Describe the part that a GPU was recognised as, with figures that expose a wrong guess."""
    listed = arch in archs()
    facts = f"{arch.sms} SMs, {arch.clock_ghz:.2f} GHz, {arch.dram_gb_s:.0f} GB/s, {arch.l2_mb:g} MB L2"
    return f"{arch.part}, {arch.name}, {facts}" + ("" if listed else "; not listed: built from its driver's attributes")
