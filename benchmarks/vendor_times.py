"""Compare third parties' published times of a part with predictions of our pick.

    python -m benchmarks.vendor_times FILE.csv.gz ... --part PART --predictions OUT.csv

The rows of a FILE are products (columns `dtype, m, n, k`; B by rows of k) or causal attentions in bfloat16 (columns
`phase, batch, heads, kv_heads, head_size, queries, past, window`), with `least_us`, which may be empty. OUT has the
rows of all files with `predicted_us`, `bound_us` and the pick's family: the kernel that the runtime would take on PART
without a race, from the databases that it reads (`GENSOR_DB` names the user's own) or of default Programs. Its time is
that of a replayed CUDA graph, as the published ones are: without the host's part of a launch. Cells are empty where no
kernel serves.

Printed, by dtype or phase and class of size: the published time over the predicted one (geometric mean, 10 and 90 %),
Spearman's rank correlation, the rows with the largest and the least ratio and what limits our pick there, and rows that
are faster than our bound without its launch.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gensor_kernels.dispatch.calls.problem import Problem
from gensor_kernels.dispatch.selection import load, tiers
from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.selection.predict import predicted_us
from gensor_kernels.errors import GensorError, UnsupportedError
from gensor_kernels.families.core.program_batch import Roster
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine import roofline
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.products import block_scaled, matmul, quantised
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.report.contents import shares

from .gpu.correlation import spearman

PRODUCT, ATTENTION = {"dtype", "m", "n", "k"}, {"phase", "batch", "heads", "kv_heads", "head_size", "queries", "past"}
WORST = 10
#: Bounds of classes of size: rows of a product, and microseconds of the roofline bound.
ROWS, BOUNDS_US = (16, 256), (10.0, 100.0)


@dataclass(frozen=True)
class Row:
    """A row with its pick; times in microseconds, `measured_us` and `bound_us` NaN where not known, predicted ones
    where no kernel serves."""

    cells: dict[str, str]
    kind: str
    size: str
    measured_us: float
    bound_us: float = math.nan
    predicted_us: float = math.nan
    family: str = ""
    limit: str = ""

    @property
    def ratio(self) -> float:
        """Published over predicted time."""
        return self.measured_us / self.predicted_us

    @property
    def words(self) -> str:
        """The sizes, without times."""
        return " ".join(f"{name} {value}" for name, value in self.cells.items() if not name.endswith(("_us", "tions")))


def read(path: str) -> list[dict[str, str]]:
    """Return the rows of a .csv or .csv.gz file of products or attentions; ValueError for another file."""
    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise ValueError(f"{path}: {error}") from None
    if not rows or not any(wanted <= set(rows[0]) for wanted in (PRODUCT, ATTENTION)):
        raise ValueError(f"{path}: neither products nor attentions")
    return rows


def workload_of(cells: dict[str, str]) -> Workload:
    """Return the Workload of a row; UnsupportedError for types that no kernel takes, ValueError for other cells."""
    if cells.get("phase"):
        queries, past, window = (int(cells[name] or 0) for name in ("queries", "past", "window"))
        return attention.workload(
            queries,
            past + queries,
            batch=int(cells["batch"]),
            heads=int(cells["heads"]),
            kv_heads=int(cells["kv_heads"]),
            head=int(cells["head_size"]),
            dtype="bfloat16",
            causal=True,
            window=(window - 1, 0) if window else (None, None),
        )
    m, n, k = (int(cells[name]) for name in "mnk")
    dtype, _, form = cells["dtype"].partition(" ")
    if form == "weights":
        bits = int(dtype.removeprefix("int"))
        return quantised.workload(m, n, k, bits=bits, group=128 if bits == 4 else 0, dtype="bfloat16")
    if form == "per 128":
        return block_scaled.workload(m, n, k, dtype=dtype)
    if form:
        raise UnsupportedError(f"no kernel serves {cells['dtype']}")
    if dtype in quantised.FORMATS:  # both operands; the epilogue has the factor of their whole tensors
        return quantised.formatted(m, n, k, dtype, epilogue=("scale",))
    return matmul.workload(m, n, k, dtype=dtype, out="bfloat16", trans_b=True)


def predict(cells: dict[str, str], arch: Arch, library: Library) -> Row:
    """Return a row with the pick of the runtime on a part, without a race and without the array library's calls."""
    kind = cells.get("dtype") or f"attention, {cells['phase']}"
    measured = float(cells.get("least_us") or "nan")
    try:
        wanted = workload_of(cells)
    except UnsupportedError:
        return Row(cells, kind, "", measured)
    bound = max(us for name, us in roofline.bounds_us(wanted, arch).items() if name != "launch")
    size = _class(int(cells["m"]) if cells.get("m") else None, bound)
    request = tiers.Request(Problem(wanted, Geometry((1, 1, 1)), ()), arch, emulated=True, one_call=False)
    choice = tiers.choose(request, library)
    replayed = replace(arch, launch_us=0.0)
    predicted = None if choice.kernel is None else predicted_us(choice.kernel, wanted, replayed, library)
    if choice.kernel is None or predicted is None:
        return Row(cells, kind, size, measured, bound)
    program, own = choice.kernel.program, choice.kernel.workload(wanted)
    terms = Roster(FAMILIES[program.family], [program]).terms(own, replayed)[1]
    split = {} if terms is None else shares(terms, replayed)
    limit = max(split, key=lambda name: split[name], default="")
    return Row(cells, kind, size, measured, bound, predicted, program.family, limit)


def _class(rows: int | None, bound: float) -> str:
    """Return the words of a class of size."""
    return (_between(rows, ROWS, " rows, ") if rows is not None else "") + _between(bound, BOUNDS_US, " us")


def _between(value: float, limits: Sequence[float], unit: str) -> str:
    place = sum(value > limit for limit in limits)
    return (f"<= {limits[place]:g}" if place < len(limits) else f"> {limits[-1]:g}") + unit


def lines(rows: Sequence[Row], part: str) -> Iterator[str]:
    """Yield the printed lines of the rows of one kind."""
    served = [row for row in rows if not math.isnan(row.predicted_us)]
    compared = [row for row in served if not math.isnan(row.measured_us)]
    yield f"{part}, {rows[0].kind}: {len(rows)} rows, {len(served)} served, {len(compared)} of these timed"
    if not compared:
        return
    yield f"  {'bound':24} {'rows':>5} {'geomean':>8} {'10 %':>6} {'90 %':>6} {'|log|':>6} {'Spearman':>8}"
    for name in ("all", *sorted({row.size for row in compared})):
        some = [row for row in compared if name in ("all", row.size)]
        log = np.log([row.ratio for row in some])
        low, high = np.exp(np.percentile(log, (10, 90)))
        pairs = np.array([(row.predicted_us, row.measured_us) for row in some])
        rank = f"{spearman(*pairs.T):8.3f}" if np.ptp(pairs, axis=0).all() else ""
        figures = f"{math.exp(log.mean()):8.2f} {low:6.2f} {high:6.2f} {np.abs(log).mean():6.2f} {rank}"
        yield f"  {name:24} {len(some):5} {figures}"
    ordered = sorted(compared, key=lambda row: row.ratio)
    for words, some in (("our pick is predicted slowest", ordered), ("their time is longest", ordered[::-1])):
        yield f"  {words} next to the other's:"
        for row in some[:WORST]:
            yield (
                f"    {row.ratio:5.2f} = {row.measured_us:.4g} / {row.predicted_us:.4g} us, bound {row.bound_us:.4g}: "
                f"{row.words}; {row.family}, {row.limit}"
            )
    beaten = sorted((row for row in compared if row.measured_us < row.bound_us), key=lambda row: row.ratio)
    yield f"  {len(beaten)} rows are faster than our bound" + (":" if beaten else "")
    for row in sorted(beaten, key=lambda row: row.measured_us / row.bound_us)[:WORST]:
        yield f"    {row.measured_us / row.bound_us:.2f} of {row.bound_us:.4g} us: {row.words}"


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows with predictions."""
    found = [
        row.cells
        | {name: "" if math.isnan(us) else f"{us:.6g}" for name, us in _times(row)}
        | {"family": row.family, "limit": row.limit}
        for row in rows
    ]
    names = dict.fromkeys(name for cells in found for name in cells)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(found)


def _times(row: Row) -> tuple[tuple[str, float], ...]:
    return ("predicted_us", row.predicted_us), ("bound_us", row.bound_us)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 2, with a sentence, where it cannot be carried out."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.vendor_times", description=__doc__.splitlines()[0])
    made.add_argument("files", nargs="+", metavar="FILE.csv.gz")
    made.add_argument("--part", required=True, help="a part of archs.toml")
    made.add_argument("--predictions", required=True, type=Path, metavar="OUT.csv")
    options = made.parse_args(argv)
    try:
        arch = lookup(options.part)
        library = load.library(arch)
        rows = [predict(cells, arch, library) for path in options.files for cells in read(path)]
        write(options.predictions, rows)
    except (GensorError, OSError, ValueError) as error:
        print(f"python -m benchmarks.vendor_times: {error}", file=sys.stderr)
        return 2
    for kind in dict.fromkeys(row.kind for row in rows):
        print("\n".join(lines([row for row in rows if row.kind == kind], arch.part)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
