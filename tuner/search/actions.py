"""The actions of the construction graph: one class per action, each with its inverse.

An action moves a Program along one coordinate of its family's lattice to the *nearest* legal value in that direction.
The ray to the nearest legal point, taken backwards, is an exact inverse, so every edge of the graph can be walked both
ways. Illegal targets are absent, never clipped. Cache and Uncache move between memory levels and open or close the
choices of a level at their defaults.

A coordinate's `kind` names the action that moves it. To add an action, write one class and name it in `ACTIONS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.families.core.lattice import Coordinate


@dataclass(frozen=True)
class Move:
    """One edge label of a family's graph: coordinate number `axis`, upwards (`step` 1) or downwards (-1).

    `carried` is the number of a second coordinate whose value keeps its ratio to that of `axis`, or, where `product` is
    set, its product with it; -1 without such a coordinate. Where `wraps` is set, the largest value comes before the
    smallest one.
    `token` is readable and unique in its family: `block_m+` is the next larger legal `block_m`, and `warp_m&block_m+`
    the next larger legal `warp_m` with an unchanged number of warps along the block.
    """

    token: str
    action: str
    inverse: str
    axis: int
    step: int
    carried: int = -1
    product: bool = False
    wraps: bool = False


class Action:
    """A scheduling primitive. `up` and `down` are the directions in which this class moves its coordinates.

    `plain` breaks ties of predicted time: prefer the larger value (1), the smaller (-1) or neither (0). `walked` is the
    preference during a walk, where it differs.
    """

    kind: ClassVar[str]
    up: ClassVar[bool] = True
    down: ClassVar[bool] = True
    paper: ClassVar[bool] = False
    plain: ClassVar[int] = -1
    walked: ClassVar[int | None] = None

    @classmethod
    def moves(cls, axes: Sequence[Coordinate]) -> list[Move]:
        """Return this action's edge labels for a family with these coordinates; none for a single value."""
        mine = [i for i, axis in enumerate(axes) if axis.kind == cls.kind and len(axis.values) > 1]
        return [move for i in mine for move in cls._pair(axes[i].name, i)]

    @classmethod
    def _pair(cls, name: str, axis: int, carried: int = -1, product: bool = False) -> list[Move]:
        ways = [("+", "-", 1)] * cls.up + [("-", "+", -1)] * cls.down
        return [Move(name + to, cls.__name__, name + back, axis, step, carried, product) for to, back, step in ways]


def _nested_axes(axes: Sequence[Coordinate]) -> list[tuple[int, int]]:
    """Return (inner, outer) coordinate numbers of tiles along one axis: warp_m or thread_m within block_m."""
    number = {axis.name: i for i, axis in enumerate(axes) if axis.kind == "tile" and len(axis.values) > 1}
    return [
        (i, number["block_" + name.removeprefix(level)])
        for name, i in number.items()
        for level in ("warp_", "thread_")
        if name.startswith(level) and "block_" + name.removeprefix(level) in number
    ]


class Tile(Action):
    """Grow one axis's tile at one level (block, warp, thread or k step): block_m 64 -> 80.

    If the next size is illegal in this Program, the nearest legal size is taken: block_m 64 -> 128 under warp_m 64.
    An inner tile also grows together with its block, by the same ratio: warp_m 64, block_m 128 -> warp_m 80,
    block_m 160. Inverse: Untile.
    """

    kind = "tile"
    plain = 0
    down = False
    paper = True

    @classmethod
    def moves(cls, axes: Sequence[Coordinate]) -> list[Move]:
        """Return moves of one coordinate, then moves of inner tiles that carry their block along."""
        pairs = [(f"{axes[i].name}&{axes[o].name}", i, o) for i, o in _nested_axes(axes)]
        return super().moves(axes) + [move for name, i, o in pairs for move in cls._pair(name, i, o)]


class Untile(Tile):
    """Shrink one axis's tile at one level: block_m 80 -> 64. Inverse: Tile."""

    up = False
    down = True


class Cache(Action):
    """Descend one memory level, with the new level's choices at their defaults: level 0 -> 1. Inverse: Uncache."""

    kind = "cache"
    plain = 1
    down = False
    paper = True


class Uncache(Action):
    """Ascend one memory level from a Program whose choices below are defaults: level 1 -> 0. Inverse: Cache."""

    kind = "cache"
    plain = 1
    up = False


class VThread(Action):
    """Split a thread's outputs into more or fewer strided groups: vthread_m 1 -> 2. Inverse: VThread."""

    kind = "vthread"
    paper = True


class Instruction(Action):
    """Exchange the multiply instruction: mma m16n8k16 -> m16n8k8. Inverse: Instruction."""

    kind = "instruction"


class Stages(Action):
    """Lengthen or shorten the ring of shared-memory buffers: stages 3 -> 4. Inverse: Stages.

    With its step, its bytes remain: stages 2, block_k 128 -> stages 4, block_k 64. A deep ring also hides latencies
    that the potential does not know; but during a walk it would take the shared memory that larger tiles need.
    """

    kind = "stages"
    plain = 1
    walked = -1

    @classmethod
    def moves(cls, axes: Sequence[Coordinate]) -> list[Move]:
        """Return moves of the ring alone, then moves that carry the step along."""
        number = {axis.name: i for i, axis in enumerate(axes) if len(axis.values) > 1}
        if not {"stages", "block_k"} <= number.keys():
            return super().moves(axes)
        return super().moves(axes) + cls._pair("stages&block_k", number["stages"], number["block_k"], product=True)


class CopyWidth(Action):
    """Change the bytes of one global access of an operand: a_vector 8 -> 16. Inverse: CopyWidth."""

    kind = "copy_width"
    plain = 1


class Layout(Action):
    """Change the layout of a tile in shared memory, or its copy method: swizzle 0 -> 1. Inverse: Layout."""

    kind = "layout"


class Split(Action):
    """Divide the reduction among more or fewer blocks: split 1 -> 2, stream 0 -> 108. Inverse: Split."""

    kind = "split"

    @classmethod
    def moves(cls, axes: Sequence[Coordinate]) -> list[Move]:
        """Return moves along each axis; a stream's values form a ring."""
        return [replace(move, wraps=axes[move.axis].name == "stream") for move in super().moves(axes)]


class Raster(Action):
    """Widen or narrow the groups of tile rows that run together and share L2: raster 1 -> 8. Inverse: Raster."""

    kind = "raster"


class Inline(Action):
    """Apply an operand's operations when it is loaded, or in a launch before: materialised 0 -> 1. Inverse: Inline."""

    kind = "inline"


class Epilogue(Action):
    """Change the route of the results to memory: direct -> staged through shared memory. Inverse: Epilogue."""

    kind = "epilogue"


class LaunchBounds(Action):
    """Request registers for more or fewer blocks per SM from the compiler: min_blocks 0 -> 2. Inverse: LaunchBounds."""

    kind = "launch_bounds"


ACTIONS: tuple[type[Action], ...] = (
    Tile,
    Untile,
    Cache,
    Uncache,
    VThread,
    Instruction,
    Stages,
    CopyWidth,
    Layout,
    Split,
    Raster,
    Epilogue,
    LaunchBounds,
    Inline,
)

GRAPHS = ("full", "paper")


def plainness(axes: Sequence[Coordinate], walking: bool = False) -> NDArray[np.float64]:
    """Return 1, 0 or -1 per coordinate (d,): whether ties prefer its larger, either or smaller value."""
    plain = {each.kind: each.plain if each.walked is None or not walking else each.walked for each in ACTIONS}
    return np.array([plain[axis.kind] for axis in axes], np.float64)


def moves(axes: Sequence[Coordinate], graph: str = "full", actions: Iterable[type[Action]] = ACTIONS) -> list[Move]:
    """Return all edge labels of a family with these coordinates, in the order on which seeded walks depend."""
    if graph not in GRAPHS:
        raise ValueError(f"graph must be one of {', '.join(GRAPHS)}, not {graph!r}")
    chosen = list(actions)
    for axis in axes:
        if axis.kind not in {action.kind for action in chosen}:
            raise ValueError(f"no action moves coordinates of kind {axis.kind!r} ({axis.name}): name it in actions.py")
    return [move for action in chosen if graph == "full" or action.paper for move in action.moves(axes)]
