"""Files of measured spaces of a kernel, with the part that they were measured on and the potential of every row."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np

from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch

from . import clblast_terms, convolution_terms
from .part_files import part_named

#: Kernels with terms, by name: modules with NAMES (their columns), terms(columns, arch) and refused(columns).
KERNELS: Mapping[str, ModuleType] = {"clblast": clblast_terms, "convolution": convolution_terms}


@dataclass(frozen=True)
class Space:
    """Configurations of a kernel on a part: int64 `columns` by name, `time_ms` (n,), NaN where not measured."""

    columns: Mapping[str, np.ndarray]
    time_ms: np.ndarray
    arch: Arch

    @cached_property
    def terms(self) -> roofline.Terms:
        """The kernel's terms on the part."""
        return kernel_of(self.columns).terms(self.columns, self.arch)

    @cached_property
    def analytic_ms(self) -> np.ndarray:
        """The potential in milliseconds."""
        return roofline.seconds(self.terms, self.arch) * 1e3


def kernel_of(columns: Collection[str]) -> ModuleType:
    """Return the module that declares these columns; ValueError where there is none."""
    for kernel in KERNELS.values():
        if set(kernel.NAMES) <= set(columns):
            return kernel
    raise ValueError(f"no kernel here has the columns {', '.join(columns)}")


def load(path: str, part: str, name: str | None = None) -> Space:
    """Return the space of a .csv or .csv.gz file whose time_ms may be empty.

    `name` is one of KERNELS, by default the one that has the file's columns. ValueError names an invalid line.
    """
    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            table = [(reader.line_num, row) for row in reader]
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise ValueError(f"{path}: {error}") from None
    if not table:
        raise ValueError(f"{path} has no rows")
    kernel = kernel_of(table[0][1])
    if name is not None and kernel is not KERNELS[name]:
        raise ValueError(f"{path} has not the columns of {name}: {', '.join(KERNELS[name].NAMES)}")
    times = np.array([_time(path, line, row) for line, row in table])
    columns = {name: np.array([_integer(path, line, name, row) for line, row in table]) for name in kernel.NAMES}
    strange = kernel.refused(columns)
    if strange.any():
        raise ValueError(f"{path}, line {table[int(np.argmax(strange))][0]}: no such kernel can be")
    return Space(columns, times, part_named(part))


def _integer(path: str, line: int, name: str, row: Mapping[str, str | None]) -> int:
    try:
        return int(row[name] or "")
    except ValueError:
        raise ValueError(f"{path}, line {line}: {name} is {row[name] or ''!r}, not an integer") from None


def _time(path: str, line: int, row: Mapping[str, str | None]) -> float:
    text = row.get("time_ms")
    try:
        time = float(text) if text else math.nan
    except ValueError:
        time = -1.0
    if time <= 0 or math.isinf(time):
        raise ValueError(f"{path}, line {line}: time_ms is {text!r}, neither empty nor milliseconds above 0")
    return time
