"""The comparison's columns: figures of one kernel, read from its machine code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.sass import units
from benchmarks.sass.build import LANES, Build
from benchmarks.sass.paths import common_loop, epilogue, whole
from benchmarks.sass.units import GROUP, SCHEDULERS, TENSOR
from gensor_kernels.build.elf import entry_usage
from gensor_kernels.build.instruction import Instruction, products
from gensor_kernels.build.loops import steady_path
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import residency

ACCUMULATOR_BYTES = 4
DEPTHS = (1024, 4096)  # at which the epilogue's share of a tile is computed


class NoFiguresError(ValueError):
    """The machine code has no loop, or no path, that the figures are defined for."""


@dataclass(frozen=True)
class Figures:
    """A line of the comparison; docs/machine-code.md defines every column."""

    maker: str
    configuration: str
    unit: str  # that the clocks are of: the kind of the products, or "dram" where memory limits
    registers: int
    stack_bytes: int
    shared_bytes: int
    stages: int
    threads: int
    blocks_per_sm: int
    warps_per_scheduler: float
    bytes_in_flight: float
    products: int
    instructions: float
    instructions_per_product: float
    stalls: float
    unit_clocks: float
    stalls_per_unit: float
    chain: float
    shared_bytes_per_clock: float
    l2_bytes_per_clock: float
    limits: dict[str, float]
    ceiling: float
    rate: float
    epilogue_instructions: float | None = None
    epilogue_stalls: float | None = None
    epilogue_per_result: float | None = None  # of the whole tile; see acceptance.per_result
    epilogue_shares: dict[str, float] = field(default_factory=dict)
    instructions_per_element: float | None = None
    stalls_per_element: float | None = None
    grouped: bool = False  # products of warpgroups, which run while their warps wait
    sums: int = 1  # tiles whose sums have room: with two, one is stored while the next is multiplied
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the line for JSON."""
        return asdict(self)


def figures(build: Build, code: tuple[Instruction, ...] | None, arch: Arch, depth: int, stream: str) -> Figures:
    """Return the figures of a kernel for a workload whose results sum `depth` products each (0 without products).

    `stream`: "b" or "all" where the part's DRAM limits the workload, so that clocks are DRAM's: only tiles of the
    second operand come from there, while few rows stay in L2, or all copies. Raises NoFiguresError if the code has no
    loop of products, or no path that stores its results.
    """
    if code is None:
        raise NoFiguresError(f"nvdisasm does not read {build.entry}")
    if build.row:
        return _row_figures(build, arch, code)
    loop = _loop(build, arch, code)
    usage = _usage(build, arch)
    m, n, _ = build.tile
    streamed = loop.copied * (n / (m + n) if stream == "b" and m + n else 1.0) / loop.warps  # bytes of one warp
    unit = streamed * loop.sharing / _dram_bytes(arch) if stream else loop.tensor
    if not unit:
        raise NoFiguresError(f"{build.entry} reads nothing in its hot loop")
    needs = _needs(build, arch, loop, usage)
    limits = _limits(unit, needs)
    after = _epilogue(build, code)
    shares = _shares(build, loop, after, depth)
    elements = streamed / LANES / build.element_bytes if stream else 0.0  # of one thread
    done = elements * LANES if stream else loop.work
    return Figures(
        maker=build.maker,
        configuration=build.configuration,
        unit="dram" if stream else loop.kind,
        **usage,
        bytes_in_flight=build.step_bytes * max(build.stages - 1, 0) * usage["blocks_per_sm"],
        products=loop.products,
        instructions=len(loop.path),
        instructions_per_product=round(len(loop.path) / loop.products, 2),
        stalls=loop.stalls,
        unit_clocks=round(unit, 1),
        stalls_per_unit=round(loop.stalls / unit, 3),
        chain=round(usage["warps_per_scheduler"] * unit / loop.stalls, 3),
        shared_bytes_per_clock=round(needs["shared"] * arch.smem_bytes_per_clk / unit, 1),
        l2_bytes_per_clock=round(needs["l2"] * arch.l2_bytes_per_clk / arch.sms / unit, 1),
        limits=limits,
        ceiling=min(limits.values()),
        rate=round(min(limits.values()) * (1 - shares.get(str(depth), 0.0)) * done * loop.sharing / unit, 2),
        epilogue_instructions=None if after is None else round(after[1]),
        epilogue_stalls=None if after is None else round(after[0]),
        epilogue_per_result=None if after is None else round(after[0] / _results(build), 2),
        epilogue_shares=shares,
        instructions_per_element=round(len(loop.path) / elements, 2) if elements else None,
        stalls_per_element=round(loop.stalls / elements, 2) if elements else None,
        grouped=loop.grouped,
        sums=build.sums,
        seconds=round(build.seconds, 2),
    )


@dataclass(frozen=True)
class _Loop:
    """The steady path through an iteration of the hot loop, of one warp, and the bytes that a block copies meanwhile.

    `tensor`: clocks of the products. `work`: multiply-adds. `steps`: of the depth of a tile's step. `sharing`: warps
    whose products are computed at once.
    """

    path: tuple[Instruction, ...]
    products: int
    kind: str
    grouped: bool
    stalls: int
    tensor: float
    work: float
    steps: float
    copied: float
    warps: float
    sharing: int


def _loop(build: Build, arch: Arch, code: tuple[Instruction, ...]) -> _Loop:
    span = common_loop(code)
    if span is None:
        raise NoFiguresError(f"{build.entry} has no loop of products")
    path = steady_path(code, span)
    computed = [each for each, computes in zip(path, products(path), strict=True) if computes]
    if not computed:
        raise NoFiguresError(f"{build.entry} has no products on its steady path")
    grouped = any(each.name in GROUP for each in computed)
    kind, work = units.kind_of(computed[0]), sum(build.product or units.work(each) for each in computed)
    if build.product:
        kind = "tf32" if build.element_bytes == ACCUMULATOR_BYTES and build.multiplicity == 1 else kind
        tensor = work / arch.rate(f"peak_{kind}")
    else:
        tensor = sum(units.clocks(each, arch) for each in computed)
    work /= build.multiplicity
    warps = build.consumers / LANES
    m, n, k = build.tile
    steps = work * warps / (m * n * k) if m * n * k else 0.0
    # Products of warpgroups have their tiles copied by another warp.
    copied = 0.0 if grouped or build.product else units.global_read(path) * build.threads / LANES
    return _Loop(
        path,
        len(computed),
        kind,
        grouped,
        sum(each.clocks for each in path),
        tensor,
        work,
        steps,
        copied or steps * build.step_bytes,
        warps,
        _sharing(build),
    )


def _needs(build: Build, arch: Arch, loop: _Loop, usage: Mapping[str, Any]) -> dict[str, float]:
    """Return the clocks that each resource takes for one iteration of each warp of a scheduler, per such warp."""
    warps = usage["warps_per_scheduler"]
    read = loop.copied if any(each.name in TENSOR for each in loop.path) else units.shared_read(loop.path)
    shared = (read + loop.copied / loop.warps) * loop.sharing
    l2 = loop.copied * build.l2_share * usage["blocks_per_sm"] / warps
    return {
        "chain": loop.stalls / warps,
        "issue": float(len(loop.path)),
        "products": loop.tensor,
        "exponentials": sum(each.name == "MUFU" for each in loop.path) * LANES / units.MUFU_LANES,
        "shared": shared / arch.smem_bytes_per_clk,
        "l2": l2 / (arch.l2_bytes_per_clk / arch.sms),
    }


def _limits(unit: float, needs: Mapping[str, float]) -> dict[str, float]:
    return {name: round(min(1.0, unit / clocks), 3) if clocks else 1.0 for name, clocks in needs.items()}


def _results(build: Build) -> float:
    """Return the results of one thread."""
    return build.tile[0] * build.tile[1] / (build.storing or build.consumers)


def _epilogue(build: Build, code: tuple[Instruction, ...]) -> tuple[float, float] | None:
    """Return stalls and instructions of one warp's epilogue."""
    results = _results(build) * LANES
    if not results:
        return None
    return epilogue(code, results * build.result_bytes, results * max(build.result_bytes, ACCUMULATOR_BYTES))


def _shares(build: Build, loop: _Loop, after: tuple[float, float] | None, depth: int) -> dict[str, float]:
    """Return the epilogue's share of a tile's time by depth, for a block alone on its multiprocessor.

    While the next tile is multiplied, only what takes longer counts.
    """
    if after is None or not loop.steps:
        return {}
    warps = loop.warps / loop.sharing
    tail = max(after[0], warps * after[1])
    turn = max(loop.stalls, warps * max(loop.tensor, len(loop.path)))
    each = turn / (loop.steps * build.tile[2])  # clocks per product that a result sums
    hidden = each if build.sums > 1 else 0.0
    tails = {deep: max(tail - hidden * deep, 0.0) for deep in sorted({*DEPTHS, depth}) if deep}
    return {str(deep): round(left / (left + each * deep), 3) for deep, left in tails.items()}


def _row_figures(build: Build, arch: Arch, code: tuple[Instruction, ...]) -> Figures:
    """Return the figures of a kernel that reduces rows: of all that one warp executes for its part of a row."""
    each_thread = build.row / build.row_threads
    loaded = each_thread * LANES * build.element_bytes
    found = whole(code, loaded, each_thread * LANES * build.result_bytes)
    if found is None:
        raise NoFiguresError(f"{build.entry} has no path that stores a row")
    stalls, count = found
    usage = _usage(build, arch)
    unit = each_thread * LANES * (build.element_bytes + build.result_bytes) / (_dram_bytes(arch) / SCHEDULERS)
    exponentials = sum(each.name == "MUFU" and "EX2" in each.opcode for each in code) and each_thread
    needs = {
        "chain": stalls / usage["warps_per_scheduler"],
        "issue": count,
        "exponentials": exponentials * LANES / units.MUFU_LANES,
    }
    limits = _limits(unit, needs)
    return Figures(
        maker=build.maker,
        configuration=build.configuration,
        unit="dram",
        **usage,
        bytes_in_flight=0.0,
        products=0,
        instructions=round(count),
        instructions_per_product=0.0,
        stalls=round(stalls),
        unit_clocks=round(unit, 1),
        stalls_per_unit=round(stalls / unit, 3),
        chain=round(usage["warps_per_scheduler"] * unit / stalls, 3),
        shared_bytes_per_clock=0.0,
        l2_bytes_per_clock=0.0,
        limits=limits,
        ceiling=min(limits.values()),
        rate=round(min(limits.values()) * each_thread * LANES * SCHEDULERS / unit, 2),
        instructions_per_element=round(count / each_thread, 2),
        stalls_per_element=round(stalls / each_thread, 2),
        seconds=round(build.seconds, 2),
    )


def _usage(build: Build, arch: Arch) -> dict[str, Any]:
    """Return what a kernel takes of a multiprocessor, and how many of its computing warps share a scheduler."""
    registers, stack = entry_usage(build.cubin)[build.entry]
    fit = residency(build.threads / LANES, registers, build.shared_bytes, arch)
    resident = max(int(fit), 1)
    warps = build.consumers / LANES * resident / _sharing(build)
    return {
        "registers": registers,
        "stack_bytes": stack,
        "shared_bytes": build.shared_bytes,
        "stages": build.stages,
        "threads": build.threads,
        "blocks_per_sm": resident,
        "warps_per_scheduler": warps,
    }


def _sharing(build: Build) -> int:
    """Return the warps whose products are computed at once, each on a scheduler's unit."""
    return 1 if build.product else SCHEDULERS


def _dram_bytes(arch: Arch) -> float:
    """Return the DRAM bytes per clock that one multiprocessor's share is."""
    return arch.dram_gb_s / arch.clock_ghz / arch.sms
