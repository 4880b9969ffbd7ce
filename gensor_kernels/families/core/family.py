"""Family: the contract of a kernel family, which describes, vectorised, how one kernel source is scheduled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gensor_database.lazy import cached_property
from gensor_kernels.families.core.source import code, flatten
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms, clustered
from gensor_kernels.operators import operator
from gensor_kernels.operators.declaration.lowered import Product
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.operators.windows.sliding import Sliding

from .cases import Case
from .columns import Column
from .params import Tiling
from .program import Program
from .tensor_maps import TensorMap

Values = Mapping[str, np.ndarray]
#: Many Programs at once: values (int32) by the name of a coordinate, outputs of parts (float32) by Column (lattice.py).
Columns = Mapping[str | Column, np.ndarray]
#: Coordinate values of one Program or of many, by name.
Points = Columns | Mapping[str, Any]


class Coordinate(NamedTuple):
    """One scheduling choice: ascending ``values``, the memory ``level`` it belongs to, its meaning.

    ``kind`` names the action that moves it: tile, vthread, instruction, stages, copy_width, layout, split,
    raster, epilogue, launch_bounds, cache (the level itself).  ``runtime`` coordinates are kernel arguments:
    Programs that differ only there share a binary.
    """

    name: str
    values: tuple[int, ...]
    level: int
    kind: str
    doc: str
    runtime: bool = False


#: The memory levels a construction descends: block tile, shared memory, registers.
LEVEL = Coordinate("level", (0, 1, 2), 0, "cache", "memory level the construction has reached")
EPILOGUE_FIXED = Coordinate("epilogue_fixed", (0, 1), 2, "epilogue", "1: the list of operations is compiled in")
MIN_BLOCKS = Coordinate("min_blocks", (0, 1, 2, 3, 4), 2, "launch_bounds", "blocks per SM promised to the compiler")


@lru_cache(maxsize=64)
def access_widths(element: float, most: int) -> tuple[int, ...]:
    """Return the bytes of one global access: 1 to 16, at least an element, at most an alignment class."""
    return tuple([width for width in (1, 2, 4, 8, 16) if element <= width <= max(most, element)])


@dataclass(frozen=True)
class Launch:
    """One kernel launch: entry name, blocks (1-D grid), threads per block, dynamic shared bytes.

    ``maps`` describe the operands that its kernel reads by tensor copies: their encoding follows Params.  With
    ``per_sm`` blocks walk the grid: at most that many are launched per multiprocessor.  ``together``: blocks wait for
    one another. ``cluster`` blocks reach each other's shared memory: there are whole clusters, of which the kernel
    itself sets for the driver.  ``dependent``: its kernel waits for the launch before it (dependent.cuh), and may
    start before that one has ended.  ``writes`` are the places among the inputs of those that are further outputs.
    """

    entry: str
    grid: int
    block: int
    shared_bytes: int
    maps: tuple[TensorMap, ...] = field(default=(), repr=False)
    per_sm: int = field(default=0, repr=False)
    together: bool = field(default=False, repr=False)
    cluster: int = field(default=1, repr=False)
    dependent: bool = field(default=False, repr=False)
    writes: tuple[int, ...] = field(default=(), repr=False)

    def blocks(self, sms: int) -> int:
        """Return the blocks to launch on a device of ``sms`` multiprocessors."""
        # SMs come in pairs, so that pairs of blocks find room wherever two blocks do.
        sms = clustered(sms) if self.cluster > 2 else sms
        walking = max(self.per_sm * sms // self.cluster, 1) * self.cluster
        return min(self.grid, walking) if self.per_sm else self.grid


class Part(NamedTuple):
    """Outputs that depend on the coordinates ``names`` alone.

    ``function`` gets their values by name, int64 arrays over the product of the lattices, and returns arrays of
    that length, or of shape (rows, length), by Column.  They are kept as float32.  Of a ``fixed`` part they are
    the same for every size of the Workload: callers that need many sizes compute them once.
    """

    names: tuple[str, ...]
    function: Callable[[Values], Mapping[Column, np.ndarray]]
    fixed: bool = False


#: A condition on every Workload that a family serves: the reason for a refusal, or None.
Need = Callable[["Workload", Arch], "str | None"]


def _only(holds: Callable[[Workload], bool], refusal: str) -> Need:
    return lambda workload, arch: None if holds(workload) else f"{workload.operator} {refusal}"


@lru_cache(maxsize=4096)
def product(workload: Workload) -> Product | None:
    """Return the matrix product that a Workload is, or None."""
    return operator(workload.operator).product(workload)


def operators(names: Collection[str], refusal: str) -> Need:
    """Need an operator with one of these ``names``."""
    return _only(lambda workload: workload.operator in names, refusal)


def math_mode(mode: str, refusal: str) -> Need:
    """Need the arithmetic that a caller allows with ``math=mode``."""
    return lambda workload, arch: None if workload.math == mode else f"math {workload.math!r} {refusal}"


def feature(name: str, missing: str) -> Need:
    """Need a feature of the Arch, which the refusal calls ``missing``."""
    return lambda workload, arch: None if name in arch.features else f"{arch.name} has no {missing}"


PRODUCTS = _only(lambda workload: product(workload) is not None, "is no matrix product")
ROWS = _only(lambda workload: operator(workload.operator).rows(workload) is not None, "has no rows")
POINTWISE = _only(lambda workload: bool(workload.program), "is no element-wise program")
SLIDING = _only(
    lambda workload: isinstance(operator(workload.operator), Sliding), "is no reduction over a sliding window"
)
WARPGROUPS, CP_ASYNC = feature("wgmma", "warpgroup products"), feature("cp_async", "cp.async")


class Family:
    """A kernel family.  Arrays have one element per Program; sizes come from the Workload."""

    name: str
    #: bumped only when generated code, Params or promises of a launch (Launch.dependent) change meaning
    abi: int
    #: file in gensor_kernels/families
    source: str
    #: coordinate names in order, "level" first
    names: tuple[str, ...]
    #: coordinates that every Workload of the family has, though other families may lack them for some Workloads
    #: (OPTIONAL)
    always: tuple[str, ...] = ()
    #: coordinates whose values follow from a Workload's sizes, which are no part of its class, and all that they may be
    own: Mapping[str, Collection[int]] = MappingProxyType({})
    #: coordinates of how results leave, and of the launch: no part of a main loop
    ends: tuple[str, ...] = ()
    #: values without a compiled epilogue and launch bounds
    unbound: Mapping[str, int] = MappingProxyType({})
    #: whether alignment classes from 4 bytes on only bound the widths of accesses, which are coordinates: kernels of
    #: several classes are then predicted together
    alignment_bounds_widths = False
    #: whether blocks of its launches all wait for one another, which not every device starts together
    together = False
    #: operators, arithmetic and features of the Arch that the family is for, checked in this order before ``refusal``
    needs: tuple[Need, ...] = ()

    @cached_property
    def text(self) -> str:
        """The kernel source without constants, as compilers get it (see families/core/source.py)."""
        return flatten(self.source) + self.asserts()

    def asserts(self) -> str:
        """Return the static_asserts at the end of the source."""
        return ""

    @cached_property
    def code(self) -> str:
        """The same without comments: what a database stores."""
        return code(self.text)

    def serves(self, workload: Workload, arch: Arch) -> str | None:
        """Return None where the family can compute the Workload on the Arch, else the reason why not."""
        for need in self.needs:
            if reason := need(workload, arch):
                return reason
        return self.refusal(workload, arch)

    def nearness(self, workload: Workload, arch: Arch) -> float:
        """Return the share of ``needs`` that are fulfilled before the first one that is not."""
        held = next((count for count, need in enumerate(self.needs) if need(workload, arch)), len(self.needs))
        return held / len(self.needs) if self.needs else 1.0

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Return the family's own reason not to serve a Workload and an Arch that fulfil its ``needs``, else None."""
        return None

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Return whether kernels of a Workload that is served can read operands of this geometry."""
        return True

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the lattice, "level" first, in the order of ``names``."""
        raise NotImplementedError

    def sizeless(self, workload: Workload) -> bool:
        """Return whether the coordinates are the same for every size of the Workload; False where that is not known."""
        return False

    def parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return what is tabulated: ``legal`` and ``terms`` read its outputs, and coordinates, from their columns."""
        return ()

    def rule_parts(self, workload: Workload, arch: Arch) -> tuple[Part, ...]:
        """Return what lattices tabulate for ``legal`` in addition."""
        return ()

    def settled(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray | None:
        """Return which Programs are legal for some sizes of the Workload's class, or None where that is not known."""
        return None

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return which complete Programs compile and can be launched; bool array."""
        raise NotImplementedError

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the default completion: values for the coordinates of levels 1 and 2, given the values of lower
        levels.

        A coordinate of level 2 may depend on the (given) values of level 1.
        """
        return {}

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline; ``facts`` are compiler facts that replace estimates."""
        raise NotImplementedError

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Estimated registers a thread wants, before any limit; float32."""
        raise NotImplementedError

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of the kernel source."""
        raise NotImplementedError

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the launches of one call, in order."""
        raise NotImplementedError

    def workspace(self, program: Program, workload: Workload) -> tuple[int, bool]:
        """Return (bytes, must be zero) of the workspace one call needs."""
        return 0, False

    def tiling(self, program: Program, geometry: Geometry) -> Tiling:
        """Return the arguments of a launch that depend on the Program; by default no counts, as of kernels that count
        their tiles themselves."""
        return Tiling(tiles_m=1, tiles_n=1, split=1, k_per_split=1, raster=1)

    def cases(self, program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
        """Return the problems that verify a Program of this Workload's class; the important ones run `epilogue`."""
        raise NotImplementedError

    def summed(self, workload: Workload) -> Workload:
        """Return the Workload with the accumulator that kernels really have, for the comparison of their results."""
        return workload

    def summed_by(self, program: Program, workload: Workload) -> Workload:
        """Return the same for the kernels of one Program."""
        return self.summed(workload)

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Coverage names that a verification of this Program must have counted."""
        raise NotImplementedError

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with the widest global accesses the class's alignment allows; it may not be legal."""
        return program

    def shared(self, program: Program) -> Program:
        """Return the Program without its compiled epilogue and launch bounds; it may not be legal."""
        return program.replace(**self.unbound)

    def main_loop(self, program: Program) -> Hashable:
        """Return a key that Programs with the same main loop share: they differ in how results leave, if at all, and
        not in whether k is split or streamed."""
        rest = ("raster", "split_k", "stream", *self.ends)
        values = tuple([value for name, value in program.values if name not in rest])
        return program.family, program.get("split_k", 1) > 1, program.get("stream") > 0, values

    def resplit(self, program: Program, workload: Workload, arch: Arch) -> list[Program]:
        """Return the Programs that share the binary of ``program`` and divide k among blocks in other ways, itself
        first.

        They differ in one argument of the launch: parts of a tile's k, or blocks of a stream. Their launches take no
        branch that launches of ``program`` do not take: its verification has executed whatever they execute, which it
        has not where k is whole. They need not be legal for a Workload.
        """
        found = [program]
        for way in divisions(self, workload, arch):
            (whole, *divided), own = way.values, program[way.name]
            if own == whole:
                continue
            undivided = program.replace(**{way.name: whole})
            found += [undivided] if self.is_covered(undivided, program, workload) else []
            found += [program.replace(**{way.name: value}) for value in divided if value != own]
        return found

    def is_covered(self, other: Program, program: Program, workload: Workload) -> bool:
        """Return whether ``other`` shares the binary of ``program`` and takes no branch of its own."""
        if self.constants(other, workload) != self.constants(program, workload):
            return False
        return self.branches(other, workload) <= self.branches(program, workload)

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Return the SASS opcodes that multiply, and how many of them a warp issues in one iteration of the main loop.

        Without opcodes, the main loop is not recognised in the SASS.
        """
        return frozenset(), 0

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """At most 8 good, legal, complete Programs that differ in kind."""
        raise NotImplementedError


@lru_cache(maxsize=256)
def divisions(family: Family, workload: Workload, arch: Arch) -> list[Coordinate]:
    """Return the arguments of a launch that divide k among blocks: at its first value, each leaves k whole.

    At all other values Programs share a binary and take the same branches, but for what `resplit` leaves out.
    """
    return [each for each in family.coordinates(workload, arch) if each.kind == "split" and each.runtime]


@dataclass(frozen=True)
class Facts:
    """Compiler facts by Program: NaN where unknown, then the family's estimate stands.  float32 arrays.

    ``registers`` and ``spill_bytes`` per thread; ``issue`` instructions per warp and iteration, ``stalls`` the sum of
    their encoded stall counts on the path of whole steps.  Where the true number is unknown, ``register_offset`` is
    added to the estimate, and ``stall_ratio`` is the ratio of stalls to the clocks in which a warp keeps its pipe busy:
    both are medians over the known binaries, ``stall_ratio`` is 0 without any.
    """

    registers: np.ndarray
    spill_bytes: np.ndarray
    issue: np.ndarray
    stalls: np.ndarray
    register_offset: np.float32
    stall_ratio: np.float32
