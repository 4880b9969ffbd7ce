"""What families of transposed convolutions by phases share (phases.cuh).

To the main launch the workload is another one, an ordinary convolution whose groups are the phases
(operators/windows/conv_phased.py): coordinates, legality, terms and constants are those of the family behind this class
there. Sums pass through the workspace even where k is not split, and a second launch puts them in order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.windows.conv_phased import NAME, axis, phased, phases
from gensor_kernels.programs.contraction.base import GRID_NAMES, ContractionFamily
from gensor_kernels.programs.contraction.build import WORKSPACE_GROUP, reduce_launch
from gensor_kernels.programs.contraction.implicit_gemm import MASKED, MOST_TAPS
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.contraction.split_k import reduction
from gensor_kernels.programs.contraction.stream_k import NAME as STREAM
from gensor_kernels.programs.core.cases import Case
from gensor_kernels.programs.core.family import Columns, Coordinate, Launch, Part, Values
from gensor_kernels.programs.core.program import Program

from .base import OfRewritten
from .phase_cases import phased_branches, phased_cases

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

#: the place of the steps of k among the coordinates
STEPS = GRID_NAMES.index("block_k")
#: Registers of a thread for its phase and for where it is in the filter: of the SASS of 32 Programs, -30 to 40.
REGISTERS = 10.0
#: Most that a starter is estimated to need: beyond, the estimate is too close to what a thread can have.
STARTER_REGISTERS = 240.0


class OfPhases(OfRewritten, ContractionFamily):
    """Transposed convolutions of channels that are last, phase by phase, by the family behind this class."""

    #: steps of k, which are of one tap each
    own: Mapping[str, Collection[int]] = MappingProxyType({"block_k": (4, 8, 16, 32, 64, 128, 256)})
    #: coordinates that have one value only
    fixed: Mapping[str, int] = MappingProxyType({STREAM: 0})

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Those whose pixels are rows, of whole steps of channels."""
        if workload.operator != NAME:
            return f"{workload.operator} is no transposed convolution"
        if (workload.layouts["x"], workload.layouts["y"]) != ("nhwc", "nhwk"):
            return "channels of the image and of the output are not innermost"
        refusal = super().serves(phased(workload), arch)
        if refusal is None and not OfPhases.coordinates(self, workload, arch)[STEPS].values:
            return "a step of k has channels of more than one tap"
        return refusal

    def rewritten(self, workload: Workload) -> Workload:
        """The convolution of all phases."""
        return phased(workload)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Those of the main launch, with steps that divide the channels of a group, and taps that masks have bits for:
        those of a phase."""
        channels = workload.size["c"] // workload.size["groups"]
        few = sum(axis(workload.size, side).taps for side in "hw") <= MOST_TAPS
        found = []
        for each in super().coordinates(workload, arch):
            values = (self.fixed[each.name],) if each.name in self.fixed else each.values
            if each.name == "block_k":
                values = tuple(value for value in values if channels % value == 0)
            if each.name == "min_blocks":  # left alone, the compiler aims at several, and spills for them
                values = tuple(value for value in values if value)
            if each.name == MASKED:
                values = (0, 1) if few else (0,)
            found.append(each._replace(values=values))
        return tuple(found)

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Those of the main launch; sums always pass through the workspace."""
        e = extents(phased(workload))

        def splits(v: Values) -> dict[str, np.ndarray]:
            split = v["split_k"]
            written, after = reduction(split, e, arch, through=np.ones(len(split), bool))
            return {"slabs": split * e.batch, "written": written, "after": after}

        found = (_of_phase(part) for part in super().parts(workload, arch) if part.names != ("split_k",))
        return (*found, Part(("split_k",), splits))

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Those of the main launch, of one block promised."""
        return super().defaults(columns, workload, arch) | {"min_blocks": np.ones_like(columns["block_m"])}

    def starts(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Programs that do not spill."""
        fits = self.registers(columns, workload, arch) <= STARTER_REGISTERS
        return super().starts(columns, self.rewritten(workload), arch) & fits

    def shared(self, program: Program) -> Program:
        """The same Program with the run-time epilogue, and one block promised."""
        return program.replace(epilogue_fixed=0, min_blocks=1)

    def front(self, workload: Workload, arch: Arch) -> tuple[float, float]:
        """No launch is in front; every phase reads the image, and finds it in the L2 behind the first one."""
        e, count = extents(phased(workload)), phases(workload)
        image = e.whole_a * e.batch / count
        missing = min(max(image / (arch.l2_mb * 2**20) - 0.5, 0.0), 1.0)
        return 0.0, (1 - missing) * image * (count - 1)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Macro bindings of the main launch."""
        return super().constants(program, phased(workload)) | {"SPLIT": 1}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """The products, and what puts their sums in order."""
        main = super().launches(program, phased(workload))[0]
        e = extents(workload)
        width = program["vector_c"] // e.bytes_c if e.unit["c"] != "s" else 1
        return main, replace(reduce_launch(e, width), entry="contraction_interleave")

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Bytes of the sums of all phases; nothing needs to be zero."""
        e = extents(phased(workload))
        columns = -(-e.n // WORKSPACE_GROUP) * WORKSPACE_GROUP
        return program["split_k"] * e.batch * e.m * columns * e.bytes_acc, False

    # ---- verification

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """See phased_cases."""
        return phased_cases(workload, self.tile(program), epilogue)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Those of the main launch, and of phases."""
        found = super().branches(program, phased(workload)) - {"split_reduce", "edge_k"}
        return found | phased_branches(workload, self.tile(program))


def _of_phase(part: Part) -> Part:
    """A part of the main launch: sums are stored as those of a split, and threads hold more."""

    def function(v: Values) -> Mapping[str, np.ndarray]:
        stored = "split_k" in v and "epilogue_staged" in v
        outputs = dict(part.function({**v, "split_k": np.maximum(v["split_k"], 2)} if stored else v))
        if "base_registers" in outputs:
            outputs["base_registers"] = outputs["base_registers"] + REGISTERS
        return outputs

    return part._replace(function=function)
