"""What an iteration of contraction_mma's main loop takes, and its threads' registers: what depends on too many
coordinates to be tabulated (mma_parts has the rest)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gensor_kernels.machine.arch import Arch
from gensor_kernels.programs.contraction import prologue as contraction_prologue
from gensor_kernels.programs.contraction import stream_k
from gensor_kernels.programs.contraction.cost import Loop, register_limit, window_issue, window_registers
from gensor_kernels.programs.contraction.implicit_gemm import MASKED, copy_lines
from gensor_kernels.programs.contraction.mixed_input import word_costs
from gensor_kernels.programs.contraction.problem import extents
from gensor_kernels.programs.core.family import Columns

from .operands import entries, matrices

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload


def copies(c: Columns, operand: str, warps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(LANES, PASSES, COLUMNS) of an operand's OperandTile."""
    # The largest power of two in (pieces | threads) is the smaller of the two's.
    lanes = np.minimum(c[f"pieces_power_{operand}"], c["power_m"] * c["power_n"] * 32.0)
    passes = np.ceil(c[f"rows_{operand}"] * lanes / (warps * 32.0))
    return lanes, passes, c[f"pieces_{operand}"] / lanes


def registers(c: Columns, workload: Workload, arch: Arch, of_stream: float) -> np.ndarray:
    """Accumulators, the fragments of a k step, pieces staged in registers, addresses; those of a stream."""
    warps = np.maximum(c["down"] * c["across"], 1.0)
    held: Any = 0.0
    for operand in ("a", "b"):
        _, passes, pieces = copies(c, operand, warps)
        held = _holding(held, c, workload, operand, passes, pieces)
    held = held + c.get("scale_registers", 0.0) + stream_k.registers(c, of_stream)
    return c["base_registers"] + _doubled(c, warps, arch) * c["second_fragments"] + held


def _holding(held: Any, c: Columns, workload: Workload, operand: str, passes: np.ndarray, pieces: np.ndarray) -> Any:
    """``held`` registers and those that an operand's copies hold."""
    held = held + passes * pieces * matrices(workload, operand) * c[f"hold_{operand}"]
    if operand == extents(workload).window:
        held = held + window_registers(*entries(workload, operand, passes, pieces), c[MASKED])
    if operand == extents(workload).prepared:
        held = held + contraction_prologue.registers(c, workload, *entries(workload, operand, passes, pieces))
    return held


def _doubled(c: Columns, warps: np.ndarray, arch: Arch) -> np.ndarray:
    """Where the kernel keeps two sets of fragments: DOUBLE_FRAGMENTS of mma_pipeline.cuh, bool."""
    return c["double_needs"] <= register_limit(c, warps, arch)


def loop(c: Columns, workload: Workload, arch: Arch, memory: np.ndarray, of_stream: float) -> Loop:
    """What an iteration takes, and the end of a block of ``memory`` shared bytes."""
    warps = c["down"] * c["across"]
    doubled = _doubled(c, warps, arch)
    issue, clocks, widening = c["step_issue"], 0.0, np.zeros_like(warps)
    held = stream_k.registers(c, of_stream)
    for operand in ("a", "b"):
        lanes, passes, pieces = copies(c, operand, warps)
        count = passes * pieces * matrices(workload, operand)
        # Per piece and per row; fitted, like the other instruction counts, to the SASS of 220 Programs.
        issue = issue + c[f"read_issue_{operand}"] + count * c["copy_issue"] + passes * 2.4
        if word_costs(workload, operand, arch):
            issue = issue + count * c[f"piece_issue_{operand}"]
            widening = widening + c[f"read_widening_{operand}"] + count * c[f"piece_widening_{operand}"]
        # A copy takes the load/store pipe for itself, its words, and the lines it is scattered over.
        lines = copy_lines(c, workload, operand, lanes)
        scattered = np.maximum(lines, c[f"piece_lines_{operand}"]) + c[f"piece_clocks_{operand}"]
        clocks = clocks + c[f"read_clocks_{operand}"] + count * scattered * 0.5
        if operand == extents(workload).window:
            issue = issue + window_issue(*entries(workload, operand, passes, pieces), c[MASKED])
        if operand == extents(workload).prepared:
            issue = issue + contraction_prologue.issue(c, workload, *entries(workload, operand, passes, pieces))
        held = _holding(held, c, workload, operand, passes, pieces)
    more = c.get("scale_multiplies", np.zeros_like(warps))
    return Loop(
        warps=warps,
        math=np.maximum(c["math"] * (1 + more / c["multiplies"]), widening + c.get("parts_clocks", 0.0)),
        multiplies=c["multiplies"] + more,
        issue=issue + c.get("scale_issue", 0.0) + c.get("parts_issue", 0.0),
        wavefronts=clocks * warps,
        chain=c["chain"] - doubled * c["chain_saved"],
        in_flight=c["in_flight"],
        exposed=c["exposed"],
        registers=c["base_registers"] + doubled * c["second_fragments"] + held + c.get("scale_registers", 0.0),
        memory=memory,
        outputs=c["outputs"],
        touched=c["k_steps"],
        staging=c["staging_rows"] * (60.0 + warps * c["staging_clocks"])
        + (c["row_clocks"] / warps if extents(workload).norm else 0.0),
    )
