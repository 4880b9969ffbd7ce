"""Chains of reshapes and transposes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node
from gensor_kernels.graph.ir.links import Links

from .base import rule

VIEWS = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten")


class Part(NamedTuple):
    """A factor of an axis: its place in the memory order of the source, as a path of splits, and its extent."""

    path: tuple[int, ...]
    extent: int


#: Axes of a tensor, each the product of parts of the source's axes.
Axes = tuple[tuple[Part, ...], ...]


@rule("Views", *VIEWS)
def shorten_views(links: Links, node: Node) -> bool:
    """Reshape(Transpose(Reshape(x))) and longer chains -> the shortest of Reshape, Transpose, Reshape of x.

    A chain that splits, permutes and rejoins axes becomes one Transpose, without copies between; a chain that moves
    nothing becomes one Reshape, or x.
    """
    chain = chain_of(links, node)
    source = chain[0].inputs[0]
    shape, last = links.graph.static(source), links.graph.static(node.outputs[0])
    if shape is None or last is None or 0 in shape:
        return False
    axes = follow(links.graph, chain, shape)
    steps = None if axes is None else steps_to(axes, shape)
    if steps is None or len(steps) >= len(chain):
        return False
    if not steps:
        return links.bypass(node, source)
    links.replace(node, *view_nodes(links, node, source, steps, node.outputs[0]))
    return True


@rule("Selects", "Gather")
def slice_views(links: Links, node: Node) -> bool:
    """Gather(view of x, i), with a number i -> view of Slice(x), where the view's axis is the outer part of x's own.

    Exporters take three joined products apart so, after a split of their axis into (3, heads, head).
    """
    graph, index = links.graph, links.graph.constants.get(node.inputs[1])
    given = links.maker(node.inputs[0], *VIEWS)
    if given is None or index is None or index.ndim or links.is_result(node.outputs[0]):
        return False
    chain = chain_of(links, given)
    source = chain[0].inputs[0]
    shape = graph.static(source)
    axes = None if shape is None or 0 in shape else follow(graph, chain, shape)
    if axes is None or shape is None:
        return False
    along = node.attribute("axis") % len(axes)
    if len(axes[along]) != 1:
        return False
    part = axes[along][0]
    axis = part.path[0]
    own = sorted(each for every in axes for each in every if each.path[0] == axis)
    if own[0] != part:
        return False
    extent, place = shape[axis] // part.extent, int(index) % part.extent
    left = (*shape[:axis], extent, *shape[axis + 1 :])
    cut = links.fresh(node.outputs[0] + ".cut", source, left)
    numbers = [np.array([each], np.int64) for each in (place * extent, (place + 1) * extent, axis)]
    names = [graph.add(cut + ".slice", each) for each in numbers]
    rest = (*axes[:along], *axes[along + 1 :])
    views = steps_to(rest, left) or [("Reshape", graph.static(node.outputs[0]) or ())]
    made = view_nodes(links, node, cut, views, node.outputs[0])
    links.replace(node, Node("Slice", (source, *names), (cut,), {}, node.name), *made)
    return True


def chain_of(links: Links, node: Node) -> list[Node]:
    """Return the views that end at a node, first to last.

    A reshape with other readers stays: it may be a copy, which this chain would repeat.
    """
    chain = [node]
    while (maker := links.maker(chain[0].inputs[0], *VIEWS)) is not None:
        moved = links.maker(maker.inputs[0], *VIEWS) is not None
        if not links.alone(maker.outputs[0]) and moved and maker.op != "Transpose":
            break
        chain.insert(0, maker)
    return chain


def follow(graph: Graph, chain: Sequence[Node], shape: Sequence[int]) -> Axes | None:
    """Return the axes after a chain of views, or None if axes are split across each other."""
    axes: Axes = tuple((Part((place,), extent),) if extent > 1 else () for place, extent in enumerate(shape))
    for node in chain:
        if node.op == "Transpose":
            order = node.attribute("perm") or tuple(reversed(range(len(axes))))
            axes = tuple(axes[place] for place in order)
            continue
        wanted = graph.static(node.outputs[0])
        found = None if wanted is None else _reshape([part for axis in axes for part in axis], wanted)
        if found is None:
            return None
        axes = found
    return axes


def _reshape(parts: list[Part], shape: Sequence[int]) -> Axes | None:
    found: list[tuple[Part, ...]] = []
    for extent in shape:
        taken: list[Part] = []
        while extent > 1:
            if not parts:
                return None
            part = parts.pop(0)
            if extent % part.extent == 0:
                taken.append(part)
                extent //= part.extent
            elif part.extent % extent == 0:
                taken.append(Part((*part.path, 0), extent))
                parts.insert(0, Part((*part.path, 1), part.extent // extent))
                extent = 1
            else:
                return None
        found.append(tuple(taken))
    return tuple(found)


#: A view: ("Reshape", shape) or ("Transpose", order).
View = tuple[str, tuple[int, ...]]


def steps_to(axes: Axes, shape: tuple[int, ...]) -> list[View]:
    """Return the fewest views that take a tensor of `shape` to these axes."""
    last = tuple(math.prod(part.extent for part in axis) for axis in axes)
    flat = [part for axis in axes for part in axis]
    memory = sorted(flat)
    if flat == memory:
        return [] if shape == last else [("Reshape", last)]
    whole = _whole(memory, shape)
    if (order := _permutation(whole, axes, shape)) is not None:
        return [("Transpose", order)]
    place = {part: number for number, part in enumerate(memory)}
    if all(_adjacent(axis, place) for axis in axes):
        keys = [(place[axis[0]] if axis else -1, number) for number, axis in enumerate(axes)]
        by_memory = sorted(range(len(axes)), key=lambda number: keys[number])
        order = tuple(by_memory.index(number) for number in range(len(axes)))
        return [("Reshape", tuple(last[number] for number in by_memory)), ("Transpose", order)]
    runs = _runs(flat, place)
    moved = _transposition(whole, flat)
    if moved is not None:
        return [("Transpose", moved), ("Reshape", last)]
    by_memory = sorted(range(len(runs)), key=lambda number: place[runs[number][0]])
    extents = tuple(math.prod(part.extent for part in runs[number]) for number in by_memory)
    order = tuple(by_memory.index(number) for number in range(len(runs)))
    return [("Reshape", extents), ("Transpose", order), ("Reshape", last)]


def _whole(memory: list[Part], shape: Sequence[int]) -> list[tuple[Part, ...]]:
    """Return the parts of each axis of the source."""
    return [tuple(part for part in memory if part.path[0] == place) for place in range(len(shape))]


def _permutation(whole: list[tuple[Part, ...]], axes: Axes, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the order in which the source's axes are the last ones, None where they are others."""
    if len(whole) != len(axes):
        return None
    left, order = list(range(len(whole))), []
    for axis in axes:
        place = next((each for each in left if whole[each] == axis), None)
        if place is None:
            return None
        left.remove(place)
        order.append(place)
    return tuple(order)


def _transposition(whole: list[tuple[Part, ...]], flat: list[Part]) -> tuple[int, ...] | None:
    """Return the order of the source's axes in which their parts are those of the result in sequence, or None."""
    order, rest = [place for place, axis in enumerate(whole) if not axis], list(flat)
    while rest:
        axis = whole[rest[0].path[0]]
        if tuple(rest[: len(axis)]) != axis:
            return None
        order.append(rest[0].path[0])
        rest = rest[len(axis) :]
    return tuple(order)


def _adjacent(axis: Sequence[Part], place: dict[Part, int]) -> bool:
    return all(place[b] == place[a] + 1 for a, b in itertools.pairwise(axis))


def _runs(flat: Sequence[Part], place: dict[Part, int]) -> list[list[Part]]:
    """Return the parts in runs of neighbours in memory."""
    runs = [[flat[0]]]
    for part in flat[1:]:
        if place[part] == place[runs[-1][-1]] + 1:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def view_nodes(links: Links, node: Node, source: str, steps: Sequence[View], last: str) -> list[Node]:
    """Return the nodes of views from the tensor `source` to `last`; `node` gives their name."""
    found, name, shape = [], source, links.graph.static(source)
    assert shape is not None
    for number, (op, numbers) in enumerate(steps):
        shape = numbers if op == "Reshape" else tuple(shape[place] for place in numbers)
        is_last = number == len(steps) - 1
        result = last if is_last else links.fresh(last + ".view", source, shape)
        if op == "Reshape":
            found.append(reshape(links, name, shape, result, node.name))
        else:
            found.append(Node("Transpose", (name,), (result,), {"perm": numbers}, node.name))
        name = result
    return found


def reshape(links: Links, source: str, shape: tuple[int, ...], result: str, name: str) -> Node:
    """Return a node of this name that gives a tensor a shape."""
    extents = links.graph.add(result + ".shape", np.array(shape, np.int64))
    return Node("Reshape", (source, extents), (result,), {"allowzero": 1}, name)


def swap_last_axes(links: Links, node: Node, name: str) -> Node:
    """Return a node that exchanges the last two axes of a tensor; `node` gives its name."""
    given = links.graph.shape(name)
    assert given is not None
    shape = (*given[:-2], given[-1], given[-2])
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    result = links.fresh(name + ".turned", name, shape)
    return Node("Transpose", (name,), (result,), {"perm": order}, node.name)
