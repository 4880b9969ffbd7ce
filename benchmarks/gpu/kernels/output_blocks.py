"""Blocks of a Workload's output, each of them a smaller Workload of the same operator.

An axis can be cut if all operands are read along it without an offset, which follows from the declaration. Convolutions
can also be cut along rows of an image, attention along queries where a window's diagonal ends at the last key. The
float64 reference of a block is `expect` of its Workload, for every operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_kernels.operators import operator
from gensor_kernels.operators.attention.attention import Attention
from gensor_kernels.operators.attention.forms import FORMS
from gensor_kernels.operators.attention.sequences import Sequences
from gensor_kernels.operators.declaration.operator import Operator
from gensor_kernels.operators.expression.affine import Affine, Axis, IndexValue
from gensor_kernels.operators.expression.expression import Expression
from gensor_kernels.operators.pointwise.block_formats import Quantiser
from gensor_kernels.operators.pointwise.pointwise import AXES, PointOperator, layout_axes
from gensor_kernels.operators.recurrent.recurrent import Recurrent
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv_product import Convolution

#: Operations of one part: for products, whose reference is three matrix products, and for other operators.
PRODUCT_WORK, OTHER_WORK = 4e9, 2e8
Ranges = Mapping[str, tuple[int, int]]
ALL = slice(None)


@dataclass(frozen=True)
class Part:
    """A Workload that is a block of another, and the place of its operands in the other's, by declared axis."""

    workload: Workload
    slices: Mapping[str, tuple[slice, ...]]


@dataclass(frozen=True)
class Cuts:
    """The axes along which a Workload can be cut, with their extents, and the part for a range of each."""

    extents: Mapping[str, int]
    part: Callable[[Ranges], Part]


def parts(workload: Workload, seed: int = 0) -> Iterator[Part]:
    """Yield disjoint parts that cover the output: the last corner first, the others in random order."""
    cuts = cuts_of(workload)
    blocks = _blocks(workload, cuts)
    counts = [-(-cuts.extents[axis] // block) for axis, block in blocks.items()]
    total = math.prod(counts)
    order = np.random.default_rng(seed).permutation(total - 1) if total < 1 << 22 else range(total - 1)
    for number in (total - 1, *order) if total else ():
        ranges = {}
        for (axis, block), count in zip(reversed(blocks.items()), reversed(counts), strict=True):
            number, place = divmod(int(number), count)
            ranges[axis] = place * block, min((place + 1) * block, cuts.extents[axis])
        yield cuts.part(ranges)


def _blocks(workload: Workload, cuts: Cuts) -> dict[str, int]:
    """Return the largest extents of a part whose work is below the limit."""
    limit = PRODUCT_WORK if operator(workload.operator).product(workload) is not None else OTHER_WORK
    blocks = dict(cuts.extents)
    while max(blocks.values(), default=1) > 1:
        part = cuts.part({axis: (0, extent) for axis, extent in blocks.items()}).workload
        if max(part.flops(), part.bytes_moved()) <= limit:
            break
        longest = max(blocks, key=lambda axis: blocks[axis])
        blocks[longest] = -(-blocks[longest] // 2)
    return blocks


def cuts_of(workload: Workload) -> Cuts:
    """Return how a Workload can be cut."""
    declared = operator(workload.operator)
    if isinstance(declared, Sequences):
        return _sequences(workload)
    if isinstance(declared, Attention):
        return _attention(workload)
    if isinstance(declared, Convolution):
        return _convolution(workload, declared)
    if isinstance(declared, PointOperator):
        return _pointwise(workload, declared)
    if isinstance(declared, Recurrent):
        return _entries(workload, {} if declared.quantised else {"a": 1, "d": 2, "e": 0, "l": 2, "c": 1})
    if isinstance(declared, Quantiser):
        return _entries(workload, {"a": 0, "l": 0, "c": 0})
    return _plain(workload, declared)


# ---- from the declaration


def _plain(workload: Workload, declared: Operator) -> Cuts:
    size, stages = workload.size, declared.stages(workload.size)
    free = [name for name in size if name not in declared.parameters and all(_is_free(name, s) for s in stages)]
    extents = {item.name: item.extents for stage in stages for item in (*stage.tensors, stage.output)}
    vector = extents[declared.names[0]][-1:]  # of a prologue: along the last axis of its operand

    def part(ranges: Ranges) -> Part:
        slices = {
            name: tuple(_slice(ranges, extent) for extent in extents.get(name, vector)) for name in declared.names
        }
        return Part(workload.with_sizes(**{name: end - start for name, (start, end) in ranges.items()}), slices)

    return Cuts({name: size[name] for name in free}, part)


def _slice(ranges: Ranges, extent: object) -> slice:
    return slice(*ranges[extent.name]) if isinstance(extent, Axis) and extent.name in ranges else ALL


def _is_free(name: str, stage: Expression) -> bool:
    """Return whether a stage computes a range of an axis from the same range of its operands."""
    if name in (axis.name for axis in stage.over) or name not in (axis.name for axis in stage.axes):
        return False
    values = (*stage.body, *(() if stage.map is None else (stage.map,)))
    nodes = (node for value in values for node in value.nodes())
    if any(isinstance(node, IndexValue) and name in (axis.name for axis in node.index.axes) for node in nodes):
        return False  # the result depends on the element's position
    for read in stage.reads:
        for index, extent in zip(read.indices, read.tensor.extents, strict=True):
            if name not in (axis.name for axis in index.axes):
                continue
            plain = isinstance(index, Affine) and not index.constant and len(index.terms) == 1
            if not plain or index.terms[0][1] != 1 or not isinstance(extent, Axis) or extent.name != name:
                return False
    return True


# ---- element-wise programs: every axis


def _pointwise(workload: Workload, declared: PointOperator) -> Cuts:
    along = {each.name: layout_axes(workload, each.name)[0] for each in declared.operands(workload)}

    def part(ranges: Ranges) -> Part:
        slices = {
            name: tuple(slice(*ranges[axis]) if axis in axes else ALL for axis in AXES) for name, axes in along.items()
        }
        return Part(workload.with_sizes(**{name: end - start for name, (start, end) in ranges.items()}), slices)

    return Cuts(dict(workload.sizes), part)


# ---- recurrences, roundings to blocks: entries of the batch, which are independent but for a common range


def _entries(workload: Workload, places: Mapping[str, int]) -> Cuts:
    """Return the cuts along the batch, whose axis of each operand is in `places`; no cuts without places."""
    declared = operator(workload.operator)

    def part(ranges: Ranges) -> Part:
        entries = slice(*ranges.get("batch", (0, workload.size["batch"])))
        slices = {
            each.name: tuple(entries if axis == places.get(each.name) else ALL for axis in range(len(each.shape)))
            for each in declared.operands(workload)
        }
        return Part(workload.with_sizes(batch=entries.stop - entries.start), slices)

    return Cuts({"batch": workload.size["batch"]} if places else {}, part)


# ---- convolutions: images, filters, rows of the output


def _convolution(workload: Workload, declared: Convolution) -> Cuts:
    z = workload.size
    _, _, y = (each.shape for each in declared.plain_operands(workload))
    extents = {"n": z["n"], "filters": z["k_out"] // z["groups"]}
    if not declared.transposed:
        extents["rows"] = y[1]

    def part(ranges: Ranges) -> Part:
        images, filters = slice(*ranges["n"]), slice(*ranges["filters"])
        sizes = {"n": images.stop - images.start, "k_out": (filters.stop - filters.start) * z["groups"]}
        seen, rows = ALL, slice(*ranges.get("rows", (0, y[1])))
        if (rows.start, rows.stop) != (0, y[1]):
            seen, more = _window(z, rows)
            sizes |= more
        slices = {name: () for name in declared.names}  # vectors of a prologue, whole
        slices |= {"x": (images, seen, ALL, ALL, ALL), "w": (ALL, filters), "y": (images, rows, ALL, ALL, filters)}
        return Part(workload.with_sizes(**sizes), slices)

    return Cuts(extents, part)


def _window(z: Mapping[str, int], rows: slice) -> tuple[slice, dict[str, int]]:
    """Return the rows of the image that some rows of the output read, and the sizes of a convolution over them."""
    first = rows.start * z["stride_h"] - z["pad_top"]
    end = (rows.stop - 1) * z["stride_h"] - z["pad_top"] + z["dilation_h"] * (z["r"] - 1) + 1
    low, high = max(first, 0), min(end, z["h"])
    if low >= high:  # nothing but padding
        return slice(0, 0), {"h": 0, "pad_top": end - first, "pad_bottom": 0}
    return slice(low, high), {"h": high - low, "pad_top": low - first, "pad_bottom": end - high}


# ---- attention: batch entries, heads of K and V, queries


def _attention(workload: Workload) -> Cuts:
    z = workload.size
    group = z["heads"] // max(z["kv_heads"], 1)
    windowed, whole = FORMS[workload.operator].windowed, (0, z["queries"])

    def part(ranges: Ranges) -> Part:
        batch, (low, high), (first, end) = slice(*ranges["batch"]), ranges["kv_heads"], ranges.get("queries", whole)
        end, keys, causal = (
            _keys_seen(z, first, end) if "queries" in cut_axes else (end, slice(0, z["keys"]), z["causal"])
        )
        heads, queries = slice(low * group, high * group), slice(first, end)
        sizes = {"batch": batch.stop - batch.start, "heads": (high - low) * group, "kv_heads": high - low}
        found = workload.with_sizes(**sizes, queries=end - first, keys=keys.stop - keys.start, causal=causal)
        kv = (batch, slice(low, high), keys)
        slices = {"a": (batch, heads, queries), "b": kv, "d": kv, "c": (batch, heads, queries)}
        slices |= {"s": (heads,), "l": (batch, heads, queries)}
        if "mask_axes" in z:
            over = z["mask_axes"]
            slices["e"] = tuple(
                each if over & bit else ALL
                for each, bit in zip((batch, heads, queries, keys), (8, 4, 2, 1), strict=True)
            )
        return Part(found, slices)

    # A window around a diagonal that does not end at the last key cannot be stated for some queries alone.
    cut_axes = ("batch", "kv_heads", *(("queries",) if not windowed or z["causal"] == 1 else ()))
    return Cuts({axis: z[axis] for axis in cut_axes}, part)


def _sequences(workload: Workload) -> Cuts:
    """Heads of K and V alone: sequences have the lengths that arrays say."""
    z = workload.size
    group = z["heads"] // max(z["kv_heads"], 1)

    def part(ranges: Ranges) -> Part:
        low, high = ranges["kv_heads"]
        heads, kv_heads = slice(low * group, high * group), slice(low, high)
        slices = {name: (ALL,) for name in operator(workload.operator).names}
        slices |= {"a": (ALL, heads), "c": (ALL, heads), "b": (ALL, kv_heads), "d": (ALL, kv_heads)}
        slices |= {"s": (heads,), "l": (ALL, heads)}
        return Part(workload.with_sizes(heads=(high - low) * group, kv_heads=high - low), slices)

    return Cuts({"kv_heads": z["kv_heads"]}, part)


def _keys_seen(z: Mapping[str, int], first: int, end: int) -> tuple[int, slice, int]:
    """Return (end, keys, causal) of some queries alone: the last query sees the last of the keys that any of them sees.

    If some queries see all keys and others do not, the former are left out. Keys before all windows are left out.
    """
    keys = z["keys"]
    if z["causal"] == 1:
        last = max(keys - z["queries"] + end, 0)
        before = keys - z["queries"] + first - z.get("window_left", keys)
        return end, slice(min(max(before, 0), last), last), 1 if last > 0 else 0
    if z["causal"] == 2 and first < keys - 1:
        end = min(end, keys)
        return end, slice(0, end), 1
    return end, slice(0, keys), 0


def cut(array: np.ndarray, slices: Sequence[slice]) -> np.ndarray:
    """Return a part of an array; axes of one element are broadcast and stay whole."""
    return array[tuple(ALL if extent == 1 else each for extent, each in zip(array.shape, slices, strict=False))]
