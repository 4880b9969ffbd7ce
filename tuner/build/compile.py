"""Compilations as tasks: a source becomes a cubin, and is disassembled where it was compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gensor_kernels.build import resources
from gensor_kernels.build.elf import entry_usage
from gensor_kernels.build.nvrtc import Binary, compile_cubin, toolchain
from gensor_kernels.build.sass import Sass
from gensor_kernels.families.core.source import digest
from gensor_tuner.tasks.task import Task

LEFT_OUT = "ptxas leaves out a wait: a DMMA reads sums that the DMMA before it is still writing"


@dataclass(frozen=True)
class Compiled:
    """A binary with its machine code by function, which takes a process to read; None where nothing has read it."""

    binary: Binary
    sass: dict[str, Sass] | None


@dataclass(frozen=True)
class Compile(Task[Binary]):
    """One source to compile for one target such as "sm_87"."""

    kind: ClassVar[str] = "compile"
    answer: ClassVar[type] = Compiled

    source: str
    target: str

    @property
    def key(self) -> str:
        """A digest of everything that a binary follows from."""
        return digest(f"{toolchain()}\0{self.target}\0{self.source}")

    def run(self) -> Binary:
        """Compile."""
        return compile_cubin(self.source, self.target)

    def lost(self, reason: str) -> Binary:
        """Return a binary that could not be compiled."""
        return Binary(self.target, error=reason)

    def pack(self, result: Binary) -> Compiled:
        """Return a binary with its machine code."""
        return Compiled(result, resources.disassemble(result.cubin, result.target) if result.error is None else None)

    def unpack(self, answer: Compiled) -> Binary:
        """Return a binary whose report agrees with its cubin; what was read of its machine code is remembered."""
        binary = answer.binary
        if binary.target != self.target or (binary.error is None and binary.toolchain != toolchain()):
            raise ValueError(f"a binary of {binary.toolchain} for {binary.target}")
        if binary.error is None:
            found = entry_usage(binary.cubin)
            reported = {name: entry.registers for name, entry in binary.entries.items()}
            if {name: registers for name, (registers, _) in found.items() if name in reported} != reported:
                raise ValueError(f"a cubin with the registers {found}, not {reported}")
            if answer.sass is not None:
                resources.remember(binary.cubin, binary.target, answer.sass)
        return binary


def inspect_binaries(binaries: Sequence[Binary], jobs: int) -> list[tuple[Binary, dict[str, Sass]]]:
    """Return binaries with the machine code of their functions, read together on `jobs` processes.

    A binary in which ptxas has left out a wait (`build/hazards.py`) becomes one without code that has an error. Every
    binary goes through here before a database gets it; without nvdisasm its machine code is {}, and nothing is refused.
    """
    compiled = [binary for binary in binaries if binary.error is None]
    found = resources.disassemble_many([(binary.cubin, binary.target) for binary in compiled], jobs)
    rest, inspected = iter(found), []
    for binary in binaries:
        read = next(rest) if binary.error is None else None
        code = read or {}
        if any(each.unguarded for each in code.values()):
            binary, code = replace(binary, cubin=b"", entries={}, error=LEFT_OUT), {}
        inspected.append((binary, code))
    return inspected
