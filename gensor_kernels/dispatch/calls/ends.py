"""Arguments that are indices: ends of groups, numbers of keys, tables of pages. Imports little.

All of them are read here. Lists, and arrays on the host (inside `emulated` every array), are checked before they become
int32; arrays on a GPU stay there and are not, because to read them waits for the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_kernels.arrays import DeviceArray
from gensor_kernels.shown import is_masked, no_array, shown

if TYPE_CHECKING:
    import numpy as np

    from gensor_kernels.devices.device import Device


class GroupNames(NamedTuple):
    """Words of messages: what one group is called, the array whose rows are grouped, and the arguments."""

    group: str
    array: str
    offsets: str = "offsets"
    sizes: str = "sizes"


def ends_of(device: Device, words: GroupNames, offsets: Any, sizes: Any, rows: int) -> DeviceArray:
    """Return the ends of groups as an array of the device, from offsets or from sizes.

    ValueError for arguments that are checked and say what cannot be, and for both or none of them.
    """
    import numpy as np

    if (offsets is None) == (sizes is None):
        raise ValueError(f"expected {words.offsets} or {words.sizes}, one of them")
    given = sizes if offsets is None else offsets
    if stays(device, given):
        return given if sizes is None else device.xp.cumsum(given, dtype=np.int32)
    name = words.offsets if sizes is None else words.sizes
    found = integers(device, name, given, 1, f"one integer per {words.group}")
    return device.xp.asarray(_to_ends(words, found, sizes is not None, rows))


def _to_ends(words: GroupNames, given: np.ndarray, are_sizes: bool, rows: int) -> np.ndarray:
    """Return ends as int32; ValueError where they say what cannot be."""
    import numpy as np

    expected = f"{words.group}s are expected to ascend up to the {rows} rows of {words.array} at most"
    wrong = (given < 0) | (given > rows)
    if wrong.any():  # sums and differences of such numbers may wrap
        group = int(wrong.argmax())
        number = f"{given[group]} rows" if are_sizes else f"its end at row {given[group]}"
        raise ValueError(f"{words.group} {group} has {number}: {expected}")
    ends = np.cumsum(given, dtype=np.int64) if are_sizes else given.astype(np.int64)
    wrong = (np.diff(ends, prepend=0) < 0) | (ends > rows)
    if wrong.any():
        group = int(wrong.argmax())
        said = f"{words.group} {group} ends at row {ends[group]}, and begins at row {ends[group - 1] if group else 0}"
        raise ValueError(f"{said}: {expected}")
    return ends.astype(np.int32)


def stays(device: Device, given: object) -> bool:
    """Return whether an argument is an array on a GPU, where it stays and is not checked."""
    return bool(device.is_array(given)) and not device.emulated


def integers(device: Device, name: str, given: Any, axes: int, expected: str) -> DeviceArray:
    """Return integers with `axes` axes as an array of the host, or unchanged where they are an array on a GPU.

    Raises ValueError with the argument's name for others, TypeError for an array whose mask would be lost."""
    import numpy as np

    if stays(device, given):
        return given
    if is_masked(given):
        raise TypeError(no_array(name, given, device.xp.__name__))
    try:
        found = None if isinstance(given, str) else np.asarray(given)
    except ValueError:  # rows of different lengths
        found = None
    if found is not None and found.shape == (0,):  # an empty list has no integers, but no other numbers either
        found = found.astype(np.int32)
    if found is None or found.ndim != axes or found.dtype.kind not in "iu":
        said = shown(given) if found is None else f"{found.dtype} of the shape {found.shape}"
        raise ValueError(f"{name} are {expected}, not {said}")
    return found


def lengths_of(device: Device, name: str, given: Any, most: int, expected: str) -> DeviceArray:
    """Return numbers from 0 to `most`, one per sequence, as an array of the device."""
    import numpy as np

    found = integers(device, name, given, 1, expected)
    if stays(device, found):
        return found
    if found.size and not (found.min() >= 0 and found.max() <= most):
        raise ValueError(f"{name} are {expected} from 0 to {most}, not from {found.min()} to {found.max()}")
    return device.xp.asarray(found.astype(np.int32))


def pages_of(device: Device, table: Any, lengths: Any, pages: int, size: int) -> DeviceArray:
    """Return a block table, as `integers` returns it, as an array of the device.

    ValueError for a page that does not exist where a sequence of one of `lengths` has keys. Other entries are not read,
    and may be anything.
    """
    import numpy as np

    if stays(device, table):
        return table
    exists = (table >= 0) & (table < pages)
    if not stays(device, lengths) and lengths.shape == table.shape[:1]:
        wrong = (np.arange(table.shape[1]) < -(-lengths[:, None] // max(size, 1))) & ~exists
        if wrong.any():
            sequence, place = np.argwhere(wrong)[0]
            page = table[sequence, place]
            raise ValueError(f"block_table[{sequence}, {place}] is page {page}, of {pages}: expected 0 to {pages - 1}")
    return device.xp.asarray(np.where(exists, table.astype(np.int64), -1).astype(np.int32))
