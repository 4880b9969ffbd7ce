"""Tables and the plot of benchmarks.strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Limits = Mapping[str, Sequence[float]]


def quartiles(values: np.ndarray) -> list[float]:
    """Lower quartile, median, upper quartile; of the values themselves, so that infinite ones do no harm."""
    return [round(float(each), 5) for each in np.quantile(values, (0.25, 0.5, 0.75), method="lower")]


def line(name: str, limits: Limits) -> str:
    """One printed line."""
    told = (f"{limit}: {_percent(m)} ({_percent(a)} to {_percent(b)})" for limit, (a, m, b) in limits.items())
    return f"{name:34} " + "  ".join(told)


def _percent(share: float) -> str:
    return f"{100 * share:.2f}" if np.isfinite(share) else "-"


def plot(path: Path, spaces: Mapping[str, Mapping[str, Limits]], evaluations: Sequence[int]) -> str | None:
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
    for axis, (title, found) in zip(axes.flat, spaces.items(), strict=True):
        for place, (name, limits) in enumerate(found.items()):
            low, middle, high = 100 * np.array([limits[str(number)] for number in evaluations]).T
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
