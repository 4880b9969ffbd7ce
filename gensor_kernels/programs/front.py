"""What a launch in front of another costs that reads operands and writes them anew, for the next one to read."""

from __future__ import annotations

from ..machine.arch import Arch
from ..machine.roofline import DRAM_EFFICIENCY, RAMP_US, SUBCORES


def cost_of_front(read: float, written: float, issue: float, arch: Arch) -> tuple[float, float]:
    """(microseconds, bytes that the next launch finds in the L2) of a launch that reads and writes these bytes and
    issues these instructions of warps."""
    # As partial sums do: see contraction_parts.reduction.
    spilled = min(max(written / (arch.l2_mb * 2**20) - 0.5, 0.0), 1.0)
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    moved = (read + spilled * written) / dram + (1 - spilled) * written / l2
    busy = issue / (SUBCORES * arch.sms * arch.clock_ghz * 1e3)
    fixed = RAMP_US + arch.dram_latency * 2e-3 / arch.clock_ghz
    return max(moved, busy) + fixed, (1 - spilled) * written
