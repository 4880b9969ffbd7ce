"""Launches of one configuration of a user's kernel: on a GPU from its cubin, elsewhere from its PTX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_kernels.devices import cupy_internals
from gensor_kernels.devices.cuda import PLAIN_SHARED_BYTES, CudaDevice
from gensor_kernels.devices.device import Device
from gensor_kernels.errors import BuildError

from .configuration import Configuration
from .description import NUMBER

#: Takes the arguments, in the order of the kernel's parameters, and all sizes.
Call = Callable[[Sequence[Any], Mapping[str, int]], None]


@dataclass(frozen=True)
class Launchable:
    """A configuration with its machine code, and the kernel's name in it."""

    configuration: Configuration
    cubin: bytes
    entry: str

    def on(self, device: Device, constants: Mapping[str, Any]) -> Call:
        """Return the launch on the current stream of a device; BuildError where the driver refuses the code.

        `constants` are arrays of ``__constant__`` variables by name.
        """
        return self._on_gpu(device, constants) if isinstance(device, CudaDevice) else self._emulated(constants)

    def _given(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arguments, numbers in their types."""
        pairs = zip(self.configuration.description.arguments, arguments, strict=True)
        return [np.dtype(what.dtype).type(value) if what.role == NUMBER else value for what, value in pairs]

    def _emulated(self, constants: Mapping[str, Any]) -> Call:
        def run(arguments: Sequence[Any], sizes: Mapping[str, int]) -> None:
            given = [each.tobytes() if isinstance(each, np.generic) else each for each in self._given(arguments)]
            self.configuration.run(given, {name: np.asarray(array) for name, array in constants.items()}, sizes)

        return run

    def _on_gpu(self, device: CudaDevice, constants: Mapping[str, Any]) -> Call:
        cupy, described = device.cupy, self.configuration.description
        knobs = dict(self.configuration.knobs)
        try:
            module = cupy_internals.load_module(cupy, self.cubin)
            function = cupy_internals.entry(module, self.entry)
        except device.refusals as error:
            raise BuildError(f"the driver refused {described.name}: {error}") from error
        for name, array in constants.items():
            with suppress(*device.refusals):  # one that the kernel does not read is not in its module
                cupy_internals.set_constant(cupy, module, name, cupy.ascontiguousarray(cupy.asarray(array)))
        allowed = PLAIN_SHARED_BYTES

        def launch(arguments: Sequence[Any], sizes: Mapping[str, int]) -> None:
            nonlocal allowed
            grid, block, shared = described.launch({**knobs, **sizes})
            if shared > allowed:
                cupy_internals.allow_shared_bytes(device.driver, function, shared)
                allowed = shared
            function(grid, block, tuple(self._given(arguments)), shared)

        return launch
