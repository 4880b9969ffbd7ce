"""The part that the driver reports: its attributes, as published listings have them, and its limits."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gensor_kernels.machine.arch import GIB, Arch, lookup

from .elf import Entry

LISTINGS = Path(__file__).resolve().parents[2] / "machine"
#: Registers are given to warps in units of so many, and shared memory to blocks (cuda_occupancy.h).
REGISTER_UNIT, SHARED_UNIT = 256, {7: 256}
WARP, MOST_BLOCKS, MOST_OTHER_BLOCKS = 32, 2**31 - 1, 65535
#: CUDA C++ Programming Guide, "Portable cluster size".
PORTABLE_CLUSTER = 8
#: Without binary compatibility, in either direction: "it is not supported for Tegra" (CUDA C++ Programming Guide,
#: "Binary Compatibility").
TEGRA = ((7, 2), (8, 7), (10, 1), (11, 0))


@dataclass(frozen=True)
class Part:
    name: str
    capability: tuple[int, int]
    attributes: dict[str, int]
    memory_bytes: int
    arch: Arch

    def runs(self, capability: tuple[int, int], specific: bool) -> bool:
        same = capability == self.capability
        if specific or same or self.capability in TEGRA or capability in TEGRA:
            return same
        return capability[0] == self.capability[0] and capability[1] <= self.capability[1]

    def registers(self, entry: Entry, threads: int) -> int:
        whole = -(-entry.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        return whole * -(-threads // WARP)

    def resident(self, entry: Entry, threads: int, dynamic_bytes: int) -> int:
        arch, unit = self.arch, SHARED_UNIT.get(self.capability[0], 128)
        shared = -(-(entry.shared_bytes + dynamic_bytes + arch.smem_reserved) // unit) * unit
        return min(
            arch.blocks_per_sm,
            arch.threads_per_sm // (-(-threads // WARP) * WARP),
            arch.regs_per_sm // self.registers(entry, threads),
            arch.smem_per_sm // shared if shared else arch.blocks_per_sm,
        )


def part(name: str) -> Part:
    rows = {row[0]: ("Orin", "8.7", row[1:7]) for row in listed("orin_modes.csv")}
    rows |= {row[0]: (row[2], row[1], [*row[3:8], "0"]) for row in reversed(listed("devices.csv"))}
    if name not in rows:
        raise LookupError(f"no listing of {name}")
    reported, capability, numbers = rows[name]
    sms, mhz, memory_mhz, bits, l2, memory_mb = map(int, numbers)
    major, minor = map(int, capability.split("."))
    arch: Any = lookup(name)
    attributes = {
        "MultiProcessorCount": sms,
        "ClockRate": mhz * 1000,
        "MemoryClockRate": memory_mhz * 1000,
        "GlobalMemoryBusWidth": bits,
        "L2CacheSize": l2,
        "Integrated": int(reported == "Orin"),
        "WarpSize": WARP,
        "MaxSharedMemoryPerBlockOptin": arch.smem_per_block,
    }
    return Part(reported, (major, minor), attributes, memory_mb << 20 or int(arch.memory_gb * GIB), arch)


def listed(file: str) -> list[list[str]]:
    with (LISTINGS / file).open(newline="") as text:
        return list(csv.reader(text))[1:]
