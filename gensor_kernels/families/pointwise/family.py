"""pointwise: element-wise programs of several arrays in one launch (pointwise.cu)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.family import LEVEL, POINTWISE, Columns, Coordinate, Facts, Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.core.rules import Ruled
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms

from . import rules
from .cases import pointwise_branches, pointwise_cases
from .cost import held_bytes, registers, shape, terms
from .shape import view

if TYPE_CHECKING:
    from gensor_kernels.operators.types.geometry import Geometry
    from gensor_kernels.operators.types.workload import Workload

POWERS = tuple(2**power for power in range(5))
#: Threads and accesses of a thread whose default completions are the starters.
STARTERS = tuple(
    {"threads": threads, "items": items}
    for threads, items in ((256, 1), (256, 2), (128, 4), (128, 1), (256, 4), (64, 1), (512, 1), (1024, 1))
)


class PointwiseFamily(Ruled):
    """Element-wise programs: a thread computes some vectors of the output."""

    name = "pointwise"
    abi = 1
    source = "pointwise.cu"
    rules = rules.RULES
    names = ("level", "threads", "vector", "items", "min_blocks")
    ends = ("min_blocks",)
    unbound = MappingProxyType({"min_blocks": 0})
    needs = (POINTWISE,)
    cases = staticmethod(pointwise_cases)
    branches = staticmethod(pointwise_branches)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Refuse sizes along axes that the class does not have, and programs that are none."""
        try:
            view(workload)
        except (ValueError, UnsupportedError) as error:
            return str(error)
        return None

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the threads of a block, elements of an access and accesses of a thread."""
        widths = tuple(width for width in POWERS if width <= view(workload).granule)
        return (
            LEVEL,
            Coordinate("threads", (32, 64, 128, 256, 512, 1024), 0, "tile", "threads of a block"),
            Coordinate("vector", widths, 1, "copy_width", "neighbouring elements of an access"),
            Coordinate("items", (1, 2, 4, 8), 1, "tile", "accesses of a thread that are under way at once"),
            Coordinate("min_blocks", (0, 1, 2, 3, 4, 6, 8), 2, "launch_bounds", "blocks per SM promised"),
        )

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        e = view(workload)
        s = shape(columns, e)
        return {
            "SHARED_BYTES": 0.0 * s.threads,
            "HELD_BYTES": held_bytes(e, s),
            "CODE": s.vector * s.items * max(e.work, 1.0),
            "WARPS": s.threads / 32,
            "BLOCKS": s.blocks,
        }

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the widest accesses, one at a time."""
        like = np.ones_like(columns["threads"])
        return {"vector": view(workload).granule * like, "items": like, "min_blocks": 0 * like}

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """See cost.py."""
        return terms(columns, view(workload), arch, facts)

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """See cost.py."""
        e = view(workload)
        return registers(e, shape(columns, e))

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of pointwise.cu."""
        e = view(workload)
        own = {name.upper(): program[name] for name in ("threads", "vector", "items", "min_blocks")}
        return {"PROGRAM": e.program.text, "FORMS": e.forms, "RANK": e.rank, **own}

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the one launch."""
        s = shape({name: np.array([value]) for name, value in program.values}, view(workload))
        return (Launch(self.name, int(s.blocks[0]), program["threads"], 0),)

    def tile(self, program: Program) -> dict[str, int]:
        """Return the elements of an access, and accesses of a block."""
        return {"vector": program["vector"], "accesses": program["threads"] * program["items"]}

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the vectors along l as tiles of a row."""
        columns = -(-geometry.sizes[1] // program["vector"])
        return Tiling(tiles_m=1, tiles_n=columns, split=1, k_per_split=1, raster=1)

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with accesses as wide as the alignment class allows."""
        return program.replace(vector=view(workload).granule)

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return legal default completions of some blocks."""
        return complete(self, STARTERS, workload, arch, registers=255)
