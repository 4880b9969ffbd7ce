"""The kernels of one Arch, in memory: what the tiers choose from. Nothing here is read per call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..build.source import digest, flatten
from ..devices.device import Code
from ..machine.arch import Arch
from ..operators.workload import Workload
from ..programs.families import FAMILIES
from ..programs.program import Program


@dataclass(frozen=True)
class Kernel:
    """A Program compiled for a class: `serves` is a Workload of that class, whose sizes mean nothing."""

    digest: str
    program: Program
    serves: Workload
    code: Code

    @cached_property
    def epilogue_codes(self) -> int:
        """The compile-time epilogue, 0 where it is a run-time list."""
        return int(dict(self.code.constants).get("EPILOGUE_CODES", 0))

    def fits(self, workload: Workload) -> bool:
        """Whether this binary computes `workload`: same types, layouts no more demanding, its epilogue."""
        mine = self.serves
        if (mine.operator, mine.dtypes, mine.accumulator, mine.math) != (
            workload.operator,
            workload.dtypes,
            workload.accumulator,
            workload.math,
        ):
            return False
        for name, layout in mine.layout:
            same = layout == workload.layouts[name] and mine.align[name] <= workload.align[name]
            if not (same or layout == "s"):
                return False
        return self.epilogue_codes == 0 or self.epilogue_codes == expected_codes(self.program, workload)

    def workload(self, wanted: Workload) -> Workload:
        """`wanted` as a Workload of this kernel's class: what to ask its Space about."""
        return replace(wanted, layout=self.serves.layout, alignment=self.serves.alignment)


def expected_codes(program: Program, workload: Workload) -> int:
    """The EPILOGUE_CODES a Program binds for a Workload."""
    return int(FAMILIES[program.family].constants(program, workload).get("EPILOGUE_CODES", 0))


def generate(program: Program, workload: Workload, arch: Arch) -> Kernel:
    """The kernel a Program is for a Workload, from the installed sources; not compiled yet."""
    family = FAMILIES[program.family]
    constants = tuple(sorted(family.constants(program, workload).items()))
    text = flatten(family.source)
    code = Code(digest(repr((digest(text), constants))), text, constants, arch.target)
    return Kernel(digest(repr((code.digest, program.to_json()))), program, workload, code)


@dataclass(frozen=True)
class Timings:
    """Medians in microseconds of one Workload on this part: by kernel digest, and of CuPy's call."""

    kernels: Mapping[str, float] = field(default_factory=dict)
    vendor_us: float | None = None


@dataclass(frozen=True)
class Contents:
    """What the stores hold for one Arch and part: kernels by digest, and by Workload key what tuning chose."""

    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)
    timings: Mapping[str, Timings] = field(default_factory=dict)


class Library:
    """Kernels, records and timings of one Arch and part, indexed for the tiers."""

    def __init__(self, contents: Contents | None = None):
        self.replace(contents or Contents())

    def replace(self, contents: Contents) -> None:
        """Takes in new contents: after tuning, or after a database has changed."""
        self.contents = contents
        self._by_types: dict[tuple[object, ...], list[Kernel]] = {}
        for kernel in sorted(contents.kernels.values(), key=lambda each: each.digest):
            self._by_types.setdefault(_types(kernel.serves), []).append(kernel)
        self._residuals: dict[str, float] = {}

    def record(self, workload: Workload) -> Kernel | None:
        """The kernel tuning chose for exactly this Workload."""
        kernel = self.contents.kernels.get(self.contents.records.get(workload.key(), ""))
        return kernel if kernel is not None and kernel.fits(workload) else None

    def timings(self, workload: Workload) -> Timings:
        """What was measured for exactly this Workload on this part."""
        return self.contents.timings.get(workload.key(), Timings())

    def kernel(self, digest: str) -> Kernel | None:
        """The kernel called `digest`."""
        return self.contents.kernels.get(digest)

    def fitting(self, workload: Workload) -> list[Kernel]:
        """Every kernel whose binary computes `workload`, in the order of their digests."""
        return [kernel for kernel in self._by_types.get(_types(workload), ()) if kernel.fits(workload)]

    def residual(self, kernel: Kernel, predicted_us: Mapping[str, float]) -> float:
        """Geometric mean of measured over predicted time of a kernel; `predicted_us` by Workload key."""
        ratios = [
            math.log(timing.kernels[kernel.digest] / predicted_us[key])
            for key, timing in self.contents.timings.items()
            if kernel.digest in timing.kernels and predicted_us.get(key)
        ]
        return math.exp(sum(ratios) / len(ratios)) if ratios else 1.0

    def timed_workloads(self, kernel: Kernel) -> Iterable[Workload]:
        """The Workloads a kernel was measured on."""
        return (Workload.from_json(key) for key, t in self.contents.timings.items() if kernel.digest in t.kernels)


def _types(workload: Workload) -> tuple[object, ...]:
    return workload.operator, workload.dtypes, workload.accumulator, workload.math
