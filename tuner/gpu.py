"""The GPU of this machine, where a run needs one of a particular architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gensor_kernels.devices.advice import about_device
from gensor_kernels.devices.device import Device
from gensor_kernels.errors import GensorError, ToolMissingError
from gensor_kernels.machine.arch import Arch

if TYPE_CHECKING:
    from gensor_kernels.devices.cuda import CudaDevice


class GpuError(GensorError):
    """No usable GPU was found. `worth_telling` is False where the machine has no GPU at all."""

    def __init__(self, reason: str, worth_telling: bool = False):
        super().__init__(reason)
        self.worth_telling = worth_telling

    def __reduce__(self) -> tuple[type[GpuError], tuple[str, bool]]:  # it comes from the process that has the GPU
        return GpuError, (str(self), self.worth_telling)


def open_any_gpu(number: int | None = None) -> CudaDevice:
    """Open this machine's current GPU, or the one with this CUDA number; GpuError, one sentence, where that fails."""
    from gensor_kernels.devices import cuda

    try:
        if number is not None:
            cuda.make_current(number)
        return cuda.CudaDevice(cuda.current_device()())
    except ToolMissingError as error:
        raise GpuError(str(error)) from None
    except RuntimeError as error:  # the GPU exists but cannot be used: another process may hold it exclusively
        raise GpuError(about_device(error), worth_telling=True) from None


def open_gpu(arch: Arch, number: int | None = None) -> CudaDevice:
    """Open a GPU as `open_any_gpu` does, and raise GpuError unless it is of `arch`."""
    device = open_any_gpu(number)
    if device.arch is None or device.arch.name != arch.name:
        found = device.arch.name if device.arch is not None else device.unsupported
        raise GpuError(f"the GPU here is {found}, not {arch.name}", worth_telling=True)
    return device


def limit_memory(device: CudaDevice, limit: int | None) -> None:
    """Limit the array library to `limit` bytes of device memory, by default not at all."""
    if limit is not None:
        device.cupy.get_default_memory_pool().set_limit(size=limit)


def count_gpus(device: Device) -> int:
    """Return how many GPUs a device's array library reaches; 1 where the library knows of none."""
    library = getattr(device, "cupy", None)
    return 1 if library is None else int(library.cuda.runtime.getDeviceCount())


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means too little device memory, which is no kernel's fault."""
    text = f"{type(error).__name__}: {error}".lower()
    return isinstance(error, MemoryError) or "alloc" in text or "out of memory" in text


def free_memory(device: Device) -> None:
    """Return unused memory of the array library to the device: the next Workload has arrays of other sizes."""
    library = getattr(device, "cupy", None)
    if library is not None:
        library.get_default_memory_pool().free_all_blocks()
