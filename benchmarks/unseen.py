"""Predicted time of the stored pick for sizes that nobody tuned: `python -m benchmarks.unseen --arch sm_87`.

Products with drawn sizes, types and layouts are served by tier 3 of dispatch from the databases that the runtime
reads (`GENSOR_DB` names the user's own). Its pick is compared with the best Program of a fresh walk over the same
Workload, by the same potential: 1.0 means that tuning this very size would promise nothing. A second column allows
every stored kernel that fits, a third one has kernels of portfolios divide k among blocks as they were tuned alone.
All figures are predictions.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from gensor_kernels.dispatch.selection import load, predict
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.strategies.request import Request, search

#: Element types by how often they are drawn, and the largest operations of a drawn product.
DTYPES = ("float16", "float16", "bfloat16", "float32", "float32", "float64", "int8")
MOST_FLOPS = 2e11
#: Ways to choose among stored kernels, and drawn products that are listed.
WAYS, WORST = ("portfolio", "stored", "as_tuned"), 12
RESULTS = Path(__file__).resolve().parent / "results"


def drawn(count: int, seed: int) -> Iterator[Workload]:
    """Yield `count` products: sizes log-uniform, half of them multiples of 8, batches in one of eight."""
    rng = np.random.default_rng(seed)
    while count:
        dtype = str(rng.choice(DTYPES))
        m, n, k = (int(2**power) for power in rng.uniform((3, 3, 5), (13, 13, 13)))
        if rng.random() < 0.5:
            m, n, k = (-(-size // 8) * 8 for size in (m, n, k))
        batch = int(2 ** rng.uniform(1, 7)) if rng.random() < 0.125 else 1
        if 2.0 * batch * m * n * k > MOST_FLOPS:
            continue
        yield workload(m, n, k, batch=batch, dtype=dtype, trans_b=bool(rng.random() < 0.5))
        count -= 1


def picks(wanted: Workload, arch: Arch, library: Library) -> dict[str, float]:
    """Return the least predicted seconds of portfolios, of all stored kernels, and of portfolios launched as tuned."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for shelf in library.shelves(wanted):
        few = shelf.portfolio or shelf.others
        for way, kernels in (("portfolio", few), ("stored", [*shelf.portfolio, *shelf.others]), ("as_tuned", few)):
            usable = [each for each in kernels if each.fits_epilogue(wanted)]
            launched = usable if way == "as_tuned" else [same for each in usable for same in library.resplit(each)]
            found[way] += predict.predict(launched, wanted, arch, library)
    return {way: min(seconds, default=math.inf) for way, seconds in found.items()}


def measured(arch: Arch, library: Library, count: int, seed: int) -> Iterator[dict[str, object]]:
    """Yield a line per drawn product: predicted microseconds of each way to choose."""
    for wanted in drawn(count, seed):
        found = search(Request(wanted, arch, 0, "full"))
        walked = found.best[0][1]
        chosen = picks(wanted, arch, library)
        best = min(walked, *chosen.values())
        yield {
            "workload": wanted.key(),
            "walk_us": round(walked * 1e6, 3),
            **{name: round(seconds / best, 4) for name, seconds in chosen.items()},
        }


def summary(lines: Sequence[dict[str, object]]) -> dict[str, dict[str, float]]:
    """Return mean, 90th percentile and worst ratio to the best known Program, and the share without any kernel."""
    found = {}
    for name in WAYS:
        ratios = np.array([line[name] for line in lines], float)
        served = ratios[np.isfinite(ratios)]
        found[name] = {
            "mean": round(float(served.mean()), 4),
            "p90": round(float(np.percentile(served, 90)), 4),
            "worst": round(float(served.max()), 4),
            "unserved": round(1 - len(served) / len(ratios), 4),
        }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description=__doc__.splitlines()[0])
    made.add_argument("--arch", nargs="+", default=["sm_87"], help="architectures or parts")
    made.add_argument("--shapes", type=int, default=200, help="drawn products (default %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="seed of the draw (default %(default)s)")
    made.add_argument("--json", type=Path, default=RESULTS / "unseen.json", help="file for the results")
    options = made.parse_args(arguments)
    results = {}
    for name in options.arch:
        arch = lookup(name)
        library = load.library(arch)
        lines = list(measured(arch, library, options.shapes, options.seed))
        served = sorted(
            (each for each in lines if math.isfinite(each["portfolio"])), key=lambda each: -each["portfolio"]
        )
        results[name] = {"seed": options.seed, "shapes": options.shapes, **summary(lines), "worst": served[:WORST]}
        for way in WAYS:
            figures = results[name][way].items()
            print(f"{name:8} {way:10} " + "  ".join(f"{key} {value:.2f}" for key, value in figures), flush=True)
        for line in served[:WORST]:
            print(f"    {line['portfolio']:.2f} {line['stored']:.2f} {line['as_tuned']:.2f} {line['workload']}")
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
