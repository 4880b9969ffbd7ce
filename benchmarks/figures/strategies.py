"""Tables and the plot of benchmarks.strategies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

#: By limit ("64" evaluations, "60 s"): lower quartile, median, upper quartile, least, over seeds.
Limits = Mapping[str, Sequence[float]]
RIVALS = ("random", "annealing", "evolution")


@dataclass(frozen=True)
class Compared:
    """One space: its least milliseconds where they are known, and those found by strategy and limit."""

    optimum: float | None
    found: dict[str, Limits]

    def regrets(self) -> dict[str, Limits]:
        """The same as shares above the optimum, or above the least that anybody found."""
        least = (values[3] for limits in self.found.values() for values in limits.values())
        floor = self.optimum if self.optimum is not None else min(least)
        return {
            name: {limit: [each / floor - 1 for each in values] for limit, values in limits.items()}
            for name, limits in self.found.items()
        }


def quartiles(values: np.ndarray) -> list[float]:
    """Quartiles and the least; of the values themselves, so that infinite ones do no harm."""
    return [float(each) for each in np.quantile(values, (0.25, 0.5, 0.75, 0), method="lower")]


def beaten(spaces: Mapping[str, Compared], limits: Sequence[str]) -> list[str]:
    """Where a rival's median is below the walk's, in words."""
    return [
        f"on {title}, {limit} evaluations, by {rival}"
        for title, each in spaces.items()
        for limit in limits
        for rival in RIVALS
        if rival in each.found and each.found["walk"][limit][1] > each.found[rival][limit][1]
    ]


def written(spaces: Mapping[str, Compared], seeds: int, runs: int) -> str:
    """JSON text of everything; an infinite time is null."""
    body = {"seeds": seeds, "runs": runs, "unit": "ms: quartiles and the least, by evaluations or seconds"}
    text = json.dumps(body | {"spaces": {title: asdict(each) for title, each in spaces.items()}}, indent=1)
    return text.replace("Infinity", "null") + "\n"


def read(path: Path, seeds: int) -> dict[str, Compared]:
    """The spaces of such a text. Raises ValueError where it is of another number of seeds."""
    body = json.loads(path.read_text(encoding="utf-8"))
    if body["seeds"] != seeds:
        raise ValueError(f"{path} has {body['seeds']} seeds, not {seeds}")
    return {
        title: Compared(
            each["optimum"],
            {
                name: {limit: [float("inf") if v is None else v for v in values] for limit, values in limits.items()}
                for name, limits in each["found"].items()
            },
        )
        for title, each in body["spaces"].items()
    }


def line(name: str, limits: Limits) -> str:
    """One printed line of regrets."""
    told = (f"{limit}: {_percent(m)} ({_percent(a)} to {_percent(b)})" for limit, (a, m, b, _) in limits.items())
    return f"{name:34} " + "  ".join(told)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}" if np.isfinite(share) else "-"


def plot(path: Path, spaces: Mapping[str, Compared], evaluations: Sequence[int]) -> str | None:
    """Draws medians with quartiles against evaluations, a panel per space; why not, where matplotlib is missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return "no plot: pip install matplotlib"
    figure, axes = pyplot.subplots(
        1, len(spaces), figsize=(6 * len(spaces), 4.8), layout="constrained", squeeze=False, sharey=True
    )
    for axis, (title, each) in zip(axes.flat, spaces.items(), strict=True):
        found = each.regrets()
        for place, (name, limits) in enumerate(found.items()):
            low, middle, high, _ = 100 * np.array([limits[str(number)] for number in evaluations]).T
            shifted = np.array(evaluations) * 1.03 ** (place - len(found) / 2)
            axis.errorbar(shifted, middle, (middle - low, high - middle), fmt="o-", capsize=2, linewidth=1, label=name)
        axis.set(xscale="log", xlabel="evaluations", title=title)
        axis.set_yscale("symlog", linthresh=0.5)
        axis.set_ylim(bottom=0)
        axis.set_xticks(evaluations, map(str, evaluations))
        axis.legend(fontsize=7)
    axes.flat[0].set_ylabel("best found slower than the optimum, %: median, quartiles")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return None
