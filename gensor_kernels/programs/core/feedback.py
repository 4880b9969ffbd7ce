"""Compiler facts folded back into the potential: exact for a known binary, a fitted correction for others."""

from __future__ import annotations

import numpy as np

from .family import Facts


class Feedback:
    """Facts by binary code (see FamilySpace), and the register correction fitted over them."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[float, float, float, float]] = {}
        self._tables: tuple[np.ndarray, np.ndarray] | None = None
        #: the error of the register estimate, median over the facts
        self.register_offset = 0.0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, code: int, estimate: float, registers: int, spill_bytes: int, issue: float) -> None:
        """One binary: its code, the estimated and true registers, spilled bytes, instructions per iteration."""
        self._rows[code] = (float(registers), float(spill_bytes), float(issue), float(estimate))
        self._tables = None
        # A spilling binary's register count is the limit, not its demand: it says nothing about the estimate.
        errors = [true - guess for true, spilled, _, guess in self._rows.values() if not spilled]
        self.register_offset = float(np.median(errors)) if errors else 0.0

    def facts(self, codes: np.ndarray) -> Facts:
        """Facts for binary codes (n,): NaN where a binary was never compiled."""
        known, rows = self._sorted()
        at = np.minimum(np.searchsorted(known, codes), len(known) - 1)
        found = known[at] == codes
        picked = np.where(found, rows[:, at], np.float32(np.nan))
        return Facts(picked[0], picked[1], picked[2], np.float32(self.register_offset))

    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        if self._tables is None:
            codes = np.array(sorted(self._rows), dtype=np.int64)
            rows = np.array([self._rows[int(code)][:3] for code in codes], dtype=np.float32).T
            self._tables = codes, np.ascontiguousarray(rows)
        return self._tables
