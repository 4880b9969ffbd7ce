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


class ArrayLike(Protocol):
    """The operands that public functions accept: an array of CuPy, NumPy, PyTorch, JAX, ...

    Arrays of other libraries are taken by `__cuda_array_interface__` or `__dlpack__`.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""

    @property
    def dtype(self) -> Any:
        """Element type: a NumPy dtype, or another library's."""

    @property
    def ndim(self) -> int:
        """Number of axes."""


#: An array of a device's own library: CuPy, whose arrays have no types, or NumPy on the emulator.
DeviceArray: TypeAlias = Any
#: Functions of an array library: its module, or what counts their operations.
Namespace: TypeAlias = Any
#: A NumPy dtype; those of bfloat16 and of 8-bit floats are ml_dtypes'.
Dtype: TypeAlias = "np.dtype[Any]"
#: Extents, or strides, by axis.
Shape: TypeAlias = "tuple[int, ...]"
