"""Whether two results of one call are the same but for rounding: what a race asks before its winner serves.

Verification executes a kernel's source text; what ptxas makes of it runs on the GPU alone. A wrong kernel has tiles or
terms missing, and many elements far off; a correct one differs from the library by roundings, which are small compared
with the result's root mean square unless nearly all terms cancel.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from gensor_kernels.arrays import DeviceArray

#: An element is off where it differs by more than this share of its magnitude and of the root mean square.
GROSS = 0.25
#: Share of elements that may be off.
FEW = 0.01
#: Elements that are compared, of larger results every n-th slice along the longest axis.
MOST = 1 << 22


def sample(array: DeviceArray) -> DeviceArray:
    """Return a copy of at most about `MOST` elements of an array: of all of them, or of every n-th slice.

    Types that the array library may not know, such as bfloat16, are copied as their bits.
    """
    if array.dtype.kind == "V":
        array = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    longest = int(np.argmax(array.shape)) if array.ndim else 0
    step = -(-array.size // MOST)
    return (array if step <= 1 else array[(slice(None),) * longest + (slice(None, None, step),)]).copy()


def agree(xp: ModuleType, result: DeviceArray, expected: DeviceArray) -> bool:
    """Return whether an array of the array library `xp` is the same but for rounding as one whose `sample` is
    `expected`. NaN and infinities are at the same places in both, as are their signs.

    True where no comparison is possible: for integers, which may be positions of equal elements, and for types that
    `xp` does not compute with.
    """
    name = result.dtype.name
    if (result.dtype.kind not in "fc" and name != "bfloat16") or expected.size == 0:
        return True
    ours, theirs = widen(sample(result), name), widen(expected, name)
    same, finite = kinds(xp, ours) == kinds(xp, theirs), kinds(xp, theirs) == 0
    off, compared = float(xp.sum(~same)), same & finite
    if bool(compared.any()):
        off += float(xp.sum(~near(xp, ours[compared], theirs[compared], GROSS)))
    return off <= FEW * expected.size


def is_finite(xp: ModuleType, expected: DeviceArray, dtype: str) -> bool:
    """Return whether a `sample` of a result of a type has neither NaN nor infinities."""
    return bool(xp.isfinite(widen(expected, dtype)).all())


def kinds(xp: ModuleType, values: DeviceArray) -> DeviceArray:
    """Return a number per element: 0 for finite ones, else which of its parts are NaN, inf and -inf."""
    if values.dtype.kind == "c":
        return kinds(xp, values.real) + 4 * kinds(xp, values.imag)
    return xp.where(xp.isnan(values), 1, xp.where(xp.isinf(values), xp.where(values > 0, 2, 3), 0))


def widen(array: DeviceArray, dtype: str) -> DeviceArray:
    """Return elements of a type as float64 or complex128, contiguous; bfloat16 by its bits, so that no array library
    needs to know the type."""
    if dtype == "bfloat16":
        array = (array.view(np.uint16).astype(np.uint32, order="C") << np.uint32(16)).view(np.float32)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, order="C")


def near(xp: ModuleType, values: DeviceArray, expected: DeviceArray, share: float) -> DeviceArray:
    """Return where values differ from the expected ones by at most this share of their magnitude plus their root mean
    square; False for NaN."""
    size = xp.abs(expected)
    return xp.abs(values - expected) <= share * (size + xp.sqrt(xp.mean(size * size)))
