"""The problems on which Programs of contraction_strip are verified."""

from __future__ import annotations

from gensor_kernels.families.contraction.patch.shape import tiles
from gensor_kernels.families.core.cases import USUAL, Case, Schedule
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

from .shape import ACCESSES, EIGHT, call_of, filter_bytes, shape, sides

#: Outputs of a row that is shorter than a tile, at least.
SHORT = 13


def strip_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Return the coverage names that runs at verification sizes must count."""
    copies = {f"copies_of_{width}" for width in ACCESSES[:-1]}
    return frozenset(copies | {"single_elements", "bands", "runs", "cut", "next_tile", "other_filters"})


def strip_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return the problems that a Program is verified on; large cases run ``epilogue``.

    They have output rows shorter and longer than a tile, more filters than a block, several images; segments with and
    without a leading place, that fill their places or not; images for all widths of copies; padding from none to more
    than the filter. A binary with a compile-time epilogue runs it in all cases.
    """
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    last = workload.layouts["x"] == "nhwc"
    threes = {"channels": 3, "stride": 2} if last else {"stride": 4}
    twos = {"channels": 2, "stride": 1} if last else {"stride": 2}
    pair: Schedule = (("late", 1), ("early", "reverse"))

    def case(name: str, dense: int, steps: tuple[str, ...], schedule: Schedule, **own: int) -> Case:
        return Case(name, _sized(workload.with_epilogue(steps), program, **own), schedule, dense=dense)

    return [
        case("bands", 16, epilogue, USUAL, pad=1, full=1, images=3, more=1, **threes),
        case("runs", 16, epilogue, (("late", "reverse"), ("early", 2)), pad=0, long=1, more=1, **twos),
        case("pieces of 8", 8, bare, pair, pad=3, more=1, **twos),
        case("pieces of 4", 4, bare, pair, pad=2, full=1, stride=2),
        case("elements", 16, bare, pair, pad=5, stride=2, odd=1, images=3),
        case("elements of runs", 2, bare, (("early", 3),), pad=0, long=1, **threes),
    ]


def _sized(
    workload: Workload,
    program: Program,
    *,
    pad: int,
    stride: int,
    channels: int = 1,
    images: int = 2,
    more: int = 0,
    full: int = 0,
    long: int = 0,
    odd: int = 0,
) -> Workload:
    """Return a convolution with the lines and octets of a Program. ``more``: filters after a block's own; ``full``:
    segments fill their places; ``long``: a row of the output is more than a tile; ``odd``: the image has an odd number
    of columns, else whole eights."""
    call, places = call_of(workload), program["octets"] * EIGHT
    outputs, filters = sides(program.by_name, call)
    unit, planes = (channels, 1) if call.last else (1, program["planes"])
    columns = max((places - pad * unit % 2 - (0 if full else 2)) // unit, 1)
    vector = workload.align["y"] // facts(workload.dtype["y"]).itemsize  # outputs that may be stored together
    group, step = (1, vector) if call.pixel_rows else (vector, 1)
    wide = -(-SHORT // group) * group if not long else outputs + -(-outputs // 2 // group) * group
    high = 2 if long else 2 * int(tiles((1000, wide), outputs)[0]) + 1
    across, down = (wide - 1) * stride + columns, (high - 1) * 2 + program["lines"] // planes
    width = (across - pad - 1) // 2 * 2 + 1 if odd else (across - pad) // EIGHT * EIGHT
    rows = max(down - 3, 1)
    own = filters + step if more else max(filters // 2 // step, 1) * step
    return workload.with_sizes(
        **dict.fromkeys(("dilation_h", "dilation_w", "groups"), 1),
        **{"n": images, "h": rows, "w": width, "c": unit * planes, "k_out": own},
        **{"r": program["lines"] // planes, "s": columns, "stride_h": 2, "stride_w": stride},
        **{"pad_top": 2, "pad_bottom": down - rows - 2, "pad_left": pad, "pad_right": across - pad - width},
    )


def verified_bytes(workload: Workload, program: Program) -> int:
    """Shared bytes, at most, of filters and lines of the cases."""
    made = [call_of(case.workload) for case in strip_cases(program, workload, ())]
    outputs, filters = sides(program.by_name, made[0])
    return max(filter_bytes(call.steps, filters) + 2 * int(shape(call, outputs).stage) for call in made)
