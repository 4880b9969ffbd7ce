"""Measured spaces of a kernel as files, with the part they were measured on and the potential of every row."""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np

from gensor_kernels.machine import arch as machine
from gensor_kernels.machine import residual, roofline
from gensor_kernels.machine.arch import Arch

from . import clblast_terms

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: Kernels we have terms for: modules with NAMES (their columns) and terms(columns, arch).
KERNELS = (clblast_terms,)
DTYPE, OPERATOR = "float32", "matmul"


@dataclass(frozen=True)
class Space:
    """Configurations of a kernel on a part: int64 ``columns`` by name, ``time_ms`` (n,) NaN where not measured."""

    columns: Mapping[str, np.ndarray]
    time_ms: np.ndarray
    arch: Arch

    @cached_property
    def terms(self) -> roofline.Terms:
        """The kernel's terms on the part."""
        return kernel_of(self.columns).terms(self.columns, self.arch)

    @cached_property
    def analytic_ms(self) -> np.ndarray:
        """The potential, milliseconds."""
        return roofline.seconds(self.terms, self.arch) * 1e3

    @property
    def names(self) -> tuple[str, ...]:
        """Names of `features`."""
        return residual.FEATURES + kernel_of(self.columns).NAMES

    @cached_property
    def features(self) -> np.ndarray:
        """(features, n) float32: those of the terms, then the coordinates."""
        names = kernel_of(self.columns).NAMES
        return residual.features(self.terms, self.arch, {name: self.columns[name] for name in names})

    def rows(self, which: np.ndarray) -> Space:
        """Some of the configurations, by index or mask."""
        return Space({name: values[which] for name, values in self.columns.items()}, self.time_ms[which], self.arch)

    def on(self, other: Space) -> np.ndarray | None:
        """Times of ``other`` for these configurations, NaN where it has none; None where nothing matches."""
        names = kernel_of(self.columns).NAMES
        keys = list(zip(*(other.columns[name].tolist() for name in names), strict=True))
        known = dict(zip(keys, other.time_ms.tolist(), strict=True))
        mine = zip(*(self.columns[name].tolist() for name in names), strict=True)
        times = np.array([known.get(key, np.nan) for key in mine])
        return None if np.isnan(times).all() else times


def kernel_of(columns: Mapping[str, np.ndarray]) -> ModuleType:
    """The module whose columns these are; ValueError where there is none."""
    for kernel in KERNELS:
        if set(kernel.NAMES) <= set(columns):
            return kernel
    raise ValueError(f"no kernel here has the columns {', '.join(columns)}")


def part_named(name: str) -> Arch:
    """A part by name, or from a TOML file of the form of an archs.toml row (its keys, or one [part.NAME] table)."""
    if not name.endswith(".toml"):
        return machine.lookup(name)
    row = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    part = Path(name).stem
    if "part" in row:
        ((part, row),) = row["part"].items()
    return machine._build(machine.lookup(row["capability"]).name, part, row)


def load(path: str, part: str) -> Space:
    """A space from a .csv or .csv.gz file whose time_ms may be empty."""
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    if not table:
        raise ValueError(f"{path} has no rows")
    times = np.array([float(row.get("time_ms") or "nan") for row in table])
    columns = {name: np.array([int(row[name]) for row in table]) for name in table[0] if name not in ("time_ms", None)}
    kernel_of(columns)
    return Space(columns, times, part_named(part))
