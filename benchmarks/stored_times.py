"""How the potential orders the kernels that a database has times of: python -m benchmarks.stored_times DB --part PART.

For every workload with times of kernels: measured over predicted, Kendall's tau of the two orders, and the time of the
kernel that is predicted to be the fastest over the least of all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from gensor_database import quiet
from gensor_database.record import Kernel, Timing
from gensor_database.store import Store
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.types.workload import Workload

from .gpu.kernels.stored import load
from .gpu.timing import kendall_tau, predictions


class Timed(NamedTuple):
    """A workload with the microseconds that its kernels took and were predicted to take, in the same order."""

    workload: Workload
    measured: np.ndarray
    predicted: np.ndarray

    @property
    def tau(self) -> float | None:
        """Kendall's tau-b of both orders, or None below three kernels."""
        return kendall_tau(self.predicted.tolist(), self.measured.tolist())

    @property
    def regret(self) -> float:
        """The time of the kernel that is predicted to be the fastest over the least."""
        return float(self.measured[np.argmin(self.predicted)] / self.measured.min())


def timed_workloads(store: Store, arch: Arch) -> Iterator[Timed]:
    """Yield the workloads of a database that have times of kernels on a part, by key."""
    kernels = {kernel.digest: kernel for kernel in store.rows(Kernel, arch=arch.name)}
    times: dict[str, dict[str, list[float]]] = {}
    for row in quiet(store.rows(Timing, arch=arch.name, part=arch.part)):
        if row.kernel_digest in kernels:
            times.setdefault(row.key, {}).setdefault(row.kernel_digest, []).append(row.median_us)
    for key, by_kernel in sorted(times.items()):
        workload = Workload.from_json(key)
        found = {digest: load(store, kernels[digest], workload) for digest in by_kernel}
        pairs = [(each.candidate, np.median(by_kernel[digest])) for digest, each in found.items() if each is not None]
        session: object = SimpleNamespace(arch=arch)
        predicted = np.array(predictions(session, workload, [each for each, _ in pairs])) * 1e6  # type: ignore[arg-type]
        legal = np.isfinite(predicted)
        if legal.any():
            yield Timed(workload, np.array([us for _, us in pairs])[legal], predicted[legal])


def figures(found: Sequence[Timed]) -> dict[str, float]:
    """Return the figures of the command's line."""
    errors = np.concatenate([np.log(each.measured / each.predicted) for each in found])
    taus = [tau for each in found if (tau := each.tau) is not None]
    regrets = [each.regret for each in found if len(each.measured) > 1]
    return {
        "workloads": len(found),
        "times": len(errors),
        "measured over predicted": float(np.exp(errors.mean())),
        "its deviation": float(errors.std()),
        "tau": float(np.mean(taus)) if taus else np.nan,
        "regret": float(np.mean(regrets)) if regrets else np.nan,
        "regret at 90 %": float(np.quantile(regrets, 0.9)) if regrets else np.nan,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where the database has no times of the part."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.stored_times", description=__doc__.splitlines()[0])
    made.add_argument("db", type=Path, help="the database")
    made.add_argument("--part", required=True, help="the part that was timed, such as h100-sxm")
    options = made.parse_args(arguments)
    with Store.open(options.db, readonly=True) as store:
        found = list(timed_workloads(store, lookup(options.part)))
    if not found:
        print(f"benchmarks.stored_times: {options.db} has no times of kernels on {options.part}", file=sys.stderr)
        return 1
    print(", ".join(f"{name} {value:.4g}" for name, value in figures(found).items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
