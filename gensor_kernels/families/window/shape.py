"""Shape of the window family: sizes of a call, a Program's tiles, instructions, loads and registers.

Everything here is arithmetic on a few coordinates, so nothing is tabulated; arrays have one element per Program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gensor_kernels.families.contraction.prologue import vector_words
from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.families.core.family import Points
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration.lowered import Prologue
from gensor_kernels.operators.declaration.prologue import prologue_of
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sliding import IMAGES, Side, Sliding

#: Operations of a kernel in the window, in the order of its parameter OPERATION.
KINDS = ("multiply", "average", "maximum")
#: Multiply-adds of a thread's unrolled window.
MOST_UNROLLED = 2048
#: Positions of a window that a rolled loop takes at once.
UNROLLED = 4
#: Columns of the window that a thread takes at once where it slides over staged planes.
TAPS = 4


@dataclass(frozen=True)
class Call:
    """The sizes of a Workload as kernels see them; bytes of elements, of whole operands and of epilogue operands."""

    kind: str
    channels_last: bool
    images: int
    channels: int
    high: Side
    wide: Side
    code: int
    bytes_x: int
    bytes_y: int
    word: int
    align: Mapping[str, int]
    extra: int
    steps: int
    prologue: Prologue | None

    @property
    def positions(self) -> int:
        """Positions of the window."""
        return self.high.window * self.wide.window

    @property
    def slides(self) -> bool:
        """Whether a thread can walk along the window over staged planes: a filter that moves by steps of 1."""
        steps = (side.stride * side.dilation for side in (self.high, self.wide))
        return self.kind == "multiply" and not self.channels_last and max(steps) == 1

    @property
    def taps_pitch(self) -> int:
        """Columns of a staged filter, as whole reads."""
        return -(-self.wide.window // TAPS) * TAPS

    @property
    def planes(self) -> int:
        """Channels a block tile is cut from: of one image, or of all where they are not innermost."""
        return self.channels if self.channels_last else self.images * self.channels

    @property
    def outputs(self) -> int:
        """Elements of y."""
        return self.images * self.channels * self.high.output * self.wide.output


def window_code(high: Side, wide: Side) -> int:
    """Return the digits (rows, columns, step along h, along w) of a window that can be compiled in, else 0."""
    numbers = (high.window, wide.window, high.stride, wide.stride)
    if max(numbers) > 9 or high.dilation * wide.dilation != 1:
        return 0
    return int("".join(map(str, numbers)))


@lru_cache(maxsize=4096)
def call_of(workload: Workload) -> Call:
    """Return the Call of a Workload; an empty axis counts as 1."""
    declared = operator(workload.operator)
    assert isinstance(declared, Sliding)
    size, types = declared.window(workload), workload.dtype
    high, wide = declared.sides(workload)
    bytes_y, extra = facts(types["y"]).itemsize, 0
    outputs = size["n"] * size["c"] * high.output * wide.output
    for name in workload.epilogue:
        count = {"": 0, "n": size["c"], "mn": outputs}[OPERATIONS[name].operand]
        extra += count * (1 if name == "mask" else bytes_y)
    return Call(
        kind=declared.kind,
        channels_last=IMAGES[workload.layouts["x"]][-1] == 3,
        images=max(size["n"], 1),
        channels=max(size["c"], 1),
        high=high,
        wide=wide,
        code=window_code(high, wide),
        bytes_x=facts(types["x"]).itemsize,
        bytes_y=bytes_y,
        word=facts(workload.accumulator).itemsize,
        align=workload.align,
        extra=extra,
        steps=len(workload.epilogue),
        prologue=prologue_of(workload) if workload.prologue else None,
    )


@dataclass
class Tiles:
    """Tiles that follow from the coordinates of Programs; arrays of integers.

    ``threads`` of a block; ``channels`` a thread loads at once; ``lanes_c`` and ``lanes_w`` threads along channels and
    columns; ``outputs`` of a thread; ``rows`` and ``columns`` of x under it where the window is fixed; ``loads`` of x
    and ``taps`` of the filter by a thread; ``multiplies`` of a thread; ``across``, ``down``, ``deep``: tiles along w, h
    and channels; ``staged_rows`` and ``pitch``: rows of a plane's tile in shared memory, and elements of a row,
    ``staged_columns`` of which are copied.
    """

    fixed: np.ndarray
    staged: np.ndarray
    threads: np.ndarray
    channels: np.ndarray
    lanes_c: np.ndarray
    lanes_w: np.ndarray
    outputs: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    loads: np.ndarray
    taps: np.ndarray
    multiplies: np.ndarray
    across: np.ndarray
    down: np.ndarray
    deep: np.ndarray
    staged_rows: np.ndarray
    staged_columns: np.ndarray
    pitch: np.ndarray

    @property
    def sliding(self) -> np.ndarray:
        """Whether threads walk along a window of any size over staged planes."""
        return self.staged & ~self.fixed

    @property
    def plane_threads(self) -> np.ndarray:
        """Threads that share a plane's tile."""
        return np.maximum(self.threads // np.maximum(self.lanes_c, 1), 1)


def tiles(c: Points, call: Call) -> Tiles:
    """Return the Tiles of Programs by coordinate values."""
    fixed, staged = c["window"] > 0, c["staged"] == 1
    channels = np.maximum(c["vector_a"] // call.bytes_x, 1)
    lanes_c, lanes_w = c["block_c"] // channels, c["block_w"] // c["thread_w"]
    pixels = c["thread_h"] * c["thread_w"]
    rows = (c["thread_h"] - 1) * call.high.stride + call.high.window
    columns = (c["thread_w"] - 1) * call.wide.stride + call.wide.window
    shared = call.positions / c["split"]
    held_taps = np.where(c["filter_held"] == 1, call.positions, c["thread_h"] * call.positions)
    taps = np.where(fixed, held_taps, shared) if call.kind == "multiply" else 0.0 * shared
    grain = 16 // call.bytes_x
    under = (c["block_w"] - 1) * call.wide.stride + call.wide.window
    whole = -(-(c["block_w"] + call.taps_pitch) // grain) * grain
    return Tiles(
        fixed=fixed,
        staged=staged,
        threads=lanes_c * lanes_w * (c["block_h"] // c["thread_h"]) * c["split"],
        channels=channels,
        lanes_c=lanes_c,
        lanes_w=lanes_w,
        outputs=pixels * channels,
        rows=rows,
        columns=columns,
        loads=np.where(fixed, rows * columns, pixels * shared),
        taps=taps * np.maximum(c["vector_a"] / vector_b(c["vector_a"], call), 1.0),
        multiplies=pixels * channels * shared,
        across=-(-call.wide.output // c["block_w"]),
        down=-(-call.high.output // c["block_h"]),
        deep=-(-call.planes // c["block_c"]),
        staged_rows=(c["block_h"] - 1) * call.high.stride + call.high.window,
        staged_columns=np.where(fixed, under, whole),
        pitch=np.where(fixed, -(-under // grain) * grain, whole),
    )


def vector_b(vector_a: Numbers, call: Call) -> Numbers:
    """Return the bytes of a load of the filter: as many as of x, as far as the filter's alignment class allows."""
    return np.minimum(vector_a, call.align.get("w", 16))


def shared_bytes(c: Points, t: Tiles, call: Call) -> np.ndarray:
    """Return the dynamic shared bytes of a block: the tile of x and where threads slide its filters, or where parts
    meet."""
    filters = np.where(t.fixed, 0, call.high.window * call.taps_pitch * call.word)
    tile = c["block_c"] * (t.staged_rows * t.pitch * call.bytes_x + filters)
    return np.where(t.staged, tile, np.where(c["split"] > 1, t.threads * t.outputs * call.word, 0))


def grid(t: Tiles, call: Call) -> np.ndarray:
    """Return the blocks of a launch, float64."""
    return t.across.astype(np.float64) * t.down * t.deep * (call.images if call.channels_last else 1)


def registers(c: Points, t: Tiles, call: Call) -> np.ndarray:
    """Return the registers a thread wants: sums, rows of x (or the loads of a few positions), the filter, addresses.

    Fitted to the allocations of NVRTC 12.9 for 110 Programs of every type: median error 8 registers.
    """
    words = np.maximum(c["vector_a"] / 4.0, 1.0)
    sums = t.outputs * (call.word / 4.0)
    # A row of the filter that several rows of outputs load is found again, and kept, by the compiler.
    loaded = np.where(c["thread_h"] > 1, 0.6 * call.positions, call.wide.window)
    held = np.where(c["filter_held"] == 1, 0.3 * call.positions, np.where(t.fixed, loaded, 2.0))
    filters = held * words if call.kind == "multiply" else 0.0
    direct = 30.0 + 1.1 * sums + 2.2 * t.columns * words
    staged = 34.0 + sums + 0.5 * t.columns * words
    rolled = 34.0 + 1.6 * sums
    sliding = 30.0 + sums + (c["thread_w"] + 2.0 * TAPS) * (call.word / 4.0)
    vectors = vector_words(call.prologue.vectors, t.channels) + 4.0 if call.prologue else 0.0
    fixed = np.where(t.staged, staged, direct)
    return np.where(t.sliding, sliding, np.where(t.fixed, fixed, rolled) + filters) + vectors
