"""The problems on which Programs of contraction_packed are verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.windows.conv_packed import NARROWEST, WIDE, filters_aligned, padded_channels
from gensor_kernels.operators.windows.conv_product import output_size
from gensor_kernels.programs.core.cases import Case

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: the small case of which others are made
SMALL = "batch"
#: coverage names of filters with one tap along an axis
THIN = frozenset({"one_row", "one_column"})


def packed_cases(cases: Sequence[Case], workload: Workload, vector: int) -> list[Case]:
    """The cases of a packed product as those of ``workload``'s class, a channel short of whole accesses in every other
    one; for accesses of ``vector`` bytes, if narrow, as few channels as they are for (one short, where these still take
    such an access); and filters of one tap along an axis, which stay where they are if they can."""
    made = [_unpacked(case, workload, short=place % 2 == 0) for place, case in enumerate(cases)]
    small = next(case for case in made if case.name == SMALL)
    if vector < WIDE:
        size = facts(workload.dtype["x"]).itemsize
        whole = max(vector, NARROWEST) // size
        few = next(c for c in range(max(whole - 1, 1), whole + 1) if padded_channels(c, size) == whole)
        made.append(replace(small, name="few channels", workload=_with_channels(small.workload, few)))
    if not _transposed(workload):
        made += one_tap(made)
    if filters_aligned(workload):
        made.append(replace(small, name="filters stay", workload=_one_tap(small.workload)))
    return made


def one_tap(cases: Sequence[Case]) -> list[Case]:
    """The small one of the cases by one tap along an axis, and along both."""
    small = next(case for case in cases if case.name == SMALL)
    return [replace(small, name=f"one tap along {axes}", workload=thin(small.workload, axes)) for axes in ("h", "hw")]


def packed_branches(workload: Workload, *, stays: bool = True) -> frozenset[str]:
    """Coverage names of the first launch; ``stays``: filters of one tap can stay where they are."""
    thin = () if _transposed(workload) else THIN
    stay = ("filters_stay",) if stays and filters_aligned(workload) else ()
    return frozenset({"packed_image", "packed_filters", "no_channels", *thin, *stay})


def _transposed(workload: Workload) -> bool:
    return "output_padding_h" in workload.size


def _unpacked(case: Case, workload: Workload, *, short: bool) -> Case:
    z = case.workload.size
    own = workload.with_sizes(**z).with_epilogue(case.workload.epilogue)
    return replace(case, workload=_with_channels(own, max(z["c"] // z["groups"] - short, 0)))


def _with_channels(workload: Workload, channels: int) -> Workload:
    return workload.with_sizes(c=channels * workload.size["groups"])


def _one_tap(workload: Workload) -> Workload:
    """The same outputs and about the same depth by a filter of one tap and channels of whole accesses."""
    z, whole = workload.size, WIDE // facts(workload.dtype["x"]).itemsize
    depth = -(-(z["c"] // z["groups"] * z["r"] * z["s"]) // whole) * whole
    sizes = {side: output_size(z, side, _transposed(workload)) for side in ("h", "w")}
    sizes |= dict.fromkeys(("r", "s", "stride_h", "stride_w", "dilation_h", "dilation_w"), 1)
    others = ("pad_top", "pad_bottom", "pad_left", "pad_right", "output_padding_h", "output_padding_w")
    sizes |= {name: 0 for name in others if name in z}
    return _with_channels(workload.with_sizes(**sizes), max(depth, whole))


def thin(workload: Workload, axes: str) -> Workload:
    """The same outputs by one tap along these axes, with a stride; the first and the last one are of the padding."""
    z = workload.size
    sizes: dict[str, int] = {}
    for axis, taps, before, after in (("h", "r", "top", "bottom"), ("w", "s", "left", "right")):
        if axis in axes:
            out = output_size(z, axis, False)
            pad = int(out > 1)  # a single output is of the image
            own = {axis: 2 * out - 1 - 2 * pad, taps: 1, f"stride_{axis}": 2, f"dilation_{axis}": 1}
            sizes |= own | {f"pad_{before}": pad, f"pad_{after}": pad}
    return workload.with_sizes(**sizes)
