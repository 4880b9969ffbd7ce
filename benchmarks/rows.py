"""Figures about gensor-tune's results for shapes files: `python -m benchmarks.rows ARCH SHAPES.csv [...]`.

Runs the whole pipeline (walk, compile, feed back, cover, verify on the emulator) over the rows of all files in one run,
with cold caches and an empty database, and writes rows-<arch>-<name>.json: rows by status; predicted
time over the bound, by operator and by file, with the limiting terms of every row above twice the bound; kernels per
class; the predicted regret of one kernel per class; and the cost of the run.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from gensor_database.record import Kernel, Verification
from gensor_database.store import Store
from gensor_kernels.build import nvrtc, parallel
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.contraction.wgmma.store import COPIED
from gensor_kernels.programs.core.program import Program
from gensor_kernels.programs.registry import program_from_json
from gensor_tuner.build.cover import assign, single_kernel_regret
from gensor_tuner.build.pool import Pool
from gensor_tuner.output import class_text, sizes_text
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.result import NEAR_BOUND, Result
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import Row, read_shapes
from gensor_tuner.strategies.request import Facts, space_for


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where a row failed."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__.splitlines()[0])
    made.add_argument("arch", help="compute capability or part")
    made.add_argument("shapes", type=Path, nargs="+", help="shapes files")
    made.add_argument("--name", help="name of the results file (default: the shapes file's; 'all' for several)")
    made.add_argument("--jobs", type=int, default=parallel.usable_cores(), help="processes (default: one per core)")
    made.add_argument("--top", type=int, default=16, help="finalists per class (default %(default)s)")
    made.add_argument("--verify", choices=["emulator", "none"], default="emulator")
    made.add_argument("--warm", action="store_true", help="use the existing caches instead of empty ones")
    made.add_argument("--out", type=Path, default=Path(), help="folder for the JSON (default: the current one)")
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
    """Tune all rows and return the figures of the report."""
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
    """Tune the rows of all files in one run, so that files that share a class share its kernels."""
    rows = [(row, path.stem) for path in shapes for row in read_shapes(path)]
    file_of = {id(row): stem for row, stem in rows}
    tuned = []
    for row, result in run.rows([row for row, _ in rows]):
        tuned.append(Tuned(row, result, file_of[id(row)]))
        print(f"\rbenchmarks.rows: {len(tuned)} of {len(rows)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return tuned


#: Terms that describe the launch, not a resource that a Program waits for.
SHAPE_TERMS = {
    *("blocks", "residents", "warps", "iterations", "registers", "shared_bytes", "in_flight", "slot", "exposed"),
}


@dataclass(frozen=True)
class Tuned:
    """A row of a file and its result."""

    row: Row
    result: Result
    file: str = ""


def facts_of(store: Store) -> dict[str, list[Facts]]:
    """Return the compiler's facts about every stored kernel, by class: the feedback that its predictions use."""
    found: dict[str, list[Facts]] = {}
    for kernel in store.rows(Kernel):
        binary = store.binary(kernel)
        entry = json.loads(binary.facts).get(kernel.family) if binary is not None else None
        if entry is not None:
            found.setdefault(kernel.class_key, []).append(Facts.of(program_from_json(kernel.program), entry))
    return found


def half_figures(store: Store) -> dict[str, Any]:
    """Return how many kernels of aligned float16 and bfloat16 classes spill, have bank conflicts, or move fewer than 16
    bytes at a time, and list them.

    Counts copies into shared memory and stores of results; tensor copies count as wide. Epilogue operands do not count,
    because their own layout decides, and neither does gemv: it stores few results, one by one, and shares its vector in
    any layout.
    """
    found: dict[str, Any] = {"kernels": 0, "spilling": 0, "conflicting": 0, "narrow": 0, "unread": 0, "which": []}
    for kernel in store.rows(Kernel):
        workload, binary = json.loads(kernel.class_key), store.binary(kernel)
        half = set(workload["dtypes"].values()) <= {"float16", "bfloat16"}
        if binary is None or not half or set(workload["alignment"].values()) != {16} or kernel.family == "gemv":
            continue
        accesses = json.loads(binary.facts)[kernel.family].get("accesses")
        widths = {width for opcode in ("LDGSTS", "STG") for width in (accesses or {}).get(opcode, {})}
        flags = {"8"} if json.loads(kernel.program).get("stream") else set()  # flags of stream-K
        by_tensor = json.loads(kernel.program).get("epilogue_staged") == COPIED
        wide = widths - flags == {"16"} or (by_tensor and not widths)
        counters = [json.loads(row.counters) for row in store.rows(Verification, kernel_digest=kernel.digest)]
        faults = {
            "spilling": binary.spill_bytes > 0,
            "conflicting": any(each["counters"].get("bank_conflicts", 0) for each in counters),
            "narrow": accesses is not None and not wide,
            "unread": accesses is None,
        }
        found["kernels"] += 1
        for name, there in faults.items():
            found[name] += there
        if names := [name for name, there in faults.items() if there]:
            found["which"].append(f"{' and '.join(names)}: {workload['operator']} {kernel.program}")
    return found


def by_class(served: Sequence[Tuned]) -> dict[str, list[Tuned]]:
    """Return served rows by the classes of their workloads."""
    return _group(served, lambda each: each.row.workload.class_key() if each.row.workload else "")


def near_by(served: Sequence[Tuned], group: Callable[[Tuned], str]) -> dict[str, dict[str, Any]]:
    """Return how many rows of each group are within twice their bound."""
    return {name: _near([ratio(each.result) for each in rows]) for name, rows in _group(served, group).items()}


def _group(served: Sequence[Tuned], group: Callable[[Tuned], str]) -> dict[str, list[Tuned]]:
    groups: dict[str, list[Tuned]] = {}
    for each in served:
        groups.setdefault(group(each), []).append(each)
    return groups


def _near(ratios: Sequence[float]) -> dict[str, Any]:
    within = sum(value <= NEAR_BOUND for value in ratios)
    return {
        "within": within,
        "of": len(ratios),
        "fraction": within / len(ratios) if ratios else None,
        "median": float(np.median(ratios)) if ratios else None,
        "worst": max(ratios, default=None),
    }


def bound_figures(arch: Arch, served: Sequence[Tuned], feedback: dict[str, list[Facts]]) -> dict[str, Any]:
    """Return how many rows are predicted within twice their bound, and explain the others."""
    ratios = [ratio(each.result) for each in served]
    far = [each for each, value in zip(served, ratios, strict=True) if value > NEAR_BOUND]
    return _near(ratios) | {
        "far": [explain(arch, each, feedback) for each in sorted(far, key=lambda each: -ratio(each.result))]
    }


def ratio(result: Result) -> float:
    """Return predicted time over the bound."""
    assert result.predicted_us is not None and result.bound_us is not None
    return result.predicted_us / result.bound_us


def explain(arch: Arch, each: Tuned, feedback: dict[str, list[Facts]]) -> dict[str, Any]:
    """Return a row with the terms that limit it."""
    workload, result = each.result.workload, each.result
    assert workload is not None and result.family is not None
    space = space_for(workload, arch, feedback.get(workload.class_key(), ())).family(result.family)
    terms = space.explain(space.point(program_of(result)))
    waves = terms["blocks"] / (terms["residents"] * arch.sms)
    return {
        "name": each.row.name,
        "file": each.file,
        "line": each.row.line,
        "sizes": sizes_text(workload),
        "operator": workload.operator,
        "dtype": workload.kind,
        "epilogue": list(workload.epilogue),
        "ratio": round(ratio(result), 3),
        "predicted_us": result.predicted_us,
        "bound_us": result.bound_us,
        "waves": round(waves, 2),
        "limits": limits(terms, arch),
    }


def limits(terms: dict[str, float], arch: Arch) -> dict[str, float]:
    """Return the share of the predicted time that would be saved without a term, the three largest first."""
    names = [each.name for each in fields(roofline.Terms)]
    whole = roofline.Terms(**{name: np.array([terms[name]], np.float32) for name in names})
    before = float(roofline.seconds(whole, arch)[0])
    saved = {}
    for name in names:
        if name not in SHAPE_TERMS:
            without: Any = {name: getattr(whole, name) * np.float32(1e-3)}
            saved[name] = 1 - float(roofline.seconds(replace(whole, **without), arch)[0]) / before
    best = sorted(saved.items(), key=lambda pair: -pair[1])
    return {name: round(share, 3) for name, share in best[:3] if share > 0.01}


def program_of(result: Result) -> Program:
    """Return the Program that a result names."""
    assert result.family is not None
    return Program(result.family, tuple(result.program.items()))


def class_figures(arch: Arch, group: Sequence[Tuned], feedback: Sequence[Facts]) -> dict[str, Any]:
    """Return the kernels of one class, and the predicted regret of its most used kernel over all rows."""
    unique = {each.result.workload.key(): each.result for each in group if each.result.workload is not None}
    workloads: list[Workload] = [each.workload for each in unique.values() if each.workload is not None]
    spaces = [space_for(workload, arch, feedback) for workload in workloads]
    pool = Pool(workloads)
    for space, result in zip(spaces, unique.values(), strict=True):
        pool.add(space, [program_of(result)])
    seconds = pool.seconds(spaces)
    picks = assign(seconds, range(len(pool.candidates)), pool.names)
    _, regrets = single_kernel_regret(seconds, picks)
    finite = regrets[np.isfinite(regrets)]
    sample = workloads[0]
    return {
        "class": class_text(sample),
        "rows": len(group),
        "workloads": len(workloads),
        "kernels": len({result.kernel for result in unique.values()}),
        "single_kernel_regret_median": float(np.median(finite)) if len(finite) else None,
        "single_kernel_regret_worst": float(finite.max()) if len(finite) else None,
        "single_kernel_cannot_serve": int(len(regrets) - len(finite)),
    }


def cost(tuned: Sequence[Tuned], wall: float, compilations: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds, compilations and memory of a run."""
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
        # The stage's wall time over its compilations, `jobs` of which run at a time.
        "seconds_per_compilation": round(stages["compile"] / compilations, 4) if compilations else None,
        "peak_mb_self": round(own, 1),
        "peak_mb_largest_child": round(child, 1),
        "peak_mb_at_most": round(own + options.jobs * child, 1),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return the report as text."""
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
