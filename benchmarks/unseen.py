"""Predicted time of the stored pick for untuned sizes: `python -m benchmarks.unseen --arch sm_87`.

Products, rows (softmax, norms, reductions) and attentions with drawn sizes, types and layouts are served by tier 3 of
dispatch from the databases that the runtime reads (`GENSOR_DB` names the user's own). Its pick is compared with the
best Program of a fresh walk over the same Workload, by the same potential: 1.0 means that tuning this very size would
promise nothing. A second column allows every stored kernel that fits. All figures are predictions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.dispatch.selection import load, predict
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.program import Program
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.run.drawn import attentions, floats8, products, rows
from gensor_tuner.strategies.request import Request, search

#: Ways to choose among stored kernels, and drawn Workloads that are listed.
WAYS, WORST = ("portfolio", "stored"), 12
#: Draws by name.
DRAWS: dict[str, Callable[[int, int], Iterator[Workload]]]
DRAWS = {"products": products, "8-bit floats": floats8, "rows": rows, "attentions": attentions}


def choices(wanted: Workload, arch: Arch, library: Library) -> dict[str, list[tuple[Program, float]]]:
    """Return what each way has to choose from: Programs with their predicted seconds."""
    found: dict[str, list[tuple[Program, float]]] = {way: [] for way in WAYS}
    for shelf in library.shelves(wanted):
        allowed = {"portfolio": shelf.portfolio or shelf.others, "stored": [*shelf.portfolio, *shelf.others]}
        for way, kernels in allowed.items():
            usable = [each for each in kernels if each.fits_epilogue(wanted)]
            found[way] += predict.predict_divided(usable, wanted, arch, library)
    return found


def measure(arch: Arch, library: Library, drawn: Iterable[Workload]) -> Iterator[dict[str, Any]]:
    """Yield a line per Workload that an arch has Programs for: predicted microseconds of each way to choose."""
    for wanted in drawn:
        try:
            found = search(Request(wanted, arch, 0, "full"))
        except UnsupportedError:
            continue
        walked = found.best[0][1]
        chosen = {
            way: min((seconds for _, seconds in programs), default=math.inf)
            for way, programs in choices(wanted, arch, library).items()
        }
        best = min(walked, *chosen.values())
        yield {
            "workload": wanted.key(),
            "walk_us": round(walked * 1e6, 3),
            **{name: round(seconds / best, 4) if seconds < math.inf else None for name, seconds in chosen.items()},
        }


def summary(lines: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean, 90th percentile and worst ratio to the best known Program, and the share without any kernel."""
    found = {}
    for name in WAYS:
        served = np.array([line[name] for line in lines if line[name] is not None])
        found[name] = {
            "mean": round(float(served.mean()), 4),
            "p90": round(float(np.percentile(served, 90)), 4),
            "worst": round(float(served.max()), 4),
            "unserved": round(1 - len(served) / len(lines), 4),
        }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.unseen", description=__doc__.splitlines()[0])
    made.add_argument("--arch", nargs="+", default=["sm_87"], help="architectures or parts")
    made.add_argument("--kind", nargs="+", choices=DRAWS, default=list(DRAWS), help="what to draw (default all)")
    made.add_argument("--shapes", type=int, default=200, help="drawn Workloads of each kind (default %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="seed of the draw (default %(default)s)")
    made.add_argument("--json", type=Path, default=Path("unseen.json"), help="file for the results")
    options = made.parse_args(arguments)
    results: dict[str, dict[str, Any]] = {}
    for name, kind in itertools.product(options.arch, options.kind):
        arch = lookup(name)
        lines = list(measure(arch, load.library(arch), DRAWS[kind](options.shapes, options.seed)))
        lines.sort(key=lambda line: -(line["portfolio"] or math.inf))
        found = {"seed": options.seed, "shapes": len(lines), **summary(lines), "worst": lines[:WORST]}
        results.setdefault(name, {})[kind] = found
        for way in WAYS:
            figures = "  ".join(f"{key} {value:.2f}" for key, value in found[way].items())
            print(f"{name:8} {kind:10} {way:10} {figures}", flush=True)
        for line in lines[:WORST]:
            print("    " + " ".join(f"{line[way] or math.inf:.2f}" for way in WAYS), line["workload"])
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
