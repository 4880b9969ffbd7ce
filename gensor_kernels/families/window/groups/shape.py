"""Shape of window_groups: sizes of a call, a Program's tiles, loads, shared memory and registers.

Everything here is arithmetic on a few coordinates, so nothing is tabulated; arrays have one element per Program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Points
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sliding import Side, sides

#: Unrolled multiply-adds of a line, 16 KB of code (contraction/simt/rules.py).
MOST_UNROLLED = 1024


@dataclass(frozen=True)
class Call:
    """The sizes of a Workload as kernels see them; an empty axis counts as 1.

    ``filters`` and ``channels`` are those of one group, ``align_y`` the bytes that divide where each row of y begins
    and, with channels last, where each group does, ``extra`` the bytes of epilogue operands.
    """

    channels_last: bool
    images: int
    groups: int
    filters: int
    channels: int
    high: Side
    wide: Side
    code: int
    bytes_x: int
    bytes_y: int
    word: int
    align_x: int
    align_y: int
    extra: int
    steps: int

    @property
    def positions(self) -> int:
        """Positions of the window."""
        return self.high.window * self.wide.window

    @property
    def depth(self) -> int:
        """Elements of a filter."""
        return self.positions * self.channels

    @property
    def outputs(self) -> int:
        """Elements of y."""
        return self.images * self.groups * self.filters * self.high.output * self.wide.output


def window_code(wide: Side) -> int:
    """Return the digits (columns, step) of a window whose columns can be compiled in, else 0."""
    return wide.window * 10 + wide.stride if wide.dilation == 1 and max(wide.window, wide.stride) <= 9 else 0


@lru_cache(maxsize=4096)
def call_of(workload: Workload) -> Call:
    """Return the Call of a convolution."""
    size, types, align = workload.size, workload.dtype, workload.align
    (high, wide), groups = sides(size), max(size["groups"], 1)
    bytes_y, last = facts(types["y"]).itemsize, workload.layouts["y"] == "nhwk"
    outputs, extra = size["n"] * size["k_out"] * high.output * wide.output, 0
    for name in workload.epilogue:
        count = {"": 0, "n": size["k_out"], "mn": outputs}[OPERATIONS[name].operand]
        extra += count * (1 if name == "mask" else bytes_y)
    row = wide.output * bytes_y
    return Call(
        channels_last=last,
        images=max(size["n"], 1),
        groups=groups,
        filters=max(size["k_out"] // groups, 1),
        channels=max(size["c"] // groups, 1),
        high=high,
        wide=wide,
        code=window_code(wide),
        bytes_x=facts(types["x"]).itemsize,
        bytes_y=bytes_y,
        word=facts(workload.accumulator).itemsize,
        align_x=align["x"] if last else facts(types["x"]).itemsize,
        align_y=align["y"] if last else min(align["y"], row & -row),
        extra=extra,
        steps=len(workload.epilogue),
    )


@dataclass
class Tiles:
    """Tiles that follow from the coordinates of Programs; arrays.

    ``fixed``: the window is compiled in. ``lanes`` are the tiles of filters of a block, ``pixels`` its threads for
    each, ``channels`` those of a load, ``outputs`` of a row of a thread. For it, a thread loads ``lines`` of
    ``columns`` of x, and reads filters ``taps`` times, ``read`` at once. Tiles of filters are ``pitch`` accumulators
    apart. ``per_group``, ``across``, ``down``, ``deep`` are the tiles of filters of a group and of blocks along w, h
    and all filters.
    """

    fixed: np.ndarray
    lanes: np.ndarray
    pixels: np.ndarray
    channels: np.ndarray
    outputs: np.ndarray
    lines: np.ndarray
    columns: np.ndarray
    taps: np.ndarray
    read: np.ndarray
    pitch: np.ndarray
    per_group: np.ndarray
    across: np.ndarray
    down: np.ndarray
    deep: np.ndarray

    @property
    def loads(self) -> np.ndarray:
        """Loads of x by a thread for a row."""
        return self.lines * self.columns

    @property
    def threads(self) -> np.ndarray:
        """Threads of a block."""
        return self.lanes * self.pixels


def tiles(c: Points, call: Call, depth: Numbers = None) -> Tiles:
    """Return the Tiles of Programs by coordinate values; ``depth``: elements of a filter, if not those of the call."""
    fixed, filters = c["window"] > 0, c["thread_c"]
    channels = np.maximum(c["vector_a"] // call.bytes_x, 1)
    read = np.minimum(filters & -filters, 16 // call.word)
    reads = filters // read
    lanes, per_group = c["block_c"] // filters, -(-call.filters // filters)
    return Tiles(
        fixed=fixed,
        lanes=lanes,
        pixels=(c["block_w"] // c["thread_w"]) * (c["block_h"] // c["thread_h"]),
        channels=channels,
        outputs=c["thread_w"] * filters,
        lines=-(-call.channels // channels) * np.where(fixed, call.high.window, call.positions),
        columns=np.where(fixed, (c["thread_w"] - 1) * call.wide.stride + call.wide.window, c["thread_w"]),
        taps=call.depth * reads,
        read=read,
        pitch=((call.depth if depth is None else depth) * reads | 1) * read,
        per_group=per_group,
        across=-(-call.wide.output // c["block_w"]),
        down=-(-call.high.output // c["block_h"]),
        deep=-(-(call.groups * per_group) // np.maximum(lanes, 1)),
    )


def shared_bytes(t: Tiles, call: Call) -> np.ndarray:
    """Return the dynamic shared bytes of a block: its filters."""
    return t.lanes * t.pitch * call.word


def grid(t: Tiles, call: Call) -> np.ndarray:
    """Return the blocks of a launch, float64."""
    return t.across.astype(np.float64) * t.down * t.deep * call.images


def registers(c: Points, t: Tiles, call: Call) -> np.ndarray:
    """Return the registers a thread wants: sums, two lines of x and what one becomes, addresses; or what the epilogue
    does, places of stores.

    Fitted to the allocations of NVRTC 12.9 for a dozen Programs.
    """
    words, wide = np.maximum(c["vector_a"] / 4.0, 1.0), call.word / 4.0
    loop = 46.0 + 1.4 * t.columns * words + (t.outputs + t.columns + c["thread_c"]) * wide
    return np.maximum(loop, 30.0 + t.outputs * wide + 3.0 * t.outputs / store_width(c, call))


def store_width(c: Points, call: Call) -> np.ndarray:
    """Return the outputs of one store."""
    adjacent = c["thread_c"] if call.channels_last else c["thread_w"]
    return np.maximum(np.minimum(adjacent & -adjacent, c["vector_c"] // call.bytes_y), 1)
