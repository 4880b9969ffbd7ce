"""Exact counters of shipped kernels on the emulator, compared with a baseline: `python -m benchmarks.kernel_counters`.

For each family, the kernel of the first row of examples/common_shapes.csv that it serves (on sm_87, else on sm_90) runs
once at its first verification case; its result is checked. Its Program is the stored one, its source that of this
checkout. The counters are numbers of accesses, matrix instructions, barriers and bank conflicts, without any noise, so
every difference is a change of the kernel: one line names kernel, counter, both numbers, and how to accept the change.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gensor_database import PRETUNED
from gensor_database.record import Kernel
from gensor_database.store import Store
from gensor_kernels.build.parallel import ordered_map
from gensor_kernels.devices.emulator.build import build
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate, candidate
from gensor_tuner.shapes.reader import read_shapes
from gensor_tuner.verify.problem import Problem
from gensor_tuner.verify.verify import verified_epilogue

ARCHS = ("sm_87", "sm_90")
COMMON = Path(__file__).resolve().parents[1] / "examples" / "common_shapes.csv"
BASELINE = Path(__file__).resolve().parent / "results" / "kernel-counters.json"
COMMAND = "python -m benchmarks.kernel_counters --accept"
#: How often the emulator changes threads is its own affair.
UNCOUNTED = frozenset({"switches"})
Counts = Mapping[str, int]


@dataclass(frozen=True)
class Counted:
    """A shipped kernel, and a workload that it serves."""

    name: str
    candidate: Candidate
    workload: Workload

    def counters(self) -> dict[str, int]:
        """Run the kernel and return its counters; raise Failure where its result is wrong."""
        family, program = self.candidate.family, self.candidate.program
        case = next(iter(family.cases(program, self.workload, verified_epilogue(self.candidate, self.workload))))
        problem = Problem(case, seed=0)
        found = problem.run(self.candidate, build(self.candidate.source()), copies="late", order="forward")
        problem.check()
        return {name: count for name, count in sorted(found.items()) if count and name not in UNCOUNTED}


def shipped_kernels() -> dict[str, Counted]:
    """Return one kernel of each family by name: arch, family, row of the common shapes."""
    found: dict[str, Counted] = {}
    for arch in ARCHS:
        for each in _of_arch(arch):
            found.setdefault(each.candidate.program.family, each)
    return {each.name: each for each in found.values()}


def _of_arch(arch: str) -> Iterator[Counted]:
    """Yield the kernels of the common shapes in a packaged database, in the order of the rows."""
    with Store.open(PRETUNED / f"{arch}.db", readonly=True, immutable=True) as store:
        for row in read_shapes(COMMON):
            records = store.records(row.workload.key(), arch) if row.workload is not None else []
            kernel = store.get(Kernel, records[0].kernel_digest) if records and records[0].kernel_digest else None
            if row.workload is None or kernel is None or kernel.family not in FAMILIES:
                continue
            program = program_from_json(kernel.program)
            made = candidate(FAMILIES[kernel.family], program, row.workload)
            yield Counted(f"{arch} {kernel.family} {row.name}", made, row.workload)


def baseline() -> dict[str, dict[str, int]]:
    """Return the accepted counters by kernel."""
    found: dict[str, dict[str, int]] = json.loads(BASELINE.read_text(encoding="utf-8"))
    return found


def differences(accepted: Mapping[str, Counts], found: Mapping[str, Counts]) -> Iterator[str]:
    """Yield a sentence for each counter, and each kernel, that is not as it was accepted."""
    for kernel in sorted(accepted.keys() | found.keys()):
        if kernel not in found:
            yield f"{kernel} is in the baseline and no longer counted; {COMMAND} removes it"
        elif kernel not in accepted:
            yield f"{kernel} is not in the baseline; {COMMAND} adds it"
        else:
            yield from _changes(kernel, accepted[kernel], found[kernel])


def _changes(kernel: str, accepted: Counts, found: Counts) -> Iterator[str]:
    for counter in sorted(accepted.keys() | found.keys()):
        before, after = accepted.get(counter, 0), found.get(counter, 0)
        if before != after:
            verb, share = "rose" if after > before else "fell", f" ({after / before - 1:+.1%})" if before else ""
            yield f"{kernel}: {counter} {verb} from {before} to {after}{share}; {COMMAND} makes that the baseline"


def main() -> int:
    """Run the command; 0 where every counter is as accepted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel_counters", description=__doc__.splitlines()[0])
    parser.add_argument("--accept", action="store_true", help="write today's counters as the baseline")
    options = parser.parse_args()
    kernels = shipped_kernels()
    found = dict(zip(kernels, ordered_map(Counted.counters, list(kernels.values())), strict=True))
    told = list(differences(baseline() if BASELINE.exists() else {}, found))
    print("\n".join(told) or f"{len(found)} kernels: every counter is as accepted")
    if options.accept:
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(counts)}" for name, counts in found.items())
        BASELINE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return 1 if told and not options.accept else 0


if __name__ == "__main__":
    raise SystemExit(main())
