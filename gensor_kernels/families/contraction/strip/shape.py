"""Shape of a block of the strip family: outputs of a tile, lines that they read, bytes (strip_tile.cuh)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gensor_kernels.families.contraction.patch.shape import tiles
from gensor_kernels.families.core.columns import Numbers
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sides import output_size

#: Bytes of an element; elements of 16 bytes; eights of places of all segments, at most.
ELEMENT, EIGHT, MOST_OCTETS = 2, 8, 64
#: Outputs and filters of a warp; rows of the output are often 112 long.
WARP_TILES = (16, 32, 48, 64, 80, 96, 112, 128)
#: Bytes that are copied at once, the widest first; the last are single elements.
ACCESSES = (16, 8, 4, ELEMENT)


@dataclass(frozen=True)
class Call:
    """A convolution as blocks see it; pairs are along h and w. ``last``: channels of the image are innermost;
    ``pixel_rows``: channels of the output are innermost, so that rows of C are outputs."""

    images: int
    image: tuple[int, int]
    out: tuple[int, int]
    window: tuple[int, int]
    step: tuple[int, int]
    channels: int
    filters: int
    pad_left: int
    last: bool
    pixel_rows: bool

    @property
    def unit(self) -> int:
        """Elements of a line from column to column."""
        return self.channels if self.last else 1

    @property
    def planes(self) -> int:
        """Lines of a row of the image."""
        return 1 if self.last else self.channels

    @property
    def lines(self) -> int:
        """Lines that an output reads."""
        return self.window[0] * self.planes

    @property
    def lead(self) -> int:
        """Places before a segment."""
        return self.pad_left * self.unit % 2

    @property
    def octets(self) -> int:
        """Eights of places that a segment takes."""
        return -(-(self.window[1] * self.unit + self.lead) // EIGHT)

    @property
    def steps(self) -> int:
        """Steps of 16 places."""
        return -(-self.lines * self.octets // 2)

    @property
    def access(self) -> int:
        """Bytes that are copied at once from an image without gaps at an address of 16 bytes' alignment."""
        return next(width for width in ACCESSES if self.image[1] * self.unit * ELEMENT % width == 0)


def call_of(workload: Workload) -> Call:
    """Return the Call of a Workload."""
    z = workload.size
    return Call(
        images=z["n"],
        image=(z["h"], z["w"]),
        out=(output_size(z, "h", False), output_size(z, "w", False)),
        window=(z["r"], z["s"]),
        step=(z["stride_h"], z["stride_w"]),
        channels=z["c"],
        filters=z["k_out"],
        pad_left=z["pad_left"],
        last=workload.layouts["x"] == "nhwc",
        pixel_rows=workload.layouts["y"] == "nhwk",
    )


@dataclass(frozen=True)
class Shape:
    """Tiles of ``tall`` x ``wide`` outputs, ``bands`` x ``runs`` of them, ``lines`` that one reads and the bytes
    ``pitch`` of each; numbers or arrays."""

    tall: Numbers
    wide: Numbers
    bands: Numbers
    runs: Numbers
    lines: Numbers
    pitch: Numbers

    @property
    def stage(self) -> Numbers:
        """Bytes of a tile's lines."""
        return self.lines * self.pitch


def shape(call: Call, outputs: Numbers) -> Shape:
    """Return the Shape of blocks of up to ``outputs`` outputs."""
    tall, wide, bands, runs = tiles(call.out, outputs)
    lines = (tall - 1) * call.step[0] * call.planes + call.lines
    places = EIGHT - 1 + (wide - 1) * call.step[1] * call.unit + call.octets * EIGHT
    return Shape(tall, wide, bands, runs, lines, -(-places // EIGHT) * EIGHT * ELEMENT)


def filter_bytes(steps: int, filters: Numbers) -> Numbers:
    """Return the bytes of a block's filters, as they are arranged."""
    return 2 * steps * (filters * 16 + 16)


def sides(v: Mapping[str, Numbers], call: Call, what: str = "block") -> tuple[Numbers, Numbers]:
    """Return (outputs, filters) of a block, or of a warp."""
    m, n = v[f"{what}_m"], v[f"{what}_n"]
    return (m, n) if call.pixel_rows else (n, m)
