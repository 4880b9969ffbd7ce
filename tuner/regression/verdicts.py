"""Comparison of two sets of repeated runs, and attribution of a change: to our kernel, to the control, or to both.

Times are compared as logarithms, so differences are ratios. The change is the Hodges-Lehmann estimate: the median of
all differences between an old and a new run. The noise of a run is the larger of two estimates:

- Shamos: the median of all differences between runs of one side, right where runs are independent of each other;
- overlapping batches: distances of the medians of consecutive old runs from the median of all, right where runs drift.

The estimates are medians of pairs: almost three runs in ten may be arbitrarily wrong, such as runs on a busy machine.
(J. L. Hodges, E. L. Lehmann, 1963; M. I. Shamos, 1976; P. J. Rousseeuw, C. Croux, 1993; M. S. Meketon, B. Schmeiser,
1984, for batches.) The critical value comes from a simulation of the same statistic on independent normal noise for the
given numbers of runs: asymptotic tables would be wrong for five runs.

The control (a vendor's call or the machine's own benchmark) is timed in the same run. A clock, driver or neighbour that
slows the machine slows both, so their ratio stays. If the ratio rose, the next question is which side moved: a faster
vendor's call is no slowdown of ours. That is possible only where the runs report another library or driver. The
comparison uses clock cycles instead of seconds where the runs report their clock and cycles are less noisy. Where our
time rose and the ratio did not, the machine is to blame only if the control itself became slower, and the ratio is
steady enough to exclude a slowdown of ours. A control that varies by itself proves neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from . import LIMIT, TOLERANCE
from .runs import Run

FEWEST_BEFORE, FEWEST_AFTER = 5, 3  # runs: with fewer, one outlier decides
MOST = 30  # newest runs of a side that are compared: more add next to nothing, and drift further
LEVEL = 0.003  # share of unchanged benchmarks whose noise alone exceeds the critical value
MISSED = 0.02  # share of slowdowns by the limit that `excludes` denies
FLOOR = 0.001  # lower limit of noise: clocks have a resolution
#: Old and new runs: logarithms of times.
Sides = tuple[Sequence[float], Sequence[float]]
DRAWS, CHUNK = 20_000, 4_000
SHAMOS = 1.0483  # 1 / (sqrt(2) * the normal distribution's upper quartile)
BATCHES = 1.23  # below the 1.4 to 1.7 of independent runs: their noise is Shamos', drift raises it
#: A control has to make our times steadier by a quarter, or leave noise below STEADY.
STEADIER, STEADY = 0.75, 0.03
#: Quantile of the distances of pairs that is used, and its value for normal noise of 1: above the median, because where
#: four of ten runs have another speed, every other pair spans both.
PAIRS, OF_PAIRS = 0.55, 1.0684


def change(sides: Sides) -> float:
    """Return the shift from old to new logarithms of times: 0.05 is about 5 % slower."""
    before, after = sides
    return float(np.median(np.subtract.outer(np.asarray(after), np.asarray(before))))


def noise(sides: Sides) -> float:
    """Return the standard deviation of a run; at least FLOOR."""
    before, after = (np.asarray(side, np.float64)[None] for side in sides)
    return max(float(_noise(before, after)[0]), FLOOR)


def score(sides: Sides) -> float:
    """Return the change in units of its standard deviation under noise alone."""
    return change(sides) / (noise(sides) * _spread(*map(len, sides)))


def is_slower(sides: Sides, tolerance: float = TOLERANCE, level: float = LEVEL) -> bool:
    """Whether the new runs are slower by more than the tolerance and by more than noise explains."""
    return change(sides) > math.log1p(tolerance) and score(sides) > critical(len(sides[0]), len(sides[1]), level)


def is_faster(sides: Sides, tolerance: float = TOLERANCE) -> bool:
    """Whether the new runs are faster by more than the tolerance and by more than noise explains."""
    return change(sides) < -math.log1p(tolerance) and score(sides) < -critical(len(sides[0]), len(sides[1]))


def excludes(sides: Sides, limit: float) -> bool:
    """Whether a slowdown above the limit is excluded by the upper bound of the change: a test of non-inferiority."""
    counts = len(sides[0]), len(sides[1])
    margin = critical(*counts, MISSED) * noise(sides) * _spread(*counts)
    return change(sides) + margin <= math.log1p(limit)


def is_control(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether dividing by a control makes old runs of ours steadier, or leaves little noise."""
    divided = np.asarray(ours) - np.asarray(theirs)
    return _variation(divided) <= max(STEADIER * _variation(np.asarray(ours)), STEADY)


def _variation(values: NDArray[np.float64]) -> float:
    """Return the standard deviation of runs by a quantile of their distances."""
    return float(np.quantile(_within(values[None])[0], PAIRS)) / OF_PAIRS


def _spread(before: int, after: int) -> float:
    """Return the standard deviation of the difference of two means, in units of a run's standard deviation."""
    return math.sqrt(1 / before + 1 / after)


def _noise(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviation of a run for each row of old and new runs."""
    shamos = SHAMOS * np.median(np.concatenate([_within(before), _within(after)], axis=1), axis=1)
    size = max(1, min(after.shape[1], before.shape[1] // 2))
    batches = np.median(np.lib.stride_tricks.sliding_window_view(before, size, axis=1), axis=2)
    apart = np.median(np.abs(batches - np.median(before, axis=1, keepdims=True)), axis=1)
    return np.asarray(np.maximum(shamos, BATCHES * math.sqrt(size) * apart))


def _within(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return all absolute differences within a row: (rows, n) -> (rows, n (n - 1) / 2)."""
    first, second = np.triu_indices(rows.shape[1], 1)
    return np.abs(rows[:, first] - rows[:, second])


def critical(before: int, after: int, level: float = LEVEL) -> float:
    """Return the value that `score` exceeds with probability `level` if nothing changed and noise is normal."""
    return float(np.quantile(_scores(before, after), 1 - level))


@cache
def _scores(before: int, after: int) -> NDArray[np.float64]:
    """Return the scores of simulated noise."""
    rng = np.random.default_rng(before * 1000 + after)
    scores = []
    for _ in range(DRAWS // CHUNK):
        old, new = rng.standard_normal((CHUNK, before)), rng.standard_normal((CHUNK, after))
        moved = np.median((new[:, :, None] - old[:, None, :]).reshape(CHUNK, -1), axis=1)
        scores.append(moved / _noise(old, new))
    return np.concatenate(scores) / _spread(before, after)


#: Verdicts. SLOWER fails a check, and UNCLEAR unless it is allowed.
SLOWER, FASTER, UNCHANGED = "slower", "faster", "unchanged"
MACHINE, VENDOR_FASTER, VENDOR_SLOWER = "machine slower", "vendor faster", "vendor slower"
UNCLEAR, TOO_FEW = "unclear", "too few runs"
FAILING = (SLOWER, UNCLEAR)
#: Preferred vendors for the control, in this order.
PREFERRED = ("cupy", "torch", "compiled")
CLOCK = "SM clock, MHz"
QUANTITIES = (", MHz", ", W")
CONTROL_LEVEL = 0.05  # chance that noise passes for a control that became slower
WITHIN = "within the noise, or the tolerance"
TOO_NOISY = "the runs are too noisy to exclude a slowdown; more runs would"
#: Conditions whose change can make a vendor's call faster or slower.
SOFTWARE = frozenset({"driver", "CUDA driver", "cuBLAS", "CuPy", "PyTorch", "NumPy", "Python"})


@dataclass(frozen=True)
class Verdict:
    """The verdict on one benchmark on one machine. Changes are ratios minus 1, or None without data to compare."""

    name: str
    machine: str
    verdict: str
    why: str
    before: int  # runs
    after: int
    ours: float | None = None
    control: float | None = None
    net: float | None = None


def compare(baseline: Sequence[Run], results: Sequence[Run], tolerance: float = TOLERANCE) -> list[Verdict]:
    """Return a Verdict for every benchmark of `results`, machine by machine."""
    found = []
    for machine in sorted({run.machine for run in results}):
        old = [run for run in baseline if run.machine == machine]
        new = [run for run in results if run.machine == machine]
        for name in sorted({name for run in new for name in run.samples}):
            found.append(_of_one(name, machine, old, new, tolerance))
    return found


def changed_conditions(before: Sequence[Run], after: Sequence[Run]) -> dict[str, tuple[str, str]]:
    """Return the changed conditions of a machine: condition -> (before, after), the most frequent values."""
    old, new = _usual(before), _usual(after)
    both = {name: (old[name], new[name]) for name in sorted(old.keys() & new.keys())}
    return {name: values for name, values in both.items() if not _alike(name, *values)}


def _alike(name: str, old: str, new: str) -> bool:
    """Whether two values are equal; quantities may differ by TOLERANCE, since clocks never repeat exactly."""
    with suppress(ValueError, ZeroDivisionError):
        if name.endswith(QUANTITIES):
            return abs(float(new) / float(old) - 1) <= TOLERANCE
    return old == new


def _usual(runs: Sequence[Run]) -> dict[str, str]:
    """Return each condition's median, if it is a quantity, else its most frequent value."""
    names = dict.fromkeys(name for run in runs for name in run.conditions)
    return {name: _middle(name, [run.conditions[name] for run in runs if name in run.conditions]) for name in names}


def _middle(name: str, values: Sequence[str]) -> str:
    if name.endswith(QUANTITIES):
        with suppress(ValueError):
            return f"{median(map(float, values)):g}"
    return max(sorted(set(values)), key=values.count)


def _of_one(name: str, machine: str, old: Sequence[Run], new: Sequence[Run], tolerance: float) -> Verdict:
    sides = ([run for run in side if name in run.samples] for side in (old, new))
    old, new = (sorted(side, key=lambda run: (run.when, str(run.path)))[-MOST:] for side in sides)
    counts = len(old), len(new)
    if counts[0] < FEWEST_BEFORE or counts[1] < FEWEST_AFTER:
        why = f"{counts[0]} runs before and {counts[1]} now; {FEWEST_BEFORE} and {FEWEST_AFTER} are needed"
        return Verdict(name, machine, TOO_FEW, why, *counts)
    ours = _logs(old, name), _logs(new, name)
    control = _control(old, new, name)
    moved = changed_conditions(old, new)
    if not control:
        verdict, why = _alone(ours, moved, tolerance)
        return Verdict(name, machine, verdict, why, *counts, math.expm1(change(ours)))
    theirs = _logs(old, name, control), _logs(new, name, control)
    verdict, why = _beside(ours, theirs, _clocks(old, new), moved, tolerance)
    own, other, net = (math.expm1(change(each)) for each in (ours, theirs, _less(ours, theirs)))
    return Verdict(name, machine, verdict, why, *counts, own, other, net)


def _logs(runs: Sequence[Run], name: str, control: str = "") -> list[float]:
    samples = [run.samples[name] for run in runs]
    return [math.log(each.controls[control] if control else each.ours_us) for each in samples]


def _less(ours: Sides, theirs: Sides) -> Sides:
    """Return the difference of each run; with the control this is the logarithm of a ratio."""
    before, after = ([a - b for a, b in zip(*each, strict=True)] for each in zip(ours, theirs, strict=True))
    return before, after


def _clocks(old: Sequence[Run], new: Sequence[Run]) -> Sides | None:
    """Return logarithms of the clock period in each run, where every run reports its clock."""
    with suppress(KeyError, ValueError):
        before, after = ([-math.log(float(run.conditions[CLOCK])) for run in side] for side in (old, new))
        return before, after
    return None


def _control(old: Sequence[Run], new: Sequence[Run], name: str) -> str:
    """Return the control that every run has; "" where there is none."""
    common = set.intersection(*(set(run.samples[name].controls) for run in (*old, *new)))
    return min(common, key=lambda each: ([*PREFERRED, each].index(each), each), default="")


def _alone(ours: Sides, moved: Mapping[str, tuple[str, str]], tolerance: float) -> tuple[str, str]:
    """Decide without a control, which is possible only on an unchanged machine."""
    if is_slower(ours, tolerance):
        if moved:
            return UNCLEAR, f"slower, but so may the machine be ({_explain(moved)}), and the runs have no control"
        return SLOWER, "slower, on a machine that says it is the same; the runs have no control"
    if not excludes(ours, max(LIMIT, tolerance)):
        return UNCLEAR, TOO_NOISY
    return (FASTER, "faster") if is_faster(ours, tolerance) else (UNCHANGED, WITHIN)


def _beside(
    ours: Sides, theirs: Sides, clocks: Sides | None, moved: Mapping[str, tuple[str, str]], tolerance: float
) -> tuple[str, str]:
    """Decide with a control: first what rose, then whether the rest excludes that ours did."""
    ratios, changed = _less(ours, theirs), f"; changed: {_explain(moved)}" if moved else ""
    rose, steady = is_slower(ours, tolerance), is_control(ours[0], theirs[0])
    if is_slower(ratios, tolerance) and (rose or steady):
        if SOFTWARE & moved.keys() and _control_moved(ours, theirs, clocks, tolerance):
            return VENDOR_FASTER, f"our time stayed, the control's fell{changed}"
        return SLOWER, f"our time rose against the control's{changed}"
    if rose:
        return _machine(ratios, theirs, steady, changed, tolerance)
    limit = max(LIMIT, tolerance)
    if not excludes(ours, limit) and not (steady and excludes(ratios, limit)):
        return UNCLEAR, TOO_NOISY
    if is_faster(ratios, tolerance) and (steady or is_faster(ours, tolerance)):
        if SOFTWARE & moved.keys() and is_slower(theirs, tolerance) and not is_faster(ours, tolerance):
            return VENDOR_SLOWER, f"our time stayed, the control's rose{changed}"
        return FASTER, f"our time fell against the control's{changed}"
    return UNCHANGED, WITHIN


def _machine(ratios: Sides, theirs: Sides, steady: bool, changed: str, tolerance: float) -> tuple[str, str]:
    """Decide where our time rose and the ratio may not have: the machine, only if the control says so."""
    if not steady:
        return UNCLEAR, f"our time rose, and the control varies too much by itself to vouch for the machine{changed}"
    if not is_slower(theirs, tolerance, CONTROL_LEVEL):
        return UNCLEAR, f"our time rose, the control's did not, and their ratio is too noisy to tell why{changed}"
    if not excludes(ratios, max(LIMIT, tolerance)):
        return UNCLEAR, f"our time and the control's rose, too noisily to tell whether by as much{changed}"
    if is_faster(ratios, tolerance):
        return FASTER, f"our time rose less than the control's{changed}"
    return MACHINE, f"ours and the control became slower alike{changed}"


def _control_moved(ours: Sides, theirs: Sides, clocks: Sides | None, tolerance: float) -> bool:
    """Whether the control became faster while ours did not become slower."""
    if clocks is not None and noise(_less(theirs, clocks)) < noise(theirs):
        ours, theirs = _less(ours, clocks), _less(theirs, clocks)
    return change(ours) <= math.log1p(tolerance) and is_faster(theirs, tolerance)


def _explain(moved: Mapping[str, tuple[str, str]]) -> str:
    return ", ".join(f"{name} {old} -> {new}" for name, (old, new) in moved.items())
