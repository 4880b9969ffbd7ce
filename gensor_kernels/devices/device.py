"""What dispatch needs of whatever executes kernels: the base of a GPU (`cuda.py`) and of the emulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..build.source import bind
from ..machine.arch import Arch
from ..programs.family import Launch


@dataclass(frozen=True)
class Code:
    """What a device loads: a family's flattened source, the constants of one kernel, and its cubin if there is one.

    `digest` names the code: equal digests, equal code. `constants` are (macro, value) pairs.
    """

    digest: str
    text: str = field(repr=False)
    constants: tuple[tuple[str, int | str], ...]
    target: str
    cubin: bytes = field(default=b"", repr=False)

    @property
    def source(self) -> str:
        """The text a compiler gets."""
        return bind(self.text, dict(self.constants))


class Device:
    """One device: its arrays, its memory, and the launching of kernels.

    `describe(array)` gives a hashable tuple of shape, strides and dtype (third); `pointer(array)` the address
    of its first element. Both are on the path of every call, so they are plain attributes, not methods.
    """

    #: None where kernels are not supported, for the reason in `unsupported`
    arch: Arch | None
    unsupported: str
    #: the array library: NumPy or CuPy
    xp: Any
    #: True where nothing but kernels may serve a call: tier 4 raises
    emulated: bool
    describe: Callable[[Any], Any]
    pointer: Callable[[Any], Any]
    #: this thread's Params: a bytearray `buffer`, and the `handle` launches take it by
    local: Any
    #: what `launch` raises for a launch the device refuses at once
    refusals: tuple[type[Exception], ...]

    def is_array(self, value: Any) -> bool:
        """Whether `value` is an array of this device's library."""
        raise NotImplementedError

    def is_local(self, array: Any) -> bool:
        """Whether an array's memory is on this device."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new C-contiguous array, not initialised."""
        raise NotImplementedError

    def workspace(self, nbytes: int, zero: bool) -> tuple[Any, int]:
        """(owner, address) of temporary memory on the current stream; it may be dropped after the launch."""
        raise NotImplementedError

    def capturing(self) -> bool:
        """Whether the current stream records a graph: nothing may be compiled, loaded, measured or allocated."""
        raise NotImplementedError

    def tf32(self) -> bool:
        """Whether the library's own switch allows TF32 for float32 products."""
        raise NotImplementedError

    def is_loaded(self, code: Code) -> bool:
        """Whether `load` would return at once."""
        raise NotImplementedError

    def load(self, code: Code, launches: Sequence[Launch]) -> Any:
        """Makes the kernel callable and returns what `launch` takes; BuildError where the device refuses it."""
        raise NotImplementedError

    def launch(self, loaded: Any, arguments: Any, arrays: Sequence[Any], workspace: Any) -> None:
        """Enqueues the launches on the current stream; `arrays` and `workspace` own the memory they touch."""
        raise NotImplementedError

    def product(self, a: Any, b: Any, math: str, out: Any = None) -> Any:
        """The library's own matmul."""
        raise NotImplementedError

    def erfc(self, x: Any) -> Any:
        """Complementary error function, element-wise."""
        raise NotImplementedError
