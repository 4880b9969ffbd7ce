"""What a run needs of this machine, looked for before any work: compilers, and a GPU where one is asked for."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from gensor_kernels.build import nvrtc
from gensor_kernels.config import cache_dir
from gensor_kernels.devices.emulator.build import compiler
from gensor_kernels.machine.arch import Arch
from gensor_tuner.gpu import GpuError, open_gpu
from gensor_tuner.verify.verifier import DeviceVerifier

from .timer import Timer, open_timer


def check_compilers(verify: str) -> None:
    """ToolMissingError, with the sentence that says what to install, where a compiler is missing; ConfigError where
    the folder for what it builds cannot be used."""
    nvrtc.toolchain()
    if verify != "none":
        compiler()
        cache_dir()


def verifier_for(arch: Arch, verify: str) -> AbstractContextManager[DeviceVerifier | None]:
    """To be entered: what `--verify device` executes kernels with, None for the others.

    Raises GpuError where the GPU is missing or of another architecture.
    """
    if verify != "device":
        return nullcontext()
    try:
        return DeviceVerifier(partial(open_gpu, arch)).start()
    except GpuError as error:
        raise GpuError(f"--verify device needs a GPU of {arch.name}: {error}") from None


def timer_for(arch: Arch, measure: str) -> Timer | None:
    """The device that times kernels, or None; `--measure require` fails where there is none of this arch."""
    if measure == "never":
        return None
    try:
        return open_timer(arch)
    except GpuError as error:
        if measure == "require":
            raise GpuError(f"--measure require needs a GPU of {arch.name}: {error}") from None
        if error.worth_telling:
            print(f"gensor-tune: not measuring: {error}", file=sys.stderr)
        return None
