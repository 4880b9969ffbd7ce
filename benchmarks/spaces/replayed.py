"""A measured space as a simulator: a family lattice whose potential is the measured time of a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Columns, Coordinate, Family
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.space import FamilySpace

from .measured_space import Space, kernel_of

#: Kinds of action for columns of the foreign kernel; other columns are tiles.
KINDS = {"KWI": "launch_bounds", "VWM": "copy_width", "VWN": "copy_width", "STRM": "vthread", "STRN": "vthread"}
KINDS |= {"SA": "stages", "SB": "stages"}


class Measured(Family):
    """A family of the configurations with times: a configuration is legal if it was measured."""

    def __init__(self, space: Space):
        self.name = "measured"
        self.axes = kernel_of(space.columns).NAMES
        self.names = ("level", *self.axes)
        known = np.unique(
            np.stack([space.columns[name] for name in self.axes], axis=1)[~np.isnan(space.time_ms)], axis=0
        )
        self.values = {name: tuple(np.unique(column).tolist()) for name, column in zip(self.axes, known.T, strict=True)}
        self._there = np.zeros([len(values) for values in self.values.values()], bool)
        self._there[self._place(dict(zip(self.axes, known.T, strict=True)))] = True

    def _place(self, columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        return tuple(np.searchsorted(self.values[name], columns[name]) for name in self.axes)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Return the kernel's columns; all of them exist from the first memory level on."""
        level = Coordinate("level", (0, 1, 2), 0, "cache", "memory level reached")
        columns = (Coordinate(name, self.values[name], 0, KINDS.get(name, "tile"), name) for name in self.axes)
        return (level, *columns)

    def legal(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return which configurations were measured."""
        legal: np.ndarray = self._there[self._place(columns)]
        return legal

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return nothing: there is nothing to complete."""
        return {}

    def starters(self, workload: Workload, arch: Arch) -> list[Program]:
        """Return none."""
        return []


class Timed(FamilySpace):
    """A measured space's lattice: its `potential` is measured seconds, and there are no predictions."""

    def __init__(self, space: Space):
        """Index `space`, every row of which is a different configuration."""
        super().__init__(Measured(space), SimpleNamespace(key=lambda: "measured"), space.arch)
        family = self.family
        assert isinstance(family, Measured)
        self.families = (self,)
        values = np.stack([np.searchsorted(family.values[n], space.columns[n]) for n in family.axes], axis=1)
        codes = self.encode(np.concatenate([np.full((len(values), 1), 2), values], axis=1))
        order = np.argsort(codes)
        self._codes, self.space = codes[order], space.rows(order)
        self._there = np.zeros(self.size // 3, bool)  # by the code without its level
        self._there[self._codes % self._there.size] = True

    def rows(self, points: np.ndarray) -> NDArray[np.int64]:
        """Return the rows of `space` of these legal points."""
        return np.searchsorted(self._codes, self.encode(self.complete(points)))

    def legal(self, points: np.ndarray) -> NDArray[np.bool_]:
        """Return which points were measured."""
        inside = ((points >= 0) & (points < self.extents)).all(axis=1)
        legal: NDArray[np.bool_] = inside & self._there[self.encode(points) % self._there.size]
        return legal

    def enumerate(self, chunk: int = 65536) -> Iterator[np.ndarray]:
        """Yield every configuration: few points of the lattice are one."""
        for start in range(0, len(self._codes), chunk):
            yield self.decode(self._codes[start : start + chunk])

    def potential(self, points: np.ndarray) -> NDArray[np.float64]:
        """Return measured seconds."""
        return self.space.time_ms[self.rows(points)] / 1e3

    def terms(self, points: np.ndarray) -> Terms:
        """Return the roofline's terms, because the paper's benefits are ratios of such quantities."""
        rows, terms = self.rows(points), self.space.terms
        count = len(self._codes)
        return Terms(**{f.name: np.broadcast_to(getattr(terms, f.name), (count,))[rows] for f in fields(terms)})


class Replayed(Timed):
    """The lattice with predictions, which cost no evaluations: the roofline's `prior`, and its terms as `features`."""

    def prior(self, points: np.ndarray) -> NDArray[np.float64]:
        """Return the roofline's seconds."""
        return self.space.analytic_ms[self.rows(points)] / 1e3

    def features(self, points: np.ndarray) -> NDArray[np.float32]:
        """Return the features of the terms and the columns, (features, n)."""
        return self.space.features[:, self.rows(points)]
