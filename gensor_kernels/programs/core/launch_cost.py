"""Cost of a further launch, and of a launch that rewrites operands in front of another."""

from __future__ import annotations

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import DRAM_EFFICIENCY, RAMP_US, SUBCORES

#: The share of RAMP_US that passes while the launch in front drains, where a launch need not wait for its end: the
#: start of its blocks. An estimate, not measured.
HIDDEN_US = RAMP_US / 2


def ramp_us(arch: Arch) -> float:
    """Microseconds between a launch of a call and the next one, which is ``dependent`` (Launch) where a part can."""
    return RAMP_US - HIDDEN_US if "dependent_launch" in arch.features else RAMP_US


def fixed_us(arch: Arch) -> float:
    """Return the microseconds of a further launch beside its work: the ramp, and two trips to memory."""
    return ramp_us(arch) + arch.dram_latency * 2e-3 / arch.clock_ghz


def cost_of_front(read: float, written: float, issue: float, arch: Arch) -> tuple[float, float]:
    """(microseconds, bytes that the next launch finds in the L2) of a launch that reads and writes these bytes and
    issues these instructions of warps."""
    # As partial sums do: see contraction/split_k.py.
    spilled = min(max(written / (arch.l2_mb * 2**20) - 0.5, 0.0), 1.0)
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    moved = (read + spilled * written) / dram + (1 - spilled) * written / l2
    busy = issue / (SUBCORES * arch.sms * arch.clock_ghz * 1e3)
    return max(moved, busy) + fixed_us(arch), (1 - spilled) * written
