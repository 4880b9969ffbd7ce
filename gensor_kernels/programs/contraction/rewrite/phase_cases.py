"""The problems on which Programs of transposed convolutions by phases are verified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING

from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.windows.conv_phased import phased
from gensor_kernels.operators.windows.conv_product import output_size
from gensor_kernels.programs.core.cases import Case, contraction_cases

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: the small case of which others are made
SMALL = "batch"
#: Where phases have one tap or none; where taps skip pixels, or meet one at every other output only; and where a phase
#: has taps but no output.
ONES = {name: 1 for name in ("stride_h", "stride_w", "dilation_h", "dilation_w")}
NONE = {f"pad_{end}": 0 for end in ("top", "bottom", "left", "right")} | {"output_padding_h": 0, "output_padding_w": 0}
FURTHER: dict[str, dict[str, int]] = {
    "taps apart": {"stride_h": 3, "stride_w": 3, "r": 2, "s": 2, "h": 2, "w": 3},
    "dilated": {
        **{"stride_h": 3, "dilation_h": 2, "r": 5, "h": 3, "pad_top": 4, "pad_bottom": 1, "output_padding_h": 1},
        **{"stride_w": 2, "dilation_w": 2, "s": 2, "w": 4, "pad_right": 1},
    },
    "one row": {
        **{"stride_h": 2, "r": 3, "h": 1, "pad_top": 1, "pad_bottom": 1},
        **{"stride_w": 2, "s": 3, "w": 3, "pad_left": 3, "output_padding_w": 1},
    },
}


def phased_cases(workload: Workload, tile: Mapping[str, int], epilogue: tuple[str, ...]) -> list[Case]:
    """The cases of a convolution as those of the largest phases of transposed ones, and further ones."""
    made = []
    for case in contraction_cases(phased(workload), tile, epilogue):
        own = workload.with_sizes(**_sizes(case.workload, _step(workload, tile["k"])))
        made.append(replace(case, workload=own.with_epilogue(case.workload.epilogue)))
    small = next(case for case in made if case.name == SMALL)
    channels = _step(workload, tile["k"]) * small.workload.size["groups"]
    # Phases of one output per image, and a row more of them than a tile has.
    further = {
        **FURTHER,
        "one output": {"n": tile["m"] + 1, "h": 1, "w": 1, "r": 2, "s": 2, "stride_h": 2, "stride_w": 2},
    }
    for name, sizes in further.items():
        own = small.workload.with_sizes(**ONES | NONE | {"c": channels} | sizes)
        made.append(replace(small, name=name, workload=own.with_epilogue(epilogue)))
    return made


def phased_branches(workload: Workload, tile: Mapping[str, int]) -> frozenset[str]:
    """Coverage names beside those of the products; a tap's steps may leave parts of k without any."""
    found = {"interleave", "next_line", "no_channels", "no_taps", "past_phase"}
    steps, split = _step(workload, tile["k"]) // tile["k"], tile["split"]
    return frozenset(found | ({"empty_part"} if -(-steps // split) * (split - 1) > steps else set()))


def _step(workload: Workload, depth: int) -> int:
    """Channels of a group: whole steps of k, and whole accesses of the class."""
    align, size = workload.align, facts(workload.dtype["x"]).itemsize
    return lcm(depth, align["x"] // size, 1 if workload.layouts["w"] == "rsck" else align["w"] // size)


def _sizes(convolution: Workload, step: int) -> dict[str, int]:
    """Phases of up to as many rows, columns, filters, taps and channels as this convolution of 3 x 3 taps has."""
    z = convolution.size
    channels = -(-(z["c"] // z["groups"]) // step) * step
    sizes = {name: z[name] for name in ("n", "k_out", "groups")} | ONES | {"c": channels * z["groups"]}
    sizes |= {"r": 5, "s": 5, "stride_h": 2, "stride_w": 2, "output_padding_h": 1, "output_padding_w": 0}
    for side, before, after in (("h", "pad_top", "pad_bottom"), ("w", "pad_left", "pad_right")):
        outputs = output_size(z, side, False)
        sizes[side] = max(outputs - 1, 1)
        around = 2 * sizes[side] + 3 + sizes[f"output_padding_{side}"] - (2 * outputs - 1)
        sizes |= {before: around - around // 2, after: around // 2}
    return sizes
