"""What a launch in front of another costs that reads operands and writes them anew, for the next one to read."""

from __future__ import annotations

from ..machine.arch import Arch
from ..machine.roofline import DRAM_EFFICIENCY, RAMP_US, SUBCORES

#: Of RAMP_US, what passes while the launch in front drains where a launch need not wait for its end: the start of its
#: blocks. An estimate, not measured.
HIDDEN_US = RAMP_US / 2


def fixed_us(arch: Arch, dependent: bool) -> float:
    """Microseconds that a launch in front takes beside its work; less where the next one is ``dependent`` (Launch)."""
    hidden = HIDDEN_US if dependent and "dependent_launch" in arch.features else 0.0
    return RAMP_US - hidden + arch.dram_latency * 2e-3 / arch.clock_ghz


def cost_of_front(
    read: float, written: float, issue: float, arch: Arch, dependent: bool = False
) -> tuple[float, float]:
    """(microseconds, bytes that the next launch finds in the L2) of a launch that reads and writes these bytes and
    issues these instructions of warps; ``dependent`` is the next launch's."""
    # As partial sums do: see contraction_parts.reduction.
    spilled = min(max(written / (arch.l2_mb * 2**20) - 0.5, 0.0), 1.0)
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    moved = (read + spilled * written) / dram + (1 - spilled) * written / l2
    busy = issue / (SUBCORES * arch.sms * arch.clock_ghz * 1e3)
    return max(moved, busy) + fixed_us(arch, dependent), (1 - spilled) * written
