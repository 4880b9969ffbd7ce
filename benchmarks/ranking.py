"""Rank measured spaces of other libraries' kernels by the potential and compare with their published times.

    python -m benchmarks.ranking DATA.csv.gz --part PART [--kernel clblast|convolution] --predictions OUT.csv
                                 [--json FILE]

PART is a part of archs.toml, or a TOML file in the form of one of its rows. The columns of DATA name its kernel;
--kernel refuses the columns of another kernel. OUT has one predicted time_ms per row of DATA, in the same order.
Where every row of DATA has a time_ms, the command prints Spearman's and Kendall's rank correlation, and regret@k: by
how much the best of the k best predicted configurations is slower than the best of all, next to its exact expectation
for k random picks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_kernels.errors import GensorError

from .spaces.correlation import kendall, random_regret, regret, spearman
from .spaces.measured_space import KERNELS, Space, load

PICKS = (1, 8, 16, 64)


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


def line(found: dict[str, float]) -> str:
    """Return one printed line."""
    picks = "  ".join(f"@{k} {found[f'regret_{k}']:.1%} ({found[f'random_regret_{k}']:.1%})" for k in PICKS)
    return f"Spearman {found['spearman']:.3f}  Kendall {found['kendall']:.3f}  regret (random) {picks}"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranking", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", metavar="DATA.csv.gz")
    parser.add_argument("--part", required=True, help="a part's name, or a TOML file like a row of archs.toml")
    parser.add_argument("--kernel", choices=tuple(KERNELS), help="default: the kernel with the columns of DATA")
    parser.add_argument("--predictions", required=True, metavar="OUT.csv")
    parser.add_argument("--json", metavar="FILE")
    return parser.parse_args(argv)


def compare(space: Space, args: argparse.Namespace) -> dict[str, float]:
    """Print how well the potential ranks a fully measured space; return the figures."""
    found = figures(space.analytic_ms, space.time_ms)
    print(f"{args.data} on {space.arch.part}: {len(space.time_ms)} configurations, best {space.time_ms.min():.3f} ms")
    print(line(found))
    return found


def run(args: argparse.Namespace) -> None:
    """Predict, write, and compare where the space is fully measured."""
    space = load(args.data, args.part, args.kernel)
    times = "".join(f"{value:.6g}\n" for value in space.analytic_ms)
    Path(args.predictions).write_text("time_ms\n" + times, encoding="ascii")
    result: dict[str, object] = {"data": Path(args.data).name, "part": space.arch.part}
    known = ~np.isnan(space.time_ms)
    if known.all() and len(known) > 1:
        result["ranking"] = compare(space, args)
    else:
        print(f"{len(known)} rows predicted, {int(known.sum())} of them measured")
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
