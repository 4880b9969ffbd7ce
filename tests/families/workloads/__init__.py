"""The Workloads that every kernel family is tested with: a module per kind of operator, with a Contract per family.

`tests/families/test_contract.py` tests every family of the registry, so a new one needs an entry here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import import_module

from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types.workload import Workload

#: The modules of this folder.
KINDS = ("products", "images", "attention", "recurrent", "rows", "pointwise", "window")
#: Some of a Workload's starters; the number is the Workload's place in its family's list.
Choice = Callable[[list[Program], int], Sequence[Program]]


def product_and_reduction(program: Program) -> list[str]:
    """The kernels of a Program whose partial sums, if K is split, are added by a second launch."""
    return [program.family] + ["contraction_reduce"] * (program.get("split_k", 1) > 1)


@dataclass(frozen=True)
class Contract:
    """The Workloads of a family, and what holds for its Programs beyond what holds for those of all families."""

    #: (arch, Workload): every form, layout, dtype, alignment class and kind of epilogue
    served: Sequence[tuple[str, Workload]]
    #: entries of the launches of a Program, in order
    entries: Callable[[Program], list[str]] = product_and_reduction
    #: the least number of starters, of which `starters` are executed and the first `compiled` must compile without
    #: spills, on `archs` or on the arch of the Workload
    fewest_starters: int = 1
    starters: Choice = lambda starters, index: starters[:1]
    compiled: int = 1
    archs: tuple[str, ...] = ()
    #: the number of cheap legal Programs that are compiled, with the `relaxed` coordinates, and executed
    randoms: int = 1
    relaxed: Mapping[str, int] = field(default_factory=dict)
    #: the most bytes that these kernels spill, by name; without a limit, None, the main kernel's are not counted
    spills: Mapping[str, int] | None = None
    #: False where starters take too long to execute
    executed: bool = True
    #: whether a Program that is executed must have no bank conflicts
    conflict_free: Callable[[Program], bool] = lambda program: False


#: Families of Blackwell with the first launches of others, which are of Hopper.
OF_HOPPER = {
    "contraction_aligned_tcgen05": "contraction_aligned",
    **{f"contraction_{name}_tcgen05": f"contraction_{name}_wgmma" for name in ("prepared", "packed", "floats")},
}


@cache
def contracts() -> dict[str, Contract]:
    modules = (import_module(f"{__name__}.{kind}") for kind in KINDS)
    found = {name: found for module in modules for name, found in module.CONTRACTS.items()}
    for name, other in OF_HOPPER.items():
        served = [("sm_100", workload) for _, workload in found[other].served]
        found[name] = replace(found[other], served=served, fewest_starters=1)
    return found


def contract(family: str) -> Contract:
    """The contract of a family; KeyError where nobody has written its Workloads down."""
    return contracts()[family]


@lru_cache
def space(family: str, index: int) -> FamilySpace:
    """The lattice of a Workload of a family's list."""
    arch, workload = contract(family).served[index]
    return FamilySpace(FAMILIES[family], workload, lookup(arch))
