"""Tuning of a user's kernel: walk, count, verify, store."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np

import gensor_database as database
from gensor_database.record import Row, canonical
from gensor_database.text import duration, table
from gensor_kernels.build.parallel import ordered_map, usable_cores
from gensor_kernels.errors import BuildError, ConfigError, GensorError
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.own.description import Description, Value, checked
from gensor_kernels.own.kernel import Kernel
from gensor_kernels.own.stored import ABI, FAMILY, program_text, workload_text
from gensor_kernels.tables import aligned
from gensor_tuner.measure.timer import Timed
from gensor_tuner.search.walk import walk

from . import t4
from .measure import WHEN, Measured, measured_here
from .potential import BAND, Counted, pipes, terms
from .space import Built, OwnSpace, Progress
from .verify import Check, Reference, Verdict, assigned, small

#: Finalists that are verified for each one that is kept, at most: the others failed.
TRIED = 4


class OwnError(GensorError):
    """No configuration of a user's kernel passed verification; the message has the first fault."""


@dataclass(frozen=True)
class Found:
    """A verified configuration.

    Attributes
    ----------
    knobs : dict
        Their values.
    predicted_us : float
        Predicted microseconds of a launch, a prediction.
    verdict : Verdict
        Of its execution.
    timed : Timed or None
        Measured microseconds, where it was measured.
    """

    knobs: dict[str, Value]
    predicted_us: float
    verdict: Verdict
    built: Built
    timed: Timed | None = None

    @property
    def measured_us(self) -> float | None:
        """The median of the measured times."""
        return None if self.timed is None else self.timed.median_us


@dataclass(frozen=True)
class Best:
    """The result of tuning: verified configurations by measured or else predicted time, and what was refused.

    Attributes
    ----------
    found : tuple of Found
        The best first.
    failed : tuple of (dict, Verdict)
        Knobs of finalists that failed verification, and how.
    refused : dict
        Number of configurations by the reason that they were not built.
    tried : int
        Configurations that were compiled.
    measured : int
        Configurations that were timed on a GPU.
    """

    description: Description
    source: str
    arch: Arch
    sizes: Mapping[str, int]
    found: tuple[Found, ...]
    failed: tuple[tuple[dict[str, Value], Verdict], ...]
    refused: Mapping[str, int]
    tried: int
    seed: int
    measured: int = 0
    conditions: str = "{}"

    @property
    def knobs(self) -> dict[str, Value]:
        """The knobs of the best configuration."""
        return self.found[0].knobs

    def explain(self, number: int = 0) -> dict[str, float | str]:
        """Return the terms of a configuration's predicted time: clocks of each resource, and the one that limits.

        A measured time is expected between `low_us` and `high_us`: four of five were, on each of three spaces.
        """
        return limits(self.found[number].built.counted, self.arch)

    def __str__(self) -> str:
        rows = [("configuration", *(["measured"] if self.measured else []), "predicted", "limit", "error")]
        for number, each in enumerate(self.found):
            limit = str(self.explain(number)["limit"])
            times = [*([duration(each.measured_us)] if each.timed else []), duration(each.predicted_us)]
            rows.append((assigned(each.knobs), *times, limit, f"{each.verdict.worst:.2g}"))
        return "\n".join(aligned(rows))

    def _repr_html_(self) -> str:
        head = (self.description.name, self.arch.part)
        return table([head, *((str(each.knobs), duration(each.predicted_us)) for each in self.found)])

    def rows(self) -> list[Row]:
        """Return the database rows of all configurations: the best is the record's, all are in a portfolio."""
        source = database.Source.of(self.source)
        made: list[Row] = [source]
        class_key, arch = self.description.to_json(), self.arch
        key = workload_text(self.description, self.sizes)
        kernels = []
        for each in self.found:
            binary, knobs = each.built.binary, canonical(each.knobs)
            usage = binary.registers, binary.spill_bytes, binary.stack_bytes, binary.shared_bytes
            facts = canonical({"entry": each.built.entry.name, "predicted_us": each.predicted_us})
            stored = database.Binary(source.digest, knobs, binary.target, binary.cubin, *usage, facts, binary.toolchain)
            kernel = database.Kernel(FAMILY, ABI, class_key, program_text(each.knobs), arch.name, stored.digest)
            cases = canonical([dict(each.verdict.sizes or {})])
            verdict = each.verdict
            verified = database.Verification(
                kernel.digest, "emulator", verdict.outcome, None, verdict.worst, cases, "{}", canonical({"own": ABI})
            )
            made += [stored, kernel, verified]
            kernels.append(kernel)
            if each.timed is not None:
                here = canonical({"part": arch.part})
                on_device = database.Verification(kernel.digest, "device", "ok", cases=cases, provenance=here)
                timing = (key, arch.name, arch.part, kernel.digest, None, each.timed.median_us, each.timed.samples())
                made += [on_device, database.Timing(*timing, self.conditions)]
        place = (key, arch.name, arch.part, ABI, kernels[0].digest)
        how = canonical({"gensor_kernels": metadata.version("gensor-kernels"), "seed": self.seed, "tried": self.tried})
        made.append(database.Record(*place, self.found[0].predicted_us, None, "ok", None, "{}", how))
        made += [
            database.Portfolio(arch.name, arch.part, class_key, rank, kernel.digest)
            for rank, kernel in enumerate(kernels)
        ]
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add the configurations to a database, which is made where it is missing; `gensor_kernels.own.load` reads it.

        StoreError where it cannot be written.
        """
        rows = self.rows()
        *rest, ranked = (
            [row for row in rows if not isinstance(row, database.Portfolio)],
            [row for row in rows if isinstance(row, database.Portfolio)],
        )
        with database.Store.open(path) as store:
            store.add(*rest[0])
            store.replace_portfolio(self.arch.name, self.arch.part, self.description.to_json(), ranked)

    def to_t4(self, path: str | os.PathLike[str]) -> None:
        """Write the configurations as a T4 file, which Kernel Tuner's tools read; predictions are named as such."""
        finalists = [
            t4.Finalist(each.knobs, each.verdict.outcome, each.predicted_us, each.measured_us) for each in self.found
        ]
        finalists += [t4.Finalist(knobs, verdict.outcome) for knobs, verdict in self.failed]
        Path(path).write_text(json.dumps(t4.results(finalists), indent=1) + "\n")


def limits(counted: Counted, arch: Arch) -> dict[str, float | str]:
    """Return clocks of a round of blocks on one multiprocessor by resource, and the name of the largest, `limit`."""
    found = terms([counted], arch)
    row = {field.name: float(np.broadcast_to(getattr(found, field.name), (1,))[0]) for field in fields(found)}
    residents = row["residents"]
    busy = pipes(counted, arch)
    quarters = np.ceil(residents * counted.warps / roofline.SUBCORES)
    clocks = {name: quarters * share for name, share in busy.items()}
    clocks["shared"] = residents * row["wavefronts"] * 128 / arch.smem_bytes_per_clk
    chip = arch.sms * residents * row["l2_bytes"] / arch.l2_bytes_per_clk
    clocks["l2"] = max(residents * row["l2_bytes"] / roofline.SM_L2_BYTES, chip)
    per_clock = arch.dram_gb_s * roofline.DRAM_EFFICIENCY / arch.clock_ghz
    clocks["dram"] = arch.sms * residents * row["dram_bytes"] / row["blocks"] / per_clock
    clocks["latency"] = row["stalls"]
    limit = max(clocks, key=lambda name: clocks[name])
    predicted = float(roofline.seconds(found, arch)[0]) * 1e6
    times = {"predicted_us": predicted, "low_us": BAND[0] * predicted, "high_us": BAND[1] * predicted}
    rounded: dict[str, float | str] = {name: round(float(value), 1) for name, value in clocks.items()}
    return {**rounded, "blocks_per_sm": residents, "limit": limit, **times}


def tune(
    kernel: Kernel,
    arch: str,
    sizes: Mapping[str, int],
    reference: Reference,
    *,
    check_at: Mapping[str, int] | None = None,
    count_at: Mapping[str, int] | None = None,
    keep: int = 16,
    budget: int = 600,
    seed: int = 0,
    jobs: int | None = None,
    measure: str = "auto",
    progress: Progress | None = None,
) -> Best:
    """Find the fastest configurations of a kernel; see `gensor_kernels.own.Kernel.tune`."""
    if measure not in WHEN:
        raise ConfigError(f"measure is one of {', '.join(WHEN)}, not {measure!r}")
    part, described = lookup(arch), kernel.description
    named = described.sizes
    sizes = checked(named, sizes, dict(described.knobs))
    check = Check(described, reference, checked(named, check_at) if check_at else small(sizes), sizes)
    counted = checked(named, count_at) if count_at else sizes
    space = OwnSpace(described, kernel.source, sizes, part, counted, jobs, progress, budget)
    ranked = ranked_by_prediction(space, budget, seed)
    if not ranked:
        if space.faults and (fault := check(space.faults[0])).outcome != "ok":  # with line, thread and block
            raise OwnError(_failure(described, dict(space.faults[0].knobs), fault))
        reason = next(iter(_reasons(space)), "restrictions and the limits of a block leave none")
        raise BuildError(f"no configuration of {described.name} can be built: {reason}")
    measured = measured_here(space, check, ranked, measure)
    if measured.times:
        fastest = sorted(measured.times, key=lambda each: measured.times[each].median_us)
        ranked = list(zip(fastest, space.predicted(fastest).tolist(), strict=True))
    else:
        ranked = [each for each in ranked if each[0] not in measured.failed]
    found, failed = _verified(space, ranked, measured, check, keep, jobs, progress)
    if not found:
        raise OwnError(_failure(described, *failed[0]))
    return Best(
        described,
        kernel.source,
        part,
        sizes,
        tuple(found),
        tuple(failed),
        _reasons(space),
        len(space.counted) + len(space.refused),
        seed,
        len(measured.times),
        measured.conditions or "{}",
    )


def _failure(described: Description, knobs: Mapping[str, Value], verdict: Verdict) -> str:
    how = "fails" if verdict.outcome == "failed" else "gives wrong results"
    return f"{described.name} with {assigned(knobs)} {how} at {assigned(verdict.sizes or {})}: {verdict.detail}"


def ranked_by_prediction(space: OwnSpace, budget: int, seed: int) -> list[tuple[Program, float]]:
    """Return configurations that can run, the fastest first: all of a small space, else those of a walk."""
    points = space.enumerated(budget)
    if points is not None:
        if not points:
            return []
        space.budget = len(points)
        seconds = space.potential(np.array(points))
        best = [(space.program(point), float(time)) for point, time in zip(points, seconds, strict=True)]
        best.sort(key=lambda each: each[1])
    else:
        best = walk(space, seed=seed, budget=budget, keep=budget, traced=0).best
    return [(program, time) for program, time in best if np.isfinite(time)]


def _verified(
    space: OwnSpace,
    ranked: Sequence[tuple[Program, float]],
    measured: Measured,
    check: Check,
    keep: int,
    jobs: int | None,
    progress: Progress | None,
) -> tuple[list[Found], list[tuple[dict[str, Value], Verdict]]]:
    found: list[Found] = []
    failed = [(dict(space.own.knobs(program)), verdict) for program, verdict in measured.failed.items()]
    step = max(jobs or usable_cores(), 1)
    for first in range(0, min(len(ranked), TRIED * keep), step):
        some = ranked[first : first + step]
        verdicts = ordered_map(partial(_verdict, space, check), [program for program, _ in some], jobs)
        for (program, seconds), verdict in zip(some, verdicts, strict=True):
            knobs = dict(space.own.knobs(program))
            if verdict.outcome == "ok":
                found.append(Found(knobs, seconds * 1e6, verdict, space.built[program], measured.times.get(program)))
            else:
                failed.append((knobs, verdict))
        if progress is not None:
            progress("verified", min(len(found), keep), keep)
        if len(found) >= keep or (not found and len(failed) >= len(measured.failed) + TRIED):
            break
    return found[:keep], failed


def _verdict(space: OwnSpace, check: Check, program: Program) -> Verdict:
    return check(space.built[program].configuration)


def _reasons(space: OwnSpace) -> dict[str, int]:
    counts: dict[str, int] = {}
    for reason in space.refused.values():
        counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda each: -each[1]))
