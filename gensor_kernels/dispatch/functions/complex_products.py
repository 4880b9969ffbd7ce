"""Products of complex64 as one product of float32, on parts that multiply float32 by tensor cores.

A complex array is one of reals with another axis, of real and imaginary parts. With each element x + iy of the second
operand written as the 2 x 2 block [[x, y], [-y, x]], the sum of products over the other axis too gives the real and
imaginary parts of the result. Its terms are those of complex multiply-adds, with their infinities and NaN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.calls.arguments import Operands, Product
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import View, Workload, contiguous

from .base import NeedsCopies, Result, inverse, memory_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gensor_kernels.arrays import Dtype
    from gensor_kernels.devices.device import Device
    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.contractions.lowering import Lowered
    from gensor_kernels.dispatch.contractions.spec import Form
    from gensor_kernels.machine.arch import Arch

REAL, COMPLEX = np.dtype(np.float32), np.dtype(np.complex64)
#: The share of their peak that kernels by bfloat16 parts reach, over that of kernels by multiply-adds: 0.66 and 0.83 at
#: 4096^3 on an H100.
REACHED = 0.8
WORDS = "complex numbers are multiplied as blocks of reals, of which an operand is copied"


@dataclass(frozen=True)
class Reals:
    """The real and imaginary parts of an array as one more axis, or `joined` with the last one; no copy, but of joined
    axes whose elements are not `adjacent`."""

    joined: bool = False
    adjacent: bool = True

    def view(self, view: View) -> View:
        """Return the View of the parts."""
        if not self.adjacent:
            return contiguous((*view.shape[:-1], 2 * view.shape[-1]), REAL.name)
        strides = tuple(2 * each for each in view.strides)
        if self.joined:
            return View((*view.shape[:-1], 2 * view.shape[-1]), (*strides[:-1], 1), REAL.name, view.alignment)
        return View((*view.shape, 2), (*strides, 1), REAL.name, view.alignment)

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Return the parts."""
        array = array if self.adjacent else device.xp.ascontiguousarray(array)
        shape, strides = (*array.shape, 2), (*array.strides, REAL.itemsize)
        if self.joined:
            shape, strides = (*shape[:-2], 2 * shape[-2]), (*strides[:-2], REAL.itemsize)
        return device.xp.lib.stride_tricks.as_strided(array.real, shape, strides)


@dataclass(frozen=True)
class Blocks:
    """A 2 x 2 block of reals for each number of an array, whose axes are brought into an order.

    Rows of blocks are an axis after the first `rows` axes, columns are the last axis; `joined` with the axes before
    them. `signs` are -1 for the conjugate of the other operand, and of this one.
    """

    order: tuple[int, ...]
    rows: int
    joined: bool = False
    signs: tuple[int, int] = (1, 1)

    def view(self, view: View) -> View:
        """Return the View of the blocks."""
        return contiguous(self._shape(view.shape), REAL.name)

    def _shape(self, given: Sequence[int]) -> tuple[int, ...]:
        shape = tuple(given[axis] for axis in self.order)
        if self.joined:
            return (*shape[:-2], 2 * shape[-2], 2 * shape[-1])
        return (*shape[: self.rows], 2, *shape[self.rows :], 2)

    def make(self, device: Device, array: DeviceArray) -> DeviceArray:
        """Write the blocks."""
        shape, (other, own), xp = self._shape(array.shape), self.signs, device.xp
        array, lead = array.transpose(self.order), (slice(None),) * self.rows
        found = device.empty((*array.shape[: self.rows], 2, *array.shape[self.rows :]), COMPLEX)
        first, second = found[(*lead, 0)], found[(*lead, 1)]
        (xp.positive if own > 0 else xp.conjugate)(array, out=first)
        (xp.negative if own == other else xp.positive)(array.imag, out=second.real)
        (xp.positive if other > 0 else xp.negative)(array.real, out=second.imag)
        return found.view(REAL).reshape(shape)


def pays(sizes: Sequence[int], dtypes: tuple[Dtype, Dtype], math: str, arch: Arch | None) -> bool:
    """Return whether a product of reals, with the copies before it, is predicted to take less time.

    `sizes` are (batch, m, n, k), `dtypes` those of the operands and of the result.
    """
    from gensor_kernels.machine.library_times import pass_time

    if arch is None or dtypes != (COMPLEX, COMPLEX) or math != "ieee":
        return False
    batch, m, n, k = sizes
    rate, reals = arch.peak(COMPLEX.name), arch.fastest(REAL.name, math, 2 * k) * REACHED
    flops = 8 * batch * m * n * k
    # Blocks are written in three passes, of which two use half of each sector; the other operand may be copied once.
    return flops / reals + pass_time(batch * (48 * n + 16 * m) * k, arch).us * 1e-6 < flops / rate


def workload_of_reals(workload: Workload, arch: Arch) -> Workload | None:
    """Return the Workload of the product of reals by which a part multiplies matrices of complex64, or None."""
    size, types = workload.size, workload.dtype
    if workload.operator != matmul.NAME or workload.epilogue or {types["a"], types["c"]} != {COMPLEX.name}:
        return None
    batch, m, n, k = (size[name] for name in ("batch", "m", "n", "k"))
    if min(m, n) == 1 or not pays((batch, m, n, k), (COMPLEX, COMPLEX), workload.math, arch):
        return None
    return matmul.workload(m, 2 * n, 2 * k, batch=batch, dtype=REAL.name)


def of_reals(product: Product) -> Product:
    """Return the product of reals of a product of complex matrices."""
    m, n, k = product.sizes
    shape = (*product.shape[:-1], 2 * product.shape[-1])
    return replace(product, shape=shape, sizes=(m, 2 * n, 2 * k), inputs=REAL, dtype=REAL, one_call=False)


def of_matrices(a: View, b: View, product: Product) -> NeedsCopies:
    """Return the request for complex matrices as matrices of reals."""
    axes = tuple(range(len(b.shape)))
    copies = Reals(True, a.strides[-1] == 1 or a.shape[-1] == 1), Blocks(axes, len(axes) - 1, True)
    out = Result(of_reals(product).shape, REAL).view()
    return NeedsCopies(*copies, words=WORDS, parameters=REAL, after=_joined, out=out)


def of_labels(found: Lowered, swapped: bool) -> tuple[Sequence[Reals | Blocks], Form] | None:
    """Return the copies of a contraction's operands, and the form of the contraction of these; None for a diagonal.

    `swapped`: the first operand has the result's last axis, so that its numbers become blocks.
    """
    operands, output = found.subscripts.operands, found.subscripts.output
    blocks, reals = operands if swapped else operands[::-1]
    if len(set(blocks)) < len(blocks):
        return None
    other = found.operands[swapped]
    steps = dict(zip(reals, map(abs, other.strides), strict=True))
    batch = [label for label in output if label in blocks and label in reals]
    summed = sorted((label for label in blocks if label not in output), key=lambda label: -steps.get(label, 0))
    columns = [label for label in output if label in blocks and label not in reals]
    row, column = (max(found.extents, default=0) + each for each in (1, 2))
    order = tuple(blocks.index(label) for label in (*batch, *summed, *columns))
    rows = len(batch) + len(summed)
    signs = [-1 if flag else 1 for flag in found.conjugated]
    own, others = signs if swapped else signs[::-1]
    copies = Reals(), Blocks(order, rows, signs=(others, own))
    labels = (*reals, row), (*batch, *summed, row, *columns, column)
    turn = -1 if swapped else 1
    return copies[::turn], ("labels", *labels[::turn], (*output, column), (False, False))


def need_reals(copies: Sequence[Reals | Blocks], parameters: Any, shape: Sequence[int]) -> NeedsCopies:
    """Return the request for operands of a contraction with another axis; `shape` is that of the result."""
    out = contiguous((*shape, 2), REAL.name)
    return NeedsCopies(*copies, words=WORDS, parameters=parameters, after=_as_complex, out=out)


def _as_complex(device: Device, value: DeviceArray, result: Result, out: DeviceArray) -> DeviceArray:
    """Return the numbers of which `value` has the parts along its last axis, in the order that it has in memory."""
    order = memory_order(value.strides)
    if order[-1] != value.ndim - 1:
        value, order = device.xp.ascontiguousarray(value), tuple(range(value.ndim))
    found = value.transpose(order).view(COMPLEX)[..., 0].transpose(inverse(order[:-1]))
    return Operands((), out, ()).give(found)


def _joined(device: Device, value: DeviceArray, result: Result, out: DeviceArray) -> DeviceArray:
    return Operands((), out, ()).give(value.view(COMPLEX))
