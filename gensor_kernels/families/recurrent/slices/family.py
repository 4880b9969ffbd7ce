"""recurrent_slices: the units of a recurrent layer divided among blocks, in one launch (recurrent_slices.cu)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.families.contraction import stream_k
from gensor_kernels.families.core.family import Columns, Coordinate, Launch, operators
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.recurrent import rules
from gensor_kernels.families.recurrent.family import RecurrentFamily
from gensor_kernels.families.recurrent.shape import SLICED_CELLS, layer_of, shape, workspace_bytes
from gensor_kernels.machine.arch import Arch

if TYPE_CHECKING:
    from gensor_kernels.families.core.params import Tiling
    from gensor_kernels.operators.types.geometry import Geometry
    from gensor_kernels.operators.types.workload import Workload

#: Units of a block at once.
GROUPS = (4, 8, 16, 32, 64)
#: Blocks of a team: on each multiprocessor of most parts, of one direction or of two, and fewer.
SLICES = (1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 54, 64, 72, 84, 108, 128)


class RecurrentSlices(RecurrentFamily):
    """Recurrences of a few entries by a team of blocks each."""

    name = "recurrent_slices"
    source = "recurrent_slices.cu"
    rules = rules.SLICED
    names = (*RecurrentFamily.names, "slices")
    needs = (operators(SLICED_CELLS, "is no recurrence"),)
    together = True

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return those of one block, and the blocks among which the units are divided."""
        own = Coordinate("slices", SLICES, 0, "split", "blocks among which units are divided", runtime=True)
        rest = (
            each._replace(values=GROUPS) if each.name == "groups" else each
            for each in super().coordinates(workload, arch)
        )
        return (*rest, own)

    def sizes(self, workload: Workload) -> dict[str, int]:
        """Return the number of entries."""
        return {"ENTRIES": layer_of(workload).batch}

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        e = layer_of(workload)
        used = workspace_bytes(shape(columns, e), columns, e)
        return {**super().computed(columns, workload, arch), "WORKSPACE": used}

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of recurrent_slices.cu."""
        return super().constants(program, workload) | {"QUANTISED": int(layer_of(workload).quantised)}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the one launch, whose blocks wait for one another."""
        (launch,) = super().launches(program, workload)
        return (replace(launch, together=self.workspace(program, workload)[0] > 0),)

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return the bytes of flags and states."""
        columns, e = {name: np.array([value]) for name, value in program.values}, layer_of(workload)
        return int(workspace_bytes(shape(columns, e), columns, e)[0]), False

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the mark of a flag that is set."""
        first, second = stream_k.MARK
        return replace(super().tiling(program, geometry), split=first, k_per_split=second)

    def tile(self, program: Program) -> dict[str, int]:
        """Return that of one block, and the blocks of a team."""
        return super().tile(program) | {"slices": program["slices"]}

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of some teams; at most 8."""
        e = layer_of(workload)
        batch = min(1 << max(e.batch - 1, 0).bit_length(), 16)
        most = max(arch.sms // (e.directions * -(-e.batch // batch)), 1)
        wanted = [
            {"lanes": lanes, "groups": groups, "batch": entries, "held": held, "slices": slices}
            for lanes, groups in ((32, 8), (8, 32), (32, 16), (32, 4))
            for slices in (max(each for each in SLICES if each <= most), 1)
            for entries in dict.fromkeys((batch, 1))
            for held in (1, 0)
        ]
        return complete(self, wanted, workload, arch, 200.0)[:8]
