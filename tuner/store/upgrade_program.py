"""A Program that another version stored, as one of this version: where its family still has a place for it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np

from gensor_kernels.dispatch.selection.predict import few_seconds
from gensor_kernels.errors import GensorError
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_kernels.programs.validation import MALFORMED
from gensor_tuner.build.pool import Candidate, candidate


class NotLegal(GensorError):
    """A stored Program that is none here; the text says why."""


@dataclass(frozen=True)
class Adapted:
    """The candidate for a Workload, and its predicted seconds."""

    candidate: Candidate
    seconds: float


def adapt(text: str, workload: Workload, arch: Arch) -> Adapted:
    """The candidate that the Program `text` is for `workload`.

    Coordinates that the family has got since take their defaults: what comes of it is verified before it is used.
    Raises NotLegal where it has lost one, the Program is not legal, or the family does not serve the Workload.
    """
    try:
        body = json.loads(text)
        family = FAMILIES.get(body.pop("family"))
        if family is None or not all(type(value) is int for value in body.values()):
            raise NotLegal("its family is not in this version")
        reason = family.serves(workload, arch)
        if reason is not None:
            raise NotLegal(f"{family.name} does not serve it: {reason}")
        program = _completed(family, body, workload, arch)
    except NotLegal:
        raise
    except MALFORMED as error:
        raise NotLegal(f"its Program cannot be read: {error}") from None
    (seconds,) = few_seconds(family, [program], workload, arch)
    if not math.isfinite(seconds):
        raise NotLegal("its Program is not legal in this version")
    return Adapted(candidate(family, program, workload), seconds)


def _completed(family: Family, values: dict[str, int], workload: Workload, arch: Arch) -> Program:
    """The Program with these values, and with the defaults of coordinates that are not among them."""
    lost = sorted(set(values) - set(family.names))
    if lost:
        raise NotLegal(f"{family.name} has no {', '.join(lost)} any more")
    if set(values) == set(family.names):
        return Program(family.name, tuple((name, values[name]) for name in family.names))
    space = FamilySpace(family, workload, arch)
    tiles = [
        coordinate.values.index(values.get(coordinate.name, coordinate.values[0])) if coordinate.level == 0 else 0
        for coordinate in space.coordinates
    ]
    usual = space.program(np.array([0, *tiles[1:]]))  # "level" is first: nothing but the block's tile is reached
    return Program(family.name, tuple((name, values.get(name, value)) for name, value in usual.values))
