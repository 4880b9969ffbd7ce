"""contraction_blocks: products of operands in block-scaled formats, widened and scaled in registers, or as stored, and
of 8-bit floats with float32 scales per block.

A ContractionMma of K-contiguous operands that cp.async copies (contraction_blocks.cu, block_scales.cuh,
float_scales.cuh).
"""

from __future__ import annotations

from dataclasses import replace

from gensor_kernels.families.contraction.cases import SMALL
from gensor_kernels.families.contraction.mma.family import ContractionMma
from gensor_kernels.families.contraction.mma.instructions import Code, Instruction, as_stored, instructions, kind
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import CP_ASYNC, Coordinate, Need, operators
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.products import block_scaled
from gensor_kernels.operators.products.quantised import FORMATS, name_of
from gensor_kernels.operators.types.workload import Workload

from . import cost, rules

OPERATORS = tuple(name_of(0, False, form, both) for form in FORMATS for both in (False, True))


class ContractionBlocks(ContractionMma):
    """Tensor-core products of block-scaled weights, of two block-scaled operands, of 8-bit floats with float32 scales,
    and of plain 8-bit floats, whose scales are 1, where the instruction with scales is the better one."""

    abi = 2
    source = "contraction_blocks.cu"
    rules = rules.RULES
    parts = staticmethod(cost.parts)
    scales_blocks = True
    needs: tuple[Need, ...] = (
        operators((*OPERATORS, block_scaled.NAME, "matmul"), "has no block-scaled operand"),
        CP_ASYNC,
    )

    def __init__(self) -> None:
        """Make the main loop, without streams."""
        super().__init__("contraction_blocks", streams=False)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Serve rows that cp.async copies, where the part has the instruction."""
        if not self.instructions(workload, arch):
            return f"no block-scaled operand, nor two of 8 bits that {arch.name} multiplies faster with scales"
        reason = super().refusal(workload, arch)
        if reason is None and not self._asynchronous(workload, arch):
            return "copies need rows along k, at multiples of 4 bytes"
        return reason

    def instructions(self, workload: Workload, arch: Arch) -> tuple[Instruction, ...]:
        """Return the instructions of this main loop; float32 scales are of sums of 8-bit floats as they are stored."""
        if not extents(workload).in_blocks:
            return super().instructions(workload, arch)
        return tuple(each for each in instructions(kind(workload) or "", arch) if as_stored(each.code))

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Copy by cp.async alone; a step has one float32 scale for each row of A."""
        found, e = super().coordinates(workload, arch), extents(workload)
        known = {"copy": (1,), **({"block_k": (e.group,)} if e.in_blocks else {})}
        return tuple(each._replace(values=known.get(each.name, each.values)) for each in found)

    def with_own_cases(self, found: list[Case], program: Program) -> list[Case]:
        """Add columns of three panels to small tiles."""
        small = next(case for case in found if case.name == SMALL)
        z, e = small.workload.size, extents(small.workload)
        if not e.in_blocks:
            return super().with_own_cases(found, program)
        return [*found, replace(small, name="panels", workload=small.workload.with_sizes(n=z["n"] + 2 * e.group))]

    def known(self, workload: Workload) -> dict[str, object]:
        """Return the macros of contraction_mma, and whether scales are floats."""
        found, in_blocks = super().known(workload), extents(workload).in_blocks
        return found | {"FLOAT_SCALES": in_blocks} | ({"GROUP": 0} if in_blocks else {})

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_blocks.cu, which says itself what is scaled."""
        found = {name: each for name, each in super().constants(program, workload).items() if name != "SCALED"}
        if program["instruction"] == Code.BLOCK_SCALED:  # the rest is as of widened operands
            found |= {"AS_STORED": 1, "INSTRUCTION": int(Code.F16_K16)}
        if extents(workload).in_blocks:
            return found | {"FLOAT_SCALES": 1, "GROUP": 0}
        return found | {"SCALE_VECTOR": cost.scale_vector(workload)}
