"""Regret of the walk against the true optimum of spaces that are small enough to enumerate.

    python -m benchmarks.walk_vs_brute_force --spaces 100 [--json FILE]

Each space is a family's lattice on a seeded random choice of its coordinate values, with at least 20,000 Programs. The
walk starts from random legal Programs and may evaluate 5 % of them. Random search with the same number of evaluations
is exact: the expected best of that many draws without replacement.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.programs.core.family import Family
from gensor_kernels.programs.registry import FAMILIES
from gensor_kernels.programs.space import FamilySpace
from gensor_tuner.search.walk import walk

LEAST, LATTICE, SHARE = 20_000, 1_000_000, 0.05
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_120")
SIZES = (
    (4096, 4096, 4096),
    (1, 4096, 4096),
    (16, 4096, 11008),
    (128, 768, 768),
    (512, 64, 512),
    (2048, 1000, 512),
    (8192, 128, 1024),
    (300, 300, 300),
    (1024, 1024, 64),
    (64, 64, 16384),
    (333, 777, 1111),
)
DTYPES = {
    "contraction_mma": (("float16", "ieee"), ("bfloat16", "ieee"), ("int8", "ieee"), ("float32", "tf32")),
    "contraction_simt": (("float32", "ieee"), ("float64", "ieee"), ("float16", "ieee"), ("int8", "ieee")),
}
EPILOGUES = ("none", "bias_relu", "gelu")


@dataclass(frozen=True)
class Row:
    """One space. Regrets are best / optimum - 1; `random_hits` is random search's chance to come within 2 %."""

    family: str
    arch: str
    workload: str
    programs: int
    optimum_us: float
    near: float
    evaluations: int
    start: float
    random: float
    random_hits: float
    walk: float
    single: float
    paper: float
    seconds: float


def describe(workload: Workload) -> str:
    """Return a short name: 128x768x768 float16 NT bias+relu."""
    size, layout = workload.size, workload.layouts
    letters = ("N" if layout["a"] == "k" else "T") + ("N" if layout["b"] == "n" else "T")
    math = "tf32" if workload.math == "tf32" else workload.dtype["a"]
    return " ".join([f"{size['m']}x{size['n']}x{size['k']}", math, letters, "+".join(workload.epilogue)]).strip()


#: The most values of some coordinates: all but the smallest value of `stream` need one split, and launch bounds under
#: which all blocks are resident.
FEW = {"stream": 3}


def reduce_to(
    family: Family, workload: Workload, arch: Arch, lattice: int, rng: np.random.Generator
) -> dict[str, tuple[int, ...]]:
    """Return the values of each coordinate for at most `lattice` complete lattice points, the others dropped at random.

    The smallest value of each coordinate stays, so that the minimal Program is a point.
    """
    kept = {c.name: list(c.values) for c in family.coordinates(workload, arch) if c.name != "level"}
    names = list(kept)
    for name, most in FEW.items():
        while len(kept.get(name, ())) > most:
            del kept[name][rng.integers(1, len(kept[name]))]
    while np.prod([len(values) for values in kept.values()], dtype=object) > lattice:
        room = np.array([len(kept[name]) - 1 for name in names], float)
        name = names[rng.choice(len(names), p=room / room.sum())]
        del kept[name][rng.integers(1, len(kept[name]))]
    return {name: tuple(values) for name, values in kept.items()}


class OneFamily:
    """A Space with a single family."""

    def __init__(self, family: FamilySpace):
        self.families = (family,)


def spaces(count: int, seed: int = 0) -> Iterator[tuple[FamilySpace, NDArray[np.float64]]]:
    """Yield `count` spaces with the potentials of all their Programs, the families taking turns."""
    made = tried = 0
    while made < count:
        rng = np.random.default_rng([seed, tried])
        tried += 1
        name = list(DTYPES)[made % len(DTYPES)]
        m, n, k = SIZES[rng.integers(len(SIZES))]
        dtype, math = DTYPES[name][rng.integers(4)]
        trans_a, trans_b = (bool(bit) for bit in rng.integers(2, size=2))
        epilogue = EPILOGUES[rng.integers(len(EPILOGUES))] if dtype != "int8" else "none"
        workload = matmul.workload(m, n, k, dtype=dtype, math=math, trans_a=trans_a, trans_b=trans_b, epilogue=epilogue)
        arch = lookup(ARCHS[rng.integers(len(ARCHS))])
        family = FAMILIES[name]
        if family.serves(workload, arch) is not None:
            continue
        space = FamilySpace(family, workload, arch, restrict=reduce_to(family, workload, arch, LATTICE, rng))
        found = [space.potential(points) for points in space.enumerate()]
        if sum(map(len, found)) >= LEAST:
            made += 1
            yield space, np.concatenate(found)


def random_search(phi: NDArray[np.float64], draws: int) -> tuple[float, float]:
    """Return (expected regret, chance of a regret of at most 2 %) of the best of `draws` without replacement."""
    ordered = np.sort(phi) / phi.min()
    place = np.arange(phi.size - draws)
    # Chance that the best j are all missed: product over i < j of (N - n - i) / (N - i).
    missed = np.concatenate([[1.0], np.cumprod((phi.size - draws - place) / (phi.size - place))])
    within = int(np.searchsorted(ordered, 1.02, side="right"))
    expected = float((ordered[: missed.size] * (missed - np.append(missed[1:], 0))).sum() - 1)
    return expected, 1 - float(missed[within] if within < missed.size else 0)


def measure(space: FamilySpace, phi: NDArray[np.float64], seed: int, baselines: bool = True) -> Row:
    """Walk in one space and compare the result with the optimum."""
    optimum, budget, alone = float(phi.min()), int(SHARE * phi.size), OneFamily(space)
    began = time.perf_counter()
    found = walk(alone, seed=seed, start="random", budget=budget)
    seconds = time.perf_counter() - began
    if found.evaluations > budget:
        raise RuntimeError(f"{found.evaluations} evaluations on a budget of {budget}")
    expected, hits = random_search(phi, found.evaluations)
    rng = np.random.default_rng([seed, phi.size])
    first = walk(alone, seed=seed, start="random", budget=1).best[0]
    single = paper = float("nan")
    if baselines:
        lone = walk(alone, seed=seed, start=[first[0]], chains=1, steps=16_000, budget=budget)
        single = lone.best[0][1] / optimum - 1
        paper = paper_regret(alone, seed, budget, optimum)
    return Row(
        family=space.family.name,
        arch=space.arch.part,
        workload=describe(space.workload),
        programs=phi.size,
        optimum_us=optimum * 1e6,
        near=float((phi <= 1.02 * optimum).mean()),
        evaluations=found.evaluations,
        start=float(phi[rng.integers(phi.size)] / optimum - 1),
        random=expected,
        random_hits=hits,
        walk=found.best[0][1] / optimum - 1,
        single=single,
        paper=paper,
        seconds=seconds,
    )


def paper_regret(alone: OneFamily, seed: int, budget: int, optimum: float) -> float:
    """Return the regret of the paper's graph; NaN where the reduced lattice has no minimal Program to start from."""
    try:
        return walk(alone, seed=seed, graph="paper", budget=budget).best[0][1] / optimum - 1
    except ValueError:
        return float("nan")


def summary(rows: list[Row]) -> dict[str, float]:
    """Return the figures of the acceptance test, over all spaces."""
    column = {name: np.array([getattr(row, name) for row in rows]) for name in Row.__dataclass_fields__}
    figures = {"spaces": float(len(rows)), "programs": float(np.median(column["programs"]))}
    for name in ("start", "random", "walk", "single", "paper"):
        known = column[name][~np.isnan(column[name])]
        if known.size:
            figures[f"{name} mean regret"] = float(known.mean())
            figures[f"{name} worst regret"] = float(known.max())
            figures[f"{name} within 2 %"] = float((known <= 0.02).mean())
    figures["random within 2 %"] = float(column["random_hits"].mean())
    figures["walk better than random"] = float((column["walk"] < column["random"] - 1e-12).mean())
    figures["walk worse than random"] = float((column["walk"] > column["random"] + 1e-12).mean())
    figures["evaluated"] = float((column["evaluations"] / column["programs"]).max())
    figures["seconds per walk"] = float(column["seconds"].mean())
    return figures


def table(rows: list[Row]) -> str:
    """Return the rows as text, regrets in percent."""
    head = f"{'family':16} {'part':18} {'workload':36} {'programs':>8} {'best us':>9} {'near':>7} {'evals':>6}"
    lines = [head + f" {'start':>8} {'random':>8} {'walk':>7} {'single':>8} {'paper':>8}  regret, %"]
    for r in rows:
        line = f"{r.family:16} {r.arch:18} {r.workload:36} {r.programs:8d} {r.optimum_us:9.2f} {r.near:7.4f}"
        parts = zip((r.start, r.random, r.walk, r.single, r.paper), (8, 8, 7, 8, 8), strict=True)
        lines.append(f"{line} {r.evaluations:6d} " + " ".join(f"{100 * x:{width}.2f}" for x, width in parts))
    return "\n".join(lines)


def main() -> int:
    """Run, print, write; 0 where the acceptance figures are met."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--spaces", type=int, default=100, help="number of spaces (default %(default)s)")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    rows = []
    for i, (space, phi) in enumerate(spaces(given.spaces, given.seed)):
        rows.append(measure(space, phi, seed=i))
        print(f"\r{i + 1}/{given.spaces}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    figures = summary(rows)
    print(table(rows))
    print("\n".join(f"{name:28} {value:.4f}" for name, value in figures.items()))
    if given.json:
        given.json.write_text(json.dumps({"summary": figures, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    good = figures["walk within 2 %"] >= 0.95 and figures["walk mean regret"] < figures["random mean regret"]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
