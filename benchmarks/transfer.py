"""Value of one GPU's measurements for another: a residual carried over, against copied times.

    python -m benchmarks.transfer DATA.csv.gz:PART DATA.csv.gz:PART [--splits 8] [--json FILE]

Both files hold the same configurations. In each direction a residual learns from one half of the configurations on one
GPU and ranks the other half on the other GPU, over several random halves: without a measurement on the target, with 64
of them from the half that is not ranked, chosen at random or as the best predicted, like a tuner chooses, and with that
whole half. Each residual ranks twice: by `Residual.correction`, which abstains where the trees are not sure, and by all
that the trees say. The baseline ranks by the other GPU's times of the ranked configurations, which the residual never
sees.

Before the rankings stands the share of the source's correction that holds on the target (the slope of measured /
predicted over it, in logarithms), over the hidden half and over its NEAR best predicted, and how far measured /
predicted varies there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_kernels.machine.residual import Forest
from gensor_tuner.learn.fit import fit

from .ranking import learnt, measurements, predict, regret, spearman
from .spaces.measured_space import DTYPE, Space, given

FEW = 64
#: Configurations among which a choice is made.
NEAR = 200
#: Rankings by what was measured on the target.
LEARNT = ("none of the target", "64 at random", "64 best predicted", "half of the target")
NAMES = ("copied times", "analytic", *(f"{kind}, {name}" for kind in ("abstaining", "trees") for name in LEARNT))


def one_split(source: Space, target: Space, seed: int) -> dict[str, tuple[float, float, float]]:
    """Return (Spearman, regret@1, regret@16) by ranking, for one random half."""
    ranked, rest, taught = halves(source, target, seed)
    untold = learnt([taught])
    copied = ranked.on(source)
    assert copied is not None
    few = len(rest.time_ms[:FEW])
    best = np.argsort(predict(rest, untold), kind="stable")[:few]
    models = {LEARNT[0]: untold}
    for name, chosen in zip(LEARNT[1:], (np.arange(few), best, np.arange(len(rest.time_ms))), strict=True):
        models[name] = fit([measurements(taught), measurements(rest.rows(chosen))], target.names)
    predictions = {"copied times": copied, "analytic": ranked.analytic_ms}
    for name, model in models.items():
        predictions[f"abstaining, {name}"] = predict(ranked, model)
        told = model.predict(ranked.features, ranked.arch.part, DTYPE, ranked.operator)[0]
        predictions[f"trees, {name}"] = ranked.analytic_ms * np.exp(told)
    truth = ranked.time_ms
    return {n: (spearman(p, truth), regret(p, truth, 1), regret(p, truth, 16)) for n, p in predictions.items()}


def halves(source: Space, target: Space, seed: int) -> tuple[Space, Space, Space]:
    """Return (one half of the target, the other half in random order, that half of the source)."""
    order = np.random.default_rng(seed).permutation(len(target.time_ms))
    half, other = order[: len(order) // 2], order[len(order) // 2 :]
    return target.rows(other), target.rows(half), source.rows(half)


def carried(source: Space, target: Space, seed: int) -> dict[str, float]:
    """Return the share of the source's correction that holds on a hidden half, and the deviation of the target's own.

    `share` and `deviation` over all of the half, `near_share` and `near_deviation` over its NEAR best predicted.
    """
    ranked, _, taught = halves(source, target, seed)
    told = Forest.of(learnt([taught]).trees).mean(ranked.features)
    own = np.log(ranked.time_ms / ranked.analytic_ms)
    result = {}
    for prefix, rows in (("", slice(None)), ("near_", np.argsort(ranked.analytic_ms, kind="stable")[:NEAR])):
        x, y = told[rows], own[rows]
        spread = float(np.var(x))
        result[f"{prefix}share"] = float(np.mean((x - x.mean()) * (y - y.mean()))) / spread if spread else 0.0
        result[f"{prefix}deviation"] = float(y.std())
    return result


def direction(source: Space, target: Space, splits: int) -> dict[str, dict[str, float]]:
    """Return means over random halves, and the worst, by ranking; "carried" has the means of `carried`."""
    shares = [carried(source, target, seed) for seed in range(splits)]
    result = {"carried": {key: round(float(np.mean([each[key] for each in shares])), 4) for key in shares[0]}}
    runs = [one_split(source, target, seed) for seed in range(splits)]
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
        print("  " + ", ".join(f"{key} {value:.2f}" for key, value in found["carried"].items()))
        for ranking in NAMES:
            f = found[ranking]
            print(
                f"  {ranking:30} Spearman {f['spearman']:.3f} ({f['least_spearman']:.3f})"
                f"  regret@1 {f['regret_1']:.1%} ({f['worst_regret_1']:.1%})"
                f"  regret@16 {f['regret_16']:.1%} ({f['worst_regret_16']:.1%})"
            )
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
