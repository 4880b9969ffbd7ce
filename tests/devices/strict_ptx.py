"""Launches by the executor of PTX: what NVRTC makes of a source runs on the device's memory."""

from __future__ import annotations

import struct
from functools import cache

from gensor_kernels.programs.core.family import Launch as Executed
from tests.doubles.strict.execution import FAULTS, Fault, words
from tests.doubles.strict.memory import Block
from tests.ptx.execute import Kernel, Memory, PtxFault

kernel = cache(Kernel.of)


def translated(
    source: str, target: str, asked: Executed, parameters: bytes, blocks: list[Block], resident: int
) -> None:
    """Run a launch of what NVRTC makes of a source for a target.

    The executor has other addresses: those in the parameters are replaced.
    """
    memory = Memory()
    placed = [(block, memory.place(block.first, block.size, True)) for block in blocks]
    passed = list(words(parameters))
    for index, word in enumerate(passed):
        passed[index] = next((seen + word - block.first for block, seen in placed if block.has(word)), word)
    given = struct.pack(f"<{len(passed)}Q", *passed) + parameters[8 * len(passed) :]
    try:
        kernel(source, target).run([asked], given, memory, late=True, order="forward")
    except PtxFault as error:
        raise Fault(FAULTS.get(str(error).partition(":")[0], 719), str(error)) from error
