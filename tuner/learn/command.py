"""`gensor-tune learn`: fit the residual between a database's timings and the potential, and store it there."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from gensor_database import Kernel, Residual, Store, Timing, canonical, launched, quiet
from gensor_kernels.errors import GensorError
from gensor_kernels.machine import residual, roofline
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.core.program_batch import Roster
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.validation import MALFORMED, class_of, program_of, workload_of
from gensor_tuner.output import say

from .fit import Measured, fit

#: Accepted ratios of a recorded clock to the table's clock; an idle GPU's clock is far below.
CLOCKS = (0.4, 1.3)


class Subject(NamedTuple):
    """The common properties of timings that are predicted together.

    `clock` in GHz, where it was recorded; `serves`: class key of the kernels.
    """

    key: str
    part: str
    conditions: str
    clock: float | None
    family: str
    serves: str


@dataclass
class Lessons:
    """Measurements to learn from, numbers of timings by part, and numbers of unused timings by reason."""

    samples: list[Measured] = field(default_factory=list)
    parts: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


def lessons(store: Store, arch: str | None = None, part: str | None = None) -> Lessons:
    """Collect the timings of our own kernels, of one `arch` or `part` where given.

    Terms are derived again from each kernel's Program. Several timings of one kernel and Workload count as their
    median. Timings taken in the background of another program are left out.
    """
    found = Lessons()
    kernels = {row.digest: row for row in store.rows(Kernel, **({"arch": arch} if arch else {}))}
    groups: dict[Subject, dict[Program, list[float]]] = {}
    for row in quiet(store.rows(Timing, **({"arch": arch} if arch else {}), **({"part": part} if part else {}))):
        if row.kernel_digest is None:
            continue
        try:
            digest, program_text = launched(row)
            subject, program = _subject(row, kernels.get(digest or ""), program_text)
        except MALFORMED as error:
            found.left[str(error)[:100]] += 1
        else:
            groups.setdefault(subject, {}).setdefault(program, []).append(row.median_us)
    for subject, times in sorted(
        groups.items(), key=lambda group: str(group[0])
    ):  # not by digest, which depends on the time of day
        sample = _sample(subject, times)
        if sample is not None:
            found.samples.append(sample)
            found.parts[sample.part] += len(sample.y)
        if sample is None or len(sample.y) < len(times):
            left = len(times) - (len(sample.y) if sample is not None else 0)
            found.left["its Program is not legal for the workload in this version"] += left
    return found


def _subject(row: Timing, kernel: Kernel | None, text: str | None) -> tuple[Subject, Program]:
    """Return the subject of a timing; raise one of MALFORMED where this version cannot interpret it.

    `text` is the Program of a launch with other arguments than the kernel's own.
    """
    if kernel is None:
        raise ValueError("its kernel is not in the database")
    if kernel.family not in FAMILIES or FAMILIES[kernel.family].abi != kernel.abi:
        raise ValueError("its kernel is of another ABI version")
    if not 0 < row.median_us < np.inf:
        raise ValueError("it is not a valid time")
    workload_of(row.key)
    program = program_of(kernel.family, kernel.abi, kernel.class_key, text or kernel.program, kernel.arch)
    arch = lookup(row.part)
    residual.place(row.part, row.device)  # raises ValueError for malformed conditions
    return Subject(row.key, row.part, row.device, _clock(row, arch), kernel.family, kernel.class_key), program


def _clock(row: Timing, arch: Arch) -> float | None:
    """Return the recorded SM clock in GHz, if it is plausible for a busy GPU."""
    machine = json.loads(row.samples).get("machine", {})
    text = machine.get("clocks", {}).get("clocks.sm", "")
    if not text.isdigit():
        return None
    share = float(text) * 1e-3 / arch.clock_ghz
    return round(share * arch.clock_ghz, 2) if CLOCKS[0] <= share <= CLOCKS[1] else None


@lru_cache(maxsize=1)
def _served(serves: str) -> Workload:
    return class_of(serves)


def _sample(subject: Subject, times: dict[Program, list[float]]) -> Measured | None:
    """Return the measurements of one Workload; None where no Program is legal for it."""
    arch, serves, workload = lookup(subject.part), _served(subject.serves), workload_of(subject.key)
    at = arch if subject.clock is None else replace(arch, clock_ghz=subject.clock)
    wanted = replace(workload, layout=serves.layout, alignment=serves.alignment)
    programs = sorted(times, key=Program.to_json)
    if FAMILIES[subject.family].serves(wanted, arch) is not None:
        return None
    places, terms = Roster(FAMILIES[subject.family], programs).terms(wanted, at)
    if terms is None:
        return None
    measured = np.array([median(times[programs[place]]) for place in places]) * 1e-6
    ratio = np.log(measured / roofline.seconds(terms, at))
    name = residual.place(subject.part, subject.conditions)
    x = residual.features(terms, at)
    return Measured(name, workload.kind, workload.operator, x, ratio, arch.name, arch.sms)


def joined(samples: Sequence[Measured]) -> list[Measured]:
    """Join measurements of each operator and dtype of a part, in a stable order."""
    groups: dict[tuple[str, str, str], list[Measured]] = {}
    for each in samples:
        groups.setdefault((each.part, each.dtype, each.operator), []).append(each)
    return [
        replace(group[0], x=np.concatenate([g.x for g in group], axis=1), y=np.concatenate([g.y for g in group]))
        for _, group in sorted(groups.items())
    ]


def learn(path: Path, arch: str | None, part: str | None, seed: int) -> int:
    """Fit the residual to the timings of the database at `path` and store it there; GensorError without timings."""
    with Store.open(path) as store:
        found = lessons(store, arch, part)
        for line in _remarks(found):
            say(f"gensor-tune: {line}", sys.stderr)
        if not found.samples:
            where = f" on {part or arch}" if arch else ""
            raise GensorError(
                f"{path} has no timings of its kernels{where} to learn from: gensor-tune measure takes them on a GPU, "
                "gensor-tune merge brings timings of another machine"
            )
        samples = joined(found.samples)
        model = fit(samples, residual.FEATURES, seed)
        told = {"timings": sum(found.parts.values()), "parts": dict(found.parts), "left": sum(found.left.values())}
        store.add(Residual(arch or "", model.to_json().encode("utf-8"), canonical({**told, "seed": seed})))
    for line in _table(model, samples):
        say(line)
    return 0


def _remarks(found: Lessons) -> Iterator[str]:
    for reason, count in found.left.most_common(5):
        yield f"{count} timings are left out: {reason}"


def _table(model: residual.Residual, samples: Sequence[Measured]) -> Iterator[str]:
    """Yield table lines by part, dtype and operator.

    Columns: measured over predicted, its deviation from 1, and the remaining doubt on measurements held out of the fit.
    """
    yield f"{'part':<24} {'dtype':<12} {'operator':<16} {'timings':>7} {'ratio':>6} {'off by':>7} {'doubt':>7}"
    for each in samples:
        ratio, off = np.exp(np.median(each.y)), np.sqrt(np.mean(each.y**2))
        yield (
            f"{each.part:<24} {each.dtype:<12} {each.operator:<16} {len(each.y):>7} {ratio:>6.2f} "
            f"{100 * off:>6.1f}% {100 * model.parts[each.part].noise:>6.1f}%"
        )
