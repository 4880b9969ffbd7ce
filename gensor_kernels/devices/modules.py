"""Modules of a GPU: cubins loaded, or compiled where they are missing or refused, and the entries in them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gensor_kernels import forking
from gensor_kernels.build import nvrtc
from gensor_kernels.config import logger
from gensor_kernels.errors import BuildError, ToolMissingError
from gensor_kernels.programs.core.family import Launch

from .cupy_internals import allow_shared_bytes, entry, load_module
from .device import Code

if TYPE_CHECKING:
    from .cuda import CudaDevice

#: Dynamic shared memory a kernel may use without asking for more, bytes.
PLAIN_SHARED_BYTES = 48 * 1024


class Modules:
    """What is loaded on one device, each once."""

    def __init__(self, device: CudaDevice):
        self.device = device
        self._loaded: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self.after_fork()
        forking.renew(self)

    def after_fork(self) -> None:
        """A lock that nobody holds."""
        self._lock = threading.RLock()

    def functions(self, code: Code, launches: Sequence[Launch]) -> list[Any]:
        """The entries of a kernel's launches. Raises BuildError where the driver refuses it, its shared memory
        included."""
        with self._lock, self.device.current():
            if code.digest not in self._loaded:
                self._loaded[code.digest] = self._module(code)
            return [self._function(code, each) for each in launches]

    def _module(self, code: Code) -> Any:
        device = self.device
        if code.cubin:
            try:
                return self._load_image(code.cubin)
            except device.refusals as error:
                if not device.compiles:
                    raise BuildError(f"the driver refused the stored cubin: {error}") from error
                logger().info("the driver refused %s (%s); compiling it here", code.digest[:12], error)
        if not device.compiles:
            raise BuildError("no cubin is stored, and nothing is compiled here")
        try:
            binary = nvrtc.compile_cubin(code.source, device.arch.target if device.arch else code.target)
        except ToolMissingError as error:
            raise BuildError(f"the driver refused the stored cubin, and {error}") from error
        if binary.error is not None:
            raise BuildError("NVRTC refused the kernel", binary.error)
        try:
            return self._load_image(binary.cubin)
        except device.refusals as error:
            raise BuildError(f"the driver refused a cubin by {binary.toolchain}: {error}") from error

    def _load_image(self, image: bytes) -> Any:
        return load_module(self.device.cupy, image)

    def _function(self, code: Code, launch: Launch) -> Any:
        """The entry of a loaded module, allowed the shared memory of `launch`."""
        found = self._functions.get((code.digest, launch.entry))
        try:
            function, allowed = found or (entry(self._loaded[code.digest], launch.entry), PLAIN_SHARED_BYTES)
            if launch.shared_bytes > allowed:
                allow_shared_bytes(self.device.driver, function, launch.shared_bytes)
                allowed = launch.shared_bytes
        except self.device.refusals as error:
            raise BuildError(f"the driver refused {launch.entry}: {error}") from error
        self._functions[code.digest, launch.entry] = function, allowed
        return function
