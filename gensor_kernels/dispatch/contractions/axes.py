"""A contraction of two arrays as the matrix product that kernels take: which axes become batch, m, n and k.

Axes are labels with a stride per operand; nothing here touches an array. A label of both operands and the output is
batch, of both and not the output k, of one and the output m or n. Axes of a group are one axis where each follows
the next in memory, in the same order for every operand that has them. Kernels take one axis of m, n and k each and
three of batch; an axis of m or n that stays over is one more of batch, which the other operand lacks. Where that is
not enough, an operand is copied so that all its axes follow each other. The layout of the result is free: it has
the order of the caller where that costs nothing, else that of the product, and is returned as a transposed view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gensor_kernels.operators.expression.subscripts import Labels
from gensor_kernels.operators.types.geometry import BATCH_AXES

#: A run of unit stride is worth this many times its extent: whole vectors are read along it.
UNIT_STRIDE_WORTH = 16

Strides = dict[int, int]


class Window(NamedTuple):
    """A view of an array from its first element on; strides in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Run(NamedTuple):
    """Axes that are one, outermost first, its extent, and its stride in every operand that was looked at."""

    labels: Labels
    extent: int
    strides: tuple[int, ...]


class Groups(NamedTuple):
    """Labels by what the product does with them. `only_a` and `only_b` are summed, and the other lacks them."""

    batch: Labels
    m: Labels
    n: Labels
    k: Labels
    only_a: Labels
    only_b: Labels


class Fit(NamedTuple):
    """Axes a kernel takes; runs have strides of a and b, 0 where an operand lacks the axis."""

    lead: tuple[Run, ...]
    m: Run
    n: Run
    k: Run


@dataclass(frozen=True)
class Layout:
    """The product that computes a contraction.

    `a`, `b` and `c` are windows of (batch..., m, k), (batch..., k, n) and (batch..., m, n) on the product's operands
    and on the result; `labels` are those of every axis of `c`, the outermost first, and `summed` those of k. A new
    result is allocated with extents `allocated` and transposed by `order` (None: not at all). `swapped`: the second
    operand is the product's a.
    """

    a: Window
    b: Window
    c: Window
    labels: tuple[Labels, ...]
    summed: Labels
    allocated: tuple[int, ...] = ()
    order: tuple[int, ...] | None = None
    swapped: bool = False


@dataclass(frozen=True)
class Staging:
    """Copies and sums of operands, after which the contraction is lowered again.

    `labels` are, for each operand in the caller's order, the axes of the copy or the sum that takes its place, or None;
    `sums` are the labels that are summed over for it.
    """

    labels: tuple[Labels | None, Labels | None] = (None, None)
    sums: tuple[Labels, Labels] = ((), ())


NOT_STAGED = Staging()


def strides_of(labels: Labels, shape: Sequence[int], strides: Sequence[int]) -> Strides:
    """Return the stride of every label with more than one element; a repeated label steps along the diagonal."""
    found: Strides = {}
    for label, extent, stride in zip(labels, shape, strides, strict=True):
        if extent != 1:
            found[label] = found.get(label, 0) + stride
    return found


def packed_strides(labels: Sequence[int], extents: Mapping[int, int], itemsize: int) -> Strides:
    """Return the strides of a new array with axes `labels`."""
    found, step = {}, itemsize
    for label in reversed(labels):
        found[label] = step
        step *= extents[label]
    return found


def classify(a: Strides, b: Strides, output: Labels) -> Groups:
    """Return the groups; a batch axis that an operand repeats (stride 0) is one it lacks, and leaves `a` or `b`."""
    kept = set(output)
    for strides, other in ((a, b), (b, a)):
        for label in [label for label, stride in strides.items() if stride == 0 and label in kept and label in other]:
            del strides[label]
    return Groups(
        batch=tuple(label for label in output if label in a and label in b),
        m=tuple(label for label in output if label in a and label not in b),
        n=tuple(label for label in output if label in b and label not in a),
        k=tuple(label for label in a if label in b and label not in kept),
        only_a=tuple(label for label in a if label not in b and label not in kept),
        only_b=tuple(label for label in b if label not in a and label not in kept),
    )


def runs(labels: Labels, operands: Sequence[Strides], extents: Mapping[int, int]) -> list[Run]:
    """Return the fewest axes that `labels` are in memory, the widest steps first."""
    found: list[Run] = []
    for label in sorted(labels, key=lambda each: [-abs(strides.get(each, 0)) for strides in operands]):
        extent, steps = extents[label], tuple(strides.get(label, 0) for strides in operands)
        outer = found[-1] if found else None
        if outer and all(far == near * extent for far, near in zip(outer.strides, steps, strict=True)):
            found[-1] = Run((*outer.labels, label), outer.extent * extent, steps)
        else:
            found.append(Run((label,), extent, steps))
    return found


def fit(
    groups: Groups, a: Strides, b: Strides, c: Strides | None, extents: Mapping[int, int], units: tuple[int, int]
) -> Fit | None:
    """Return the axes of the product, None where kernels do not have as many. `c` None: the result is laid out to suit.

    `units` are the bytes of an element of a and b.
    """
    operands = [a, b] if c is None else [a, b, c]
    m, n, k, batch = (runs(each, operands, extents) for each in (groups.m, groups.n, groups.k, groups.batch))
    if len(k) > 1:
        return None
    lead = batch + _rest(m, 0, units[0]) + _rest(n, 1, units[1])
    if len(lead) > BATCH_AXES:
        return None
    one = Run((), 1, (0,) * len(operands))
    return Fit(tuple(lead), _main(m, 0, units[0]) or one, _main(n, 1, units[1]) or one, k[0] if k else one)


def _main(found: list[Run], operand: int, unit: int) -> Run | None:
    """Return the run that is the product's own axis: the longest, one of unit stride before others."""

    def worth(run: Run) -> int:
        return run.extent * (UNIT_STRIDE_WORTH if abs(run.strides[operand]) == unit else 1)

    return max(found, key=worth, default=None)


def _rest(found: list[Run], operand: int, unit: int) -> list[Run]:
    main = _main(found, operand, unit)
    return [run for run in found if run is not main]


def layout_of(
    found: Fit,
    a: Strides,
    b: Strides,
    c: Strides,
    allocated: tuple[int, ...] = (),
    order: tuple[int, ...] | None = None,
) -> Layout:
    """Return the Layout of a product with these axes, of operands and a result with these strides."""

    def axis(run: Run, strides: Strides) -> tuple[int, int]:
        inner = run.labels[-1] if run.labels else None
        return (run.extent, strides[inner]) if inner in strides else (1, 0)

    def window(strides: Strides, *core: Run) -> Window:
        axes = [axis(run, strides) for run in (*found.lead, *core)]
        return Window(tuple(extent for extent, _ in axes), tuple(stride for _, stride in axes))

    k = found.k
    first, second = window(a, found.m, k), window(b, k, found.n)
    # A summed axis that one operand lacks is k all the same: it is read again and again.
    first = Window((*first.shape[:-1], k.extent), first.strides)
    second = Window((*second.shape[:-2], k.extent, second.shape[-1]), second.strides)
    labels = tuple(run.labels for run in (*found.lead, found.m, found.n))
    return Layout(first, second, window(c, found.m, found.n), labels, k.labels, allocated, order)
