"""Launches, why the driver refuses one at once, and execution: an executor runs their source on the device's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from gensor_kernels.devices.emulator.build import build
from gensor_kernels.devices.emulator.run import Buffer, KernelFault
from gensor_kernels.devices.emulator.run import run as emulate
from gensor_kernels.families.core.family import Launch as Executed

from .elf import Entry, Image
from .memory import Block, Memory
from .part import MOST_BLOCKS, MOST_OTHER_BLOCKS, PORTABLE_CLUSTER, Part
from .results import NAMES, Status

#: Dynamic shared memory without cuFuncSetAttribute, less what is static.
PLAIN_SHARED_BYTES = 48 * 1024
MOST_THREADS = 1024
MOST_PER_AXIS = (1024, 1024, 64)

Three = tuple[int, int, int]


class Module:
    def __init__(self, handle: int, image: Image, executed: Callable[..., None] | None):
        self.handle, self.image, self.executed, self.loaded = handle, image, executed, True


class Function:
    def __init__(self, handle: int, module: Module, name: str):
        self.handle, self.module, self.name, self.entry = handle, module, name, module.image.entries[name]
        self.dynamic_bytes = PLAIN_SHARED_BYTES - self.entry.shared_bytes

    def allow(self, part: Part, nbytes: int) -> None:
        if nbytes < 0 or nbytes + self.entry.shared_bytes > part.arch.smem_per_block:
            raise Status(1, f"{self.name}: {nbytes} bytes of shared memory")
        self.dynamic_bytes = nbytes


@dataclass(frozen=True)
class Launch:
    """One launch with the bytes of its parameters, which the driver has copied.

    `uses` are the allocations that its parameters point into, as the host knew them: (address, serial number);
    `stream` is its stream's handle, `place` the host address that its parameters were copied from.
    """

    function: Function
    grid: Three
    block: Three
    shared_bytes: int
    parameters: bytes
    dependent: bool = False
    together: bool = False
    uses: tuple[tuple[int, int | None], ...] = ()
    stream: int = 0
    place: int = 0

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    @property
    def threads(self) -> int:
        return prod(self.block)


def check(part: Part, launch: Launch) -> None:
    for breaks, number, why in _rules(part, launch):
        if breaks():
            raise Status(number, f"{launch.function.name} by {launch.grid} blocks of {launch.block}: {why}")


def _rules(part: Part, launch: Launch) -> list[tuple[Callable[[], bool], int, str]]:
    entry, threads = launch.function.entry, launch.threads
    dynamic, allowed = launch.shared_bytes, launch.function.dynamic_bytes
    return [
        (lambda: _outside(launch.grid, (MOST_BLOCKS, *2 * (MOST_OTHER_BLOCKS,))), 1, "no such grid"),
        (lambda: _outside(launch.block, MOST_PER_AXIS) or threads > MOST_THREADS, 1, "no such block"),
        (lambda: threads > entry.most_threads, 1, f"its bound is {entry.most_threads} threads"),
        (lambda: entry.threads not in (0, threads), 1, f"it runs with {entry.threads} threads"),
        (lambda: dynamic > allowed, 1, f"{dynamic} bytes of shared memory, not {allowed}"),
        (lambda: _misfits(entry, launch.blocks), 912, f"clusters of {entry.cluster} blocks"),
        (lambda: part.registers(entry, threads) > part.arch.regs_per_sm, 701, f"{entry.registers} registers"),
        (lambda: not part.resident(entry, threads, dynamic), 701, "no multiprocessor has room for a block"),
        (lambda: launch.together and launch.blocks > _places(part, launch), 720, "not all are resident together"),
    ]


def _places(part: Part, launch: Launch) -> int:
    """Return the number of blocks that are resident together."""
    each = part.resident(launch.function.entry, launch.threads, launch.shared_bytes)
    return each * part.attributes["MultiProcessorCount"]


def _outside(sizes: Three, most: Three) -> bool:
    return any(not 0 < size <= limit for size, limit in zip(sizes, most, strict=True))


def _misfits(entry: Entry, blocks: int) -> bool:
    return entry.cluster > PORTABLE_CLUSTER or blocks % entry.cluster != 0


#: Faults of the executors by the driver's numbers; LAUNCH_FAILED for other rules.
FAULTS = {"out_of_bounds": 700, "misaligned": 716, "deadlock": 702, "timeout": 702}


class Fault(Exception):
    def __init__(self, number: int, why: str):
        super().__init__(f"CUDA_ERROR_{NAMES[number]}: {why}")
        self.number = number


def execute(part: Part, memory: Memory, launch: Launch) -> None:
    function = launch.function
    if not function.module.loaded:
        raise Fault(700, f"{function.name} runs in a module that was unloaded")
    damage = memory.damage(launch.uses)
    if damage:
        raise Fault(700, f"{function.name}: {damage}")
    if any(launch.parameters) and not launch.uses:
        raise Fault(700, f"{function.name}: no parameter is an address of the device's memory")
    if function.module.executed is None:
        return
    entry = function.entry
    asked = Executed(
        function.name,
        launch.blocks,
        launch.threads,
        launch.shared_bytes,
        cluster=entry.cluster,
        dependent=launch.dependent,
        together=launch.together,
    )
    resident = min(launch.blocks, _places(part, launch))
    function.module.executed(asked, launch.parameters, list(memory.by_device.values()), resident)


def emulated(source: str, target: str, asked: Executed, parameters: bytes, blocks: list[Block], resident: int) -> None:
    """Run a launch of a source on the emulator, for any target."""
    buffers = [Buffer(each.first, each.size, True, each.first) for each in blocks]
    try:
        emulate(build(source), [asked], parameters, buffers, races=False, resident=resident)
    except KernelFault as error:
        raise Fault(FAULTS.get(error.kind, 719), str(error)) from error


def words(parameters: bytes) -> list[int]:
    """Return the 64-bit words of parameters, some of which are addresses."""
    return np.frombuffer(parameters[: len(parameters) // 8 * 8], np.uint64).tolist()
