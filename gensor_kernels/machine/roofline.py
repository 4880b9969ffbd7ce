"""The potential: predicted seconds of a Program from its terms, vectorised over many Programs.

Knows only terms, never what a family computes.  A block iterates; each iteration takes as long as its slowest
resource at the residency it runs at; blocks run in rounds of (SMs x resident blocks), the last round at its
own residency.  All arrays are one-dimensional, float32, one element per Program.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from .arch import Arch

if TYPE_CHECKING:
    from ..operators.workload import Workload

#: Schedulers, register files and tensor cores of an SM: a warp lives on one of four.
SUBCORES = 4
#: Bytes one SM takes from the L2 per clock [DeepGEMM's model; also the width of the L1 fill path].
SM_L2_BYTES = 64.0
#: Share of the data sheet's DRAM bandwidth that streaming kernels reach (4.3 of 4.8 TB/s on an H200).
DRAM_EFFICIENCY = 0.90
#: A kernel's own start and end on the device, microseconds, when launches are queued behind each other.
RAMP_US = 1.0


@dataclass
class Terms:
    """What a family says about Programs; cycles are SM clocks, one float32 per Program.

    blocks: thread blocks of the grid.  residents: blocks that fit on one SM (see ``residency``).
    warps: warps per block.  iterations: main-loop steps per block.
    math: clocks a warp keeps its sub-core's math pipe busy per iteration.  issue: instructions it issues.
    wavefronts: clocks of the SM's shared-memory pipe per block and iteration.
    chain: clocks of an iteration that a warp cannot overlap with its own math.
    l2_bytes: requested per block and iteration.  dram_bytes: from DRAM in all, main loop.
    in_flight: tiles on their way while one is computed (0: nothing overlaps).
    prologue, epilogue: clocks before and after the loop that one block cannot hide from itself.
    epilogue_busy: clocks of those in which the block uses the SM's pipes.  epilogue_bytes: DRAM bytes in all.
    after: microseconds of further launches (split-K reduction).  spill_bytes: per thread.
    """

    blocks: np.ndarray
    residents: np.ndarray
    warps: np.ndarray
    iterations: np.ndarray
    math: np.ndarray
    issue: np.ndarray
    wavefronts: np.ndarray
    chain: np.ndarray
    l2_bytes: np.ndarray
    dram_bytes: np.ndarray
    in_flight: np.ndarray
    prologue: np.ndarray
    epilogue: np.ndarray
    epilogue_busy: np.ndarray
    epilogue_bytes: np.ndarray
    after: np.ndarray
    registers: np.ndarray
    shared_bytes: np.ndarray

    def row(self, index: int) -> dict[str, float]:
        """The terms of one Program by name."""
        return {f.name: float(np.broadcast_to(getattr(self, f.name), self.blocks.shape)[index]) for f in fields(self)}


def residency(warps: np.ndarray, registers: np.ndarray, shared_bytes: np.ndarray, arch: Arch) -> np.ndarray:
    """Blocks that fit on one SM at once; below 1 the Program cannot run.

    ``registers`` per thread (allocated in units of 256 per warp), ``shared_bytes`` per block (in units of 128
    plus the driver's share).  float32 in, float32 out.
    """
    per_warp = np.ceil(np.minimum(registers, arch.regs_per_thread) * np.float32(32 / 256)) * np.float32(256)
    # Registers belong to a sub-core's file: a block's warps are dealt out to the four of them.
    warps_fit = np.floor(np.float32(arch.regs_per_sm / SUBCORES) / per_warp) * np.float32(SUBCORES)
    by_registers = warps_fit / warps
    by_threads = np.float32(arch.threads_per_sm / 32) / warps
    shared = np.ceil(shared_bytes * np.float32(1 / 128)) * np.float32(128) + np.float32(arch.smem_reserved)
    by_shared = np.float32(arch.smem_per_sm) / np.maximum(shared, np.float32(1))
    fit = np.minimum(np.minimum(by_registers, by_threads), np.minimum(by_shared, np.float32(arch.blocks_per_sm)))
    return np.floor(fit)


def _round(terms: Terms, arch: Arch, residents: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Clocks of one round with ``residents`` blocks on each of ``active`` SMs."""
    f = np.float32
    dram_clk = f(arch.dram_gb_s * DRAM_EFFICIENCY / arch.clock_ghz)
    shares = np.ceil(residents * terms.warps * f(1 / SUBCORES))
    pipe = np.maximum(terms.math, terms.issue)
    running = residents * active
    compute = np.maximum(shares * pipe, residents * terms.wavefronts)
    total_iterations = terms.blocks * terms.iterations
    l2 = terms.l2_bytes * np.maximum(residents * f(1 / SM_L2_BYTES), running * f(1 / arch.l2_bytes_per_clk))
    dram = terms.dram_bytes / total_iterations * running / dram_clk
    missing = np.minimum(terms.dram_bytes / (terms.l2_bytes * total_iterations), f(1))
    latency = f(arch.l2_latency) + f(arch.dram_latency - arch.l2_latency) * missing
    own = np.ceil(terms.warps * f(1 / SUBCORES)) * pipe + terms.chain
    waited = latency / np.maximum(terms.in_flight, f(1)) + np.where(terms.in_flight < 1, own, f(0))
    step = np.maximum(np.maximum(np.maximum(compute, own), np.maximum(l2, dram)), waited)
    stores = terms.epilogue_bytes / terms.blocks * running / dram_clk
    busy = terms.epilogue_busy * residents + stores
    return latency + terms.prologue + terms.iterations * step + np.maximum(busy, terms.epilogue)


def seconds(terms: Terms, arch: Arch) -> np.ndarray:
    """Predicted seconds per call, launches queued behind each other; float64."""
    f = np.float32
    sms = f(arch.sms)
    capacity = terms.residents * sms
    full = np.floor(terms.blocks / capacity)
    rest = terms.blocks - full * capacity
    clocks = full * _round(terms, arch, terms.residents, np.broadcast_to(sms, terms.blocks.shape))
    tail_residents = np.ceil(rest * f(1 / arch.sms))
    tail = _round(terms, arch, np.maximum(tail_residents, f(1)), np.minimum(rest, sms))
    clocks = clocks + np.where(rest > 0, tail, f(0))
    device = clocks * f(1e-3 / arch.clock_ghz) + f(RAMP_US) + terms.after
    host = f(arch.launch_us) * (f(1) + (terms.after > 0))
    # Launches overlap the kernel before: the slower of both counts. The small share of the faster keeps
    # an order among Programs that the host hides.
    return (np.maximum(device, host) + f(0.01) * np.minimum(device, host)).astype(np.float64) * 1e-6


def bound_us(workload: Workload, arch: Arch) -> float:
    """The least time any kernel could take: max(FLOPs / peak, bytes / bandwidth, launch), microseconds."""
    peak = arch.peak(workload.dtype["a"], workload.math)
    return max(
        workload.flops() / peak * 1e6,
        workload.bytes_moved() / (arch.dram_gb_s * 1e9) * 1e6,
        arch.launch_us,
    )
