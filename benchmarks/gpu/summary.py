"""The report of a run: figures from the journal, and a short table.

`python -m benchmarks.gpu.summary FILE.json.gz` prints that of committed figures.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gensor_kernels.machine.arch import stored

from . import probes
from .harness.journal import Journal

#: The steps that time kernels next to vendors.
TIMED = ("timing", "compiled")
CLAIMS = "claims"
VENDORS, WORST = ("cupy", "cublas", "torch", "flash", "cudnn", "compiled"), 5
#: The name for the faster of CuPy's call and cuBLASLt's best proposal, where both were timed.
CUBLAS, OF_CUBLAS = "cublas", ("cupy", "cublaslt")


def collect(journal: Journal, steps: Sequence[str]) -> dict[str, Any]:
    """Return outcomes by step, ceilings, and the timing figures by class."""
    ends = journal.results()
    environment = ends.get(("facts", "environment"), {})
    found: dict[str, Any] = {
        "gpu": environment.get("gpu", "no GPU: rehearsal on the emulator"),
        "part": environment.get("part"),
        "emulated": any(end.get("emulated") for end in ends.values()),
        "outcomes": {step: dict(Counter(e["outcome"] for (s, _), e in ends.items() if s == step)) for step in steps},
        "seconds": {
            step: round(sum(e.get("seconds", 0.0) for (s, _), e in ends.items() if s == step), 2) for step in steps
        },
        "copy_gb_s": ends.get(("facts", "copy"), {}).get("gb_s"),
        "tflops": {
            item[7:]: e.get("tflops") for (s, item), e in ends.items() if s == "facts" and item[:7] == "matmul "
        },
        "timing": timing(e for (s, _), e in ends.items() if s in TIMED and "best_us" in e),
        "claims": [claim(e) for (step, _), e in ends.items() if step == CLAIMS and "best_us" in e],
        "graphs": {item: e for (s, item), e in sorted(ends.items()) if s == "graphs" and "us" in e},
        "felt": {item: [e["cupy"], e["ours"]] for (s, item), e in ends.items() if s == "felt" and e.get("cupy")},
        "broken": [
            {"step": step, "item": item, "outcome": e["outcome"], "error": str(e.get("error", ""))[:200]}
            for (step, item), e in sorted(ends.items())
            if e["outcome"] not in ("ok", "skipped")
        ],
    }
    return found


def arch_row(journal: Journal) -> str | None:
    """Return the part's row of archs.toml with measured values, or None where there are none and for a rehearsal."""
    ends = {item: end for (step, item), end in journal.results().items() if step == "facts"}
    environment, probe = ends.get("environment", {}), ends.get("l2", {})
    if probe.get("outcome") != "ok" or probe.get("emulated"):
        return None
    arch = stored(environment["part"])
    clock = probe["clocks"].get("clocks.sm")
    return probes.arch_row(arch, float(clock) / 1e3 if clock else arch.clock_ghz, ends)


def timing(ends: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return vendors' times over ours by family, group and class, and how well the potential ranks."""
    rows = [with_cublas(end) for end in ends]
    taus = [row["tau"] for row in rows if row["tau"] is not None]
    regrets = [row["regret_at_8"] for row in rows if row["regret_at_8"] is not None]
    return {
        "all": speedups(rows),
        "families": _group(rows, lambda row: row["group"].partition(" ")[0]),
        "groups": _group(rows, lambda row: row["group"]),
        "refused": dict(Counter(f"{vendor}: {why}" for row in rows for vendor, why in row["refused"].items())),
        "tau_median": float(np.median(taus)) if taus else None,
        "regret_at_8_worst": max(regrets, default=None),
        "measured_over_predicted": geometric_mean(
            m / p
            for row in rows
            for m, p in zip(row["measured_us"], row["predicted_us"], strict=True)
            if math.isfinite(p)
        ),
    }


def claim(end: dict[str, Any]) -> dict[str, Any]:
    """Return a row of claims.csv: its best kernel, the other kernels' times over that one's, vendors' times over it."""
    best = end["measured_us"].index(end["best_us"])
    others = zip(end["what"], end["measured_us"], strict=True)
    published = {"published": end["published_us"]} if end["published_us"] else {}
    return {
        "name": end["claim"],
        "kernel": end["what"][best],
        "family": end["group"].partition(" ")[0],
        "us": end["best_us"],
        "of_bound": end["best_us"] / end["bound_us"],
        "of_predicted": end["best_us"] / end["predicted_us"][best],
        "tflops": end["tflops"],
        "gb_s": end["gb_s"],
        "worst": max((each for each in end["worst"] if each is not None), default=None),
        "vendors": {name: us / end["best_us"] for name, us in ({**end["vendors_us"], **published}).items()},
        "others": [[what, us / end["best_us"]] for place, (what, us) in enumerate(others) if place != best],
        "refused": end["refused"],
    }


def with_cublas(end: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the faster of cuBLAS's times."""
    times = end["vendors_us"]
    if not all(name in times for name in OF_CUBLAS):
        return end
    return {**end, "vendors_us": {**times, CUBLAS: min(times[name] for name in OF_CUBLAS)}}


def _group(rows: Iterable[dict[str, Any]], name: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(name(row), []).append(row)
    return {each: speedups(group) for each, group in sorted(groups.items())}


def speedups(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return for each vendor its time over ours: the geometric mean for the kernel that tuning chose (`record`) and for
    the best stored kernel (`best`), the number of wins of the latter, and the worst workloads."""
    found: dict[str, Any] = {
        "cases": len(rows),
        "of_bound": geometric_mean(row["best_us"] / row["bound_us"] for row in rows),
        "vendors": {},
    }
    for vendor in sorted({name for row in rows for name in row["vendors_us"]}):
        against = [row for row in rows if vendor in row["vendors_us"]]
        ratios = [row["vendors_us"][vendor] / row["best_us"] for row in against]
        ranked = sorted(zip(ratios, (row["asked"] for row in against), strict=True))
        found["vendors"][vendor] = {
            "record": geometric_mean(row["vendors_us"][vendor] / row["record_us"] for row in against),
            "best": geometric_mean(ratios),
            "wins": sum(ratio > 1 for ratio in ratios),
            "of": len(ratios),
            "worst": [{"ratio": round(ratio, 3), "workload": key} for ratio, key in ranked[:WORST]],
        }
    return found


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean, or None of no values."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def lines(found: dict[str, Any]) -> list[str]:
    """Return the table: one line per step and per class that was timed, and broken items."""
    mark = "  EMULATED: times say nothing" if found["emulated"] else ""
    text = [f"{found['gpu']} ({found['part']}){mark}", f"{'step':<11} {'seconds':>8}  outcomes"]
    for step, outcomes in found["outcomes"].items():
        counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())) or "not reached"
        text.append(f"{step:<11} {found['seconds'][step]:>8.1f}  {counts}")
    ceilings = [f"copy {found['copy_gb_s']:.0f} GB/s"] if found["copy_gb_s"] else []
    ceilings += [f"{name} {value:.1f} TFLOP/s" for name, value in found["tflops"].items() if value]
    text += [f"ceilings: {', '.join(ceilings)}"] if ceilings else []
    text += _claim_lines(found["claims"])
    text += _timing_lines(found["timing"])
    for name, each in found["graphs"].items():
        host = f"host {each['host_us']:.1f} us"
        text.append(f"{name}: {each['us']:.1f} us captured, {host}, library {each['library_us']:.1f}, {each['runs']}")
    for name, (cupy, ours) in found.get("felt", {}).items():
        both = (f"{which[:-3]} {ours[which]:.1f} us, CuPy {us:.1f}" for which, us in cupy.items())
        text.append(f"{name}: {'; '.join(both)}")
    text += [f"{e['outcome']:<8} {e['step']}: {e['item']}: {e['error'][:100]}" for e in found["broken"][:12]]
    if len(found["broken"]) > 12:
        text.append(f"and {len(found['broken']) - 12} more in summary.json")
    return text


def _claim_lines(claims: Sequence[dict[str, Any]]) -> list[str]:
    """Return one line per row of claims.csv that was timed."""
    if not claims:
        return []
    text = [
        f"{'claim':<26} {'us':>9} {'x bound':>8} {'TFLOP/s':>8}  times of vendors and of other kernels over the best's"
    ]
    for each in claims:
        vendors = ", ".join(f"{name} {ratio:.2f}" for name, ratio in each["vendors"].items())
        others = ", ".join(f"{what} {ratio:.2f}" for what, ratio in each["others"])
        figures = f"{each['us']:>9.1f} {each['of_bound']:>8.2f} {each['tflops']:>8.1f}"
        beside = f"{each['kernel']}: {vendors or 'no vendor'}" + (f" | {others}" if others else "")
        text.append(f"{each['name']:<26} {figures}  {beside}")
    return text


def _timing_lines(timing: dict[str, Any]) -> list[str]:
    """Return one line per family and operator, then per family, then for all."""
    if not timing["all"]["cases"]:
        return []
    vendors = [name for name in VENDORS if name in timing["all"]["vendors"]]
    text = [
        f"{'family and operator':<36} {'cases':>5} {'x bound':>8}" + "".join(f" {v + '/ours':>15}" for v in vendors)
    ]
    for name, group in (*timing["groups"].items(), *timing["families"].items(), ("all", timing["all"])):
        text.append(f"{name:<36} {group['cases']:>5} {group['of_bound']:>8.2f}" + _beside(group, vendors))
    by_vendor = {vendor: timing["all"]["vendors"][vendor]["worst"] for vendor in vendors}
    worst = [(each["ratio"], vendor, each["workload"]) for vendor, found in by_vendor.items() for each in found]
    text += [f"worst: {vendor} {ratio:.2f} {_short(key)}" for ratio, vendor, key in sorted(worst)[:WORST]]
    text += [f"left out {count} times: {why}" for why, count in Counter(timing["refused"]).most_common(6)]
    if timing["tau_median"] is not None:
        regret = timing["regret_at_8_worst"]
        more = f", worst regret among the 8 best predicted {regret:.2f}" if regret else ""
        text.append(f"potential: median Kendall tau {timing['tau_median']:.2f}{more}")
    return text


def _beside(group: dict[str, Any], vendors: Sequence[str]) -> str:
    """Return mean ratio and wins for each vendor, in columns."""
    text = ""
    for vendor in vendors:
        found = group["vendors"].get(vendor)
        text += f" {found['best']:>7.2f} {found['wins']:>3}/{found['of']:<3}" if found else " " * 16
    return text


def _short(key: str) -> str:
    """Return a workload in a line: operator, type, sizes that are not 1 or 0."""
    body = json.loads(key)
    sizes = " ".join(f"{name}={size}" for name, size in body["sizes"].items() if size > 1)
    first = next(iter(body["dtypes"].values()))
    return f"{body['operator']} {first} {sizes} {'_'.join(body['epilogue'])}".strip()


if __name__ == "__main__":
    print("\n".join(lines(json.loads(gzip.decompress(Path(sys.argv[1]).read_bytes())))))
