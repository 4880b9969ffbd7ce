"""Types of operands of public functions: Protocols, so that type checking needs no array library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np


class Array(Protocol):
    """An array with strides: a NumPy array on the emulator, a CuPy array on a GPU.

    ``strides`` are in bytes.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours along each axis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def size(self) -> int:
        """Number of elements."""


class CudaArrayInterface(Protocol):
    """An array of another library in GPU memory, by Numba's CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...


class DLPack(Protocol):
    """An array of another library, by DLPack: a PyTorch or JAX array."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


#: Extents, or strides, by axis.
Shape: TypeAlias = "tuple[int, ...]"
#: Operands that public functions accept.
ArrayLike: TypeAlias = "Array | CudaArrayInterface | DLPack"
