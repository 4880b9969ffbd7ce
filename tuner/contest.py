"""The candidates of a class timed on the device at hand: measured seconds in the place of predicted ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gensor_kernels.build.nvrtc import Binary
from gensor_kernels.operators.workload import Workload

from .binaries import Binaries
from .cover import assign
from .measure import Timed, Timer
from .pool import Candidate, Pool
from .verify import Verdict

TIMED = 8  # candidates per workload
TIE_BAND = 1.01  # timings within 1 % are equal


@dataclass
class Contest:
    """`recorded` gives the verdict by which a database rejects a kernel: such a one is not run. `trying` is told of
    each kernel before it runs, and by None when the device has come back from all.

    `timed` holds, by the numbers of workloads, what was measured of kernels and of the vendor's call.
    """

    workloads: Sequence[Workload]
    binaries: Binaries
    timer: Timer
    recorded: Callable[[Candidate, Binary, Workload], Verdict | None]
    trying: Callable[[Candidate | None, Binary | None, Workload], None]
    progress: Callable[[str, int], None]
    timed: dict[int, tuple[list[tuple[Candidate, Binary, Timed]], Timed | None]] = field(default_factory=dict)

    def measured(self, pool: Pool, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(measured seconds (workloads, candidates), inf where nothing was timed; the fastest of each workload).

        Timed are each workload's best compiled candidates by `predicted` seconds.
        """
        measured = np.full_like(predicted, np.inf)
        known = np.where(self.binaries.among(pool), predicted, np.inf)
        for row, workload in enumerate(self.workloads):
            columns = [int(c) for c in np.argsort(known[row], kind="stable") if np.isfinite(known[row][c])]
            columns = [c for c in columns if not self._rejected(pool.candidates[c], workload)][:TIMED]
            times = self._time(row, workload, [pool.candidates[c] for c in columns])
            measured[row, columns] = [each.median_us * 1e-6 for each in times]
            self.progress("measure", 1)
        return measured, assign(_banded(measured), range(len(pool.candidates)), pool.names)

    def _rejected(self, each: Candidate, workload: Workload) -> bool:
        """Whether the store says that this kernel must not run: it may have taken a process with it."""
        return self.recorded(each, self.binaries[each], workload) is not None

    def _time(self, row: int, workload: Workload, chosen: Sequence[Candidate]) -> Sequence[Timed]:
        def before(index: int) -> None:
            each = chosen[index] if index < len(chosen) else None
            self.trying(each, self.binaries[each] if each is not None else None, workload)

        kernels = [(each, self.binaries.code(each)) for each in chosen]
        timed, vendor = self.timer.time(workload, kernels, before=before)
        found = [(each, self.binaries[each]) for each in chosen]
        self.timed[row] = [(*pair, time) for pair, time in zip(found, timed, strict=True)], vendor
        return timed


def _banded(measured: np.ndarray) -> np.ndarray:
    """Measured seconds with those within the tie band of a row's best made equal: then the name decides."""
    best = measured.min(axis=1, keepdims=True)
    return np.where(measured <= best * TIE_BAND, best, measured)
