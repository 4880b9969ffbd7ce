"""What the journal says, as numbers and as a short table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .journal import Journal

Ends = dict[tuple[str, str], dict[str, Any]]


def collect(journal: Journal, steps: Sequence[str]) -> dict[str, Any]:
    """Outcomes by step, ceilings, and the timing figures by class."""
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
        "timing": timing(e for (s, _), e in ends.items() if s == "timing" and e["outcome"] == "ok"),
        "overhead": {
            name: value for name, value in ends.get(("public", "overhead"), {}).items() if name.endswith("_us")
        },
        "broken": [
            {"step": step, "item": item, "outcome": e["outcome"], "error": str(e.get("error", ""))[:200]}
            for (step, item), e in sorted(ends.items())
            if e["outcome"] not in ("ok", "skipped")
        ],
    }
    return found


def timing(ends: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Vendor time over ours, of the record's kernel and of the best stored one, by class; ranking of the potential."""
    rows = list(ends)
    classes: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        classes.setdefault(row["class"], []).append(row)
    taus = [row["tau"] for row in rows if row["tau"] is not None]
    regrets = [row["regret_at_8"] for row in rows if row["regret_at_8"] is not None]
    return {
        "all": speedups(rows),
        "classes": {name: speedups(group) for name, group in sorted(classes.items())},
        "kernels_timed": sum(len(row["kernels"]) for row in rows),
        "tau_median": float(np.median(taus)) if taus else None,
        "regret_at_8_median": float(np.median(regrets)) if regrets else None,
        "regret_at_8_worst": max(regrets, default=None),
        "measured_over_predicted": geometric_mean(
            m / p
            for row in rows
            for m, p in zip(row["measured_us"], row["predicted_us"], strict=True)
            if math.isfinite(p)
        ),
    }


def speedups(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Geometric mean, worst case and wins over cases, of the vendor's time over ours."""
    against = [row for row in rows if row["vendor_us"]]
    ratios = {kind: [row["vendor_us"] / row[f"{kind}_us"] for row in against] for kind in ("record", "best")}
    return {
        "cases": len(rows),
        "of_bound": geometric_mean(row["best_us"] / row["bound_us"] for row in rows),
        **{
            kind: {"mean": geometric_mean(each), "worst": min(each), "wins": sum(r > 1 for r in each), "of": len(each)}
            for kind, each in ratios.items()
            if each
        },
    }


def geometric_mean(values: Iterable[float]) -> float | None:
    """Geometric mean; None of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def lines(found: dict[str, Any]) -> list[str]:
    """The table: one line per step, one per class that was timed, what broke."""
    mark = "  EMULATED: times say nothing" if found["emulated"] else ""
    text = [f"{found['gpu']} ({found['part']}){mark}", f"{'step':<11} {'seconds':>8}  outcomes"]
    for step, outcomes in found["outcomes"].items():
        counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())) or "not reached"
        text.append(f"{step:<11} {found['seconds'][step]:>8.1f}  {counts}")
    ceilings = [f"copy {found['copy_gb_s']:.0f} GB/s"] if found["copy_gb_s"] else []
    ceilings += [f"{name} {value:.1f} TFLOP/s" for name, value in found["tflops"].items() if value]
    text += [f"ceilings: {', '.join(ceilings)}"] if ceilings else []
    text += _timing_lines(found["timing"])
    if found["overhead"]:
        text.append("host time per call: " + ", ".join(f"{k} {v:.2f}" for k, v in sorted(found["overhead"].items())))
    text += [f"{e['outcome']:<8} {e['step']}: {e['item']}: {e['error'][:100]}" for e in found["broken"][:12]]
    if len(found["broken"]) > 12:
        text.append(f"and {len(found['broken']) - 12} more in summary.json")
    return text


def _timing_lines(timing: dict[str, Any]) -> list[str]:
    groups = {**timing["classes"], "all": timing["all"]}
    if not timing["all"]["cases"]:
        return []
    text = [f"{'class':<42} {'cases':>5} {'x bound':>8} {'vendor/ours':>12} {'worst':>6} {'wins':>7}"]
    for name, group in groups.items():
        best = group.get("best")
        versus = f"{best['mean']:>12.2f} {best['worst']:>6.2f} {best['wins']:>3}/{best['of']:<3}" if best else ""
        text.append(f"{name:<42} {group['cases']:>5} {group['of_bound']:>8.2f} {versus}")
    if timing["tau_median"] is not None:
        regret = timing["regret_at_8_worst"]
        more = f", worst regret among the 8 best predicted {regret:.2f}" if regret else ""
        text.append(f"potential: median Kendall tau {timing['tau_median']:.2f}{more}")
    return text
