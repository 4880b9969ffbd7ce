"""recurrent: all steps of a recurrent layer in one launch (recurrent.cu).

Shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from gensor_kernels.families.core.family import (
    EPILOGUE_FIXED,
    LEVEL,
    MIN_BLOCKS,
    Columns,
    Coordinate,
    Facts,
    Launch,
    operators,
)
from gensor_kernels.families.core.macros import epilogue_codes, macro_token
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.families.core.rules import Ruled
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators import operator

from . import cost, rules
from .cases import recurrent_branches, recurrent_cases, verified_bytes
from .shape import CELLS, SLICED_CELLS, layer_of, shape

if TYPE_CHECKING:
    from gensor_kernels.operators.types.workload import Workload

LANES = (1, 2, 4, 8, 16, 32)
GROUPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BATCHES = (1, 2, 4, 8, 16)
#: Lanes, groups, entries and whether R stays in shared memory, whose default completions are the starters.
STARTERS = (
    *((32, 32, 1, 1), (32, 32, 1, 0), (8, 128, 1, 0), (8, 64, 1, 1)),
    *((8, 128, 4, 0), (4, 64, 4, 1), (16, 16, 2, 0), (32, 4, 8, 0), (4, 8, 1, 0)),
)


class RecurrentFamily(Ruled):
    """Recurrences of few entries by one block each."""

    name = "recurrent"
    abi = 1
    source = "recurrent.cu"
    known = staticmethod(rules.names)
    cases = staticmethod(recurrent_cases)
    branches = staticmethod(recurrent_branches)
    rules = rules.RULES
    ends = ("epilogue_fixed", "min_blocks")
    unbound = MappingProxyType({"epilogue_fixed": 0, "min_blocks": 0})
    names: tuple[str, ...] = ("level", "lanes", "groups", "batch", "held", "vector", "epilogue_fixed", "min_blocks")
    needs = (operators(CELLS, "is no recurrence"),)

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """All types of real numbers, without an epilogue."""
        return f"{workload.operator} has no epilogue" if workload.epilogue else None

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return threads of a unit, units and entries of a block, where R stays, and its accesses."""
        e = layer_of(workload)
        widths = tuple(width for width in (2, 4, 8, 16) if e.bytes_r <= width <= e.align)
        return (
            LEVEL,
            Coordinate("lanes", LANES, 0, "tile", "threads of a unit"),
            Coordinate("groups", GROUPS, 0, "tile", "units that are computed at once"),
            Coordinate("batch", BATCHES, 0, "tile", "entries of a block"),
            Coordinate("held", (0, 1), 0, "layout", "1: R stays in shared memory"),
            Coordinate("vector", widths, 1, "copy_width", "bytes per load of R"),
            EPILOGUE_FIXED,
            MIN_BLOCKS,
        )

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return what rules are about beyond coordinates."""
        e = layer_of(workload)
        s = shape(columns, e)
        verified = verified_bytes(columns, e)
        warps = s.threads / 32
        return {
            "SHARED_BYTES": s.memory,
            "VERIFIED_BYTES": verified,
            "WARPS": warps,
            "BLOCKS": s.blocks,
            "UNITS": s.units,
        }

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the widest loads of R."""
        e, like = layer_of(workload), np.ones_like(columns["lanes"])
        return {"vector": e.align * like, "epilogue_fixed": 0 * like, "min_blocks": 0 * like}

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """See cost.py."""
        e = layer_of(workload)
        return cost.registers(columns, e, shape(columns, e))

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """See cost.py."""
        return cost.terms(columns, layer_of(workload), arch, workload.accumulator, facts)

    # ---- one Program

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of recurrent.cu."""
        names = ("lanes", "groups", "batch", "held", "vector", "min_blocks")
        return {
            "IN_TYPE": macro_token(workload.dtype["b"]),
            "ACC_TYPE": macro_token(workload.accumulator),
            "CELL": SLICED_CELLS[workload.operator],
            "EPILOGUE_CODES": epilogue_codes(program, workload),
            **{name.upper(): program[name] for name in names},
        }

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the one launch."""
        s = shape({name: np.array([value]) for name, value in program.values}, layer_of(workload))
        place = operator(workload.operator).names.index("l")
        return (Launch(self.name, int(s.blocks[0]), int(s.threads[0]), int(s.memory[0]), writes=(place,)),)

    def tile(self, program: Program) -> dict[str, int]:
        """Return the entries and the units of a block, and the threads of a unit."""
        return {"batch": program["batch"], "groups": program["groups"], "lanes": program["lanes"]}

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with loads of R as wide as its alignment class."""
        return program.replace(vector=workload.align["b"])

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return default completions of some blocks; at most 8."""
        wanted = [dict(zip(("lanes", "groups", "batch", "held"), each, strict=True)) for each in STARTERS]
        small = [{"lanes": lanes, "groups": 32 // lanes, "batch": 1, "held": 0} for lanes in (32, 8, 4)]
        return complete(self, [*wanted, *small], workload, arch, 200.0)[:8]
