"""The sizes a Program of the window family is verified on.

Along each axis of y two whole blocks and a partial one, one granule past a block, and a corner where all are partial;
padding on every side, windows in the padding alone, several images.  A Program whose window comes from Params
sees different ones: strides, holes, more rows than columns and fewer.  Sizes are multiples of the workload's
alignment class, and of nothing more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gensor_kernels.families.contraction.prologue import inlined_branches
from gensor_kernels.families.core.cases import USUAL, Case, Schedule
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sides import output_size

from .shape import call_of


@dataclass(frozen=True)
class Shape:
    """Rows, columns, their steps and distances (holes) of a window."""

    r: int
    s: int
    stride_h: int = 1
    stride_w: int = 1
    dilation_h: int = 1
    dilation_w: int = 1


#: Windows for Programs whose threads slide: fewer columns than are taken at once, as many, more.
SLIDING = (Shape(11, 6), Shape(2, 3), Shape(1, 8), Shape(5, 4), Shape(3, 13))
#: Windows for Programs that take any.
SHAPES = (Shape(3, 3, 2, 1), Shape(2, 5, 1, 2), Shape(5, 1, 3, 1), Shape(3, 2, 1, 1, 2, 3), Shape(1, 4, 1, 3))


def granules(workload: Workload) -> tuple[int, int]:
    """Return the channels and columns of y of which this class's sizes are multiples."""
    call = call_of(workload)
    if call.channels_last:
        widths = [call.align[name] // facts(workload.dtype[name]).itemsize for name in call.align]
        return max(widths), 1
    return 1, call.align["y"] // call.bytes_y


def window_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Return the coverage names that runs at verification sizes must count."""
    channels, columns = granules(workload)
    names = {"padding", "full_tile"}
    if _whole_image(workload):
        names = {"full_tile"} if program["block_h"] == program["block_w"] == 1 else set()
        columns = 1
    for name, block, step in (
        ("edge_c", program["block_c"], channels),
        ("edge_h", program["block_h"], 1),
        ("edge_w", program["block_w"], columns),
    ):
        if step % block:
            names.add(name)
    if program["staged"] and not program["window"]:
        names.add("last_taps")
    if program["split"] > 1:
        names.add("split_reduce")
    return frozenset(names) | inlined_branches(call_of(workload).prologue, True)


def _whole_image(workload: Workload) -> bool:
    """Return whether images are their own windows."""
    return "r" not in workload.size


def window_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return the cases; large cases run ``epilogue``.

    A binary with a compile-time epilogue runs its own everywhere.
    """
    step_c, step_w = granules(workload)
    bare = workload.epilogue if epilogue == workload.epilogue else ()
    axes = (("c", program["block_c"], step_c), ("h", program["block_h"], 1), ("w", program["block_w"], step_w))
    few = {axis: ragged(block, step, block * 5 // 8) for axis, block, step in axes}
    two = {axis: ragged(block, step, 2 * block + block // 2) for axis, block, step in axes}
    past = {axis: ragged(block, step, block + 1) for axis, block, step in axes}
    whole = {axis: math.lcm(block, step) for axis, block, step in axes}
    late, early = "late", "early"
    made: list[tuple[str, int, dict[str, int], int, tuple[str, ...], Schedule]] = [
        ("channels", 1, {**few, "c": two["c"]}, 1, epilogue, USUAL),
        ("rows", 1, {**few, "h": two["h"]}, 1, epilogue, ((late, 1),)),
        ("columns", 2, {**few, "w": two["w"]}, 1, epilogue, ((late, "forward"),)),
        ("whole", 1, whole, 0, bare, ((early, 2),)),
        ("granule", 1, past, 2, epilogue, ((late, "reverse"),)),
        ("far padding", 3, few, 9, bare, ((early, "reverse"), (late, 3))),
    ]
    return [
        Case(name, _sized(workload, program, number, images, outputs, pad).with_epilogue(steps), schedule)
        for number, (name, images, outputs, pad, steps, schedule) in enumerate(made)
    ]


def ragged(block: int, step: int, least: int) -> int:
    """Return the first multiple of ``step`` from ``least`` on that is none of ``block``, else the first one."""
    first = max(-(-least // step), 1) * step
    return next((extent for extent in range(first, first + block * step, step) if extent % block), first)


def _sized(
    workload: Workload, program: Program, number: int, images: int, outputs: dict[str, int], pad: int
) -> Workload:
    """Return the Workload with these outputs, padded by ``pad`` and a little more at the end, as far as images stay."""
    shape = _shape(workload, program, number)
    if _whole_image(workload):
        return workload.with_sizes(n=images, c=outputs["c"], h=shape.r, w=shape.s)
    for ceil_mode in (number % 2 if "ceil_mode" in workload.size else 0, 0):
        sizes = under(shape, outputs, pad, number, ceil_mode)
        if (output_size(sizes, "h"), output_size(sizes, "w")) == (outputs["h"], outputs["w"]):
            break
    sizes |= {"n": images, "c": outputs["c"], "count_include_pad": number // 2 % 2}
    return workload.with_sizes(**{name: value for name, value in sizes.items() if name in workload.size})


def under(shape: Shape, outputs: dict[str, int], pad: int, number: int, ceil_mode: int) -> dict[str, int]:
    """Sizes of an image that has these outputs under a window; with ceil_mode the last ones reach past the padding."""
    sizes = {"r": shape.r, "s": shape.s, "ceil_mode": ceil_mode}
    for side, window, ends in (("h", shape.r, ("top", "bottom")), ("w", shape.s, ("left", "right"))):
        stride, dilation = getattr(shape, f"stride_{side}"), getattr(shape, f"dilation_{side}")
        room = (outputs[side] - 1) * stride + dilation * (window - 1) + 1 - ceil_mode * (stride - 1)
        before = min(pad + (number == 4), (room - 1) // 2)
        after = min(pad, room - 1 - before)
        sizes |= {side: room - before - after, f"pad_{ends[0]}": before, f"pad_{ends[1]}": after}
        sizes |= {f"stride_{side}": stride, f"dilation_{side}": dilation}
    return sizes


def _shape(workload: Workload, program: Program, number: int) -> Shape:
    """Return the window of a case: the compiled one, else one after the other, without holes where there are none."""
    if program["window"]:
        return Shape(*map(int, str(program["window"])))
    if program["staged"]:
        return SLIDING[number % len(SLIDING)]
    shape = SHAPES[number % len(SHAPES)]
    if "dilation_h" in workload.size:
        return shape
    return Shape(shape.r, shape.s, shape.stride_h, shape.stride_w)
