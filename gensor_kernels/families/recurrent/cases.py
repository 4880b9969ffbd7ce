"""The sizes that a Program of the recurrent family is verified on."""

from __future__ import annotations

import numpy as np

from gensor_kernels.families.core.cases import Case
from gensor_kernels.families.core.family import Points
from gensor_kernels.families.core.program import Program
from gensor_kernels.operators.types.workload import Workload

from .shape import Layer, layer_of

#: Most units in verification, which the emulator computes in seconds.
MOST_UNITS = 96
#: (purpose, directions, reverse, steps).
KINDS = (("both directions", 2, 0, 5), ("reverse", 1, 1, 4), ("forward", 1, 0, 3))


def verified_units(program: Points, e: Layer) -> np.ndarray:
    """Return the units of the largest case: more than a pass and than an iteration of the lanes take, where that is
    not too much."""
    least = e.align // e.bytes_r
    step = np.asarray(program["lanes"]) * program["vector"] // e.bytes_r
    wanted = np.minimum(np.maximum(np.asarray(program["groups"]), step) + least, MOST_UNITS)
    return -(-wanted // least) * least


def recurrent_cases(program: Program, workload: Workload, epilogue: tuple[str, ...]) -> list[Case]:
    """Return a case of both directions, one of the reverse one, and one of a single entry and few units."""
    e = layer_of(workload)
    units, least = int(verified_units(program.by_name, e)), e.align // e.bytes_r
    batches, hidden = (2 * program["batch"] + 1, 3 * program["batch"], 1), (units, units, least)
    found = []
    for number, (name, directions, reverse, steps) in enumerate(KINDS):
        sizes = {"steps": steps, "batch": batches[number], "directions": directions, "hidden": hidden[number]}
        found.append(Case(name, workload.with_sizes(**sizes, order=number % 2, reverse=reverse)))
    return found


def recurrent_branches(program: Program, workload: Workload) -> frozenset[str]:
    """Return the coverage names that verification must count."""
    step = program["lanes"] * program["vector"] // layer_of(workload).bytes_r
    sizes = [each.workload.size for each in recurrent_cases(program, workload, ())]
    names = {"past_end"}
    if any(size["hidden"] % step or size["batch"] % program["batch"] for size in sizes):
        names.add("padding")
    if any(size["hidden"] % program["groups"] for size in sizes):
        names.add("no_unit")
    return frozenset(names)


def verified_bytes(program: Points, e: Layer) -> np.ndarray:
    """Return the shared bytes of the largest case."""
    units = verified_units(program, e)
    step = np.asarray(program["lanes"]) * program["vector"] // e.bytes_r
    pitch = -(-units // np.maximum(step, 1)) * step
    buffers = (2 + (e.states > 1)) * np.asarray(program["batch"]) * pitch * e.word
    return buffers + np.asarray(program["held"]) * e.gates * units * units * e.bytes_r
