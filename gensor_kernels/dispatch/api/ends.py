"""Where groups of rows end: arguments that are lists or arrays, on the host or on the device. Imports little."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_kernels.shown import shown

if TYPE_CHECKING:
    import numpy as np

    from gensor_kernels.devices.device import Device


class Grouped(NamedTuple):
    """Words of messages: what one group is called, the array whose rows are grouped, and the arguments."""

    group: str
    array: str
    offsets: str = "offsets"
    sizes: str = "sizes"


def ends_of(device: Device, words: Grouped, offsets: Any, sizes: Any, rows: int) -> Any:
    """Return the ends of groups as an array of the device, from offsets or from sizes.

    Arrays that lie on a GPU stay there and are not checked. ValueError for other arguments that say what cannot be, and
    for both or none of them.
    """
    import numpy as np

    if (offsets is None) == (sizes is None):
        raise ValueError(f"expected {words.offsets} or {words.sizes}, one of them")
    given = sizes if offsets is None else offsets
    if device.is_array(given) and not device.emulated:
        return given if sizes is None else device.xp.cumsum(given, dtype=np.int32)
    return device.xp.asarray(_checked(words, np.asarray(given), sizes is not None, rows))


def _checked(words: Grouped, given: np.ndarray, are_sizes: bool, rows: int) -> np.ndarray:
    """Return ends as int32; ValueError where they say what cannot be."""
    import numpy as np

    given = integers(words.sizes if are_sizes else words.offsets, given, 1, f"one integer per {words.group}")
    ends = np.cumsum(given, dtype=np.int64) if are_sizes else given.astype(np.int64)
    wrong = (np.diff(ends, prepend=0) < 0) | (ends > rows)
    if wrong.any():
        group = int(wrong.argmax())
        said = f"{words.group} {group} ends at row {ends[group]}, and begins at row {ends[group - 1] if group else 0}"
        raise ValueError(
            f"{said}: {words.group}s are expected to ascend up to the {rows} rows of {words.array} at most"
        )
    return ends.astype(np.int32)


def integers(name: str, given: np.ndarray, axes: int, expected: str) -> np.ndarray:
    """Return an array of integers of so many axes; ValueError in the argument's name for others."""
    import numpy as np

    if given.shape == (0,):  # an empty list has no integers, but no other numbers either
        given = given.astype(np.int32)
    if given.ndim != axes or given.dtype.kind not in "iu":
        raise ValueError(f"{name} are {expected}, not {given.dtype} of the shape {given.shape}")
    return given


def bounded_integers(device: Device, name: str, given: Any, axes: int, bound: int | None, expected: str) -> Any:
    """Return integers from 0 to `bound` as an array of the device; one that lies on a GPU stays there, not checked."""
    import numpy as np

    if device.is_array(given) and not device.emulated:
        return given
    if isinstance(given, str):
        raise ValueError(f"{name} are {expected}, not {shown(given)}")
    found = integers(name, np.asarray(given), axes, expected)
    if bound is not None and found.size and not (found.min() >= 0 and found.max() <= bound):
        raise ValueError(f"{name} are {expected} from 0 to {bound}, not from {found.min()} to {found.max()}")
    return device.xp.asarray(found.astype(np.int32))
