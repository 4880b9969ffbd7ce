"""One instruction of machine code, and the kinds of instructions that computations are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gensor_database.lazy import cached_property

INSTRUCTION_BYTES = 16  # on every architecture from sm_70 on

#: Products of matrices on the tensor cores: of a warp, of a warpgroup, and in tensor memory.
MATRIX = frozenset({"HMMA", "IMMA", "DMMA", "QMMA", "OMMA", "HGMMA", "IGMMA", "QGMMA"}) | {
    *("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA")
}
#: Multiply-adds of the CUDA cores. IMAD also computes addresses and moves registers.
_FLOAT = frozenset({"FFMA", "FFMA2", "DFMA", "HFMA2", "IDP"})
SCALAR = _FLOAT | {"IMAD"}
_MOVES = frozenset({"MOV", "IADD", "SHL", "X"})  # forms of IMAD that multiply nothing

_WIDTHS = {"8": 1, "U8": 1, "S8": 1, "16": 2, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_MATRICES = {"LDSM": 4, "STSM": 4}  # bytes per thread of an 8 x 8 matrix of 16-bit elements
_ENDS = frozenset({"EXIT", "RET"})
_JUMPS = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX"})
_TRANSFERS = _ENDS | _JUMPS


class _Fields(NamedTuple):
    predicate: str
    opcode: str
    operands: str = ""
    stall: int = 1
    target: int | None = None
    scoreboard: int | None = None
    waits: int = 0
    targets: tuple[int, ...] = ()


class Instruction(_Fields):
    """One instruction.

    Attributes
    ----------
    predicate : str
        The register that lets it execute, such as "!P0"; "" where it always executes.
    opcode : str
        With modifiers, such as "LDG.E.128".
    operands : str
        As nvdisasm prints them; the target of a direct branch counts from the function's first byte.
    stall : int
        The encoded stall count: clocks until the warp may issue its next instruction.
    target : int or None
        Index within the function of the instruction that a direct branch or call goes to. The compiler also leaves
        loops by calls.
    scoreboard : int or None
        The counter, 0 to 5, by which later instructions wait for its result, if it signals one.
    waits : int
        Mask of the scoreboards that it waits for before it is issued: bit n stands for scoreboard n.
    targets : tuple of int
        Indices of the instructions that an indirect branch goes to, where the cubin's table is known.
    """

    @cached_property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @cached_property
    def clocks(self) -> int:
        """Clocks that it takes one warp at the least: a warp issues at most one instruction per clock."""
        return max(self.stall, 1)

    @property
    def width(self) -> int:
        """Bytes per thread of a load, store or copy: LDG.E.128 is 16, STS.U16 is 2, 4 where no modifier says more."""
        name, *modifiers = self.opcode.split(".")
        if name in _MATRICES:
            return _MATRICES[name] * next((int(each) for each in modifiers if each in ("2", "4")), 1)
        for each in modifiers:
            if each in _WIDTHS:
                return _WIDTHS[each]
        return 4

    @property
    def ends(self) -> bool:
        """Whether every thread that executes it leaves the kernel or the function."""
        return self.name in _ENDS and not self.predicate and "P" not in self.operands

    @property
    def falls_through(self) -> bool:
        """Whether control goes to the next instruction and never anywhere else."""
        return self.target is None and not self.targets and self.name not in _TRANSFERS

    @property
    def jumps(self) -> bool:
        """Whether control never reaches the next instruction, because every thread jumps.

        BRA.DIV and BRA.CONV jump only where the threads of a warp have (not) diverged, "BRA P1, 0x10" where P1 is set.
        """
        if self.name not in _JUMPS or self.predicate:
            return False
        return self.name != "BRA" or self.operands.startswith("0x")


def products(code: Sequence[Instruction]) -> list[bool]:
    """Return for each instruction whether it is one of the products that this code is made of.

    These are matrix instructions; without any, multiply-adds of the CUDA cores; without any, of integers by IMAD.
    """
    names = {each.name for each in code}
    kinds = next((kinds for kinds in (MATRIX, _FLOAT) if names & kinds), SCALAR)
    return [each.name in kinds and _MOVES.isdisjoint(each.opcode.split(".")) for each in code]
