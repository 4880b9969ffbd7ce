"""Caches of keys and values: their pages, appending to them, and products that store into them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gensor_kernels.dispatch.api.matmul import matmul

from .base import IN_PLACE, Lowering, Run, Tensor, refusal

if TYPE_CHECKING:
    from gensor_kernels.graph.ir.graph import Node

#: Attribute of a TensorScatter into a cache that was made longer by the new rows, as a single batch entry fills it.
GROWS = "grows"


class Pages(NamedTuple):
    """Keys and values of a cache as pages, (pages, kv_heads, page_size, head), and the pages of each batch entry."""

    keys: Tensor
    values: Tensor
    table: np.ndarray


def pages_of(k: Tensor, v: Tensor) -> Pages | None:
    """Return a contiguous cache (batch, kv_heads, capacity, head) as pages of a power of two, without a copy.

    A batch entry of 1,024 keys is one page; one of 96 keys is three pages of 32. Return None where the strides of a
    batch entry are no multiple of a page's.
    """
    batch, _, capacity, _ = k.shape
    page = capacity & -capacity
    count, units = capacity // page, [each.strides[2] * page for each in (k, v)]
    if count == 1 or batch == 1:
        steps = [count, count]
    elif all(unit and each.strides[0] % unit == 0 for each, unit in zip((k, v), units, strict=True)):
        steps = [each.strides[0] // unit for each, unit in zip((k, v), units, strict=True)]
    else:
        return None
    if steps[0] != steps[1] or steps[0] < 0:
        return None
    table = _table(batch, count, steps[0])
    if count == 1:
        return Pages(k, v, table)
    count += (batch - 1) * steps[0]
    keys, values = (
        memory_view(each, (count, each.shape[1], page, each.shape[3]), (unit, *each.strides[1:]))
        for each, unit in zip((k, v), units, strict=True)
    )
    return Pages(keys, values, table)


def memory_view(array: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Return a view of an array's memory, which may be larger than the array; strides are in bytes."""
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks.as_strided(array, shape, strides)
    return array.__class__(shape, array.dtype, array.data, strides)


@lru_cache(maxsize=64)
def _table(batch: int, pages: int, step: int) -> np.ndarray:
    """Return the pages of each batch entry: one array for equal arguments, whose copy on the device is kept."""
    return (np.arange(batch)[:, None] * step + np.arange(pages)).astype(np.int32)


@lru_cache(maxsize=1024)
def _offsets(batch: int, new: int, step: int) -> np.ndarray:
    """Return the offsets of new rows from their places: one array for equal arguments, as `_table`."""
    return np.arange(batch)[:, None] * step + np.arange(new)


def _tensor_scatter(run: Run, node: Node, past: Tensor, update: Tensor, places: Tensor = None) -> Tensor:
    """Write `update` into a cache, at one place for each batch entry; into `past` itself if marked so."""
    _, past, update = run.together(past, update)
    cache = past if node.attribute(IN_PLACE) else past.copy()
    axis = node.attribute("axis") % past.ndim
    circular = node.attribute("mode") == "circular"
    known = places is None or run.is_known(node.inputs[2], places)
    append(run, cache.swapaxes(1, axis), update.swapaxes(1, axis), places, known, circular, node)
    return cache


def append(run: Run, cache: Tensor, update: Tensor, places: Tensor, known: bool, circular: bool, node: Node) -> None:
    """Write rows (batch, new, ...) into a cache (batch, capacity, ...), from row `places[b]` on.

    Places that the host knows become slices: one copy for all entries if they agree. Others stay on the device:
    one scatter of rows by their number in the whole cache, after an addition if several rows are appended.
    """
    batch, new = update.shape[:2]
    capacity, (apart, row) = cache.shape[1], cache.strides[:2]
    if not known:
        step = apart // row if batch > 1 else 0
        if (apart % row and batch > 1) or step < 0:
            raise refusal(node, "the strides of batch entries are no multiple of those of rows")
        rows = places
        if circular:
            rows = (places[:, None] + run.device(_offsets(1, new, 0))) % capacity + run.device(_offsets(batch, 1, step))
        elif batch > 1 or new > 1:
            rows = places[:, None] + run.device(_offsets(batch, new, step))
        flat = memory_view(cache, ((batch - 1) * step + capacity, *cache.shape[2:]), cache.strides[1:])
        flat[rows.reshape(-1)] = update.reshape(batch * new, *update.shape[2:])
        return
    starts = [0] * batch if places is None else [int(each) for each in places]
    if not circular and not all(0 <= each <= capacity - new for each in starts):
        raise refusal(node, f"the cache has room for {capacity} rows: {new} do not fit after row {max(starts)}")
    for entry, start in [(slice(None), starts[0])] if len(set(starts)) == 1 else enumerate(starts):
        if circular and start % capacity + new > capacity:
            cache[entry, (start + np.arange(new)) % capacity] = update[entry]
            continue
        begin = start % capacity
        cache[entry, begin : begin + new] = update[entry]


def _matmul_append(
    run: Run, node: Node, x: Tensor, w: Tensor, keys: Tensor, values: Tensor, places: Tensor = None
) -> Tensor:
    """Compute queries, keys and values in one product, and append the latter to caches (batch, capacity, columns).

    The product stores a single token in the row before the caches (see Session), and the result begins with that row.
    Attention of one query does not depend on the order of its keys; a NewestRows node moves them to their places.
    """
    steps = {"epilogue": items} if (items := run.epilogue(node)) else {}
    queries, (apart, pitch, unit) = w.shape[1] - keys.shape[2] - values.shape[2], keys.strides
    if x.shape[1] > 1:
        found = run.call(matmul, x, w, **steps)
        rows = memory_view(keys, (*keys.shape[:2], w.shape[1] - queries), keys.strides)
        known = places is None or run.is_known(node.inputs[4], places)
        append(run, rows, found[..., queries:], places, known, False, node)
        return found[..., :queries], keys, values
    shape = (keys.shape[0], 1, w.shape[1])
    out = _view_at(run, keys, -pitch - queries * unit, shape, (apart, pitch, unit))
    run.call(matmul, x, w, out=out, **steps)
    return out[..., :queries], *(_view_at(run, each, -pitch, each.shape, each.strides) for each in (keys, values))


def _newest(run: Run, node: Node, places: Tensor, *caches: Tensor) -> Tensor:
    """Move the rows before caches to their places: one copy for all caches at equal distances."""
    device, (batch, capacity), strides = run.runtime.device, caches[0].shape[:2], caches[0].strides
    known = places is None or run.is_known(node.inputs[0], places)
    starts = [device.pointer(each) for each in caches]
    gaps = np.unique(np.diff(starts))
    groups = [caches] if len(gaps) < 2 and (gaps > 0).all() else [[each] for each in caches]
    gap = int(gaps[0]) if len(groups) == 1 and gaps.size else 0
    for group in groups:
        shape, steps = (len(group), node.attribute("columns")), (gap, strides[2])
        rows = memory_view(group[0], (batch, capacity, *shape), (*strides[:2], *steps))
        newest = _view_at(run, group[0], -strides[1], (batch, 1, *shape), (*strides[:2], *steps))
        append(run, rows, newest, places, known, False, node)
    return caches[0]


def _view_at(run: Run, array: Tensor, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Return a view of the memory around an array, from `offset` bytes after its first element."""
    device = run.runtime.device
    return device.borrow(device.pointer(array) + offset, shape, strides, array.dtype, array, device.number)


LOWERINGS: dict[str, Lowering] = {
    "MatMulAppend": _matmul_append,
    "NewestRows": _newest,
    "TensorScatter": _tensor_scatter,
}
