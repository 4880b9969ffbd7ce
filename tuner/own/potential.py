"""Predicted time of a user's kernel: the roofline's terms from counts of machine code, none fitted to one kernel.

Pipes are those of NVIDIA's documentation (CUDA C++ Programming Guide, "Arithmetic Instructions"; Nsight Compute's
documentation, "Pipelines"): a warp's instruction keeps its sub-core's pipe busy for 32 lanes over the pipe's lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gensor_kernels.build.instruction import Instruction
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import SUBCORES, Terms

from .counts import SECTOR, Counts

#: Names of instructions by pipe; "none": of memory and control. Others are arithmetic and logic.
_PIPES = {
    "float": frozenset({"FADD", "FMUL", "FFMA", "FSWZADD", "HADD2", "HMUL2", "HFMA2", "IDP"}),
    "integer": frozenset({"IMAD"}),
    "double": frozenset({"DADD", "DMUL", "DFMA", "DSETP"}),
    "rare": frozenset({"MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV"}),
    "none": frozenset(
        "LDG STG LDS STS LDL STL LD ST ATOM ATOMG ATOMS RED REDG LDGSTS SHFL LDC S2R MATCH REDUX "  # noqa: SIM905
        "BRA CALL RET EXIT BSSY BSYNC BREAK BAR NOP YIELD WARPSYNC MEMBAR DEPBAR LDGDEPBAR BMOV".split()
    ),
}
#: Lanes of a sub-core: of arithmetic and logic, of the products of integers, and of rare functions.
ALU_LANES, PRODUCT_LANES, RARE_LANES = 16.0, 16.0, 4.0
#: Share of the work of the less busy resources that the busiest does not hide, as families of one pass have it.
EXPOSED = 0.1
#: Shares of the predicted time between which at least four of five measured times are, on each of the three replayed
#: spaces (docs/how-to/own-kernels.md).
BAND = (0.8, 1.8)
#: Loads that are on their way at once need no count: a block's own clocks have their latency.
_IN_FLIGHT = 1e6


@dataclass(frozen=True)
class Counted:
    """Counts of a configuration's launch, and what its binary takes: registers per thread, bytes of shared memory.

    `issued` are instructions of a block's warps by name, `passes` a block's lines of global memory and passes of shared
    memory, `sectors` those that it reads first and writes; `clocks` those of a block alone.
    """

    blocks: int
    issued: Mapping[str, float]
    passes: float
    sectors: float
    clocks: float
    warps: int
    registers: int
    shared_bytes: int
    array_bytes: int

    @classmethod
    def of(cls, counts: Counts, code: Sequence[Instruction], **launch: int) -> Counted:
        """Return the sums of counts by instruction."""
        issued: dict[str, float] = {}
        for instruction, count in zip(code, counts.issued.tolist(), strict=True):
            if count:
                issued[instruction.name] = issued.get(instruction.name, 0.0) + count / counts.blocks
        passes = float(counts.wavefronts.sum() + counts.lines.sum()) / counts.blocks
        return cls(
            counts.blocks, issued, passes, (counts.read + counts.written) / counts.blocks, counts.clocks, **launch
        )


def pipes(each: Counted, arch: Arch) -> dict[str, float]:
    """Return the clocks per warp in which each pipe of a sub-core is busy, by its name."""
    sums = dict.fromkeys(("float", "integer", "double", "rare", "alu", "issue"), 0.0)
    for name, count in each.issued.items():
        sums["issue"] += count / each.warps
        kind = next((kind for kind, names in _PIPES.items() if name in names), "alu")
        if kind != "none" and not (kind == "alu" and name.startswith("U")):
            sums[kind] += count / each.warps
    lanes = arch.rate("fma_f32") / SUBCORES
    return {
        # Products of integers take the half of the pipe that does both.
        "fma": max(32 / lanes * (sums["float"] + sums["integer"]), 32 / PRODUCT_LANES * sums["integer"]),
        "alu": 32 / ALU_LANES * sums["alu"],
        "fp64": 32 * SUBCORES / arch.rate("fma_f64") * sums["double"],
        "xu": 32 / RARE_LANES * sums["rare"],
        "issue": sums["issue"],
    }


def terms(many: Sequence[Counted], arch: Arch) -> Terms:
    """Return the roofline's terms of configurations; their blocks have one iteration."""

    def column(values: Sequence[float]) -> np.ndarray:
        return np.array(values, np.float32)

    busy = [pipes(each, arch) for each in many]
    warps = column([each.warps for each in many])
    registers, shared = (column([getattr(each, name) for each in many]) for name in ("registers", "shared_bytes"))
    zero = np.zeros(len(many), np.float32)
    return Terms(
        blocks=column([each.blocks for each in many]),
        residents=roofline.residency(warps, registers, shared, arch),
        warps=warps,
        iterations=np.ones(len(many), np.float32),
        math=column([max(pipe for name, pipe in each.items() if name != "issue") for each in busy]),
        multiplies=zero,
        issue=column([each["issue"] for each in busy]),
        wavefronts=column([each.passes for each in many]),
        chain=zero,
        l2_bytes=np.maximum(column([each.sectors for each in many]) * SECTOR, 1.0),
        dram_bytes=column([each.array_bytes for each in many]),
        in_flight=_IN_FLIGHT,
        exposed=np.full(len(many), EXPOSED, np.float32),
        prologue=0.0,
        epilogue=zero,
        epilogue_busy=zero,
        epilogue_bytes=zero,
        after=zero,
        registers=registers,
        shared_bytes=shared,
        stalls=column([each.clocks for each in many]),
    )
