"""einsum of any number of operands: what was written, the order of pairwise contractions, and their run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.dispatch.api.interop import is_foreign
from gensor_kernels.dispatch.calls.arguments import named_dtype
from gensor_kernels.dispatch.functions.prologue_contraction import contraction
from gensor_kernels.dispatch.functions.prologue_matmul import in_front
from gensor_kernels.dispatch.observe import record as observe_record
from gensor_kernels.dispatch.plans import recorded as plans_recorded
from gensor_kernels.operators.expression.subscripts import LETTERS, Subscripts, extents, from_sublists, parse, written

from .lowering import Study, is_staged, staged_form, stand_ins, study
from .pairs import pair
from .plans import make
from .recorded import library_row
from .spec import einsum_form

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime

#: Strategies of `optimize`, as in CuPy.
STRATEGIES = ("greedy", "optimal")

Pairs = tuple[tuple[int, int], ...]


def einsum(
    runtime: Runtime, arguments: Sequence[Any], dtype: Any, optimize: Any, conjugate: Any = (), prologue: Any = None
) -> Any:
    """`einsum(*arguments, dtype=dtype, optimize=optimize, conjugate=conjugate, prologue=prologue)` on one device."""
    text, operands = written_as(runtime, arguments)
    strategy, flags = strategy_of(optimize), flags_of(conjugate, len(operands))
    if prologue is not None and len(operands) == 2:
        a, b = operands
        return contraction(runtime, einsum_form(text, (flags[0], flags[1])), a, b, prologue, dtype)
    if prologue is not None and operands:
        operands[0] = in_front(runtime, operands[0], prologue)
    if len(operands) == 1:
        return _single(runtime, text, operands[0].conj() if flags[0] else operands[0], dtype)
    if len(operands) == 2:
        a, b = operands
        return pair(runtime, einsum_form(text, (flags[0], flags[1])), a, b, None, dtype)
    chain = _chain(runtime, text, operands, dtype, strategy, flags)
    if chain.library:
        taken_as = [each.conj() if flag else each for each, flag in zip(operands, flags, strict=True)]
        result = runtime.device.xp.einsum(text, *taken_as, dtype=dtype, optimize=optimize)
        if observe_record.active:
            _count(runtime, chain, operands)
        return result
    for form, places in chain.steps():
        first, second = taken(operands, places)
        operands.append(pair(runtime, form, first, second, None, chain.dtype))
    return operands[0]


def _count(runtime: Runtime, chain: Chain, operands: Sequence[Any]) -> None:
    """Counts every contraction of a chain that was one call of the library's."""
    for number, (found, a, b) in enumerate(walked(runtime, chain, operands)):
        step = chain.recorded.setdefault(number, Step())
        plans_recorded.count(step, lambda found=found, a=a, b=b: library_row(runtime, found, a, b))  # type: ignore[misc]


def _single(runtime: Runtime, text: str, operand: Any, dtype: Any) -> Any:
    """The library's view or sum of one operand; bfloat16 is summed in float32, which every library can."""
    (labels,), output = parsed(text, [operand])[0]
    library = runtime.device.xp.einsum
    if operand.dtype.name != "bfloat16" or dtype is not None or set(labels) == set(output):
        return library(text, operand, dtype=dtype)
    return library(text, operand.astype(np.float32)).astype(operand.dtype)


def written_as(runtime: Runtime, arguments: Sequence[Any]) -> tuple[str, list[Any]]:
    """(subscripts, operands as arrays of the device) of either form of call."""
    if arguments and isinstance(arguments[0], str):
        text, operands = arguments[0], list(arguments[1:])
    else:
        text, operands = from_sublists(arguments)
    device = runtime.device
    if any(is_foreign(each, device) for each in operands if not device.is_array(each)):
        raise TypeError("arrays of other libraries are exchanged first")  # by whoever catches this
    return text, [each if device.is_array(each) else device.xp.asarray(each) for each in operands]


def parsed(text: str, operands: Sequence[Any]) -> tuple[Subscripts, dict[int, int]]:
    """Labels and their extents; ValueError where they do not fit the operands."""
    subscripts = parse(text, tuple(each.ndim for each in operands))
    return subscripts, extents(subscripts, [each.shape for each in operands])


def taken(operands: list[Any], places: tuple[int, int]) -> tuple[Any, Any]:
    """Removes two operands, the later place first, and gives them in the order they stood in."""
    low, high = sorted(places)
    second = operands.pop(high)
    return operands.pop(low), second


class Step:
    """A contraction of a Chain as recordings know it: one row."""


class Chain:
    """Pairwise contractions in order. `library`: each would be the library's, so all are one call of its."""

    def __init__(self, subscripts: Subscripts, pairs: Pairs, dtype: Any, flags: tuple[bool, ...]):
        self.subscripts, self.pairs, self.dtype, self.flags = subscripts, pairs, dtype, flags
        self.library = False
        self.recorded: dict[int, Step] = {}

    def steps(self) -> Iterator[tuple[Any, tuple[int, int]]]:
        """(form, places of its operands) of each; what it gives is put at the end."""
        labels, flags = list(self.subscripts.operands), list(self.flags)
        for places in self.pairs:
            a, b = taken(labels, places)
            conjugated = taken(flags, places)
            flags.append(False)
            kept = self.subscripts.output
            if labels:
                needed = {label for each in (*labels, kept) for label in each}
                kept = tuple(label for label in dict.fromkeys((*a, *b)) if label in needed)
            labels.append(kept)
            yield ("labels", a, b, kept, conjugated), places


def _chain(
    runtime: Runtime, text: str, operands: list[Any], dtype: Any, strategy: Any, flags: tuple[bool, ...]
) -> Chain:
    key = ("chain", text, dtype, strategy, flags, *((each.shape, each.strides, each.dtype) for each in operands))
    found: Any = runtime.plans.get(key)
    if found is None:
        found = outlined(text, operands, dtype, strategy, flags)
        if not runtime.device.emulated:
            found.library = _is_librarys(runtime, found, operands)
        if not runtime.device.capturing():
            runtime.plans[key] = found
    return found


def _is_librarys(runtime: Runtime, chain: Chain, operands: Sequence[Any]) -> bool:
    made = (make(runtime, found.form, a, b, None, chain.dtype) for found, a, b in walked(runtime, chain, operands))
    return all(plan.tier == 4 for plan, _ in made)


def outlined(text: str, operands: Sequence[Any], dtype: Any, strategy: Any, flags: tuple[bool, ...]) -> Chain:
    """The Chain of three or more operands; raises ValueError for what does not fit."""
    subscripts, sizes = parsed(text, operands)
    result = named_dtype(dtype) if dtype is not None else np.result_type(*(each.dtype for each in operands))
    shapes = [each.shape for each in operands]
    path = _path(subscripts, shapes, strategy) if len(sizes) <= len(LETTERS) else [tuple(range(len(operands)))]
    return Chain(subscripts, tuple(_pairs(path, len(operands))), result, flags)


def walked(runtime: Runtime, chain: Chain, operands: Sequence[Any]) -> Iterator[tuple[Study, Any, Any]]:
    """Every step with its operands: stand-ins for what the steps before it give."""
    arrays = list(operands)
    for form, places in chain.steps():
        first, second = taken(arrays, places)
        found = study(runtime, form, first, second, None, chain.dtype)
        yield found, first, second
        arrays.append(outcome(runtime, found, first, second))


def outcome(runtime: Runtime, found: Study, a: Any, b: Any) -> Any:
    """An array like the one a contraction gives, its contents aside."""
    if found.layout is None:
        return runtime.device.empty(found.shape, found.dtype)
    if is_staged(found):
        form, dtype = staged_form(found)
        first, second = stand_ins(runtime, found, a, b)
        return outcome(runtime, study(runtime, form, first, second, None, dtype), first, second)
    array = runtime.device.empty(found.layout.allocated, found.dtype)
    return array if found.layout.order is None else array.transpose(found.layout.order)


def flags_of(conjugate: Any, count: int) -> tuple[bool, ...]:
    """Which of `count` operands are conjugated; ValueError for one that does not exist."""
    numbers = [conjugate] if isinstance(conjugate, int) else list(conjugate)
    if any(not 0 <= number < count for number in numbers):
        raise ValueError(f"conjugate names operands 0 to {count - 1}, not {conjugate!r}")
    return tuple(place in numbers for place in range(count))


# ---- the order


def strategy_of(optimize: Any) -> Any:
    """What CuPy takes, hashable: False, (strategy, limit or None), or a path; TypeError for anything else."""
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
    raise TypeError(f"Did not understand the path (optimize): {optimize}")


def _path(subscripts: Subscripts, shapes: Sequence[tuple[int, ...]], strategy: Any) -> Iterable[tuple[int, ...]]:
    if strategy is False:
        return [tuple(range(len(shapes)))]
    if not strategy or not isinstance(strategy[0], str):
        return strategy
    from opt_einsum import contract_path

    name, limit = strategy
    text = written(subscripts.operands, subscripts.output)
    return contract_path(text, *shapes, shapes=True, optimize=name, memory_limit=limit)[0]


def _pairs(path: Iterable[tuple[int, ...]], count: int) -> Iterator[tuple[int, int]]:
    """Pairs of places, each pair removed and its result appended; several at once go from the right, as in CuPy.

    Whatever the path leaves is contracted so too. ValueError for places that do not exist.
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
