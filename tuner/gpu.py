"""The GPU of this machine, where a run needs one of a particular architecture."""

from __future__ import annotations

from typing import Any

from gensor_kernels.devices.advice import about_device
from gensor_kernels.devices.device import Device
from gensor_kernels.errors import GensorError, ToolMissingError
from gensor_kernels.machine.arch import Arch


class GpuError(GensorError):
    """No GPU that could be used is here; `worth_telling` is False where simply none is there."""

    def __init__(self, reason: str, worth_telling: bool = False):
        super().__init__(reason)
        self.worth_telling = worth_telling


def open_any_gpu(number: int | None = None) -> Any:
    """This machine's current GPU, or the one of a number, which becomes the current one: a CudaDevice; GpuError, one
    sentence, without CuPy or a driver."""
    from gensor_kernels.devices import cuda

    try:
        if number is not None:
            cuda.make_current(number)
        return cuda.CudaDevice(cuda.current_device()())
    except ToolMissingError as error:
        raise GpuError(str(error)) from None
    except RuntimeError as error:  # it is there and cannot be used: another process has it for itself, say
        raise GpuError(about_device(error), worth_telling=True) from None


def open_gpu(arch: Arch, number: int | None = None) -> Device:
    """As open_any_gpu; GpuError also where it is not of `arch`."""
    device: Device = open_any_gpu(number)
    if device.arch is None or device.arch.name != arch.name:
        found = device.arch.name if device.arch is not None else device.unsupported
        raise GpuError(f"the GPU here is {found}, not {arch.name}", worth_telling=True)
    return device


def limit_memory(device: Any, limit: int | None) -> None:
    """Makes the array library refuse to hold more than `limit` bytes of the device's memory; None for no limit."""
    if limit is not None:
        device.cupy.get_default_memory_pool().set_limit(size=limit)


def free_memory(device: Any) -> None:
    """Gives memory that no array uses back to the device: the next Workload's arrays have other sizes."""
    library = getattr(device, "cupy", None)
    if library is not None:
        library.get_default_memory_pool().free_all_blocks()
