"""Pack the channels of a convolution: contraction_packed and contraction_packed_wgmma.

The first launch (packed_operands.cuh) pads the channels of image and filters to whole accesses, channels last, so that
the main loop can read them 16 bytes at a time, or by tensor copies.  The main loop computes the convolution of the
packed operands (operators/windows/conv_packed.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.base import workspace_bytes
from gensor_kernels.families.contraction.cases import SMALL, THIN, one_tap
from gensor_kernels.families.contraction.mma import split_float
from gensor_kernels.families.contraction.mma.family import ContractionMma
from gensor_kernels.families.contraction.mma.instructions import kind
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.contraction.tcgen05.family import ContractionTcgen05
from gensor_kernels.families.contraction.wgmma import implicit_gemm, store
from gensor_kernels.families.contraction.wgmma.family import ContractionWgmma
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import Columns, Coordinate, Facts, Launch, operators
from gensor_kernels.families.core.params import Tiling, join_images
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, first_launch_cost
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv import OPERATORS as CONVOLUTIONS
from gensor_kernels.operators.windows.conv_packed import (
    NARROWEST,
    WIDE,
    filters_aligned,
    pack_workload,
    padded_channels,
    widest_packing,
)
from gensor_kernels.operators.windows.sides import output_size

from .base import Constants, Rewritten

#: Threads of a block, and accesses of a block.
PACK_THREADS, PACK_ACCESSES = 256, 1024
#: Pixels (or pairs of a filter and a tap), and accesses of each, of a block that packs through shared memory.
TILE_LINES, TILE_ACCESSES = 128, 8
SECTOR = 32
#: Instructions of a thread without its loads, and instructions per load of an element, from the SASS.
ITEM_ISSUE, LOAD_ISSUE = 95.0, 4.5
#: Accesses of a plane, and of a group's filters, are counted in 32 bits; columns of C too, with those of a last tile.
MOST_ACCESSES, MOST_COLUMNS = 2**31, 2**30
#: Instructions of a lane to find the image of a group of columns and its place, from the SASS.
IMAGE_ISSUE = 8.0


class Packing(NamedTuple):
    """``planes`` images of ``pixels`` and ``groups`` of ``lines`` (filters and taps): ``line`` bytes each when packed,
    ``source`` bytes before; elements have ``size`` bytes. ``fetched`` are the bytes of the image that come from DRAM.
    Filters ``stay`` where they are in kernels of the Workload's own class; kernels of a less aligned class pack
    them."""

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
    """Return the Packing of a convolution."""
    z, own, size = pack_workload(workload).size, workload.size, facts(workload.dtype["x"]).itemsize
    groups, taps = z["groups"], z["r"] * z["s"]
    return Packing(
        planes=z["n"] * groups,
        pixels=z["h"] * z["w"],
        groups=groups,
        lines=z["k_out"] // groups * taps,
        line=z["c"] // groups * size,
        source=own["c"] // groups * size,
        size=size,
        fetched=_fetched_bytes(workload, size),
        stay=filters_aligned(workload) and taps == 1 and z["c"] == own["c"],
    )


def _fetched_bytes(workload: Workload, size: int) -> int:
    """Return the bytes of the image that packing reads.

    The padding is not in memory. Columns that outputs skip are read if they share a sector with others.
    """
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
    """Return why an image, or the filters of a group, cannot be packed, or all images be multiplied at once, or
    None."""
    p = packing(workload)
    if extents(pack_workload(workload)).n > MOST_COLUMNS:
        return "its images have too many pixels to count in 32 bits"
    large = max(p.pixels, p.lines) * p.line // 4 >= MOST_ACCESSES
    return "an image, or the filters of a group, have too many channels to count in 32 bits" if large else None


def first_launch(workload: Workload, image_vector: int, filter_vector: int) -> Launch:
    """Return contraction_pack with accesses of these bytes."""
    p, (image, filters) = packing(workload), turned(workload, image_vector, filter_vector)
    of_plane = _blocks(p.pixels, p.line // image_vector, image)
    of_group = _blocks(p.lines, p.line // filter_vector, filters)
    shared = PACK_ACCESSES * WIDE if image or filters else 0
    return Launch("contraction_pack", max(1, p.planes * of_plane + p.groups * of_group), PACK_THREADS, shared)


def _blocks(lines: int, accesses: int, turns: bool) -> int:
    if turns:
        return -(-lines // TILE_LINES) * -(-accesses // TILE_ACCESSES)
    return -(-lines * accesses // PACK_ACCESSES)


def turned(workload: Workload, image_vector: int, filter_vector: int) -> tuple[bool, bool]:
    """Return whether image and filters pass through shared memory: channels are not adjacent before packing, and are
    written in the widest accesses."""
    last, layouts = workload.layouts["x"] == "nhwc", workload.layouts
    return not last and image_vector == WIDE, (not last or layouts["w"] == "rsck") and filter_vector == WIDE


def workspace(workload: Workload) -> int:
    """Return the bytes of the packed operands; the filters begin and end at multiples of 16."""
    return image_bytes(workload) + -(-packing(workload).filter_bytes // WIDE) * WIDE


def image_bytes(workload: Workload) -> int:
    """Return the bytes from the packed image to the packed filters."""
    return -(-packing(workload).image_bytes // WIDE) * WIDE


def cost(workload: Workload, arch: Arch, *, always: bool = False) -> tuple[float, float]:
    """Return (microseconds of the launch, bytes of the packed operands that the next launch finds in the L2).

    ``always``: filters are packed even if they could stay where they are.
    """
    p = packing(workload)
    lines = 0 if p.stay and not always else p.groups * p.lines
    written = p.image_bytes + lines * p.line
    read = p.fetched + lines * p.source
    access = min(max(p.line, p.size), WIDE)
    issue = written / access / 32 * (ITEM_ISSUE + LOAD_ISSUE * access / p.size)
    return first_launch_cost(read, written, issue, arch)


# ---- verification


def packed_cases(cases: Sequence[Case], workload: Workload, vectors: tuple[int, int]) -> list[Case]:
    """Return the cases of a packed product as cases of ``workload``'s class.

    Every other one is a channel short of whole accesses. Narrow accesses (``vectors`` are the bytes of those of image
    and filters) have a case with the fewest channels for which they are chosen, and those that pass through shared
    memory one with more channels than a block takes. Further cases have one tap along an axis, and filters that stay
    in place.
    """
    vector = max(vectors)
    made = [_before_packing(case, workload, short=place % 2 == 0) for place, case in enumerate(cases)]
    small = next(case for case in made if case.name == SMALL)
    if vector < WIDE:
        size = facts(workload.dtype["x"]).itemsize
        whole = max(vector, NARROWEST) // size
        few = next(c for c in range(max(whole - 1, 1), whole + 1) if padded_channels(c, size) == whole)
        made.append(replace(small, name="few channels", workload=_with_channels(small.workload, few)))
    if any(turned(workload, *vectors)):
        many = TILE_ACCESSES * WIDE // facts(workload.dtype["x"]).itemsize + 1
        made.append(replace(small, name="many channels", workload=_with_channels(small.workload, many)))
    if not _is_transposed(workload):
        made += one_tap(made)
    if filters_aligned(workload):
        made.append(replace(small, name="filters stay", workload=_one_tap(small.workload)))
    return made


def packed_branches(workload: Workload, vectors: tuple[int, int], *, stays: bool) -> frozenset[str]:
    """Return the coverage names of the first launch; ``stays``: filters of one tap can stay where they are."""
    thin = () if _is_transposed(workload) else THIN
    stay = ("filters_stay",) if stays and filters_aligned(workload) else ()
    further = ("further_chunks",) if any(turned(workload, *vectors)) else ()
    return frozenset({"packed_image", "packed_filters", "no_channels", *thin, *stay, *further})


def _is_transposed(workload: Workload) -> bool:
    return "output_padding_h" in workload.size


def _before_packing(case: Case, workload: Workload, *, short: bool) -> Case:
    z = case.workload.size
    own = workload.with_sizes(**z).with_epilogue(case.workload.epilogue)
    return replace(case, workload=_with_channels(own, max(z["c"] // z["groups"] - short, 0)))


def _with_channels(workload: Workload, channels: int) -> Workload:
    return workload.with_sizes(c=channels * workload.size["groups"])


def _one_tap(workload: Workload) -> Workload:
    """Return a Workload of the same outputs and about the same depth: one tap, and channels of whole accesses."""
    z, whole = workload.size, WIDE // facts(workload.dtype["x"]).itemsize
    depth = -(-(z["c"] // z["groups"] * z["r"] * z["s"]) // whole) * whole
    sizes = {side: output_size(z, side, _is_transposed(workload)) for side in ("h", "w")}
    sizes |= dict.fromkeys(("r", "s", "stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
    others = ("pad_top", "pad_bottom", "pad_left", "pad_right", "output_padding_h", "output_padding_w")
    sizes |= {name: 0 for name in others if name in z}
    return _with_channels(workload.with_sizes(**sizes), max(depth, whole))


# ---- the families


class Packed(Rewritten):
    """Packing before a main loop."""

    rewritten = staticmethod(pack_workload)
    #: whether filters of one tap can stay where they are
    stays = False

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Add the packed operands."""
        nbytes, zero = super().workspace(program, workload)
        return nbytes + workspace(workload), zero

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return the cost of packing the image, and filters that do not stay where they are."""
        return cost(workload, arch, always=not self.stays)

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Add the divisions that find the images of columns: of a store, and of an operand of the epilogue."""
        terms, e = super().terms(columns, workload, arch, facts), extents(pack_workload(workload))
        if e.window == "b":
            outputs = np.float32(1) * columns["block_m"] * columns["block_n"]
            issue = outputs * columns[column.STORES] * np.float32(IMAGE_ISSUE * (1 + e.operands))
            issue = np.where(columns["split_k"] > 1, np.float32(0), issue)
            terms.epilogue = terms.epilogue + issue / terms.warps * 2.0
            terms.epilogue_busy = terms.epilogue_busy + issue * 0.25
        return terms

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of C and parts of k; where pixels are columns, of all images together."""
        if not geometry.swapped:
            return super().tiling(program, geometry)
        return replace(super().tiling(program, join_images(geometry)), pixels=geometry.sizes[1])

    def vectors(self, program: Program, workload: Workload) -> tuple[int, int]:
        """Return the bytes of an access of the packed image, and of the packed filters."""
        return WIDE, WIDE

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See packed_cases."""
        found = super().cases(program, widest_packing(workload), epilogue)
        return packed_cases(found, workload, self.vectors(program, workload))

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of the packed product and of packing."""
        own = packed_branches(workload, self.vectors(program, workload), stays=self.stays)
        found = self.main.branches(program, widest_packing(workload)) | own
        return found if program["epilogue_fixed"] else found - {"unchanged"}  # warp_outputs.cuh


class ContractionPacked(Packed):
    """Packing before a main loop that reads operands by ordinary accesses."""

    abi = 7
    stays = True
    #: widths that a group's channels with their padding allow
    own = MappingProxyType(dict.fromkeys(("vector_a", "vector_b"), (4, 8, WIDE)))
    needs = (operators(CONVOLUTIONS, "is no convolution"),)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve convolutions whose channels cannot be read in whole accesses where they are."""
        align = workload.align
        if workload.layouts["x"] == "nhwc" and min(align["x"], align["w"]) == WIDE:
            return "its operands are read 16 bytes at a time where they are"
        if kind(pack_workload(workload)) == split_float.KIND or workload.is_complex:
            return "no tensor-core products of packed operands of float32, or complex ones"
        return self.main.serves(pack_workload(workload), arch) or too_large(workload)

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Add the layout of operands before they are packed, and whether filters can stay."""
        return super().constants(program, workload) | {
            "PACKED": extents(workload).order,
            "FILTERS_LAST": int(workload.layouts["w"] == "rsck"),
            "FILTERS_ALIGNED": int(filters_aligned(workload)),
        }

    def vectors(self, program: Program, workload: Workload) -> tuple[int, int]:
        """Return the bytes of an access of the packed image, and of the packed filters."""
        image, filters = ("a", "b") if extents(pack_workload(workload)).window == "a" else ("b", "a")
        return program[f"vector_{image}"], program[f"vector_{filters}"]

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Put packing before the product."""
        first = first_launch(workload, *self.vectors(program, workload))
        main, *rest = super().launches(program, workload)
        return (first, replace(main, dependent=True), *rest)


class ContractionPackedTma(Packed):
    """Packing before a main loop that reads operands by tensor copies, which walk pixels as columns of B."""

    abi = 5
    needs = (operators(CONVOLUTIONS, "is no convolution"),)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve convolutions with the channels of image and output first."""
        if "output_padding_h" in workload.size:
            return f"{workload.operator} is transposed"
        if workload.layouts["x"] != "nchw" or extents(workload).window != "b":
            return "channels of the image, or of the output, are innermost"
        return self.main.serves(pack_workload(workload), arch) or too_large(workload)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the main loop's coordinates without stores by tensor copies, whose boxes would span images."""
        found = super().coordinates(workload, arch)
        ways = (store.DIRECT, store.STAGED)
        return tuple(each._replace(values=ways) if each.name == "epilogue_staged" else each for each in found)

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Read operands in any layout, since they are packed."""
        return implicit_gemm.unreadable(pack_workload(workload), "b") is None

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Add the layout of the image before it is packed."""
        return super().constants(program, workload) | {"PACKED": extents(workload).order}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Put packing before the product, whose tensor maps describe the packed operands."""
        image = workspace_bytes(program, self.rewritten(workload))
        places = {"a": image + image_bytes(workload), "b": image}
        main, *rest = super().launches(program, workload)
        maps = tuple(replace(each, copied_at=places.get(each.operand)) for each in main.maps)
        first = first_launch(workload, *self.vectors(program, workload))
        return (first, replace(main, maps=maps, dependent=True), *rest)


#: Stream-K takes 26 to 40 registers in the SASS of four Programs: every share looks up again where the flags are.
PACKED = ContractionPacked(ContractionMma("contraction_packed", stream_registers=32.0))
PACKED_WGMMA = ContractionPackedTma(ContractionWgmma("contraction_packed_wgmma", only_products=True, images="b"))
PACKED_TCGEN05 = ContractionPackedTma(ContractionTcgen05("contraction_packed_tcgen05", only_products=True, images="b"))
