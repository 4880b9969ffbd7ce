"""Reference evaluator: any expression in float64 (complex128 for complex operands), block by block.

The evaluator follows the declaration literally over grids of index arrays, and shares nothing with the kernels.  Blocks
of about a hundred thousand points stay in cache and bound memory for any size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.epilogue import apply as apply_epilogue

from .affine import Axis, IndexValue, Quotient, extent_of
from .combiners import Combiner, State
from .expression import Expression, Read, infer_sizes
from .values import FUNCTIONS, Apply, Constant, ExpressionError, Position, Result, Value

#: Points of the iteration space evaluated at once.
BLOCK_POINTS = 1 << 17

Ranges = tuple[range, ...]


def evaluate(
    stages: Expression | Sequence[Expression],
    arrays: Mapping[str, np.ndarray],
    *,
    sizes: Mapping[str, int] | None = None,
    steps: Sequence[Step] = (),
    output: str = "float64",
    block_points: int = BLOCK_POINTS,
) -> np.ndarray:
    """Return the last output of a chain of expressions, float64 or complex128, from inputs by operand name.

    Later stages read the outputs of earlier ones; ``sizes`` are extents that no operand's shape gives, such as a
    pooling window; ``steps`` are an epilogue, whose casts round to ``output``.  ExpressionError if shapes do not fit,
    an operand is missing, or a read leaves its operand.

    Examples
    --------
    >>> from gensor_kernels.operators import operator
    >>> a, b = np.array([[[1.0, 2.0]]]), np.array([[[3.0], [4.0]]])
    >>> float(evaluate(operator("matmul").stages({}), {"a": a, "b": b})[0, 0, 0])
    11.0
    """
    chain = [stages] if isinstance(stages, Expression) else list(stages)
    known = {name: np.asarray(array) for name, array in arrays.items()}
    values: dict[str, np.ndarray] = {}
    extents = dict(sizes or {})
    for stage in chain:
        for tensor in stage.tensors:
            if tensor.name not in known and tensor.name not in values:
                raise ExpressionError(f"{stage.name} reads {tensor.name}, which is not given")
        inputs = {tensor.name: known[tensor.name] for tensor in stage.tensors if tensor.name in known}
        extents = infer_sizes(stage.tensors, {name: item.shape for name, item in inputs.items()}, extents)
        for name, item in inputs.items():
            values.setdefault(name, item.astype(np.complex128 if np.iscomplexobj(item) else np.float64))
        with np.errstate(all="ignore"):
            values[stage.name] = _Evaluator(stage, values, extents, block_points).run()
        known.pop(stage.name, None)
    return apply_epilogue(values[chain[-1].name], steps, output) if steps else values[chain[-1].name]


class _Evaluator:
    """One expression over float64 arrays at known sizes."""

    def __init__(
        self, stage: Expression, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], block_points: int
    ) -> None:
        self.stage, self.arrays, self.sizes, self.block_points = stage, arrays, sizes, block_points
        self.dtype = np.result_type(np.float64, *(arrays[tensor.name].dtype for tensor in stage.tensors))
        self.empty = 0 in [axis.size(sizes) for axis in (*stage.axes, *stage.over)]
        for read in stage.reads:
            _check_read(read, sizes)

    def run(self) -> np.ndarray:
        stage = self.stage
        out = np.empty(stage.shape(self.sizes), dtype=self.dtype)
        mapped = tuple(axis for axis in stage.axes if axis in stage.over)
        for block in self.blocks(stage.parallel):
            if stage.combiner is None:
                pieces: Iterator[tuple[Ranges, Any]] = iter([((), self.body(block, ())[0])])
            else:
                pieces = self.map(block, mapped, self.reduce(block, stage.combiner))
            for inner, value in pieces:
                ranges = dict(zip((*stage.parallel, *mapped), (*block, *inner), strict=True))
                where = tuple(slice(ranges[axis].start, ranges[axis].stop) for axis in stage.axes)
                order = [(*stage.parallel, *mapped).index(axis) for axis in stage.axes]
                full = np.broadcast_to(value, [len(item) for item in (*block, *inner)])
                out[where] = full.transpose(order)
        return out

    def blocks(self, axes: Sequence[Axis], used: int = 1) -> Iterator[Ranges]:
        """Boxes that cover ``axes``, the last axes whole as far as ``block_points / used`` allows."""
        extents = [axis.size(self.sizes) for axis in axes]
        left, widths = max(self.block_points // max(used, 1), 1), []
        for extent in reversed(extents):
            widths.append(max(min(extent, left), 1))
            left = max(left // widths[-1], 1)
        cuts = [
            [range(start, min(start + width, extent)) for start in range(0, extent, width)]
            for extent, width in zip(extents, reversed(widths), strict=True)
        ]
        return itertools.product(*cuts)

    def body(self, outer: Ranges, inner: Ranges) -> list[np.ndarray]:
        """Body values on the block, each of the shape of the axes it depends on (broadcastable)."""
        grid = self.grid((*self.stage.parallel, *self.stage.over), (*outer, *inner))
        return [self.value(item, grid, {}) for item in self.stage.body]

    def reduce(self, block: Ranges, combiner: Combiner) -> State:
        """Return the final state of the parallel block, combined over all blocks of the reduced axes."""
        shape = tuple(len(item) for item in block)
        state = tuple(np.full(shape, neutral, dtype=self.dtype) for neutral in combiner.identity)
        for inner in self.blocks(self.stage.over, math.prod(shape)):
            full = (*shape, *(len(item) for item in inner))
            terms = [np.broadcast_to(v, full).reshape(*shape, -1) for v in self.body(block, inner)]
            terms = [term.astype(self.dtype, copy=False) for term in terms]
            state = combiner.combine(state, _fold(combiner, combiner.init(*terms)))
        return state

    def map(self, block: Ranges, mapped: tuple[Axis, ...], state: State) -> Iterator[tuple[Ranges, Any]]:
        """Yield the map (or the finished reduction) on blocks of the mapped axes."""
        combiner, stage = self.stage.combiner, self.stage
        assert combiner is not None
        finished = {"": combiner.finish(state), **dict(zip(combiner.fields, state, strict=True))}
        if stage.map is None:
            yield (), finished[""]
            return
        shape = tuple(len(item) for item in block)
        results = {name: v.reshape(shape + (1,) * len(mapped)) for name, v in finished.items()}
        for inner in self.blocks(mapped, math.prod(shape)):
            grid = self.grid((*stage.parallel, *mapped), (*block, *inner))
            yield inner, self.value(stage.map, grid, results)

    def grid(self, axes: Sequence[Axis], ranges: Ranges) -> dict[str, np.ndarray]:
        """Position of every axis as an array along its own dimension."""
        rank = len(axes)
        return {
            axis.name: np.arange(r.start, r.stop).reshape([-1 if d == i else 1 for d in range(rank)])
            for i, (axis, r) in enumerate(zip(axes, ranges, strict=True))
        }

    def value(self, node: Value, grid: Mapping[str, np.ndarray], results: Mapping[str, np.ndarray]) -> Any:
        """Value of ``node`` on the grid."""
        if isinstance(node, Apply):
            return FUNCTIONS[node.function].numpy(*(self.value(item, grid, results) for item in node.arguments))
        if isinstance(node, Read):
            return self.read(node, grid)
        if isinstance(node, Constant):
            return np.asarray(node.value)
        if isinstance(node, IndexValue):
            return np.asarray(node.index.value(grid), dtype=np.float64)
        if isinstance(node, Result):
            return results[node.field]
        if isinstance(node, Position):
            place: Any = 0
            for axis in self.stage.over:
                place = place * axis.size(self.sizes) + grid[axis.name]
            return np.asarray(place, dtype=np.float64)
        raise ExpressionError(f"{node!r} can't be evaluated")

    def read(self, node: Read, grid: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the elements of the tensor at the grid's positions, the fill value outside."""
        array = self.arrays[node.tensor.name]
        places = [np.asarray(item.value(grid)) for item in node.indices]
        if node.tensor.fill is None:
            return array[tuple(places)]
        inside: Any = np.True_
        for item, place, extent in zip(node.indices, places, array.shape, strict=True):
            inside = inside & (place >= 0) & (place < extent)
            if isinstance(item, Quotient) and item.exact:
                inside = inside & (item.numerator.value(grid) % item.divisor == 0)
        if array.size == 0:
            return np.full(np.shape(inside), node.tensor.fill)
        clipped = tuple(np.clip(place, 0, extent - 1) for place, extent in zip(places, array.shape, strict=True))
        return np.where(inside, array[clipped], node.tensor.fill)


def _fold(combiner: Combiner, state: State) -> State:
    """Combine over the last dimension, halving it each time."""
    while (length := state[0].shape[-1]) > 1:
        half = length // 2
        merged = combiner.combine(
            tuple(part[..., :half] for part in state), tuple(part[..., half : 2 * half] for part in state)
        )
        rest = tuple(part[..., 2 * half :] for part in state)
        state = merged if length % 2 == 0 else tuple(map(_join, merged, rest))
    return tuple(part[..., 0] for part in state)


def _join(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.concatenate([left, right], axis=-1)


def _check_read(read: Read, sizes: Mapping[str, int]) -> None:
    """Raise ExpressionError if a read without a fill value can leave its tensor."""
    if read.tensor.fill is not None or any(axis.size(sizes) == 0 for axis in read.axes):
        return
    for number, (place, extent) in enumerate(zip(read.indices, read.tensor.extents, strict=True)):
        size = extent_of(extent, sizes)
        low, high = place.bounds(sizes)
        if low < 0 or high >= size or (isinstance(place, Quotient) and place.exact):
            reach = f"index {number} takes {low}..{high} where {read.tensor.name} has {size} elements"
            raise ExpressionError(f"{read} leaves its operand: {reach}; {read.tensor.name}.pad(fill) allows that")
