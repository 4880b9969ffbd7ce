"""Products of complex64 as one product of float32, on parts that multiply float32 by tensor cores.

A complex matrix whose rows are adjacent is a matrix of reals with twice as many columns, real and imaginary parts in
turn. With each element x + iy of `b` written as the 2 x 2 block [[x, y], [-y, x]], the product of the two matrices of
reals is that of the complex ones, term by term: infinities and NaN give what they give in complex multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operands, Product
from gensor_kernels.operators.types.workload import View, contiguous

from .base import NeedsCopies, Result

if TYPE_CHECKING:
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.machine.arch import Arch

REAL, COMPLEX = np.dtype(np.float32), np.dtype(np.complex64)
#: What kernels by bfloat16 parts reach of their peak, over what kernels by multiply-adds reach of theirs: 0.66 and 0.83
#: at 4096^3 on an H100.
REACHED = 0.8
WORDS = "complex numbers are multiplied as blocks of reals, of which the second operand is copied"


@dataclass(frozen=True)
class Reals:
    """A complex matrix as one of reals with twice as many columns: a view where rows are adjacent elements."""

    adjacent: bool

    def view(self, view: View) -> View:
        """Return the View of the reals."""
        *outer, columns = view.shape
        if not self.adjacent:
            return contiguous((*outer, 2 * columns), REAL.name)
        return View((*outer, 2 * columns), (*(2 * each for each in view.strides[:-1]), 1), REAL.name, view.alignment)

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Return the reals."""
        return (array if self.adjacent else device.xp.ascontiguousarray(array)).view(REAL)


@dataclass(frozen=True)
class Blocks:
    """A complex matrix with a 2 x 2 block of reals for each element."""

    def view(self, view: View) -> View:
        """Return the View of the blocks."""
        *batch, rows, columns = view.shape
        return contiguous((*batch, 2 * rows, 2 * columns), REAL.name)

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Write the blocks."""
        *batch, rows, columns = array.shape
        found = device.empty((*batch, rows, 2, columns), COMPLEX)
        first, second = found[..., 0, :], found[..., 1, :]
        first[...] = array
        second.real[...] = -array.imag
        second.imag[...] = array.real
        return found.reshape(*batch, 2 * rows, columns).view(REAL)


def of_reals(product: Product) -> Product:
    """Return the product of reals of a product of complex numbers."""
    m, n, k = product.sizes
    shape = (*product.shape[:-1], 2 * product.shape[-1])
    return replace(product, shape=shape, sizes=(m, 2 * n, 2 * k), inputs=REAL, dtype=REAL, one_call=False)


def pays(product: Product, math: str, arch: Arch | None) -> bool:
    """Return whether a product of reals, with the copies before it, is predicted to take less time."""
    from gensor_kernels.machine.library_times import pass_time

    m, n, k = product.sizes
    if arch is None or product.inputs != COMPLEX or product.dtype != COMPLEX or math != "ieee":
        return False
    rate, reals = arch.peak(COMPLEX.name), arch.fastest(REAL.name, math, 2 * k) * REACHED
    flops = 8 * m * n * k * int(np.prod(product.batch))
    return flops / reals + pass_time((24 * n + 16 * m) * k, arch).us * 1e-6 < flops / rate


def need_reals(a: View, b: View, product: Product) -> NeedsCopies:
    """Return the request for the operands as reals."""
    adjacent = a.strides[-1] == 1 or a.shape[-1] == 1
    out = Result(of_reals(product).shape, REAL).view()
    return NeedsCopies(Reals(adjacent), Blocks(), words=WORDS, parameters=REAL, after=_as_complex, out=out)


def _as_complex(device: Device, value: DeviceArray, result: Result, out: DeviceArray) -> DeviceArray:
    return Operands((), out, ()).give(value.view(COMPLEX))
