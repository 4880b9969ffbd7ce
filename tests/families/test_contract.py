"""Promises of every kernel family, for the Workloads in its list (tests/families/workloads).

A push checks a few Workloads per family, and executes one starter per family and type of elements; nightly checks all.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from gensor_kernels.build.nvrtc import compile_cubin
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import Listed
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.types import epilogue
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import candidate, features
from tests.campaign_size import FULL, sample
from tests.mutator.programs import configurations

from . import verified
from .lattices import cheap_programs, random_legal
from .workloads import contract, space

SERVED = [(name, index, *each) for name in FAMILIES for index, each in enumerate(contract(name).served)]
EXECUTED = [each for each in SERVED if contract(each[0]).executed]
every = pytest.mark.parametrize("name", FAMILIES)
#: Workloads per family whose lattices a push looks at.
FEW = 3
#: Other sizes of the same alignment.
MOVED = {"m": 320, "n": 192, "k": 2048, "h": 56, "w": 14, "c": 128, "k_out": 320}
#: Extents that may be zero.
EXTENTS = {*MOVED, "batch", "lines", "columns", "heads", "queries", "keys", "head"}
PADS = {"pad_top", "pad_bottom", "pad_left", "pad_right"}


def case(name: str, index: int, arch: str, workload: Workload, nightly: bool = False) -> object:
    dtype = next(iter(workload.dtype.values()))
    marks = [pytest.mark.nightly] if nightly else []
    return pytest.param(name, index, id=f"{name}-{index}-{workload.operator}-{dtype}-{arch}", marks=marks)


def first_of_each_dtype() -> list[object]:
    """Return all Workloads, nightly those whose family has an earlier one of the same type of elements."""
    seen, found = set(), []
    for name, index, arch, workload in EXECUTED:
        dtype = next(iter(workload.dtype.values()))
        found.append(case(name, index, arch, workload, (name, dtype) in seen))
        seen.add((name, dtype))
    return found


def lattices(name: str) -> Iterator[FamilySpace]:
    """Return the lattices of a few of a family's Workloads, nightly of all."""
    return (space(name, index) for index in sample(range(len(contract(name).served)), FEW))


@every
def test_every_family_serves_its_workloads(name):
    served = contract(name).served
    assert served
    for arch, workload in served:
        assert FAMILIES[name].serves(workload, lookup(arch)) is None


@every
def test_codes_and_programs_round_trip(name):
    for lattice in lattices(name):
        points = random_legal(lattice, 50)
        assert (lattice.decode(lattice.encode(points)) == points).all()
        for point in points[:10]:
            program = lattice.program(point)
            assert (lattice.point(program) == point).all()
            assert program_from_json(program.to_json()) == program
            for place, coordinate in enumerate(lattice.coordinates[1:], 1):
                assert program[coordinate.name] == coordinate.values[point[place]]


@every
def test_the_start_and_the_starters_are_legal(name):
    for lattice in lattices(name):
        start = lattice.start()
        assert start[0] == 0
        assert lattice.legal(start[None])[0]
        starters = lattice.family.starters(lattice.workload, lattice.arch)
        assert contract(name).fewest_starters <= len(starters) <= 8
        points = np.array([lattice.point(program) for program in starters])
        assert lattice.legal(points).all()
        assert (points[:, 0] == 2).all()


@every
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_extents_of_zero_have_a_potential(name):
    """Rows of shapes files may have extents of zero: a finite time, and no warning of NumPy."""
    first = {workload.operator: (workload, lookup(arch)) for arch, workload in reversed(contract(name).served)}
    for workload, arch in first.values():
        for size in sorted(set(workload.size) & EXTENTS):
            _has_a_potential_without(size, workload, FamilySpace(FAMILIES[name], workload, arch))


def _has_a_potential_without(size: str, workload: Workload, served: FamilySpace) -> None:
    family, arch = served.family, served.arch
    # Without padding, images of no pixels have no outputs.
    padding = 0 if "output_padding_h" in workload.size else workload.size.get("r", 0) + workload.size.get("s", 0)
    padded = dict.fromkeys(set(workload.size) & PADS, padding) if size in "hw" else {}
    empty = workload.with_sizes(**padded, **{size: 0})
    if family.serves(empty, arch) is not None:
        return
    lattice = FamilySpace(family, empty, arch)
    points = np.random.default_rng(2).integers(0, lattice.extents, (500, len(lattice.extents)))
    made = [lattice.point(program) for program in family.starters(empty, arch)]
    points = np.concatenate([points[lattice.legal(points)], np.reshape(made, (-1, points.shape[1]))])
    assert np.isfinite(lattice.potential(points)).all() and np.isfinite(features(lattice.terms(points), arch)).all()


@every
def test_partial_points_stand_for_their_completion(name):
    for lattice in lattices(name):
        whole = random_legal(lattice, 200)
        for level in (0, 1):
            points = np.where(lattice.levels[None] <= level, whole, 0)
            points[:, 0] = level
            points = points[lattice.legal(points)]
            assert len(points) > 20
            completed = lattice.complete(points)
            assert (completed[:, 0] == 2).all()
            assert lattice.legal(completed).all()
            assert (lattice.potential(points) == lattice.potential(completed)).all()
            below = lattice.descend(points)
            assert lattice.legal(below).all()
            assert (lattice.ascend(below) == points).all()
            assert (lattice.complete(below) == completed).all()


@every
def test_fixed_parts_are_the_same_for_every_size(name):
    for lattice in lattices(name):
        here, family, rng = lattice.workload, lattice.family, np.random.default_rng(0)
        there = here.with_sizes(**{axis: size for axis, size in MOVED.items() if axis in here.size})
        values = np.stack([rng.choice(c.values, 500) for c in lattice.coordinates], axis=1)
        fixed = [[part for part in family.parts(each, lattice.arch) if part.fixed] for each in (here, there)]
        one, other = (Listed(lattice.coordinates, parts, values) for parts in fixed)
        kept = set(one) - set(lattice.names)
        assert bool(kept) == bool(fixed[0]) and kept == set(other) - set(lattice.names)
        for column in kept:
            assert np.array_equal(one[column], other[column]), column


@every
def test_a_compile_time_epilogue_binds_its_codes(name):
    for lattice in lattices(name):
        program, codes = lattice.family.starters(lattice.workload, lattice.arch)[0], 0
        if "epilogue_fixed" not in program.by_name:  # has no epilogue
            assert "EPILOGUE_CODES" not in lattice.family.constants(program, lattice.workload)
            continue
        for step in reversed(lattice.workload.epilogue):
            codes = codes << 5 | epilogue.OPERATIONS[step].code
        bound = [lattice.family.constants(program.replace(epilogue_fixed=fixed), lattice.workload) for fixed in (0, 1)]
        assert [each["EPILOGUE_CODES"] for each in bound] == [0, codes or 31]


@every
def test_launches_agree_with_the_terms(name):
    for lattice in lattices(name):
        for point in random_legal(lattice, 40, seed=2):
            _launches_agree(lattice, point)


def _launches_agree(lattice: FamilySpace, point: np.ndarray) -> None:
    name, program, terms = lattice.family.name, lattice.program(point), lattice.explain(point)
    launches = lattice.family.launches(program, lattice.workload)
    assert [each.entry for each in launches] == contract(name).entries(program)
    assert [each.dependent for each in launches] == [bool(program.get("early"))] + [True] * (len(launches) - 1)
    [main] = [each for each in launches if each.entry == name]
    assert (main.grid, main.block, main.shared_bytes) == (terms["blocks"], 32 * terms["warps"], terms["shared_bytes"])
    assert main.shared_bytes <= lattice.arch.smem_per_block
    size, zeroed = lattice.family.workspace(program, lattice.workload)
    assert not zeroed
    assert (len(launches) > 1) == (terms["after"] > 0)
    assert (len(launches) > 1 or main.together) == (size > 0)
    assert all(np.isfinite(value) for value in terms.values())


@every
def test_verification_fits_shared_memory(name):
    for lattice in lattices(name):
        for program in map(lattice.program, random_legal(lattice, 20, seed=3)):
            for each in lattice.family.cases(program, lattice.workload, ()):
                launches = lattice.family.launches(program, each.workload)
                most = max(launch.shared_bytes for launch in launches)
                assert most <= lattice.arch.smem_per_block, f"{each.name} of {program.to_json()}"


def compiles(lattice: FamilySpace, program: Program, target: str, spills: Mapping[str, float]) -> None:
    """Assert that a Program compiles without warnings, has its kernels, and that these spill at most so many bytes."""
    binary = compile_cubin(candidate(lattice.family, program, lattice.workload).source(), target)
    assert binary.error is None, f"{program.to_json()}\n{binary.error}"
    assert "warning" not in binary.log
    assert {each.entry for each in lattice.family.launches(program, lattice.workload)} <= binary.entries.keys()
    spilling = {name for name, entry in binary.entries.items() if entry.spill_bytes > spills.get(name, 0)}
    assert not spilling, f"{spilling} of {program.to_json()}"


def is_right(lattice: FamilySpace, program: Program) -> None:
    verdict = verified.is_right(lattice.family, program, lattice.workload)
    if contract(program.family).conflict_free(program):
        assert verdict.counters["bank_conflicts"] == 0, program.to_json()


@pytest.mark.parametrize(("name", "index"), first_of_each_dtype())
def test_the_first_starter_does_not_spill_and_is_right(name, index):
    starters_are_right(name, index, slice(1))


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "index"), [case(*each) for each in EXECUTED])
def test_further_starters_do_not_spill_and_are_right(name, index):
    starters_are_right(name, index, slice(1, None))


def starters_are_right(name: str, index: int, which: slice) -> None:
    """Assert that some of the starters of a contract compile without spills and pass verification."""
    lattice, promised = space(name, index), contract(name)
    chosen = promised.starters(lattice.family.starters(lattice.workload, lattice.arch), index)
    archs = [lookup(arch) for arch in promised.archs] or [lattice.arch]
    for program in chosen[: promised.compiled][which]:
        for arch in archs:
            if lattice.family.serves(lattice.workload, arch) is None:
                compiles(lattice, program, arch.target, {})
    for program in chosen[which]:
        is_right(lattice, program)


@pytest.mark.parametrize(("name", "index"), sample([case(*each) for each in SERVED], 2 * len(FAMILIES)))
def test_random_legal_programs_compile_and_are_right(name, index):
    """One of any size is compiled; those that are executed too are cheap and differ much."""
    promised, lattice = contract(name), space(name, index)
    spills = {name: math.inf} if promised.spills is None else promised.spills
    [large] = map(lattice.program, random_legal(lattice, 1, seed=index))
    executed = cheap_programs(lattice, promised.randoms * (3 if FULL else 1), seed=index)
    for program in (large, *executed):
        compiles(lattice, program.replace(**promised.relaxed), lattice.arch.target, spills)
    for program in executed:
        is_right(lattice, program)


@pytest.mark.parametrize("each", sample(configurations(), 24), ids=lambda each: f"{each.group}: {each.name}")
def test_programs_of_the_mutator_are_right(each):
    verified.is_right(each.candidate.family, each.candidate.program, each.workload)
