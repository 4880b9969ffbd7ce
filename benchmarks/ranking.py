"""The potential, alone or with a learnt residual, against measured spaces of a kernel that is not ours.

    python -m benchmarks.ranking DATA.csv.gz --part PART [--train DATA.csv.gz:PART ...] --predictions OUT.csv
                                 [--json FILE] [--plot FILE.png]

PART is a part of archs.toml or a TOML file of the form of one of its rows.  Rows of DATA whose time_ms is empty are
predicted; where some are filled and some empty, the filled ones are learnt from, beside the spaces behind --train.
Where all are filled they are the truth to compare with: Spearman's and Kendall's rank correlation, and regret@k, how
much slower than the best configuration the best of the k best predicted is, beside its exact expectation for k random
picks.  OUT has one predicted time_ms per row of DATA, in its order.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gensor_kernels.errors import GensorError
from gensor_kernels.machine.residual import Residual
from gensor_tuner.learn.fit import Measured, fit

from .figures.ranking import figures, line, plot
from .spaces.measured_space import DTYPE, OPERATOR, Space, given, load


def measurements(space: Space) -> Measured:
    """What the filled rows of a space teach."""
    known = ~np.isnan(space.time_ms)
    ratio = np.log(space.time_ms[known] / space.analytic_ms[known])
    return Measured(space.arch.part, DTYPE, OPERATOR, np.ascontiguousarray(space.features[:, known]), ratio)


def learnt(spaces: Sequence[Space]) -> Residual:
    """The residual of all filled rows of some spaces."""
    return fit([measurements(space) for space in spaces], spaces[0].names)


def predict(space: Space, model: Residual | None) -> np.ndarray:
    """Predicted milliseconds of every row."""
    if model is None:
        return space.analytic_ms
    return space.analytic_ms * np.exp(model.predict(space.features, space.arch.part, DTYPE, OPERATOR)[0])


def rankings(space: Space, train: Sequence[Space], model: Residual | None) -> dict[str, np.ndarray]:
    """Predictions to compare, by name: the potential; with a model that, and the trained spaces' own times."""
    found = {"analytic": space.analytic_ms}
    if model is not None:
        found["learnt"] = predict(space, model)
    for other in train:
        copied = space.on(other)
        if copied is not None and not np.isnan(copied).any():
            found[f"times of {other.arch.part}"] = copied
    return found


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ranking", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", metavar="DATA.csv.gz")
    parser.add_argument("--part", required=True, help="a part's name, or a TOML file of the form of an archs.toml row")
    parser.add_argument("--train", action="append", default=[], metavar="DATA.csv.gz:PART", help="may be repeated")
    parser.add_argument("--predictions", required=True, metavar="OUT.csv")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--plot", metavar="FILE.png", help="default: beside OUT.csv")
    return parser.parse_args(argv)


def compare(
    space: Space, train: Sequence[Space], model: Residual | None, args: argparse.Namespace
) -> dict[str, object]:
    """Prints and draws how the rankings of a fully measured space do; the figures by ranking."""
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
    """Predicts, writes, and compares where there is something to compare with."""
    space = load(args.data, args.part)
    train = [given(each) for each in args.train]
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
    """Exit code 0, or 2 with a sentence where the command cannot be carried out."""
    args = _arguments(argv)
    try:
        run(args)
    except (GensorError, OSError, ValueError) as error:
        print(f"python -m benchmarks.ranking: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
