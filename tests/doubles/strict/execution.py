"""Execution of launches: an executor runs their source on the device's memory, such as the emulator."""

from __future__ import annotations

import numpy as np

from gensor_kernels.devices.emulator.build import build
from gensor_kernels.devices.emulator.run import Buffer, KernelFault
from gensor_kernels.devices.emulator.run import run as emulate
from gensor_kernels.families.core.family import Launch as Executed

from .launches import Launch
from .memory import Block, Memory
from .part import Part
from .results import NAMES

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
    each_has = part.resident(entry, launch.threads, launch.shared_bytes)
    asked = Executed(
        function.name,
        launch.blocks,
        launch.threads,
        launch.shared_bytes,
        cluster=entry.cluster,
        dependent=launch.dependent,
    )
    resident = min(launch.blocks, each_has * part.attributes["MultiProcessorCount"])
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
