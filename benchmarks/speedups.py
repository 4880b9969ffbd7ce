"""The picture of the README: times of CuPy, cuBLASLt and PyTorch over ours on an H100, by class of operator.

`python -m benchmarks.speedups` draws it from benchmarks/results/h100-sxm.jsonl.gz.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gensor_tuner.report.drawing import LogScale, Markup, tag

from .gpu.summary import geometric_mean

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "benchmarks" / "results" / "h100-sxm.jsonl.gz"
PICTURE = ROOT / "docs" / "speedups.svg"
VENDORS = {"cupy": "CuPy", "cublaslt": "cuBLASLt's best of eight", "torch": "PyTorch"}
SIXTEEN, EIGHT, COMPLEX = ("float16", "bfloat16"), ("float8_e4m3fn", "int8"), ("complex64", "complex128")
WIDTH, NAMES, TOP, BAR, GAP = 520, 186, 98, 15, 9
STYLE = """
svg { --paper: #ffffff; --ink: #1c2024; --line: #d9dcd6; --cupy: #2f6bd8; --cublaslt: #c44c19; --torch: #14806a; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #14171a; --ink: #e8e9e6; --line: #3a4046; --cupy: #7ba6ff; --cublaslt: #ff9466; --torch: #52cbb0; }
}
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink); }
.title { font-size: 15px; font-weight: 600; } .paper { fill: var(--paper); }
.grid { stroke: var(--line); } .one { stroke: var(--ink); stroke-width: 1.5; }
.cupy { fill: var(--cupy); } .cublaslt { fill: var(--cublaslt); } .torch { fill: var(--torch); }
"""


class Timed(NamedTuple):
    """A workload that was timed: its class of operator, and each vendor's time over that of our best kernel."""

    operators: str
    ratios: Mapping[str, float]


def measured() -> Iterator[Timed]:
    """Read the timings, without workloads of which kernels were refused: those that were timed are not our best."""
    with gzip.open(MEASURED, "rt", encoding="utf-8") as file:
        events = [json.loads(line) for line in file]
    refused = {
        event["item"].split()[1] for event in events if event["step"] == "claims" and event["outcome"] == "wrong"
    }
    for event in events:
        if "best_us" in event and event.get("claim") not in refused:
            ratios = {vendor: us / event["best_us"] for vendor, us in event["vendors_us"].items()}
            yield Timed(operators_of(json.loads(event["key"])), ratios)


def operators_of(workload: dict[str, object]) -> str:
    """Return the class of operator that a workload, given by its key, is drawn in."""
    name, dtypes = str(workload["operator"]), workload["dtypes"]
    assert isinstance(dtypes, dict)
    if name.startswith("attention"):
        return "attention"
    if "conv2d" in name:
        return "convolutions"
    if not name.startswith("matmul") and name != "geglu":
        return "softmax, norms, reductions"
    if name != "matmul" or workload["epilogue"]:
        return "fused products"
    dtype = next(iter(dtypes.values()))
    kinds = {"8-bit products": EIGHT, "16-bit products": SIXTEEN, "complex products": COMPLEX}
    exact = "float32 products" if (dtype, workload["math"]) == ("float32", "ieee") else "TF32, float64 products"
    return next((kind for kind, dtypes in kinds.items() if dtype in dtypes), exact)


def means() -> dict[str, dict[str, tuple[float, int]]]:
    """Return the geometric mean over the workloads of a class and their number, by class and vendor; CuPy's largest
    mean first."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: {vendor: [] for vendor in VENDORS})
    for operators, ratios in measured():
        for vendor in VENDORS.keys() & ratios:
            found[operators][vendor].append(ratios[vendor])
    drawn = {
        operators: {vendor: (geometric_mean(each) or 1.0, len(each)) for vendor, each in own.items() if each}
        for operators, own in found.items()
    }
    return dict(sorted(drawn.items(), key=lambda item: -item[1]["cupy"][0]))


def picture() -> str:
    """Draw the means as bars that begin at 1, on a logarithmic scale, readable on light and dark pages."""
    classes = means()
    height = TOP + sum(len(own) * BAR + GAP for own in classes.values()) + 34
    x = LogScale.around([1.0, *(mean for own in classes.values() for mean, _ in own.values())], NAMES, WIDTH - 76, 1.03)
    marks: list[Markup] = []
    for value in x.ticks():
        marks.append(tag("line", class_="grid", x1=x(value), x2=x(value), y1=TOP - 8, y2=height - 28))
        marks.append(tag("text", f"{value:g}", x=x(value), y=height - 12, text_anchor="middle"))
    y = float(TOP)
    for operators, own in classes.items():
        marks.append(tag("text", operators, x=NAMES - 4, y=y + len(own) * BAR / 2 + 4, text_anchor="end"))
        for vendor, (mean, count) in own.items():
            left, right = sorted((x(1.0), x(mean)))
            marks.append(tag("rect", class_=vendor, x=left, y=y, width=right - left, height=BAR - 3))
            marks.append(tag("text", f"{mean:.{2 if mean < 10 else 0}f} ({count})", x=right + 6, y=y + BAR - 4))
            y += BAR
        y += GAP
    marks.append(tag("line", class_="one", x1=x(1.0), x2=x(1.0), y1=TOP - 8, y2=height - 28))
    for place, (vendor, name) in enumerate(VENDORS.items()):
        at = (16, 92, 280)[place]
        marks.append(tag("rect", class_=vendor, x=at, y=61, width=12, height=12))
        marks.append(tag("text", name, x=at + 18, y=72))
    title = "Their time over ours, measured on an H100"
    marks.append(tag("text", title, class_="title", x=16, y=26))
    marks.append(tag("text", "Geometric means (and workloads); right of 1, ours is faster", x=16, y=48))
    paper = tag("rect", class_="paper", width=WIDTH, height=height, rx=6)
    box = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH} {height}", "role": "img"}
    return tag("svg", tag("title", title), tag("style", Markup(STYLE)), paper, *marks, **box) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
