"""The potential: predicted seconds of a Program from its terms, vectorised over many Programs.

The model depends on terms only, not on a family's computation.  A block iterates; each iteration takes as long as its
slowest resource at the residency it runs at; blocks run in rounds of (SMs x resident blocks), the last round at its
own residency.  Arrays are float32, one element per Program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gensor_kernels.operators.types.workload import Workload

from .arch import DEPENDENT_LAUNCH, Arch

F = np.float32
#: Schedulers, register files and math pipes of an SM: a warp lives on one of four.
SUBCORES = 4
#: Bytes one SM takes from the L2 per clock (DeepGEMM's model).
SM_L2_BYTES = 64.0
#: SMs of a whole GPC, which holds a cluster: Blackwell Ultra has 160 in eight of them (NVIDIA's developer blog).
GPC_SMS = 20
#: Share of the data sheet's DRAM bandwidth that streaming kernels reach (4.3 of 4.8 TB/s on an H200).
DRAM_EFFICIENCY = 0.90
#: Microseconds of a kernel's own start and end on the device when launches are queued: on an H100 an empty launch takes
#: 1.8, reading Params (840 bytes) 0.4 to 0.9 more; in CUDA graphs cuBLASLt's least products take 2.45 on an A100 and an
#: H100 (aic in archs.toml).
RAMP_US = 2.5
#: The part of RAMP_US that overlaps the end of the preceding launch where a launch need not wait for it: measured on an
#: H100, 14 to 75 us in all.
HIDDEN_US = 1.0
#: Trips to DRAM, one after the other, before the first blocks of a launch begin: their code, arguments and tensor maps
#: are in no cache. Fitted to times on an H100 (docs/potential.md).
START_TRIPS = 2.5


@dataclass
class Terms:
    """A family's description of Programs: clocks are those of an SM, arrays float32 (n,), an element per Program."""

    #: thread blocks of the grid, blocks that fit on one SM (see ``residency``), warps per block, main-loop steps per
    #: block
    blocks: np.ndarray
    residents: np.ndarray
    warps: np.ndarray
    iterations: np.ndarray
    #: clocks that a warp keeps its sub-core's math pipe busy per iteration, and the number of math instructions
    math: np.ndarray
    multiplies: np.ndarray
    #: further instructions of a warp per iteration
    issue: np.ndarray
    #: 128-byte accesses of shared memory per block and iteration, conflicts included
    wavefronts: np.ndarray
    #: clocks of an iteration that a warp cannot overlap with its own math
    chain: np.ndarray
    #: bytes requested from the L2 per block and iteration; bytes from DRAM in the whole main loop
    l2_bytes: np.ndarray
    dram_bytes: np.ndarray
    #: iterations that pass between the request for a tile and its use: of a ring, its stages but one
    in_flight: np.ndarray | float
    #: share of the work of the less busy resources that is not hidden by the busiest resource
    exposed: np.ndarray
    #: clocks before and after the loop that one block cannot hide from itself
    prologue: np.ndarray | float
    epilogue: np.ndarray
    #: clocks of the epilogue in which the block uses the SM's pipes; its DRAM bytes in all
    epilogue_busy: np.ndarray
    epilogue_bytes: np.ndarray
    #: microseconds of further launches (split-K reduction)
    after: np.ndarray
    #: per thread, and per block: already contained in ``residents``, kept for explanations
    registers: np.ndarray
    shared_bytes: np.ndarray
    #: 1 if blocks are persistent and prefetch the next tile: only the first tile waits for its prologue
    ahead: np.ndarray | float = 0.0
    #: main loops of a block that run during a tile's epilogue, which hide it except for the last tile
    behind: np.ndarray | float = 0.0
    #: bytes that reach an SM per byte it requests: above 1 if blocks request tiles for other blocks too (multicast)
    arriving: np.ndarray | float = 1.0
    #: clocks between a free place for a tile and its request, and between the tile's arrival and its use, plus the
    #: latency of memory
    request: np.ndarray | float = 0.0
    #: iterations whose tiles are requested together
    slot: np.ndarray | float = 1.0
    #: clocks in which a warp issues the instructions of an iteration, however many warps there are: the sum of the
    #: stall counts that the compiler encoded, or an estimate for the warp that requests tiles. 0 where not known.
    stalls: np.ndarray | float = 0.0
    #: time until the last block ends over that of as many rounds of blocks of as many steps, where these differ
    uneven: np.ndarray | float = 1.0
    #: share of its clock that the chip loses to its power limit while all math pipes are busy; see ``Arch.heat``
    heat: np.ndarray | float = 0.0
    #: share of the SMs on which clusters of blocks find room; see `clustered`
    placed: np.ndarray | float = 1.0

    def where(self, chosen: np.ndarray) -> Terms:
        """Return the terms of the Programs that a mask (n,) chooses."""
        return Terms(**{name: each[chosen] if np.ndim(each) else each for name, each in vars(self).items()})


def clustered(sms: int) -> int:
    """Return the SMs on which clusters of four blocks find room in the worst case: 136 of a B200's 148.

    How many SMs each GPC lacks is not published. SMs come and go in pairs; a GPC that lacks an odd number of pairs has
    one that no cluster of four can use.
    """
    gpcs = -(-sms // GPC_SMS)
    return max(sms - 2 * min(gpcs, (gpcs * GPC_SMS - sms) // 2), min(sms, 4))


def promised_registers(warps: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the registers that ptxas gives a thread at most where launch bounds promise ``warps`` on one SM.

    Warps go round the sub-cores, each of which has its own file, so that ten warps get what twelve would get.
    """
    rounds = np.ceil(warps * (1 / SUBCORES))
    return np.minimum(np.floor(arch.regs_per_sm / SUBCORES / 32 / 8 / rounds) * 8.0, arch.regs_per_thread)


def residency(warps: np.ndarray, registers: np.ndarray, shared_bytes: np.ndarray, arch: Arch) -> np.ndarray:
    """Return the number of blocks that fit on one SM at once; a Program with less than 1 cannot run.

    Arrays are float32 (n,): ``warps`` per block, ``registers`` per thread (allocated in eights), dynamic shared memory
    per block in bytes (allocated in units of 128, on top of the driver's share).
    """
    # A warp's registers come from one sub-core's file.
    file = arch.regs_per_sm / SUBCORES / 32 / 8
    # Corrected estimates can fall below any real count; ptxas allocates at least 16.
    by_registers = np.floor(file / np.maximum(np.ceil(registers * (1 / 8)), 2.0)) * SUBCORES
    by_warps = np.minimum(by_registers, arch.threads_per_sm / 32) / warps
    shared = np.ceil(shared_bytes * (1 / 128) + arch.smem_reserved / 128)
    by_shared = arch.smem_per_sm / 128 / np.maximum(shared, 1.0)
    return np.floor(np.minimum(np.minimum(by_warps, by_shared), arch.blocks_per_sm))


def _rounds(
    terms: Terms, arch: Arch, residents: np.ndarray, active: np.ndarray, running: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the clocks of the start, the loop and the end of a round of ``running`` blocks, at most ``residents`` on
    each of ``active`` SMs, and the part of them that the previous round, if any, hides.

    Shapes are (rounds, n).
    """
    dram_clk = arch.dram_gb_s * DRAM_EFFICIENCY / arch.clock_ghz
    work = terms.blocks * terms.iterations
    pipe = np.maximum(terms.math, terms.multiplies + terms.issue)
    quarter = terms.warps * (1 / SUBCORES)
    dram = terms.dram_bytes / work
    missing = np.minimum(dram / terms.l2_bytes, 1.0)
    latency = missing * (arch.dram_latency - arch.l2_latency) + arch.l2_latency
    # SMs start together and request tiles at about the same time: each gets its share of the chip's bandwidth.
    near = np.maximum(
        terms.l2_bytes * terms.arriving * (1 / SM_L2_BYTES), active * terms.l2_bytes * (1 / arch.l2_bytes_per_clk)
    )
    far = dram * (1 / dram_clk)
    transfer = np.maximum(near, active * far)
    # A tile is requested when the one whose place it takes has been used: a ring has a tile on its way in each other
    # place.
    fill = latency + terms.request + terms.slot * transfer
    own = np.maximum(np.ceil(quarter) * pipe + terms.chain, terms.stalls)
    alone = np.maximum(own, fill / terms.in_flight)

    compute = np.ceil(residents * quarter) * pipe
    shared = residents * (terms.wavefronts * (128 / arch.smem_bytes_per_clk))
    # Every block gets its share of DRAM, wherever it runs: SMs with fewer of them leave more to the others.
    memory = np.maximum(residents * near, running * far)
    busiest = np.maximum(np.maximum(compute, shared), memory)
    # Work that stays in sight is that of the average sub-core: the fullest has one warp more where few run.
    average = residents * quarter
    hidden = average * (pipe + terms.issue) + shared + memory
    hidden -= np.maximum(np.maximum(average * pipe, shared), memory)
    loop = (np.maximum(busiest, alone) + hidden * terms.exposed) * terms.iterations
    stores = running * (terms.epilogue_bytes * (1 / dram_clk) / terms.blocks)
    # Blocks of one SM start together and drift apart: they hide half of the part of each other's ends that could be
    # hidden.
    seen = 0.5 / residents + 0.5
    finish = np.maximum(residents * terms.epilogue_busy * seen + stores, terms.epilogue * seen)
    # The first tile is waited for; of the others, only the part of a transfer that outlasts an iteration, which `loop`
    # has.
    first = np.minimum(terms.slot * transfer, np.maximum(compute, shared) / residents)
    begin = latency + terms.request + first + terms.prologue
    start = begin * seen
    # DRAM hands blocks their tiles one after another. Where that takes as long as all other work, the blocks of an SM
    # no longer begin and end together: a block of a later round waits for its first tile while tiles of others arrive.
    # Where DRAM takes less time, blocks come apart by that share of a round.
    carried = running * far * terms.iterations + stores
    worked = np.maximum(np.maximum(compute, shared), residents * near) * terms.iterations
    worked = np.maximum(worked + residents * terms.epilogue_busy, 1.0)
    # No block is faster than its own steps in sequence.
    ending = np.maximum(terms.epilogue, terms.epilogue_busy + stores / residents)
    lone = begin + np.maximum(np.maximum(alone, transfer), compute / residents) * terms.iterations + ending
    least = np.maximum(np.maximum(carried, worked), lone) + hidden * terms.exposed * terms.iterations
    apart = np.clip(2.0 * carried / worked - 1.0, 0.0, 1.0)
    return start, loop * terms.uneven, finish, np.maximum(start + loop + finish - least, 0.0) * apart


def _total(terms: Terms, full: np.ndarray, rest: np.ndarray, clocks: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the clocks of ``full`` rounds and, for ``rest`` remaining blocks, of one more round."""
    start, loop, finish, overlap = clocks
    late = 1.0 - np.asarray(terms.ahead)
    overlaps = np.maximum(full - (rest == 0), 0.0) * overlap[0] * late
    if not np.any(terms.ahead):
        each = start + loop + finish
        return full * each[0] + (rest > 0) * each[1] - overlaps
    hidden = np.minimum(finish, terms.behind * loop)
    first = np.where(full > 0, 0, 1)
    begun = np.where(first == 0, start[0], start[1]) * (1.0 - late)
    last = np.where(rest > 0, hidden[1], hidden[0])
    each = start * late + loop + finish - hidden
    return full * each[0] + (rest > 0) * each[1] + begun + last - overlaps


def seconds(terms: Terms, arch: Arch) -> np.ndarray:
    """Return the predicted seconds per call, float64 (n,), for launches in a queue."""
    sms = np.asarray(terms.placed, F) * F(arch.sms)
    capacity = terms.residents * sms
    full = np.floor(terms.blocks / capacity)
    rest = terms.blocks - full * capacity
    residents, active = np.empty((2, len(rest)), dtype=F), np.empty((2, len(rest)), dtype=F)
    residents[0], active[0] = terms.residents, sms
    np.maximum(np.ceil(rest / sms), 1.0, out=residents[1])
    np.minimum(rest, sms, out=active[1])
    running = np.stack((capacity, np.maximum(rest, 1.0)))
    total = _total(terms, full, rest, _rounds(terms, arch, residents, active, running))
    # The clock falls as the share of busy math pipes rises: that changes no order among Programs of one instruction.
    busy = terms.blocks * terms.iterations * terms.warps * terms.math * (1 / (SUBCORES * arch.sms))
    total = total / (1.0 - np.minimum(busy / np.maximum(total, 1.0), 1.0) * terms.heat)
    device = (total + START_TRIPS * arch.dram_latency) * (1e-3 / arch.clock_ghz) + (terms.after + RAMP_US)
    # A second launch of the same call costs the driver's half only.
    host = (terms.after > 0) * F(arch.launch_us / 2) + arch.launch_us
    # Launches overlap the kernel before: the slower of both counts.  The small share of the faster keeps an
    # order among Programs that the host hides.
    slow, fast = np.maximum(device, host), np.minimum(device, host)
    return (slow + fast * 0.01).astype(np.float64) * 1e-6


def issued(terms: Terms) -> np.ndarray:
    """Return the clocks in which the warps of all blocks issue (n,): encoded stalls included, starts not."""
    step = np.maximum(terms.multiplies + terms.issue, terms.stalls)
    return terms.blocks * (terms.warps * terms.iterations * step + SUBCORES * terms.epilogue_busy)


def arithmetic_peak(workload: Workload, arch: Arch, sustained: bool = False) -> float:
    """Return the best FLOP/s at which a kernel may compute a Workload with the required accuracy.

    ``sustained`` uses published sustained rates where there are any; see ``Arch.peak``.
    """
    from gensor_kernels.operators import operator

    own = operator(workload.operator)
    product = own.product(workload)
    return arch.fastest(own.peak_dtype(workload), workload.math, product.k if product else 0, sustained)


def bound_us(workload: Workload, arch: Arch) -> float:
    """Return the least possible time of a kernel in microseconds: max(FLOPs / peak, bytes / bandwidth, launch)."""
    return max(bounds_us(workload, arch).values())


def bounds_us(workload: Workload, arch: Arch) -> dict[str, float]:
    """Return lower bounds of a kernel's time in microseconds, by the limit that sets them."""
    return {
        "arithmetic": workload.flops() / arithmetic_peak(workload, arch) * 1e6,
        "memory": workload.bytes_moved() / (arch.dram_gb_s * 1e9) * 1e6,
        "launch": arch.launch_us,
    }


def sustained_us(workload: Workload, arch: Arch) -> float:
    """Return the microseconds of a Workload's arithmetic at the best published rate of large products; 0 if none is
    known.

    The potential models clocks, not watts: for large products on an H100 it predicts more than the power limit allows.
    The choice of a kernel does not depend on that, as all kernels are slowed equally; predicted times in reports are
    never below this time.
    """
    return workload.flops() / arithmetic_peak(workload, arch, sustained=True) * 1e6 if arch.sustained else 0.0


# ---- further launches of a call


def ramp_us(arch: Arch) -> float:
    """Microseconds between a launch of a call and the next one, which is ``dependent`` (Launch) where a part can."""
    return RAMP_US - HIDDEN_US if DEPENDENT_LAUNCH in arch.features else RAMP_US


def fixed_us(arch: Arch) -> float:
    """Return the microseconds of a further launch without its work: ramp, start, and two trips to memory."""
    return ramp_us(arch) + arch.dram_latency * (START_TRIPS + 2) * 1e-3 / arch.clock_ghz


def first_launch_cost(read: float, written: float, issue: float, arch: Arch) -> tuple[float, float]:
    """Return (microseconds, bytes that the next launch finds in the L2) of a launch that prepares operands.

    It reads and writes these bytes, and its warps issue ``issue`` instructions.
    """
    # What exceeds half of the L2 goes to DRAM, as partial sums do (contraction/cost.py).
    spilled = min(max(written / (arch.l2_mb * 2**20) - 0.5, 0.0), 1.0)
    dram = arch.dram_gb_s * DRAM_EFFICIENCY * 1e3
    l2 = arch.l2_bytes_per_clk * arch.clock_ghz * 1e3
    moved = (read + spilled * written) / dram + (1 - spilled) * written / l2
    busy = issue / (SUBCORES * arch.sms * arch.clock_ghz * 1e3)
    return max(moved, busy) + fixed_us(arch), (1 - spilled) * written
