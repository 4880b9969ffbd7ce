"""Whether two results of one call are the same but for rounding: what decides whether a kernel serves a second time.

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
#: Slices at the end of each axis that are compared by themselves: a tile that is wrong beyond the last full one is a
#: small part of the result, and at least an eighth of them.
EDGE = 8
#: Fewest elements of an edge that are compared: of fewer, one that is small by chance would be more than `FEW`.
LEAST_EDGE = 200

#: Copies of parts of a result: of the whole, and of each edge.
Sample = tuple[DeviceArray, ...]


def is_comparable(dtype: np.dtype) -> bool:
    """Return whether results of a type are compared: not integers, which may be positions of equal elements, nor types
    that the array library does not compute with."""
    return dtype.kind in "fc" or dtype.name == "bfloat16"


def count_results(result: DeviceArray | tuple[DeviceArray, ...]) -> int:
    """Return the number of results of a call of the library; kernels write several to one array."""
    return len(result) if isinstance(result, tuple) else 1


def results_of(result: DeviceArray | tuple[DeviceArray, ...], count: int) -> tuple[DeviceArray, ...]:
    """Return the results of a call, of the library or of a kernel."""
    return tuple(result) if count > 1 else (result,)


def sample(array: DeviceArray) -> Sample:
    """Return copies of parts of an array: at most about `MOST` elements of the whole, and those of its edges.

    Types that the array library may not know, such as bfloat16, are copied as their bits.
    """
    if array.dtype.kind == "V":
        array = array.view(np.dtype(f"u{array.dtype.itemsize}"))
    edges = []
    for axis, extent in enumerate(array.shape):
        if extent > EDGE and array.size // extent * EDGE >= LEAST_EDGE:
            edges.append(_some(array[(slice(None),) * axis + (slice(-EDGE, None),)]).copy())
    return _some(array).copy(), *edges


def _some(array: DeviceArray) -> DeviceArray:
    """Return every n-th slice of a large array along its longest axis. No n is even: slices at the same place of each
    tile would hide what is wrong elsewhere."""
    longest = int(np.argmax(array.shape)) if array.ndim else 0
    step = -(-array.size // MOST)
    return array if step <= 1 else array[(slice(None),) * longest + (slice(None, None, step | 1),)]


def agree(xp: ModuleType, result: DeviceArray, expected: Sample) -> bool:
    """Return whether an array of the array library `xp` is the same but for rounding as one whose `sample` is
    `expected`. NaN and infinities are at the same places in both, as are their signs.

    True where no comparison is possible.
    """
    if not is_comparable(result.dtype):
        return True
    pairs = zip(sample(result), expected, strict=True)
    return all(_agree(xp, widen(ours, result.dtype.name), widen(theirs, result.dtype.name)) for ours, theirs in pairs)


def _agree(xp: ModuleType, ours: DeviceArray, theirs: DeviceArray) -> bool:
    if theirs.size == 0:
        return True
    same, finite = kinds(xp, ours) == kinds(xp, theirs), kinds(xp, theirs) == 0
    off, compared = float(xp.sum(~same)), same & finite
    if bool(compared.any()):
        off += float(xp.sum(~near(xp, ours[compared], theirs[compared], GROSS)))
    return off <= FEW * theirs.size


def is_finite(xp: ModuleType, expected: Sample, dtype: str) -> bool:
    """Return whether a `sample` of a result of a type has neither NaN nor infinities."""
    return all(bool(xp.isfinite(widen(each, dtype)).all()) for each in expected)


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
