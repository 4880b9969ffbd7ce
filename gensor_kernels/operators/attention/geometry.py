"""What attention kernels are told of a call: ``Attention`` in params.cuh, and the strides of Q, K, V and C."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types.geometry import Geometry, Strides
from gensor_kernels.operators.types.workload import Workload

#: Behind the mask's address: strides along (batch, head of K and V, head of the group, query, key), scale, diagonal.
_TOLD = struct.Struct("<Q 5q f i")
_SCALE = struct.Struct("<f")
#: Where the scale lies in the tail of Params, for a caller that changes it from call to call.
SCALE_OFFSET = 48
LARGEST = 2**31 - 1


def geometry(
    workload: Workload, strides: Mapping[str, tuple[int, ...]], diagonal: int, scale: float | None = None
) -> Geometry:
    """Batch axes are (batch, head of K and V, head of the group that shares it); m queries, n elements, k keys.

    ``strides`` are those of arrays by operand and axis.  UnsupportedError where scale is not above 0, and for more
    rows or keys than kernels count.
    """
    size = workload.size
    group = size["heads"] // max(size["kv_heads"], 1)
    scale = max(size["head"], 1) ** -0.5 if scale is None else float(scale)
    if not 0.0 < _rounded(scale) < float("inf"):
        raise UnsupportedError(f"attention with a scale of {scale}: kernels take finite numbers above 0")
    rows = size["queries"] * group
    if max(size["queries"] + size["keys"], rows, size["batch"] * size["heads"] * size["queries"]) + 256 > LARGEST:
        raise UnsupportedError(f"attention over {rows} rows and {size['keys']} keys: kernels count to 2^31")
    a, c = (_rows(strides[name], group) for name in "ac")
    (b_batch, b_head, b_key, b_element), (d_batch, d_head, d_key, d_element) = strides["b"], strides["d"]
    mask = _mask(strides["e"], size["mask_axes"], group) if "e" in strides else (0, 0, 0, 0, 0)
    return Geometry(
        (size["queries"], size["head"], size["keys"]),
        (size["batch"], size["kv_heads"], group),
        a,
        Strides((b_batch, b_head, 0), b_element, b_key),
        c,
        Strides((d_batch, d_head, 0), d_key, d_element),
        _TOLD.pack(0, *mask, scale, diagonal),
    )


def _rounded(scale: float) -> float:
    """``scale`` as a float32, infinite where it is too large for one."""
    try:
        return float(_SCALE.unpack(_SCALE.pack(scale))[0])
    except OverflowError:
        return float("inf")


def _rows(strides: tuple[int, ...], group: int) -> Strides:
    batch, head, query, element = strides
    return Strides((batch, head * group, head), query, element)


def _mask(strides: tuple[int, ...], axes: int, group: int) -> tuple[int, ...]:
    batch, head, query, key = (s if axes >> (3 - place) & 1 else 0 for place, s in enumerate(strides))
    return batch, head * group, head, query, key
