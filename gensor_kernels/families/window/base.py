"""The base of families that slide windows: answers about one Program, and starters, that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from gensor_kernels.families.core.columns import Column
from gensor_kernels.families.core.family import Columns
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.rules import Ruled, bound
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload

PIXELS = (*range(1, 17), 18, 20, 21, 22, 24, 28, 30, 32, 36, 40, 42, 48, 56, 64, 84, 96, 128)
THREAD_TILES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16)
EPILOGUE_NAMES = ("epilogue_fixed", "vector_c", "min_blocks")

#: Values of many Programs, by the names of coordinates.
Named = dict[str | Column, np.ndarray]


class Windows(Ruled):
    """Families that slide windows over real numbers."""

    ends = EPILOGUE_NAMES
    unbound = MappingProxyType({"epilogue_fixed": 0, "min_blocks": 0})
    #: estimated registers a starter may take: far from where compilers spill
    starter_registers: ClassVar[int]
    #: values of which starters are chosen; of other coordinates all, of vector_c the largest
    wanted: ClassVar[Mapping[str, tuple[int, ...]]]

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Refuse complex numbers."""
        if not workload.is_complex:
            return None
        return f"windows of {workload.accumulator} are not folded: give the real and the imaginary part apart"

    def fits(self, tried: Named, workload: Workload, arch: Arch) -> np.ndarray:
        """Return which tiles are legal where there is shared memory for them."""
        none = 0 * tried["block_c"]
        launch = dict.fromkeys(self.rules.computed, none)
        columns = {**tried, "min_blocks": none}
        return bound(self, workload, arch).legal(columns, lambda _: launch, self.sizes(workload), steady=False)

    def kind(self, c: Columns) -> Sequence[np.ndarray]:
        """Return what starters differ in."""
        raise NotImplementedError

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return the fastest of each kind of some thousand Programs."""
        lattice = {coordinate.name: coordinate.values for coordinate in self.coordinates(workload, arch)}
        wanted = {**self.wanted, "vector_c": (max(lattice["vector_c"]),)}
        values = [[v for v in lattice[name] if v in wanted.get(name, lattice[name])] for name in lattice]
        points = np.meshgrid(*(np.array(each, np.int64) for each in values), indexing="ij")
        c: Named = {name: column.ravel() for name, column in zip(lattice, points, strict=True)}
        c = _where(c, (c["block_h"] % c["thread_h"] == 0) & (c["block_w"] % c["thread_w"] == 0))  # the others: illegal
        c = _where(c, self.legal(c, workload, arch))
        c = _where(c, self.registers(c, workload, arch) <= self.starter_registers)
        order = np.argsort(roofline.seconds(self.terms(c, workload, arch), arch), kind="stable")
        _, first = np.unique(np.stack([*self.kind(c)], axis=1)[order], axis=0, return_index=True)
        fastest = order[np.sort(first)[:8]].tolist()
        return [Program(self.name, tuple((name, int(c[name][i])) for name in self.names)) for i in fastest]


def _where(columns: Named, chosen: np.ndarray) -> Named:
    places = np.flatnonzero(chosen)
    return {name: column[places] for name, column in columns.items()}
