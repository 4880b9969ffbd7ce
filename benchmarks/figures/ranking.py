"""How well predictions rank measured times: rank correlations, regret against random picks, a plot."""

from __future__ import annotations

from pathlib import Path

import numpy as np

PICKS = (1, 8, 16, 64)
#: Rows compared with all others at once: 500 x 18,000 signs are 9 MB.
CHUNK = 500


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Spearman's rank correlation."""
    return float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1])


def kendall(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Kendall's tau-b: concordant less discordant pairs, ties accounted for; every pair is looked at."""
    x, y = ranks(predicted).astype(np.float32), ranks(measured).astype(np.float32)
    agree = ties_x = ties_y = 0
    for start in range(0, len(x), CHUNK):
        dx = np.sign(x[start : start + CHUNK, None] - x).astype(np.int8)
        dy = np.sign(y[start : start + CHUNK, None] - y).astype(np.int8)
        agree += int(np.sum(dx * dy, dtype=np.int64))
        ties_x += int(np.count_nonzero(dx == 0))
        ties_y += int(np.count_nonzero(dy == 0))
    pairs = len(x) ** 2
    return agree / float(np.sqrt(float(pairs - ties_x) * float(pairs - ties_y)))


def regret(predicted: np.ndarray, measured: np.ndarray, picks: int) -> float:
    """How much slower than the best the best of the ``picks`` best predicted is, as a share of the best."""
    chosen = np.argsort(predicted, kind="stable")[:picks]
    return float(measured[chosen].min() / measured.min() - 1)


def random_regret(measured: np.ndarray, picks: int) -> float:
    """The expectation of `regret` for ``picks`` different random ones, exact.

    The i-th best time (from 0) is the least of them with probability C(n-i-1, k-1) / C(n, k), by whose ratios the
    probabilities follow from the first, k/n.
    """
    times = np.sort(measured)
    n = len(times)
    k = min(picks, n)
    i = np.arange(n - k)
    chances = np.cumprod(np.concatenate([[k / n], (n - i - k) / (n - i - 1)]))
    return float(chances @ times[: n - k + 1] / times[0] - 1)


def figures(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    """Everything about one ranking, by name; regrets and correlations are shares, not percent."""
    log_ratio = np.log(measured / predicted)
    return {
        "configurations": len(measured),
        "spearman": round(spearman(predicted, measured), 4),
        "kendall": round(kendall(predicted, measured), 4),
        **{f"regret_{k}": round(regret(predicted, measured, k), 4) for k in PICKS},
        **{f"random_regret_{k}": round(random_regret(measured, k), 4) for k in PICKS},
        "measured_over_predicted": round(float(np.exp(np.median(log_ratio))), 3),
        "log_deviation": round(float(log_ratio.std()), 3),
    }


def line(name: str, found: dict[str, float]) -> str:
    """One printed line."""
    picks = "  ".join(f"@{k} {found[f'regret_{k}']:.1%} ({found[f'random_regret_{k}']:.1%})" for k in PICKS)
    return f"{name:10} Spearman {found['spearman']:.3f}  Kendall {found['kendall']:.3f}  regret (random) {picks}"


def plot(path: Path, title: str, rankings: dict[str, np.ndarray], measured: np.ndarray) -> str | None:
    """Draws predicted against measured and regret against picks; the reason why not, where matplotlib is missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return "no plot: pip install matplotlib"
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    picks = np.unique(np.geomspace(1, len(measured), 60).astype(int))
    for name, predicted in rankings.items():
        left.plot(predicted, measured, ".", markersize=2, alpha=0.4, label=name)
        right.plot(picks, [100 * regret(predicted, measured, int(k)) for k in picks], label=name)
    right.plot(picks, [100 * random_regret(measured, int(k)) for k in picks], "k:", label="random picks")
    left.axline((measured.min(), measured.min()), slope=1, color="k", linewidth=0.5)
    left.set(xscale="log", yscale="log", xlabel="predicted, ms", ylabel="measured, ms", title=title)
    right.set(xscale="log", xlabel="best predicted ones tried", ylabel="slower than the best, %", title="Regret")
    right.set_yscale("symlog", linthresh=1)
    right.set_ylim(bottom=0)
    left.legend()
    right.legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return None
