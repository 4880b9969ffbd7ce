"""Types of public arguments, and the protocol of an array library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol

from gensor_kernels.arrays import DeviceArray as DeviceArray

#: Element-wise functions, then gates.
Activation = Literal[
    "relu",
    "relu6",
    "gelu",
    "gelu_tanh",
    "silu",
    "tanh",
    "sigmoid",
    "swiglu",
    "geglu",
    "geglu_tanh",
    "reglu",
]
Precision = Literal["ieee", "tf32", "3m", "ozaki"]
#: Arithmetic of a convolution.
ConvolutionPrecision = Literal["ieee", "tf32"]


#: One operation of `epilogue=` or `prologue=`: "relu", ("scale", 2.0), ("bias", array) or ("mask", array, fill).
Items = Iterable[str | tuple[Any, ...]]


class Backend(Protocol):
    """The part of a Device with which the array library computes a call."""

    xp: Any
    emulated: bool

    def product(
        self, a: DeviceArray, b: DeviceArray, precision: str | None = None, out: DeviceArray = None
    ) -> DeviceArray:
        """Return the library's own matrix product."""

    def erfc(self, x: DeviceArray) -> DeviceArray:
        """Return the complementary error function of each element."""
