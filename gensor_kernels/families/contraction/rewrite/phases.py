"""Compute strided transposed convolutions phase by phase: contraction_phased and contraction_phased_mma.

Outputs that the same taps reach are a phase (phases.cuh).  To the main loop all phases are one ordinary convolution
whose groups are the phases (operators/windows/conv_phased.py).  There is no first launch: sums pass through the
workspace even if k is not split, and a second launch puts them in order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import lcm, prod
from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.base import WORKSPACE_GROUP, reduce_launch
from gensor_kernels.families.contraction.cases import contraction_cases
from gensor_kernels.families.contraction.cost import reduction
from gensor_kernels.families.contraction.mma import split_float
from gensor_kernels.families.contraction.mma.family import ContractionMma
from gensor_kernels.families.contraction.mma.instructions import kind
from gensor_kernels.families.contraction.problem import MASKED, MOST_TAPS, extents
from gensor_kernels.families.contraction.simt.family import ContractionSimt
from gensor_kernels.families.contraction.stream_k import NAME as STREAM
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Columns, Coordinate, Launch, Part, Values, operators
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.geometry import Geometry, Window
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.conv_phased import NAME, all_phases, axis, least_depth, phases
from gensor_kernels.operators.windows.sides import output_size

from .base import Constants, Rewritten

#: Registers of a thread for its phase and its position in the filter: an average over the SASS of 32 Programs, which
#: have -30 to 40.
REGISTERS = 10.0
#: Most registers that a starter is estimated to need, with a margin below the limit of a thread.
STARTER_REGISTERS = 240.0
#: The small case, from which others are made.
SMALL = "batch"
UNIT_STEPS = {name: 1 for name in ("stride_h", "stride_w", "dilation_h", "dilation_w")}
NO_PADS = {f"pad_{end}": 0 for end in ("top", "bottom", "left", "right")}
NO_PADS |= {"output_padding_h": 0, "output_padding_w": 0}
#: Sizes of further cases: phases of one tap or none ("taps apart"); taps that skip pixels, or that meet one only at
#: every other output ("dilated"); a phase that has taps but no output ("one row").
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


class ContractionPhased(Rewritten):
    """Phases of transposed convolutions with channels last, whose pixels are rows of the product."""

    abi = 3
    needs = (operators((NAME,), "is no transposed convolution"),)
    #: steps of k, each within one tap
    own: Mapping[str, Collection[int]] = MappingProxyType({"block_k": (4, 8, 16, 32, 64, 128, 256)})
    starter_registers = STARTER_REGISTERS
    rewritten = staticmethod(all_phases)
    #: coordinates that have one value only
    fixed: Mapping[str, int] = MappingProxyType({STREAM: 0, "epilogue_staged": 0})

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve transposed convolutions with channels last and steps of whole taps."""
        if (workload.layouts["x"], workload.layouts["y"]) != ("nhwc", "nhwk"):
            return "channels of the image and of the output are not innermost"
        refusal = self.main.serves(all_phases(workload), arch)
        if refusal is None and not self._values("block_k", workload, arch):
            return "a step of k has channels of more than one tap"
        return refusal

    def _values(self, name: str, workload: Workload, arch: Arch) -> tuple[int, ...]:
        """Return the values of a coordinate."""
        return next(each.values for each in self.coordinates(workload, arch) if each.name == name)

    def cost(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """Return 0 microseconds, since there is no first launch, and the image's bytes that later phases find in L2."""
        e, count = extents(all_phases(workload)), phases(workload)
        image = e.whole_a * e.batch / count
        missing = min(max(image / (arch.l2_mb * 2**20) - 0.5, 0.0), 1.0)
        return 0.0, (1 - missing) * image * (count - 1)

    # ---- the space

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Keep steps that divide the channels of a group, and masks that have bits for a phase's taps."""
        channels = workload.size["c"] // workload.size["groups"]
        few = sum(axis(workload.size, side).taps for side in "hw") <= MOST_TAPS
        restricted = []
        for each in super().coordinates(workload, arch):
            values = (self.fixed[each.name],) if each.name in self.fixed else each.values
            if each.name == "block_k":
                values = tuple(value for value in values if channels % value == 0)
            if each.name == "min_blocks":  # without a bound the compiler aims at several blocks, and spills
                values = tuple(value for value in values if value)
            if each.name == MASKED:
                values = (0, 1) if few else (0,)
            restricted.append(each._replace(values=values))
        return tuple(restricted)

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Pass sums through the workspace even where k is not split."""
        e = extents(all_phases(workload))

        def splits(v: Values) -> dict[Column, np.ndarray]:
            split = v["split_k"]
            written, after = reduction(split, e, arch, through=np.ones(len(split), bool))
            return {column.SLABS: split * e.batch, column.WRITTEN: written, column.AFTER: after}

        parts = (_of_phase(part) for part in super().parts(workload, arch) if part.names != ("split_k",))
        return (*parts, Part(("split_k",), splits))

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Promise one block per multiprocessor to the compiler."""
        return super().defaults(columns, workload, arch) | {"min_blocks": np.ones_like(columns["block_m"])}

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> Constants:
        """Store sums as a split does."""
        return super().constants(program, workload) | {"SPLIT": 1}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Put the launch that orders sums after the product."""
        e, (main, *_) = extents(workload), super().launches(program, workload)
        width = program["vector_c"] // e.bytes_c if e.unit["c"] != "s" else 1
        return main, replace(reduce_launch(e, width), entry="contraction_interleave")

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of the sums of all phases."""
        e = extents(all_phases(workload))
        columns = -(-e.n // WORKSPACE_GROUP) * WORKSPACE_GROUP
        return program["split_k"] * e.batch * e.m * columns * e.bytes_acc, False

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the tiles of the phase with the most outputs."""
        window = Window.unpack(geometry.tail)
        longest = [-(-rows // stride) for rows, stride in zip(window.rows, window.divisor, strict=True)]
        images = geometry.sizes[0] // prod(window.rows)
        tiles = -(-images * prod(longest) // self.tile(program)["m"])
        return replace(super().tiling(program, geometry), tiles_m=tiles)

    def shared(self, program: Program) -> Program:
        """Keep the promise of one block per multiprocessor."""
        return super().shared(program).replace(min_blocks=1)

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See phased_cases."""
        return self.main.with_own_cases(phased_cases(workload, self.tile(program), epilogue), program)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of the main loop and of phases."""
        found = self.main.branches(program, all_phases(workload)) - {"split_reduce", "edge_k", "unchanged"}
        return found | phased_branches(workload, self.tile(program))


class ContractionPhasedMma(ContractionPhased):
    """Phases whose filters are copied asynchronously, and whose float32 sums are split into bfloat16 parts."""

    abi = 4
    fixed = MappingProxyType({STREAM: 0})

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve float32 only where the sums of every phase are long enough for its parts."""
        refusal = super().refusal(workload, arch)
        if refusal is None and not self._values("copy", workload, arch):
            refusal = f"{arch.name} has no cp.async, or not of these filters, whose taps are no neighbours"
        if refusal is None and kind(workload) == split_float.KIND:
            refusal = split_float.refusal(replace(extents(all_phases(workload)), k=least_depth(workload)))
        return refusal

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Copy innermost filters by cp.async only: through registers, the lines after a tap would be read."""
        coordinates = super().coordinates(workload, arch)
        if extents(all_phases(workload)).unit["b"] != "n":
            return coordinates
        return tuple(
            each._replace(values=tuple(value for value in each.values if value)) if each.name == "copy" else each
            for each in coordinates
        )


PHASED = ContractionPhased(ContractionSimt("contraction_phased"))
PHASED_MMA = ContractionPhasedMma(ContractionMma("contraction_phased_mma", streams=False))


def _of_phase(part: Part) -> Part:
    """Return a part of the main loop, with sums stored as by a split and more registers per thread."""

    def function(v: Values) -> Mapping[Column, np.ndarray]:
        stored = "split_k" in v and "epilogue_staged" in v
        outputs = dict(part.function({**v, "split_k": np.maximum(v["split_k"], 2)} if stored else v))
        if column.BASE_REGISTERS in outputs:
            outputs[column.BASE_REGISTERS] = outputs[column.BASE_REGISTERS] + REGISTERS
        return outputs

    return part._replace(function=function)


def phased_cases(workload: Workload, tile: Mapping[str, int], epilogue: tuple[str, ...]) -> list[Case]:
    """Return a convolution's cases as the largest phases of transposed convolutions, and further cases."""
    cases = []
    for case in contraction_cases(all_phases(workload), tile, epilogue):
        own = workload.with_sizes(**_sizes(case.workload, _step(workload, tile["k"])))
        cases.append(replace(case, workload=own.with_epilogue(case.workload.epilogue)))
    small = next(case for case in cases if case.name == SMALL)
    channels = _step(workload, tile["k"]) * small.workload.size["groups"]
    # Phases of one output per image, with one image more than a tile has rows.
    further = {
        **FURTHER,
        "one output": {"n": tile["m"] + 1, "h": 1, "w": 1, "r": 2, "s": 2, "stride_h": 2, "stride_w": 2},
    }
    for name, sizes in further.items():
        own = small.workload.with_sizes(**UNIT_STEPS | NO_PADS | {"c": channels} | sizes)
        cases.append(replace(small, name=name, workload=own.with_epilogue(epilogue)))
    return cases


def phased_branches(workload: Workload, tile: Mapping[str, int]) -> frozenset[str]:
    """Return the coverage names in addition to the product's; a split may leave parts of k without a step."""
    names = {"interleave", "next_line", "no_channels", "no_taps", "past_phase"}
    steps, split = _step(workload, tile["k"]) // tile["k"], tile["split"]
    return frozenset(names | ({"empty_part"} if -(-steps // split) * (split - 1) > steps else set()))


def _step(workload: Workload, depth: int) -> int:
    """Return the channels of a group: a multiple of a step of k and of the accesses of the alignment class."""
    align, size = workload.align, facts(workload.dtype["x"]).itemsize
    return lcm(depth, align["x"] // size, 1 if workload.layouts["w"] == "rsck" else align["w"] // size)


def _sizes(convolution: Workload, step: int) -> dict[str, int]:
    """Return sizes whose phases have at most the rows, columns, filters, taps and channels of a 3 x 3 convolution."""
    z = convolution.size
    channels = -(-(z["c"] // z["groups"]) // step) * step
    sizes = {name: z[name] for name in ("n", "k_out", "groups")} | UNIT_STEPS | {"c": channels * z["groups"]}
    sizes |= {"r": 5, "s": 5, "stride_h": 2, "stride_w": 2, "output_padding_h": 1, "output_padding_w": 0}
    for side, before, after in (("h", "pad_top", "pad_bottom"), ("w", "pad_left", "pad_right")):
        outputs = output_size(z, side, False)
        sizes[side] = max(outputs - 1, 1)
        around = 2 * sizes[side] + 3 + sizes[f"output_padding_{side}"] - (2 * outputs - 1)
        sizes |= {before: around - around // 2, after: around // 2}
    return sizes
