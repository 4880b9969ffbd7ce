"""What gensor-tune makes of shapes files, in figures: `python -m benchmarks.rows ARCH SHAPES.csv [...]`.

Runs the whole pipeline (walk, compile, feed back, cover, verify on the emulator) over the rows of all files in one
run, with cold caches and an empty database, and writes benchmarks/results/rows-<arch>-<name>.json: rows by status,
predicted time over the bound by operator and by file with the limiting term of every row above twice of it, kernels
per class, the predicted regret of one kernel per class, and what the run cost.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gensor_database.store import Store
from gensor_kernels.build import nvrtc, parallel
from gensor_kernels.machine.arch import Arch, lookup
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.result import NEAR_BOUND
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes

from .figures.rows import Tuned, bound_figures, by_class, class_figures, facts_of, half_figures, near_by

RESULTS = Path(__file__).resolve().parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a row failed."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__.splitlines()[0])
    made.add_argument("arch", help="compute capability or part")
    made.add_argument("shapes", type=Path, nargs="+", help="shapes files")
    made.add_argument("--name", help="of the results (default: the file's; 'all' for several)")
    made.add_argument("--jobs", type=int, default=parallel.usable_cores())
    made.add_argument("--top", type=int, default=16)
    made.add_argument("--verify", choices=["emulator", "none"], default="emulator")
    made.add_argument("--warm", action="store_true", help="use the caches there are, instead of empty ones")
    made.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON (default %(default)s)")
    options = made.parse_args(arguments)
    name = options.name or (options.shapes[0].stem if len(options.shapes) == 1 else "all")
    with tempfile.TemporaryDirectory() as folder:
        if not options.warm:
            os.environ["GENSOR_CACHE_DIR"] = folder
        found = figures(lookup(options.arch), options, Path(folder) / "rows.db")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"rows-{options.arch}-{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(lines(found)))
    return 1 if found["status"].get("failed", 0) else 0


def figures(arch: Arch, options: argparse.Namespace, db: Path) -> dict[str, Any]:
    """Tune all rows; everything that is reported about them."""
    began, compiled = time.perf_counter(), nvrtc.compile_count()
    chosen = Options(top=options.top, jobs=options.jobs, verify=options.verify)
    with Store.open(db) as store:
        tuned = tune(Run(arch, store, chosen), options.shapes)
        wall, compilations = time.perf_counter() - began, nvrtc.compile_count() - compiled
        feedback, half = facts_of(store), half_figures(store)
    served = [each for each in tuned if each.result.status == "ok"]
    classes = [class_figures(arch, group, feedback.get(key, ())) for key, group in by_class(served).items()]
    return {
        "arch": arch.name,
        "part": arch.part,
        "rows": len(tuned),
        "status": dict(Counter(each.result.status for each in tuned)),
        "errors": sorted({str(each.result.error) for each in tuned if each.result.status != "ok"}),
        "operators": near_by(served, lambda each: str(each.row.workload and each.row.workload.operator)),
        "files": near_by(served, lambda each: each.file),
        "bound": bound_figures(arch, served, feedback),
        "classes": classes,
        "aligned_half": half,
        "cost": cost(tuned, wall, compilations, options),
    }


def tune(run: Run, shapes: Sequence[Path]) -> list[Tuned]:
    """The rows of all files through one run, so that files that share a class share its kernels."""
    rows = [(row, path.stem) for path in shapes for row in read_shapes(path)]
    file_of = {id(row): stem for row, stem in rows}
    tuned = []
    for row, result in run.rows([row for row, _ in rows]):
        tuned.append(Tuned(row, result, file_of[id(row)]))
        print(f"\rbenchmarks.rows: {len(tuned)} of {len(rows)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return tuned


def cost(tuned: Sequence[Tuned], wall: float, compilations: int, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds, compilations and memory of a run."""
    stages: Counter[str] = Counter()
    seen: set[int] = set()
    for each in tuned:
        if id(each.result) not in seen:
            seen.add(id(each.result))
            stages.update(each.result.seconds)
    scale = 1024 if sys.platform != "darwin" else 1  # ru_maxrss is in KiB on Linux
    own, child = (
        resource.getrusage(who).ru_maxrss * scale / 2**20 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "wall_seconds": round(wall, 2),
        "jobs": options.jobs,
        "verify": options.verify,
        "warm": options.warm,
        "stage_seconds": {name: round(value, 2) for name, value in sorted(stages.items())},
        "compilations": compilations,
        # The stage's wall time over its compilations: what one costs with `jobs` at a time.
        "seconds_per_compilation": round(stages["compile"] / compilations, 4) if compilations else None,
        "peak_mb_self": round(own, 1),
        "peak_mb_largest_child": round(child, 1),
        "peak_mb_at_most": round(own + options.jobs * child, 1),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """The report as text."""
    bound, spent = found["bound"], found["cost"]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(found["status"].items()))
    text = [f"{found['rows']} rows on {found['part']}: {counts}"]
    if bound["of"]:
        text.append(
            f"  within {NEAR_BOUND:g} x bound: {bound['within']} of {bound['of']} ({bound['fraction']:.0%}), "
            f"median {bound['median']:.2f}, worst {bound['worst']:.2f}"
        )
    for name, near in found["operators"].items():
        text.append(f"    {name:<20} {near['within']} of {near['of']}, median {near['median']:.2f}")
    for each in bound["far"]:
        why = ", ".join(f"{name} {share:.0%}" for name, share in each["limits"].items())
        text.append(f"    {each['ratio']:>6.2f}  {each['sizes']:<20} {each['dtype']:<8} waves {each['waves']}: {why}")
    for each in found["classes"]:
        median, worst = each["single_kernel_regret_median"], each["single_kernel_regret_worst"]
        regret = f"one kernel: median {median:.2f}, worst {worst:.2f}" if median is not None else "one kernel: none"
        text.append(f"  {each['class']:<40} {each['rows']:>4} rows, {each['kernels']:>2} kernels; {regret}")
    if found["aligned_half"]["kernels"]:
        own = dict(found["aligned_half"])
        which = own.pop("which")
        counts = ", ".join(f"{count} {name}" for name, count in own.items())
        text += [f"  aligned float16 and bfloat16: {counts}", *(f"    {each}" for each in which)]
    text.append(
        f"  {spent['wall_seconds']:.1f} s, {spent['compilations']} compilations"
        f" ({spent['seconds_per_compilation'] or 0:.3f} s each), peak {spent['peak_mb_self']:.0f} MB"
        f" + children of at most {spent['peak_mb_largest_child']:.0f} MB"
    )
    return text


if __name__ == "__main__":
    sys.exit(main())
