"""The sizes that a Program of the recurrent family is verified on."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import Points
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.workload import Workload

from .shape import Layer, layer_of, shape

#: Most units in verification, which the emulator computes in seconds.
MOST_UNITS = 96
#: The same of a team whose passes are shorter: few blocks.
MOST_OF_TEAM = 48
#: (purpose, directions, reverse, steps).
KINDS = (("both directions", 2, 0, 5), ("reverse", 1, 1, 4), ("forward", 1, 0, 3))


def verified_units(program: Points, e: Layer) -> np.ndarray:
    """Return the units of the largest case: more than a pass and than an iteration of the lanes take, where that is
    not too much; of a team, more than a pass of two blocks."""
    least = e.align // e.bytes_r
    step = np.asarray(program["lanes"]) * program["vector"] // e.bytes_r
    groups, several = np.asarray(program["groups"]), np.asarray(program.get("slices", 1)) > 1
    alone = np.minimum(np.maximum(groups, step) + least, MOST_UNITS)
    wanted = np.where(several, np.maximum(2 * groups, np.minimum(step, MOST_OF_TEAM)) + least, alone)
    return -(-wanted // least) * least


def recurrent_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return a case of both directions, one of the reverse one, and one of a single entry and few units."""
    e = layer_of(workload)
    units, least = int(verified_units(program.by_name, e)), e.align // e.bytes_r
    batches, hidden = (2 * program["batch"] + 1, 3 * program["batch"], 1), (units, units, least)
    if program.get("slices", 1) > 1:  # the emulator runs all blocks at once
        batches = (program["batch"] + 1, 2 * program["batch"], 1)
    if e.quantised:
        batches = (program["batch"], max(program["batch"] - 1, 1), 1)
    found = []
    for number, (name, directions, reverse, steps) in enumerate(KINDS):
        sizes = {"steps": steps, "batch": batches[number], "directions": directions, "hidden": hidden[number]}
        found.append(Case(name, workload.with_sizes(**sizes, order=number % 2, reverse=reverse)))
    return found


def recurrent_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Return the coverage names that verification must count."""
    step = program["lanes"] * program["vector"] // layer_of(workload).bytes_r
    columns, names = {name: np.array([value]) for name, value in program.values}, set[str]()
    for each in recurrent_cases(program, workload, ()):
        e = layer_of(each.workload)
        s = shape(columns, e)
        units, team = int(s.units[0]), int(s.team[0])
        last = e.hidden - (team - 1) * units  # of the last block
        names |= {"past_end"} if e.batch > 1 else set()
        names |= {"padding"} if e.hidden % step or e.batch % program["batch"] else set()
        names |= {"no_unit"} if units % program["groups"] or last % program["groups"] else set()
        names |= {"exchange"} if team > 1 else set()
    return frozenset(names)


def verified_bytes(program: Points, e: Layer) -> np.ndarray:
    """Return the shared bytes of the largest case."""
    return shape(program, e, verified_units(program, e)).memory
