"""The Workloads that every kernel family is tested with: one module per family, named after the family.

`tests/families/test_contract.py` finds the modules through the registry, so a new family is tested as soon as
`tests/families/workloads/<family>.py` defines its `CONTRACT`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from gensor_kernels.families.contraction.rewrite import copy_launch
from gensor_kernels.families.core.family import Launch
from gensor_kernels.families.core.params import Tiling
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload

#: Some of a Workload's starters; the number is the Workload's place in its family's list.
Choice = Callable[[list[Program], int], Sequence[Program]]


def first(starters: list[Program], index: int) -> list[Program]:
    """The best starter alone."""
    return starters[:1]


def scattered(workload: Workload) -> Workload:
    """Return the same product of operands in which no axis is contiguous."""
    single = {name: facts(dtype).itemsize for name, dtype in workload.dtypes}
    return replace(workload, layout=tuple((name, "s") for name in "abc"), alignment=tuple(single.items()))


def product_and_reduction(program: Program) -> list[str]:
    """The kernels of a Program whose partial sums, if K is split, are added by a second launch."""
    return [program.family] + ["contraction_reduce"] * (program.get("split_k", 1) > 1)


def copies_lie_behind_partial_sums(copies: Callable[[Workload], Any]) -> Callable[..., None]:
    """A check of families that copy operands first: `copies` gives those of a Workload."""

    def check(lattice, program, launches, terms):
        places, end = copy_launch.offsets(copies(lattice.workload), program, lattice.workload)
        assert (program["split_k"] > 1) == (min(places.values()) > 0)
        assert lattice.family.workspace(program, lattice.workload) == (end, False)

    return check


def usual_tiling(lattice: FamilySpace, program: Program) -> Tiling:
    """The tiling of contiguous operands; no part of a split sum is empty."""
    declared, problem = operator(lattice.workload.operator), lattice.workload
    geometry = declared.geometry(problem, {each.name: each.strides() for each in declared.operands(problem)})
    tiling = lattice.family.tiling(program, geometry)
    assert (tiling.split - 1) * tiling.k_per_split < geometry.sizes[2] <= tiling.split * tiling.k_per_split
    return tiling


@dataclass(frozen=True)
class Contract:
    """The Workloads of a family, and what holds for its Programs beyond what holds for those of all families."""

    #: (arch, Workload): every form, layout, dtype, alignment class and kind of epilogue
    served: Sequence[tuple[str, Workload]]
    #: entries of the launches of a Program, in order
    entries: Callable[[Program], list[str]] = product_and_reduction
    #: (threads, shared bytes) of the main launch by the rules at the top of the `.cu` file
    resources: Callable[[Mapping[str, int | str], Workload], tuple[int, int]] | None = None
    #: further assertions about a random legal Program: its launches, and the terms that the potential is made of
    check: Callable[[FamilySpace, Program, Sequence[Launch], Mapping[str, float]], None] = lambda *_: None
    #: the least number of starters, of which `starters` are executed and the first `compiled` must compile without
    #: spills, on `archs` or on the arch of the Workload
    fewest_starters: int = 1
    starters: Choice = first
    compiled: int = 1
    archs: tuple[str, ...] = ()
    #: the number of cheap legal Programs that are compiled, with the `relaxed` coordinates, and executed; no kernel of
    #: a family that is `spill_free` spills
    randoms: int = 1
    relaxed: Mapping[str, int] = field(default_factory=dict)
    spill_free: bool = False
    #: False where starters take too long to execute
    executed: bool = True
    #: whether a Program that is executed must have no bank conflicts
    conflict_free: Callable[[Program], bool] = lambda program: False


def contract(family: str) -> Contract:
    """The contract of a family; ModuleNotFoundError where nobody has written its Workloads down."""
    return import_module(f"{__name__}.{family}").CONTRACT


@lru_cache
def space(family: str, index: int) -> FamilySpace:
    """The lattice of a Workload of a family's list."""
    arch, workload = contract(family).served[index]
    return FamilySpace(FAMILIES[family], workload, lookup(arch))
