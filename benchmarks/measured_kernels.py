"""The potential against the times of our kernels on an H100: `python -m benchmarks.measured_kernels`.

Predicted anew are all timed kernels of results/h100-sxm.jsonl.gz whose Programs are known: from the events themselves,
or by digest from results/h100-programs.json.gz, which has what databases of that time held. Printed by family: the
measured over the predicted time (geometric mean, 8 and 92 %) and the mean magnitude of its logarithm; over all
Workloads Kendall's tau, and the time of the kernel predicted to be fastest over the least.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.machine.expected import LEAST_WORKLOADS, MEASURED_PART, OUTSIDE
from gensor_kernels.operators.types.workload import Workload

from .gpu.correlation import kendall

RESULTS = Path(__file__).parent / "results"
TIMES, PROGRAMS = RESULTS / "h100-sxm.jsonl.gz", RESULTS / "h100-programs.json.gz"


class Timed(NamedTuple):
    """A timed kernel: its family, the key of its Workload, and microseconds."""

    family: str
    key: str
    predicted_us: float
    measured_us: float

    @property
    def ratio(self) -> float:
        """Measured over predicted time."""
        return self.measured_us / self.predicted_us


def timed(arch: Arch | None = None) -> Iterator[Timed]:
    """Yield the timed kernels whose Programs are known and legal, predicted for `arch`: the part of the times."""
    from gensor_kernels.dispatch.selection.predict import few_seconds

    arch = arch or lookup(MEASURED_PART)
    known = json.loads(gzip.decompress(PROGRAMS.read_bytes()))
    for line in gzip.decompress(TIMES.read_bytes()).splitlines():
        row = json.loads(line)
        if "measured_us" not in row:
            continue
        texts = row.get("programs") or [json.dumps(known.get(digest)) for digest in row["kernels"]]
        for text, measured in zip(texts, row["measured_us"], strict=True):
            fields = json.loads(text)
            family = FAMILIES.get(fields["family"]) if fields else None
            if family is None or measured is None:
                continue
            (seconds,) = few_seconds(family, [program_from_json(text)], Workload.from_json(row["key"]), arch)
            if np.isfinite(seconds):
                yield Timed(family.name, row["key"], seconds * 1e6, measured)


def by_family(rows: Iterable[Timed]) -> dict[str, list[Timed]]:
    """Return the kernels of each family with at least LEAST_WORKLOADS Workloads, and of "" for all others together."""
    found: dict[str, list[Timed]] = defaultdict(list)
    for row in rows:
        found[row.family].append(row)
    few = [name for name, own in found.items() if len({row.key for row in own}) < LEAST_WORKLOADS]
    others = [row for name in few for row in found.pop(name)]
    return {**dict(sorted(found.items())), **({"": others} if others else {})}


def band(rows: Iterable[Timed]) -> tuple[float, float]:
    """Return the quantiles of measured over predicted times that expected.py has."""
    low, high = np.percentile([row.ratio for row in rows], (OUTSIDE, 100 - OUTSIDE))
    return float(low), float(high)


def figures(rows: Iterable[Timed]) -> dict[str, float]:
    """Return the figures of all kernels: the error, Kendall's tau, and the regret of the first choice."""
    workloads: dict[str, list[Timed]] = defaultdict(list)
    for row in rows:
        workloads[row.key].append(row)
    logs = np.log([row.ratio for own in workloads.values() for row in own])
    taus, regrets = [], []
    for own in workloads.values():
        predicted, measured = np.array([(row.predicted_us, row.measured_us) for row in own]).T
        if len(own) > 2 and not np.isnan(tau := kendall(predicted, measured)):
            taus.append(tau)
        if len(own) > 1:
            regrets.append(measured[np.argmin(predicted)] / measured.min())
    return {
        "kernels": len(logs),
        "workloads": len(workloads),
        "measured_over_predicted": round(float(np.exp(logs.mean())), 3),
        "log_error": round(float(np.abs(logs).mean()), 3),
        "tau": round(float(np.mean(taus)), 3),
        "regret": round(float(np.mean(regrets)), 3),
        "regret_90": round(float(np.percentile(regrets, 90)), 3),
    }


def main() -> None:
    """Print the figures."""
    rows = list(timed())
    print("  ".join(f"{name} {value}" for name, value in figures(rows).items()))
    for family, own in by_family(rows).items():
        logs = np.log([row.ratio for row in own])
        low, high = band(own)
        count = len({row.key for row in own})
        print(
            f"{family or 'others':20} {len(own):4} kernels {count:3} workloads  {np.exp(logs.mean()):.2f} "
            f"({low:.2f} to {high:.2f})  |log| {np.abs(logs).mean():.3f}"
        )


if __name__ == "__main__":
    main()
