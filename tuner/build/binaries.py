"""The binaries of one class: compiled once, as tasks, disassembled, and fed back into the potential."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gensor_kernels.build import resources
from gensor_kernels.build.elf import entry_usage
from gensor_kernels.build.nvrtc import Binary, compile_cubin, toolchain
from gensor_kernels.build.sass import Sass, Steady
from gensor_kernels.devices.device import Code
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.source import digest
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch
from gensor_tuner.strategies.request import Facts, learn
from gensor_tuner.tasks.task import Executor, Task

from .pool import Candidate, Pool

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


class Binaries:
    """Compiled candidates, and the compiler's report on each Program; run-time parameters share a binary."""

    def __init__(self, arch: Arch, executor: Executor, progress: Callable[[str, int], None]):
        """Start with no binaries; `progress("compile", 1)` is called for each new binary."""
        self.arch, self.executor, self.progress = arch, executor, progress
        self.facts: dict[Program, Facts] = {}
        self._made: dict[tuple[str, str], Binary] = {}
        self._machine_code: dict[tuple[str, str], dict[str, Sass]] = {}

    def __contains__(self, each: Candidate) -> bool:
        return _key(each) in self._made

    def __getitem__(self, each: Candidate) -> Binary:
        return self._made[_key(each)]

    def among(self, pool: Pool) -> np.ndarray:
        """Return a mask of the pool's compiled candidates (candidates,)."""
        return np.array([each in self for each in pool.candidates], bool)

    def spilling(self, pool: Pool) -> np.ndarray:
        """Return a mask of the pool's candidates that are known to spill registers (candidates,)."""
        return np.array([each in self and self[each].spill_bytes > 0 for each in pool.candidates], bool)

    def compile(self, pool: Pool, columns: Sequence[int], spaces: Sequence[Space]) -> int:
        """Compile the candidates in `columns`; return the number of new binaries and newly dead candidates."""
        chosen = [pool.candidates[column] for column in columns]
        wanted = {_key(each): each for each in chosen if each not in self}
        tasks = [Compile(each.source(), self.arch.target) for each in wanted.values()]
        made = self.executor.map(tasks, lambda *_: self.progress("compile", 1))
        for key, (binary, sass) in zip(wanted, inspect_binaries(made, self.executor.jobs), strict=True):
            self._made[key], self._machine_code[key] = binary, sass
        for each in chosen:
            self._learn(each, spaces)
        return len(wanted) + self._bury(pool)

    def hold(self, pool: Pool, each: Candidate, binary: Binary, spaces: Sequence[Space]) -> bool:
        """Take a candidate's binary from a database; return False where its machine code is refused."""
        ((self._made[_key(each)], self._machine_code[_key(each)]),) = inspect_binaries([binary], 1)
        self._learn(each, spaces)
        self._bury(pool)
        return self[each].error is None

    def _bury(self, pool: Pool) -> int:
        """Mark candidates dead whose binary, possibly shared, failed to compile or is refused; return how many."""
        dying = [each for each in pool.candidates if each in self and each.name not in pool.dead]
        errors = {each.name: error for each in dying if (error := self[each].error) is not None}
        pool.dead |= {name: f"not compiled: {error.splitlines()[0]}" for name, error in errors.items()}
        return len(errors)

    def _learn(self, each: Candidate, spaces: Sequence[Space]) -> None:
        binary = self[each]
        if binary.error is None and each.program not in self.facts:
            entry, sass = binary.entries[each.entry], self._machine_code[_key(each)].get(each.entry)
            loop, steady = (sass.hot_loop, sass.steady) if sass else ({}, Steady())
            facts = Facts(
                *(each.program, entry.registers, entry.spill_bytes, tuple(loop.items())),
                *(steady.stalls, tuple(steady.products.items())),
            )
            self.facts[each.program] = facts
            for space in spaces:
                learn(space, facts)

    def code(self, each: Candidate) -> Code:
        """Return the code object that a device loads."""
        return each.code(self[each].target, self[each].cubin)


def _key(each: Candidate) -> tuple[str, str]:
    return each.program.family, each.constants
