"""The sizes a Program of the winograd family is verified on.

Two whole blocks and a partial one along positions and filters, one granule past a block, partial blocks alone; odd and
even images, padding from none to whole rows of it, several images to a block; more steps than stages + 2 with a partial
last one, unequal splits and empty ones, no channels. Sizes are multiples of the class's alignment, and of
nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.programs.core.cases import Case, Schedule
from gensor_kernels.programs.core.program import Program

from .shape import WORD, call_of

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: Padding above, below, left and right.
PADS = ((1, 1, 1, 1), (0, 0, 0, 0), (2, 1, 0, 2), (0, 2, 1, 0), (5, 0, 4, 1))


@dataclass(frozen=True)
class Granules:
    """Channels, filters and pixels of an image of which this class's sizes are multiples."""

    channels: int
    filters: int
    pixels: int


def granules(workload: Workload) -> Granules:
    """Return the granules that the alignment classes of a Workload promise."""
    call, align = call_of(workload), workload.align
    y = align["y"] // facts(workload.dtype["y"]).itemsize
    by_filter = [align["w"] // WORD] if call.filters_last else []
    by_channel = [] if call.filters_last else [align["w"] // WORD]
    if call.channels_last:
        return Granules(max(align["x"] // WORD, *by_channel, 1), max(y, *by_filter, 1), 1)
    return Granules(max(*by_channel, 1), 1, y)


def branches_of(workload: Workload, program: Program) -> frozenset[str]:
    """Return the coverage names that runs at verification sizes must count."""
    names = {"full_tile", "edge_m", "edge_n", "steady", "drain", "padding", "cut"}
    if granules(workload).channels % program["block_k"]:
        names.add("edge_k")
    if program["split_k"] > 1:
        names.add("split_reduce")
    if program["prepared"]:
        names.add("prepared")
    if program["raster"] > 1:
        names.add("raster_tail")
    return frozenset(names)


def winograd_cases(workload: Workload, program: Program, epilogue: tuple[str, ...]) -> list[Case]:
    """The cases; large cases run ``epilogue``. A binary with a compile-time epilogue runs its own
    everywhere."""
    call, g = call_of(workload), granules(workload)
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    paired = program["vector_c"] > facts(workload.dtype["y"]).itemsize
    block_m, block_n, step, split = (program[name] for name in ("block_m", "block_n", "block_k", "split_k"))
    # A raster group of w tile rows has a narrower last group only when the rows are no multiple of w.
    high = program["raster"] + 1 if 1 < program["raster"] <= 4 else 2
    rows, columns = high * block_m + block_m // 2 + 1, 2 * block_n + block_n // 2 + 1
    depth = ((program["stages"] + 4) * split - 1) * step - step // 2

    def case(
        name: str, number: int, m: int, n: int, channels: int, steps: tuple[str, ...], *runs: tuple[str, str | int]
    ) -> Case:
        positions, filters = (m, n) if call.channels_last else (n, m)
        block = block_m if call.channels_last else block_n
        sizes = _image(positions, block, g, paired, number) | {
            "c": -(-channels // g.channels) * g.channels,
            "k_out": -(-filters // g.filters) * g.filters,
        }
        ones = dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "groups"), 1)
        sized = workload.with_sizes(**sizes, **ones, r=3, s=3)
        schedule: Schedule = runs
        return Case(name, sized.with_epilogue(steps), schedule)

    few = block_m // 2 + 1, block_n // 2 + 1
    made = [
        case("blocks", 0, rows, columns, 2 * step - 1, epilogue, ("late", "forward")),
        case("steps", 2, *few, depth, epilogue, ("late", "reverse"), ("early", 1), ("early", 2)),
        case("granule", 5, block_m + 1, block_n + 1, step + 1, epilogue, ("early", "reverse")),
        case("no padding", 1, few[0], block_n + 1, step, bare, ("late", 3)),
        case("far padding", 4, block_m + 1, few[1], 1, bare, ("late", "forward"), ("early", 4)),
        case("no channels", 3, *few, 0, epilogue, ("early", "reverse")),
    ]
    if split > 1:
        made.append(case("empty splits", 0, *few, step, bare, ("late", "forward")))
    return made


def _image(positions: int, block: int, g: Granules, paired: bool, number: int) -> dict[str, int]:
    """Images with at least these positions, their last block partial; in case 5 exactly these."""
    if number == 5:
        high, wide = (1, 2 * positions - 1) if g.pixels == 1 else (2, 2 * positions)
        high *= max(1, g.pixels // 4)
    elif g.pixels == 1:
        high, wide = ((5, 7), (4, 5), (7, 6))[number % 3]
    elif paired or number % 2 == 0:
        high, wide = 5, max(4, g.pixels)
    else:
        high, wide = max(4, g.pixels), 7
    each = -(-high // 2) * -(-wide // 2)
    images = max(1, -(-positions // each))
    while images * each % block == 0:
        images += 1
    top, bottom, left, right = PADS[number % len(PADS)]
    top, left = min(top, high + 1), min(left, wide + 1)
    bottom, right = min(bottom, high + 1 - top), min(right, wide + 1 - left)
    pads = {"pad_top": top, "pad_bottom": bottom, "pad_left": left, "pad_right": right}
    return {"n": images, "h": high + 2 - top - bottom, "w": wide + 2 - left - right, **pads}
