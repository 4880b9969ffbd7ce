"""Starters: default completions of a few chosen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..machine.arch import Arch
from .family import Family
from .program import Program
from .tables import Columns, Tables

if TYPE_CHECKING:
    from ..operators.workload import Workload


def completed(
    family: Family, wanted: Sequence[Mapping[str, int]], workload: Workload, arch: Arch, registers: float
) -> list[Program]:
    """The Programs of the ``wanted`` values with the family's defaults for the rest: those that are legal and estimated
    to hold at most ``registers`` a thread, in order."""
    coordinates = family.coordinates(workload, arch)
    tables = Tables(coordinates, family.parts(workload, arch))
    found: list[Program] = []
    for chosen in wanted:
        values = {c.name: chosen.get(c.name, c.values[0]) for c in coordinates} | {"level": 2}
        for level in (1, 2):
            given = {name: np.array([value], dtype=np.int32) for name, value in values.items()}
            defaults = family.defaults(given, workload, arch)
            for c in coordinates:
                if c.level == level:
                    best = chosen.get(c.name, int(defaults[c.name][0]))
                    values[c.name] = max((v for v in c.values if v <= best), default=c.values[0])
        if any(values[c.name] not in c.values for c in coordinates):
            continue
        point = np.array([[c.values.index(values[c.name]) for c in coordinates]])
        columns = Columns(tables, point)
        if family.legal(columns, workload, arch)[0] and family.registers(columns, workload, arch)[0] <= registers:
            found.append(Program(family.name, tuple((c.name, values[c.name]) for c in coordinates)))
    return list(dict.fromkeys(found))
