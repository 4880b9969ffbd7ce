"""Attribution of a change: to our kernel, to the control (a vendor's call or the machine's own benchmark), or to both.

The control is timed in the same run. A clock, driver or neighbour that slows the machine slows both, so their ratio
stays. If the ratio rose, the next question is which side moved: a faster vendor's call is no slowdown of ours. That is
possible only where the runs report another library or driver. The comparison uses clock cycles instead of seconds where
the runs report their clock and cycles are less noisy.

Where our time rose and the ratio did not, the machine is to blame only if the control itself became slower, and the
ratio is steady enough to exclude a slowdown of ours. A control that varies by itself proves neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

from . import LIMIT, TOLERANCE
from .runs import Run
from .statistics import (
    FEWEST_AFTER,
    FEWEST_BEFORE,
    MOST,
    Sides,
    change,
    excludes,
    is_control,
    is_faster,
    is_slower,
    noise,
)

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
