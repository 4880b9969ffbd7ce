"""The command: runs in, verdicts out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gensor_tuner.output import beside, say

from .runs import Run, UnusableError, read
from .statistics import FEWEST_AFTER, FEWEST_BEFORE
from .table import lines, write_junit
from .verdicts import SLOWER, TOO_FEW, changed_conditions, compare


def check(baseline: Path, results: Sequence[Path], junit: Path | None, tolerance: float) -> int:
    """Compare the results with the baseline, or the newest runs of the baseline with its older ones; 1 where a
    benchmark of ours is slower, else 0.

    Raises UnusableError where the runs cannot be read or are too few to say anything, ConfigError where `junit` cannot
    be written.
    """
    old, new = _sides(baseline, results)
    verdicts = compare(old, new, tolerance)
    moved = _moved(old, new)
    if junit is not None:
        write_junit(junit, verdicts, moved)
    print("\n".join(lines(verdicts)), file=beside(junit))
    for machine, changes in sorted(moved.items()):
        for name, (before, after) in changes.items():
            say(f"gensor-tune: {machine}: {name} was {before}, is {after}", sys.stderr)
    if all(each.verdict == TOO_FEW for each in verdicts):
        raise UnusableError(
            f"no benchmark has {FEWEST_BEFORE} runs in {baseline} and {FEWEST_AFTER} new ones on the same machine: "
            "with fewer, one bad run would decide"
        )
    return 1 if any(each.verdict == SLOWER for each in verdicts) else 0


def _sides(baseline: Path, results: Sequence[Path]) -> tuple[list[Run], list[Run]]:
    """Old and new runs; a run that is in both counts as new."""
    old = read(baseline)
    if not results:
        return old[:-FEWEST_AFTER], old[-FEWEST_AFTER:]
    found = {run.path.resolve(): run for path in results for run in read(path)}
    return [run for run in old if run.path.resolve() not in found], list(found.values())


def _moved(old: Sequence[Run], new: Sequence[Run]) -> dict[str, dict[str, tuple[str, str]]]:
    """What changed about each machine that both sides have runs of."""
    both = {run.machine for run in old} & {run.machine for run in new}
    return {
        machine: changed_conditions(*([run for run in side if run.machine == machine] for side in (old, new)))
        for machine in both
    }
