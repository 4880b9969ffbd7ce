"""The launch that packs a convolution's channels (packed_operands.cuh): sizes, grid, bytes and time."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.windows.conv_packed import WIDE, filters_aligned, packed
from gensor_kernels.operators.windows.conv_product import output_size
from gensor_kernels.programs.core.launch_cost import cost_of_front

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Threads of a block, and accesses of a block.
PACK_THREADS, PACK_ACCESSES = 256, 1024
SECTOR = 32
#: Instructions of a thread beside its loads, and those that each load of an element comes with: of the SASS.
ITEM_ISSUE, LOAD_ISSUE = 95.0, 4.5
#: Accesses of a plane, and of a group's filters, are counted in 32 bits.
MOST_ACCESSES = 2**31


class Packing(NamedTuple):
    """``planes`` images of ``pixels`` and ``groups`` of ``lines`` (filters and taps): ``line`` bytes each when packed,
    ``source`` bytes before; elements have ``size`` bytes. ``fetched`` are the bytes of the image that come from DRAM.
    Filters ``stay`` where they are in kernels of the Workload's own class; those of a less aligned one pack them."""

    planes: int
    pixels: int
    groups: int
    lines: int
    line: int
    source: int
    size: int
    fetched: int
    stay: bool

    @property
    def image_bytes(self) -> int:
        """Bytes of the packed image."""
        return self.planes * self.pixels * self.line

    @property
    def filter_bytes(self) -> int:
        """Bytes of the packed filters."""
        return self.groups * self.lines * self.line


@lru_cache(maxsize=4096)
def packing(workload: Workload) -> Packing:
    """The Packing of a Workload of a convolution."""
    z, own, size = packed(workload).size, workload.size, facts(workload.dtype["x"]).itemsize
    groups, taps = z["groups"], z["r"] * z["s"]
    return Packing(
        planes=z["n"] * groups,
        pixels=z["h"] * z["w"],
        groups=groups,
        lines=z["k_out"] // groups * taps,
        line=z["c"] // groups * size,
        source=own["c"] // groups * size,
        size=size,
        fetched=_fetched(workload, size),
        stay=filters_aligned(workload) and taps == 1 and z["c"] == own["c"],
    )


def _fetched(workload: Workload, size: int) -> int:
    """Bytes of the image that packing reads: rows and columns of the padding are nowhere, and of columns that outputs
    skip, those in a sector with others come along."""
    z, dense = workload.size, workload.layouts["x"] == "nhwc"
    taken = []
    for side, taps, before in (("h", "r", "pad_top"), ("w", "s", "pad_left")):
        extent, step = z[side], 1
        if z[taps] == 1 and "output_padding_h" not in z:
            step = z[f"stride_{side}"]
            reached = range(-z[before], -z[before] + output_size(z, side, False) * step, step)
            extent = sum(0 <= place < z[side] for place in reached)
        taken.append((extent, step))
    (rows, _), (columns, step) = taken
    together = 1 if dense else min(step, SECTOR // size)
    return z["n"] * z["c"] * size * rows * min(columns * together, z["w"])


def too_large(workload: Workload) -> str | None:
    """Why an image, or a group's filters, cannot be packed; None where they can."""
    p = packing(workload)
    large = max(p.pixels, p.lines) * p.line // 4 >= MOST_ACCESSES
    return "an image, or the filters of a group, have too many channels to count in 32 bits" if large else None


def grid(workload: Workload, image_vector: int, filter_vector: int) -> int:
    """Blocks of contraction_pack, whose accesses have these bytes."""
    p = packing(workload)
    of_plane = -(-(p.pixels * p.line // image_vector) // PACK_ACCESSES)
    of_group = -(-(p.lines * p.line // filter_vector) // PACK_ACCESSES)
    return max(1, p.planes * of_plane + p.groups * of_group)


def workspace(workload: Workload) -> int:
    """Bytes of the packed operands; the filters begin and end at multiples of 16."""
    return image_bytes(workload) + -(-packing(workload).filter_bytes // WIDE) * WIDE


def image_bytes(workload: Workload) -> int:
    """Bytes from the packed image to the packed filters."""
    return -(-packing(workload).image_bytes // WIDE) * WIDE


def cost(workload: Workload, arch: Arch, *, always: bool = False) -> tuple[float, float]:
    """(microseconds of the launch, bytes of the packed operands that the next launch finds in the L2). ``always``:
    filters do not stay where they are."""
    p = packing(workload)
    lines = 0 if p.stay and not always else p.groups * p.lines
    written = p.image_bytes + lines * p.line
    read = p.fetched + lines * p.source
    access = min(max(p.line, p.size), WIDE)
    issue = written / access / 32 * (ITEM_ISSUE + LOAD_ISSUE * access / p.size)
    return cost_of_front(read, written, issue, arch)
