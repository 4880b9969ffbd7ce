"""contraction_blocks: products of operands in block-scaled formats, widened and scaled in registers, or as stored.

A ContractionMma of K-contiguous operands that cp.async copies (contraction_blocks.cu, block_scales.cuh).
"""

from __future__ import annotations

from gensor_kernels.families.contraction.mma.family import ContractionMma
from gensor_kernels.families.contraction.mma.instructions import Code
from gensor_kernels.families.core.family import CP_ASYNC, Coordinate, Need, operators
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.products.quantised import FORMATS, name_of
from gensor_kernels.operators.types.workload import Workload

from . import cost, rules

OPERATORS = tuple(name_of(0, False, form, both) for form in FORMATS for both in (False, True))


class ContractionBlocks(ContractionMma):
    """Tensor-core products of block-scaled weights, of two block-scaled operands, and of plain 8-bit floats, whose
    scales are 1, where the instruction with scales is the better one."""

    abi = 2
    source = "contraction_blocks.cu"
    rules = rules.RULES
    parts = staticmethod(cost.parts)
    scales_blocks = True
    needs: tuple[Need, ...] = (operators((*OPERATORS, "matmul"), "has no block-scaled operand"), CP_ASYNC)

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

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Copy by cp.async alone."""
        found = super().coordinates(workload, arch)
        return tuple(each._replace(values=(1,)) if each.name == "copy" else each for each in found)

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_blocks.cu, which says itself what is scaled."""
        found = {name: each for name, each in super().constants(program, workload).items() if name != "SCALED"}
        if program["instruction"] == Code.BLOCK_SCALED:  # the rest is as of widened operands
            found |= {"AS_STORED": 1, "INSTRUCTION": int(Code.F16_K16)}
        return found | {"SCALE_VECTOR": cost.scale_vector(workload)}
