"""Abilities of a machine in a fleet, and whether its results equal those of another machine.

A task runs only where its result would be the client's own, byte by byte: machines offer each kind of task together
with a digest of all that its results follow from, as a resource of Dask's. Resources of another version are another
name, so that clients of several versions may share a cluster.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np

import gensor_database
import gensor_kernels
import gensor_tuner
from gensor_kernels.build import nvrtc, resources
from gensor_kernels.devices.emulator.build import compiler
from gensor_kernels.errors import GensorError

#: Files of the package that decide results.
SUFFIXES = (".cpp", ".cu", ".cuh", ".h", ".py", ".sql", ".toml")
#: The facts that determine the results of each kind of task, in addition to the package.
FOLLOWS = {"walk": ("numpy", "cpu"), "compile": ("nvrtc", "nvdisasm"), "verify": ()}
#: Facts without which a kind of task cannot run at all.
NEEDS = {"compile": ("nvrtc",), "verify": ("g++",)}
DIGITS = 12


@dataclass(frozen=True)
class Abilities:
    """The abilities of a machine: versions by name (package, python, numpy, ...), and reasons for missing ones."""

    facts: dict[str, str]
    missing: dict[str, str]

    def digest(self, kind: str) -> str:
        """Return the digest of what results of a kind follow from."""
        facts = [self.facts.get(name, "") for name in ("package", *FOLLOWS.get(kind, ()))]
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:DIGITS]

    def resource(self, kind: str) -> str:
        """Return the name under which Dask knows who can run tasks of a kind with these results."""
        return f"gensor-{kind}:{self.digest(kind)}"

    def resources(self, threads: int) -> dict[str, float]:
        """Return all that this machine offers, for as many tasks at once."""
        return {self.resource(kind): threads for kind in FOLLOWS if not self.why_not(kind)}

    def why_not(self, kind: str, wanted: Abilities | None = None) -> str:
        """Return why this machine cannot run tasks of a kind, or not with the results of another; "" where it can."""
        for name in NEEDS.get(kind, ()):
            if name not in self.facts:
                return self.missing.get(name, f"{name} is missing")
        if wanted is None:
            return ""
        for name in ("package", *FOLLOWS.get(kind, ())):
            own, other = self.facts.get(name, "none"), wanted.facts.get(name, "none")
            if own != other:
                return f"its {name} is {own}, here it is {other}"
        return ""


@cache
def abilities() -> Abilities:
    """Return what this machine has; read once per process."""
    facts = {"package": _package(), "python": platform.python_version(), "numpy": np.__version__, "cpu": _cpu()}
    missing: dict[str, str] = {}
    reads: dict[str, Callable[[], object]] = {"nvrtc": nvrtc.toolchain, "nvdisasm": _nvdisasm, "g++": compiler}
    for name, read in reads.items():
        try:
            facts[name] = str(read())
        except (GensorError, OSError) as error:
            missing[name] = str(error)
    return Abilities(facts, missing)


def _package() -> str:
    """Return the version of this package, and a digest of its files: an editable install keeps its version."""
    found = hashlib.sha256()
    for package in (gensor_database, gensor_kernels, gensor_tuner):
        folder = Path(package.__path__[0])
        for path in sorted(each for each in folder.rglob("*") if each.suffix in SUFFIXES):
            found.update(f"{package.__name__}/{path.relative_to(folder).as_posix()}\0".encode())
            found.update(path.read_bytes())
    return f"{metadata.version('gensor-kernels')} ({found.hexdigest()[:DIGITS]})"


def _cpu() -> str:
    """Return the instruction set, and a digest of functions whose last bits differ between processors."""
    points = np.linspace(0.01, 40.0, 4001)
    found = hashlib.sha256()
    for function in (np.exp, np.log, np.log1p, np.expm1, np.sqrt, np.tanh):
        for dtype in (np.float32, np.float64):
            found.update(function(points.astype(dtype)).tobytes())
    found.update(np.power(points, 1.7).tobytes() + points.sum().tobytes() + (points @ points).tobytes())
    return f"{platform.machine()} ({found.hexdigest()[:DIGITS]})"


def _nvdisasm() -> str:
    path = resources.find_nvdisasm()
    if path is None:
        raise FileNotFoundError("nvdisasm is missing")
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60).stdout.split()
    return shown[-1] if shown else "unknown"
