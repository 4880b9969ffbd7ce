"""einsum of any number of operands as pairwise contractions: what was written, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from gensor_kernels.arrays import Dtype
from gensor_kernels.dispatch.calls.arguments import named_dtype
from gensor_kernels.operators.expression.subscripts import LETTERS, Subscripts, extents, parse, subscripts_text
from gensor_kernels.shown import shown

from .spec import Form

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: Strategies of `optimize`, as in CuPy.
STRATEGIES = ("greedy", "optimal")


def parse_operands(text: str, operands: Sequence[DeviceArray]) -> tuple[Subscripts, dict[int, int]]:
    """Return labels and their extents; ValueError if they do not fit the operands."""
    subscripts = parse(text, tuple(each.ndim for each in operands))
    return subscripts, extents(subscripts, [each.shape for each in operands])


def take(operands: list[DeviceArray], places: tuple[int, int]) -> tuple[DeviceArray, DeviceArray]:
    """Remove two operands from the list and return them in their order."""
    low, high = sorted(places)
    second = operands.pop(high)
    return operands.pop(low), second


@dataclass(frozen=True, eq=False)
class Step:
    """A contraction of a chain: its form, and the places of its operands; its result is put at the end of them."""

    form: Form
    places: tuple[int, int]


@dataclass
class Chain:
    """Pairwise contractions in order; `dtype` is that of each result.

    `library`: each of them would be the array library's, so all are one call of its.
    """

    steps: tuple[Step, ...]
    dtype: Dtype
    library: bool = False


def make_chain(
    text: str, operands: Sequence[DeviceArray], dtype: DTypeLike | None, strategy: Any, flags: tuple[bool, ...]
) -> Chain:
    """Return the Chain of three or more operands, of which `flags` say whether they are conjugated.

    ValueError for arguments that do not fit.
    """
    subscripts, sizes = parse_operands(text, operands)
    result = named_dtype(dtype) if dtype is not None else np.result_type(*(each.dtype for each in operands))
    shapes = [each.shape for each in operands]
    path = _path(subscripts, shapes, strategy) if len(sizes) <= len(LETTERS) else [tuple(range(len(operands)))]
    return Chain(tuple(_steps(subscripts, _pairs(path, len(operands)), list(flags))), result)


def _steps(subscripts: Subscripts, pairs: Iterable[tuple[int, int]], flags: list[bool]) -> Iterator[Step]:
    labels = list(subscripts.operands)
    for places in pairs:
        a, b = take(labels, places)
        conjugated = take(flags, places)
        flags.append(False)
        kept = subscripts.output
        if labels:
            needed = {label for each in (*labels, kept) for label in each}
            kept = tuple(label for label in dict.fromkeys((*a, *b)) if label in needed)
        labels.append(kept)
        yield Step(("labels", a, b, kept, conjugated), places)


def flags_of(conjugate: Any, count: int) -> tuple[bool, ...]:
    """Return whether each of `count` operands is conjugated; ValueError for a number out of range."""
    numbers = [conjugate] if isinstance(conjugate, int) else list(conjugate)
    if any(not 0 <= number < count for number in numbers):
        raise ValueError(f"conjugate names operands 0 to {count - 1}, not {shown(conjugate)}")
    return tuple(place in numbers for place in range(count))


# ---- the order


def strategy_of(optimize: Any) -> Any:
    """Return `optimize`, hashable: False, (strategy, limit or None), or a path; TypeError for anything else."""
    if optimize is False:
        return False
    if optimize is True:
        return "greedy", None
    if isinstance(optimize, str) and optimize in STRATEGIES:
        return optimize, None
    if isinstance(optimize, (list, tuple)) and optimize:
        if optimize[0] == "einsum_path":
            return tuple(tuple(map(int, each)) for each in optimize[1:])
        if len(optimize) == 2 and optimize[0] in STRATEGIES and isinstance(optimize[1], (int, float)):
            return optimize[0], int(optimize[1])
    raise TypeError(f"Did not understand the path (optimize): {shown(optimize)}")


def _path(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], strategy: Any) -> Iterable[tuple[int, ...]]:
    if strategy is False:
        return [tuple(range(len(shapes)))]
    if not strategy or not isinstance(strategy[0], str):
        return strategy
    from opt_einsum import contract_path

    name, limit = strategy
    text = subscripts_text(subscripts.operands, subscripts.output)
    return contract_path(text, *shapes, shapes=True, optimize=name, memory_limit=limit)[0]


def _pairs(path: Iterable[tuple[int, ...]], count: int) -> Iterator[tuple[int, int]]:
    """Yield pairs of places: each pair is removed, its result appended; larger groups go from the right, as in CuPy.

    The rest of the operands is contracted in the same way. ValueError for places that do not exist.
    """
    for places in (*path, None):
        rest = sorted(range(count) if places is None else places, reverse=True)
        if any(not 0 <= place < count for place in rest) or len(set(rest)) < len(rest):
            raise ValueError(f"the path takes operands {places} of {count}")
        if len(rest) < 2:
            continue
        yield rest[0], rest[1]
        count -= 1
        for place in rest[2:]:
            yield count - 1, place
            count -= 1
