"""Waits that ptxas leaves out: DMMAs that read sums which an earlier DMMA may still be writing.

A DMMA takes no fixed number of clocks, so it signals a scoreboard, and a reader waits for this scoreboard: by its mask,
or after a DEPBAR. For sm_90a, ptxas of NVRTC 12.9.86 leaves out waits over the backward branch of loops. Without
another DMMA between the two, results on an H100 are wrong, and differ from run to run; with four or more they are
correct.

Only DMMAs are looked at. Instructions that take a fixed number of clocks are guarded by stall counts, and for others
that signal scoreboards (loads, other matrix instructions) no wait was found missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .instruction import Instruction
from .loops import followers

#: Number of other DMMAs in between after which a sum is there: DMMAs run in order, and each occupies its pipe for 16
#: clocks or more.
ENOUGH = 4

_NAME = "DMMA"
_REGISTER = re.compile(r"R(\d+)")
_DEPBAR = re.compile(r"SB(\d), 0x([0-9a-f]+)")

Signals = tuple[int | None, ...]  # scoreboards of the DMMAs that were issued since a sum was, its own first


def find_unguarded(code: Sequence[Instruction]) -> list[int]:
    """Return the indices of DMMAs that read sums which a DMMA fewer than `ENOUGH` DMMAs before may still be writing.

    On some path from that DMMA to the reader, backward branches included, no instruction waits for the sum.
    """
    writers = [at for at, each in enumerate(code) if each.name == _NAME]
    return sorted({reader for writer in writers for reader in _early_readers(code, writer)})


def _early_readers(code: Sequence[Instruction], writer: int) -> set[int]:
    """Return the DMMAs that may read the sums of `writer` before they are written."""
    written, found = _sums(code[writer], 0), set()
    start: Signals = (code[writer].scoreboard,)
    todo = [(at, start) for at in followers(code, writer)]
    seen = set(todo)
    while todo:
        at, signals = todo.pop()
        each = code[at]
        if _waits(each, signals):
            continue
        if each.name == _NAME:
            if written & _sums(each, 3):
                found.add(at)
                continue
            if len(signals) == ENOUGH:
                continue
            signals = (*signals, each.scoreboard)
        new = {(to, signals) for to in followers(code, at)} - seen
        seen |= new
        todo += new
    return found


def _waits(each: Instruction, signals: Signals) -> bool:
    """Return whether the first DMMA of `signals` has ended when this instruction is issued, or after this DEPBAR.

    DMMAs end in order, so a wait for any of them will do. DEPBAR.LE leaves the last few of a scoreboard outstanding.
    """
    if any(signal is not None and each.waits >> signal & 1 for signal in signals):
        return True
    match = _DEPBAR.match(each.operands) if each.name == "DEPBAR" and not each.predicate else None
    return match is not None and signals.count(int(match[1])) > int(match[2], 16)


def _sums(each: Instruction, operand: int) -> set[int]:
    """Return the registers of a DMMA's new sums (operand 0) or of those that it adds to (operand 3); empty for RZ."""
    first = _REGISTER.search(each.operands.split(", ")[operand])
    count = 8 if "16x8" in each.opcode else 4  # 16 x 8 or 8 x 8 doubles in a warp's threads
    return set(range(int(first[1]), int(first[1]) + count)) if first else set()
