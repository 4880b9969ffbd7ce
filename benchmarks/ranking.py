"""The potential, alone or with a learned residual, against measured spaces of other libraries' kernels.

    python -m benchmarks.ranking DATA.csv.gz --part PART [--kernel clblast|convolution] [--train DATA.csv.gz:PART ...]
                                 --predictions OUT.csv [--json FILE] [--plot FILE.png]

PART is a part of archs.toml, or a TOML file in the form of one of its rows. The columns of DATA tell its kernel;
--kernel refuses the columns of another kernel. Rows of DATA with an empty time_ms are
predicted; where some rows are filled and some are empty, the residual learns from the filled rows and from the spaces
behind --train. Where all rows are filled, they are the truth to compare with: Spearman's and Kendall's rank
correlation, and regret@k: by how much the best of the k best predicted configurations is slower than the best of all,
beside its exact expectation for k random picks. OUT has one predicted time_ms per row of DATA, in the same order.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_kernels.errors import GensorError
from gensor_kernels.install import command
from gensor_kernels.machine.residual import Residual
from gensor_tuner.learn.fit import Measured, fit

from .spaces.measured_space import DTYPE, KERNELS, Space, given, load


def measurements(space: Space) -> Measured:
    """Return the training data in the filled rows of a space."""
    known = ~np.isnan(space.time_ms)
    ratio = np.log(space.time_ms[known] / space.analytic_ms[known])
    return Measured(space.arch.part, DTYPE, space.operator, np.ascontiguousarray(space.features[:, known]), ratio)


def learnt(spaces: Sequence[Space]) -> Residual:
    """Return the residual of all filled rows of some spaces."""
    return fit([measurements(space) for space in spaces], spaces[0].names)


def predict(space: Space, model: Residual | None) -> np.ndarray:
    """Return the predicted milliseconds of every row."""
    if model is None:
        return space.analytic_ms
    return space.analytic_ms * np.exp(model.correction(space.features, space.arch.part, DTYPE, space.operator))


def rankings(space: Space, train: Sequence[Space], model: Residual | None) -> dict[str, np.ndarray]:
    """Return the predictions to compare, by name: the potential, the model's if there is one, and times of the spaces
    in `train`."""
    found = {"analytic": space.analytic_ms}
    if model is not None:
        found["learnt"] = predict(space, model)
    for other in train:
        copied = space.on(other)
        if copied is not None and not np.isnan(copied).any():
            found[f"times of {other.arch.part}"] = copied
    return found


PICKS = (1, 8, 16, 64)
#: Rows per batch of comparisons with all other rows: 500 x 18,000 signs are 9 MB.
CHUNK = 500


def ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1, ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def spearman(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return float(np.corrcoef(ranks(predicted), ranks(measured))[0, 1])


def kendall(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Return Kendall's tau-b over all pairs: concordant minus discordant pairs, corrected for ties."""
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
    """Return by how much the best of the `picks` best predicted is slower than the best of all, as a share of the
    latter."""
    chosen = np.argsort(predicted, kind="stable")[:picks]
    return float(measured[chosen].min() / measured.min() - 1)


def random_regret(measured: np.ndarray, picks: int) -> float:
    """Return the exact expectation of `regret` for `picks` different random choices.

    The i-th best time (from 0) is the least of the choices with probability C(n-i-1, k-1) / C(n, k), so that each
    probability follows from the one before; the first is k/n.
    """
    times = np.sort(measured)
    n = len(times)
    k = min(picks, n)
    i = np.arange(n - k)
    chances = np.cumprod(np.concatenate([[k / n], (n - i - k) / (n - i - 1)]))
    return float(chances @ times[: n - k + 1] / times[0] - 1)


def figures(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    """Return all figures of one ranking by name; regrets and correlations are shares, not percent."""
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
    """Return one printed line."""
    picks = "  ".join(f"@{k} {found[f'regret_{k}']:.1%} ({found[f'random_regret_{k}']:.1%})" for k in PICKS)
    return f"{name:10} Spearman {found['spearman']:.3f}  Kendall {found['kendall']:.3f}  regret (random) {picks}"


def plot(path: Path, title: str, rankings: dict[str, np.ndarray], measured: np.ndarray) -> str | None:
    """Draw predicted against measured times, and regret against picks; return a message where matplotlib is missing."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return f"no plot: {command('plot')}"
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


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranking", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", metavar="DATA.csv.gz")
    parser.add_argument("--part", required=True, help="a part's name, or a TOML file like a row of archs.toml")
    parser.add_argument("--kernel", choices=tuple(KERNELS), help="default: the kernel with the columns of DATA")
    parser.add_argument("--train", action="append", default=[], metavar="DATA.csv.gz:PART", help="repeatable")
    parser.add_argument("--predictions", required=True, metavar="OUT.csv")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--plot", metavar="FILE.png", help="default: beside OUT.csv")
    return parser.parse_args(argv)


def compare(
    space: Space, train: Sequence[Space], model: Residual | None, args: argparse.Namespace
) -> dict[str, object]:
    """Print and draw how well the rankings of a fully measured space do; return the figures by ranking."""
    found = rankings(space, train, model)
    result = {name: figures(predicted, space.time_ms) for name, predicted in found.items()}
    print(f"{args.data} on {space.arch.part}: {len(space.time_ms)} configurations, best {space.time_ms.min():.3f} ms")
    for name, each in result.items():
        print(line(name, each))
    path = Path(args.plot or Path(args.predictions).with_suffix(".png"))
    refused = plot(path, f"{Path(args.data).name.split('.')[0]}, {space.arch.part}", found, space.time_ms)
    print(refused or f"plot: {path}", file=sys.stderr)
    return dict(result)


def run(args: argparse.Namespace) -> None:
    """Predict, write, and compare where the space is fully measured."""
    space = load(args.data, args.part, args.kernel)
    train = [given(each, args.kernel) for each in args.train]
    known = ~np.isnan(space.time_ms)
    sources = [*train, *([space] if known.any() and not known.all() else [])]
    model = learnt(sources) if sources else None
    predicted = predict(space, model)
    Path(args.predictions).write_text("time_ms\n" + "".join(f"{value:.6g}\n" for value in predicted), encoding="ascii")
    result: dict[str, object] = {
        "data": Path(args.data).name,
        "part": space.arch.part,
        "train": [Path(each).name for each in args.train],
    }
    if known.all() and len(known) > 1:
        result["rankings"] = compare(space, train, model, args)
    else:
        print(f"{int((~known).sum())} of {len(known)} rows predicted, {int(known.sum())} learnt from")
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 2, with a sentence, where it cannot be carried out."""
    args = _arguments(argv)
    try:
        run(args)
    except (GensorError, OSError, ValueError) as error:
        print(f"python -m benchmarks.ranking: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
