"""Value of one GPU's measurements for another: a residual carried over, against copied times.

    python -m benchmarks.transfer DATA.csv.gz:PART DATA.csv.gz:PART [--splits 8] [--json FILE]

Both files hold the same configurations. In each direction a residual learns from one half of the configurations on one
GPU and ranks the other half on the other GPU, over several random halves: without a measurement on the target, and with
64 of them from the half that is not ranked, chosen at random or as the best predicted, like a tuner chooses. The
baseline ranks by the other GPU's times of the ranked configurations, which the residual never sees.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_tuner.learn.fit import fit

from .ranking import learnt, measurements, predict, regret, spearman
from .spaces.measured_space import Space, given

FEW = 64
NAMES = ("copied times", "analytic", "learnt, none of the target", "learnt, 64 at random", "learnt, 64 best predicted")


def one_split(source: Space, target: Space, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return (Spearman, regret@1, regret@16) by ranking, for one random half."""
    order = np.random.default_rng(seed).permutation(len(target.time_ms))
    half, other = order[: len(order) // 2], order[len(order) // 2 :]
    ranked, rest, taught = target.rows(other), target.rows(half), source.rows(half)
    model = learnt([taught])
    copied = ranked.on(source)
    assert copied is not None
    predictions = {"copied times": copied, "analytic": ranked.analytic_ms, NAMES[2]: predict(ranked, model)}
    few = {NAMES[3]: np.arange(min(FEW, len(half))), NAMES[4]: np.argsort(predict(rest, model), kind="stable")[:FEW]}
    for name, chosen in few.items():
        samples = [measurements(taught), measurements(rest.rows(chosen))]
        predictions[name] = predict(ranked, fit(samples, target.names))
    truth = ranked.time_ms
    return {n: (spearman(p, truth), regret(p, truth, 1), regret(p, truth, 16)) for n, p in predictions.items()}


def direction(source: Space, target: Space, splits: int) -> dict[str, dict[str, float]]:
    """Return means over random halves, and the worst, by ranking."""
    runs = [one_split(source, target, seed) for seed in range(splits)]
    result = {}
    for name in NAMES:
        rho, first, sixteen = np.array([run[name] for run in runs]).T
        means = {"spearman": rho.mean(), "regret_1": first.mean(), "regret_16": sixteen.mean()}
        worst = {"least_spearman": rho.min(), "worst_regret_1": first.max(), "worst_regret_16": sixteen.max()}
        result[name] = {key: round(float(value), 4) for key, value in (means | worst).items()}
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures of both directions."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("spaces", nargs=2, metavar="DATA.csv.gz:PART")
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    a, b = (given(each) for each in args.spaces)
    result: dict[str, object] = {"splits": args.splits}
    for source, target in ((a, b), (b, a)):
        name = f"{source.arch.part} -> {target.arch.part}"
        found = direction(source, target, args.splits)
        result[name] = found
        print(f"{name}, mean (worst) of {args.splits} random halves")
        for ranking, f in found.items():
            print(
                f"  {ranking:26} Spearman {f['spearman']:.3f} ({f['least_spearman']:.3f})"
                f"  regret@1 {f['regret_1']:.1%} ({f['worst_regret_1']:.1%})"
                f"  regret@16 {f['regret_16']:.1%} ({f['worst_regret_16']:.1%})"
            )
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
