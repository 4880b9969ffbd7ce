"""Predicted time of the stored pick for sizes that nobody tuned: `python -m benchmarks.unseen --arch sm_87`.

Products, rows (softmax, norms, reductions) and attentions with drawn sizes, types and layouts are served by tier 3 of
dispatch from the databases that the runtime reads (`GENSOR_DB` names the user's own). Its pick is compared with the
best Program of a fresh walk over the same Workload, by the same potential: 1.0 means that tuning this very size would
promise nothing. A second column allows every stored kernel that fits, a third one has kernels of portfolios divide k
among blocks as they were tuned alone. All figures are predictions.
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
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.rows import views
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.run.drawn import MOST_FLOPS, products
from gensor_tuner.strategies.request import Request, search

#: Operators on rows with their epilogues by how often they are drawn, and their most elements.
ROWS = (*[("softmax", ())] * 3, *[("layernorm", ("mul", "bias"))] * 2, *[("rmsnorm", ("mul",))] * 2)
REDUCTIONS = tuple((name, ()) for name in ("reduce_sum", "reduce_mean", "reduce_max", "argmax"))
ROW_DTYPES, MOST_ELEMENTS = ("float16", "bfloat16", "float32", "float32"), 2**28
#: Keyword arguments of drawn attentions by how often they are drawn.
FORMS = (*[{}] * 4, {"mask": "bool", "mask_axes": ("batch", "keys")}, {"window": (1023, 0)}, {"softcap": True})
#: Ways to choose among stored kernels, and drawn Workloads that are listed.
WAYS, WORST = ("portfolio", "stored", "as_tuned"), 12
RESULTS = Path(__file__).resolve().parent / "results"


def rows(count: int, seed: int) -> Iterator[Workload]:
    """Yield `count` softmaxes, norms and reductions: sizes log-uniform, most of them multiples of 8.

    A quarter of the reductions is over the first axis.
    """
    rng = np.random.default_rng(seed)
    while count:
        choices = (*ROWS, *REDUCTIONS)
        name, epilogue = choices[rng.integers(len(choices))]
        dtype = str(rng.choice(ROW_DTYPES))
        lines, k = (int(2**power) for power in rng.uniform((0, 5), (16, 15)))
        if rng.random() < 0.75:
            lines, k = (-(-size // 8) * 8 for size in (lines, k))
        over_columns = (name, epilogue) in REDUCTIONS and rng.random() < 0.25
        if lines * k > MOST_ELEMENTS:
            continue
        shape, axis = ((k, lines), 0) if over_columns else ((lines, k), 1)
        yield views.workload(name, shape, (axis,), dtype, epilogue=epilogue)
        count -= 1


def attentions(count: int, seed: int) -> Iterator[Workload]:
    """Yield `count` attentions: half of them decoding steps, sequences log-uniform, heads of usual models."""
    rng = np.random.default_rng(seed)
    while count:
        form = FORMS[rng.integers(len(FORMS))]
        keys = int(2 ** rng.uniform(5, 14))
        queries = 1 if rng.random() < 0.5 else min(keys, int(2 ** rng.uniform(3, 13)))
        batch, heads = int(2 ** rng.uniform(0, 5)), int(rng.choice((8, 12, 16, 32)))
        kv_heads, head = heads // int(rng.choice((1, 4))), int(rng.choice((64, 64, 80, 128, 128, 256)))
        causal = "window" in form or bool(rng.random() < 0.5)
        dtype = str(rng.choice(("float16", "bfloat16")))
        if 4.0 * batch * heads * queries * keys * head > MOST_FLOPS:
            continue
        sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head": head}
        yield attention.workload(queries, keys, dtype=dtype, causal=causal, **sizes, **form)
        count -= 1


#: Draws by name.
DRAWS: dict[str, Callable[[int, int], Iterator[Workload]]] = {
    "products": products,
    "rows": rows,
    "attentions": attentions,
}


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


def measured(arch: Arch, library: Library, drawn: Iterable[Workload]) -> Iterator[dict[str, Any]]:
    """Yield a line per Workload that an arch has Programs for: predicted microseconds of each way to choose."""
    for wanted in drawn:
        try:
            found = search(Request(wanted, arch, 0, "full"))
        except UnsupportedError:
            continue
        walked = found.best[0][1]
        chosen = picks(wanted, arch, library)
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
    made.add_argument("--json", type=Path, default=RESULTS / "unseen.json", help="file for the results")
    options = made.parse_args(arguments)
    results: dict[str, dict[str, Any]] = {}
    for name, kind in itertools.product(options.arch, options.kind):
        arch = lookup(name)
        lines = list(measured(arch, load.library(arch), DRAWS[kind](options.shapes, options.seed)))
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
