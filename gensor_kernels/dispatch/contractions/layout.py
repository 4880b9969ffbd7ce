"""Which arrays of a contraction are used in place, copied, or summed first (the choices of `grouping`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gensor_kernels.operators.expression.subscripts import Labels

from .axes import Fit, Groups, Layout, Staging, Strides, classify, fit, layout_of, packed_strides, runs, strides_of

Extents = Mapping[int, int]


class Source(NamedTuple):
    """An operand: a label per axis, extents, strides in bytes, bytes of an element."""

    labels: Labels
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


@dataclass(frozen=True)
class _Product:
    """The operands in the product's order, and the result: its labels, extents, bytes of an element and strides.

    `out` is None for a result whose layout is free.
    """

    groups: Groups
    a: Strides
    b: Strides
    units: tuple[int, int]
    output: Labels
    extents: Extents
    itemsize: int
    out: Strides | None

    def place(self, a: Strides, b: Strides) -> Layout | None:
        """Return the Layout with operands of these strides, or None if kernels have too few axes for it."""
        if self.out is not None:
            found = fit(self.groups, a, b, self.out, self.extents, self.units)
            return None if found is None else layout_of(found, a, b, self.out)
        free = fit(self.groups, a, b, None, self.extents, self.units)
        if free is None:
            return None
        c = packed_strides(self.output, self.extents, self.itemsize)
        wanted = fit(self.groups, a, b, c, self.extents, self.units)
        if wanted is not None and self._as_good(wanted, free):
            allocated = tuple(self.extents[each] for each in self.output)
            return layout_of(wanted, a, b, c, allocated)
        return self._transpose(free, a, b)

    def _as_good(self, wanted: Fit, free: Fit) -> bool:
        sizes = [(found.m.extent, found.n.extent) for found in (wanted, free)]
        return sizes[0] == sizes[1] and (wanted.n.extent == 1 or wanted.n.strides[2] == self.itemsize)

    def _transpose(self, found: Fit, a: Strides, b: Strides) -> Layout:
        lead = sorted(found.lead, key=lambda run: self.output.index(run.labels[0]))
        axes = [label for run in (*lead, found.m, found.n) for label in run.labels]
        axes = [label for label in self.output if label not in axes] + axes
        c = packed_strides(axes, self.extents, self.itemsize)
        order = tuple(axes.index(label) for label in self.output)
        allocated = tuple(self.extents[label] for label in axes)
        return layout_of(found, a, b, c, allocated, None if list(order) == sorted(order) else order)

    def copied(self) -> tuple[Labels | None, Labels | None]:
        """Return the axes of the least copies that make kernels' axes suffice; of both where nothing does."""
        a, b, extents = self.a, self.b, self.extents
        by_a, by_b = self._order(a, self.groups.m, b), self._order(b, self.groups.n, a)
        size_a, size_b = (math.prod(extents[each] for each in axes) for axes in (by_a, by_b))
        one = [(by_a, None), (None, by_b)]
        for pair in one if size_a * self.units[0] <= size_b * self.units[1] else reversed(one):
            first = a if pair[0] is None else packed_strides(pair[0], extents, self.units[0])
            second = b if pair[1] is None else packed_strides(pair[1], extents, self.units[1])
            if self.place(first, second) is not None:
                return pair
        return self._order(a, self.groups.m, a), self._order(b, self.groups.n, a)

    def _order(self, strides: Strides, own: Labels, guide: Strides) -> Labels:
        """Return the axes of a copy: batch and k as `guide` has them, so that they are one axis with it."""

        def by_stride(labels: Labels) -> list[int]:
            return sorted((each for each in labels if each in strides), key=lambda each: -abs(guide.get(each, 0)))

        return (*by_stride(self.groups.batch), *own, *by_stride(self.groups.k))


def arrange(
    sources: tuple[Source, Source],
    output: Labels,
    extents: Extents,
    itemsize: int,
    out: Sequence[int] | None = None,
    *,
    turning: bool = True,
) -> Layout | Staging | None:
    """Return the Layout of a contraction whose result has elements of `itemsize` bytes; no operand is empty.

    It is a Staging where an operand is copied or summed first, None where no product writes `out`: the strides of a
    result that exists already, or None where the layout of the result is free.
    Without `turning` the first operand is the product's a whatever the result's last axis.
    """
    a, b = (strides_of(source.labels, source.shape, source.strides) for source in sources)
    groups = classify(a, b, output)
    swapped = turning and _is_second_first(groups, output, extents)
    if swapped:
        sources, a, b = sources[::-1], b, a
        groups = Groups(groups.batch, groups.n, groups.m, groups.k, groups.only_b, groups.only_a)
    whole = _absorb(groups, a, b, extents)
    if whole is None:
        return _sum_axes(swapped, (a, b), (groups.only_a, groups.only_b))
    target = None if out is None else strides_of(output, [extents[each] for each in output], out)
    units = sources[0].itemsize, sources[1].itemsize
    product = _Product(whole, a, b, units, output, extents, itemsize, target)
    found = product.place(a, b)
    if found is None:
        if out is not None:
            return None
        copies = product.copied()
        return Staging(copies[::-1] if swapped else copies)
    return replace(found, swapped=swapped)


def _sum_axes(swapped: bool, operands: tuple[Strides, Strides], sums: tuple[Labels, Labels]) -> Staging:
    kept = [
        tuple(label for label in strides if label not in summed) if summed else None
        for strides, summed in zip(operands, sums, strict=True)
    ]
    turn = -1 if swapped else 1
    (first, second), (one, other) = kept[::turn], sums[::turn]
    return Staging((first, second), (one, other))


def _is_second_first(groups: Groups, output: Labels, extents: Extents) -> bool:
    """Return whether the result's last axis is one of the first operand alone: then that is the product's b."""
    last = next((label for label in reversed(output) if extents[label] != 1), None)
    return last in groups.m


def _absorb(groups: Groups, a: Strides, b: Strides, extents: Extents) -> Groups | None:
    """Return the groups in which summed axes of one operand are k, read again and again by the other.

    None where that does not work, or would multiply the work: these axes are summed first.
    """
    if not groups.only_a and not groups.only_b:
        return groups
    k = (*groups.k, *groups.only_a, *groups.only_b)
    repeats = (groups.only_a and groups.n) or (groups.only_b and groups.m) or (groups.only_a and groups.only_b)
    if repeats or len(runs(k, [a, b], extents)) > 1:
        return None
    return groups._replace(k=k, only_a=(), only_b=())
