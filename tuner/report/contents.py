"""The contents of the page: a database's newest records by part, with kernels, times and time splits.

Resources overlap, so "the time of the DRAM" is not defined by itself. A resource's share is its Shapley value: its
contribution to the prediction, averaged over every order in which the resources could be added (L. S. Shapley, A value
for n-person games, 1953). The split needs only Terms and the potential.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace

import numpy as np

from gensor_database.lazy import cached_property
from gensor_database.record import Binary, Kernel, Record, Verification
from gensor_database.store import Store
from gensor_database.timings import verdict
from gensor_kernels.dispatch.plans.comparison import Comparison
from gensor_kernels.errors import MALFORMED, GensorError
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.machine.arch import Arch, stored
from gensor_kernels.machine.roofline import Terms, seconds
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.store.show import best_times, comparison, described, displayed_us, timings
from gensor_tuner.store.uses import Call, Use, newest, read, totals
from gensor_tuner.strategies.request import compiled_space

#: Errors of a stored Program, Workload or walk that this version cannot interpret.
UNREADABLE = (*MALFORMED, GensorError, LookupError, AssertionError)


@dataclass(frozen=True)
class Line:
    """One record. Times are microseconds; `flops` and `moved` (bytes) are None for Workloads unknown here."""

    record: Record
    texts: dict[str, str]  # operator, sizes, dtype, epilogue
    workload: Workload | None
    kernel: Kernel | None
    registers: int | None
    spill_bytes: int | None
    verified: str
    measured_us: float | None
    vendor_us: float | None
    vendor: str
    split: dict[str, float]
    flops: float | None
    moved: float | None
    uses: tuple[Use, ...] = ()  # the rows of shapes files that it was tuned for

    @cached_property
    def predicted_us(self) -> float | None:
        """The predicted time as displayed; the record holds the potential's own prediction."""
        return displayed_us(self.workload, self.record.part, self.record.predicted_us)

    @cached_property
    def both(self) -> Comparison | None:
        """Its times next to those of CuPy's calls, or None where this version does not know them."""
        part = self.record.part
        return comparison(self.workload, part, self.predicted_us, self.measured_us, self.vendor_us, self.family)

    @property
    def model_us(self) -> float:
        """The time of all its calls by models, or of one call; 0 without a kernel."""
        return (self.time_us or 0.0) * (self.calls or 1)

    @property
    def name(self) -> str:
        """The display name, after the names of the rows it was tuned for."""
        epilogue = "" if self.texts["epilogue"] == "none" else f" + {self.texts['epilogue']}"
        own = f"{self.texts['operator']} {self.texts['sizes']} {self.texts['dtype']}{epilogue}"
        return f"{self.called}: {own}" if self.uses else own

    @property
    def called(self) -> str:
        """The names of its rows."""
        return ", ".join(dict.fromkeys(use.name for use in self.uses))

    @property
    def calls(self) -> int | None:
        """Number of calls by its models, or None if no row is known."""
        return sum(use.calls for use in self.uses) if self.uses else None

    @property
    def family(self) -> str:
        """The family of its kernel; "" without one."""
        return self.kernel.family if self.kernel else ""

    @property
    def digest(self) -> str:
        """The first digits of its kernel's digest; "" without one."""
        return self.kernel.digest[:10] if self.kernel else ""

    @property
    def time_us(self) -> float | None:
        """The measured time if there is one, else the predicted time."""
        return self.measured_us if self.measured_us is not None else self.predicted_us

    @property
    def limit(self) -> str:
        """The resource with the largest share of the predicted time."""
        return max(self.split, key=lambda name: self.split[name]) if self.split else ""

    @property
    def speedup(self) -> float | None:
        """The vendor's time over ours, both measured."""
        return self.vendor_us / self.measured_us if self.vendor_us and self.measured_us else None


@dataclass(frozen=True)
class Part:
    """All lines of one part. `arch` is None where archs.toml does not list it."""

    capability: str
    name: str
    arch: Arch | None
    lines: tuple[Line, ...]

    @property
    def totals(self) -> list[str]:
        """A sentence about each model: the times of all its calls."""
        return totals(
            (use.model, Call(use.calls, line.predicted_us, line.record.bound_us, line.both, line.family))
            for line in self.lines
            for use in line.uses
        )

    @property
    def measured(self) -> list[Line]:
        """Lines with a timed kernel."""
        return [line for line in self.lines if line.measured_us is not None]

    @property
    def served(self) -> list[Line]:
        """Lines with a kernel, a time and a known Workload."""
        return [line for line in self.lines if line.kernel and line.time_us and line.flops and line.moved]


def parts(store: Store, arch: str | None) -> list[Part]:
    """Return every part that the database has records of, restricted to `arch` where given."""
    reader = _Reader(store, arch)
    groups: dict[tuple[str, str], list[Line]] = {}
    for record in newest(store, arch):
        groups.setdefault((record.arch, record.part), []).append(reader.line(record))
    return [Part(*name, _arch(name[1]), tuple(lines)) for name, lines in groups.items()]


def _arch(part: str) -> Arch | None:
    with suppress(GensorError):
        return stored(part)
    return None


class _Reader:
    """Makes lines of records; reads each table once."""

    def __init__(self, store: Store, arch: str | None):
        where = {"arch": arch} if arch else {}
        self.timed = timings(store, arch)
        self.kernels = {row.digest: row for row in store.rows(Kernel, **where)}
        self.binaries = {row.digest: row for row in store.rows(Binary)}
        verified: dict[str, list[Verification]] = {}
        for row in store.rows(Verification):
            verified.setdefault(row.kernel_digest, []).append(row)
        self.verdicts = {digest: verdict(rows) for digest, rows in verified.items()}

    def line(self, record: Record) -> Line:
        """Return a record with all related data; data that this version cannot read is left out."""
        kernel = self.kernels.get(record.kernel_digest or "")
        binary = self.binaries.get(kernel.binary_digest) if kernel else None
        workload = _workload(record.key)
        rows = self.timed.get((record.key, record.part), [])
        uses = read(record.provenance)
        ours, theirs = best_times(record, rows)
        return Line(
            record,
            described(workload, uses[0] if uses else None, record.key),
            workload,
            kernel,
            binary.registers if binary else None,
            binary.spill_bytes if binary else None,
            self.verdicts.get(kernel.digest, "none") if kernel else "none",
            ours.median_us if ours else None,
            theirs.median_us if theirs else None,
            ", ".join(sorted({row.vendor for row in rows if row.vendor is not None})),
            _split(workload, kernel, binary, _arch(record.part)),
            workload.flops() if workload else None,
            workload.bytes_moved() if workload else None,
            tuple(uses),
        )


def _workload(key: str) -> Workload | None:
    with suppress(*UNREADABLE):
        found = Workload.from_json(key)
        found.flops()
        return found
    return None


def _split(
    workload: Workload | None, kernel: Kernel | None, binary: Binary | None, arch: Arch | None
) -> dict[str, float]:
    """Return shares of the predicted time including compiler feedback; {} where there is no prediction."""
    with suppress(*UNREADABLE):
        if workload is not None and kernel is not None and arch is not None:
            family = FAMILIES[kernel.family]
            if family.abi == kernel.abi and family.serves(workload, arch) is None:
                return shares(terms_of(workload, kernel, binary, arch), arch)
    return {}


def terms_of(workload: Workload, kernel: Kernel, binary: Binary | None, arch: Arch) -> Terms:
    """Return the terms of a kernel's predicted time, with the compiler's report where there is a binary."""
    program = program_from_json(kernel.program)
    facts = json.loads(binary.facts).get(kernel.family, {}) if binary is not None else {}
    space = compiled_space(workload, arch, program, facts)
    return space.terms(space.point(program)[None])


#: Resource -> its Terms, set to zero to remove its cost. "latency" also removes the arch's latencies.
RESOURCES: Mapping[str, tuple[str, ...]] = {
    "math": ("math", "multiplies"),
    "issue": ("issue",),
    "shared": ("wavefronts",),
    "L2": ("l2_bytes",),
    "DRAM": ("dram_bytes", "epilogue_bytes"),
    "latency": ("chain", "request", "stalls"),
    "ends": ("prologue", "epilogue", "epilogue_busy"),
}
LAUNCH = "launch"  # the remainder where every resource is free
MEANING = {
    "math": "multiplying: the tensor cores' or the FMA pipes' time",
    "issue": "other instructions of the main loop",
    "shared": "shared-memory accesses, conflicts included",
    "L2": "bytes requested from the L2",
    "DRAM": "bytes from and to DRAM",
    "latency": "waiting for memory and dependent instructions",
    "ends": "prologue and epilogue of the blocks",
    LAUNCH: "launching, and further launches of the same call",
}
NONE = 1e-20  # bytes: the potential divides by l2_bytes


def shares(terms: Terms, arch: Arch) -> dict[str, float]:
    """Return each resource's and the launch's share of one Program's predicted time; shares are >= 0 and sum to 1."""
    count = len(RESOURCES)
    subsets = np.arange(1 << count)
    present = (subsets[:, None] >> np.arange(count) & 1).astype(np.float32)
    values = _times(terms, arch, present)
    sizes = present.sum(axis=1).astype(int)
    weight = np.array([math.factorial(s) * math.factorial(count - s - 1) for s in range(count)]) / math.factorial(count)
    found = {}
    for place, name in enumerate(RESOURCES):
        without = subsets[present[:, place] == 0]
        gain = values[without | 1 << place] - values[without]
        found[name] = max(float((gain * weight[sizes[without]]).sum()), 0.0)
    found[LAUNCH] = float(values[0])
    total = sum(found.values())
    return {name: value / total for name, value in found.items()}


def _times(terms: Terms, arch: Arch, present: np.ndarray) -> np.ndarray:
    """Return predicted seconds with only the resources of each row of `present` (subsets, resources)."""
    one = {each.name: np.asarray(getattr(terms, each.name), np.float32).reshape(-1)[:1] for each in fields(terms)}
    values = {name: np.repeat(value, len(present)) for name, value in one.items()}
    for place, names in enumerate(RESOURCES.values()):
        for name in names:
            values[name] = values[name] * present[:, place]
    values["l2_bytes"] = np.maximum(values["l2_bytes"], np.float32(NONE))
    made = Terms(**values)
    instant = replace(arch, l2_latency=0.0, dram_latency=0.0)
    waits = present[:, list(RESOURCES).index("latency")] > 0
    return np.where(waits, seconds(made, arch), seconds(made, instant))
