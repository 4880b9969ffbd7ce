"""The potential of contraction_simt against exhaustively timed spaces of a kernel like it.

    python -m benchmarks.roofline_measured [FOLDER]

FOLDER holds `clblast_xgemm_fp32_4096_<GPU>.csv.gz`: every valid configuration of CLBlast's fp32 Xgemm kernel at
M = N = K = 4096 with its time.  The kernel maps onto contraction_simt where it stages both operands in shared memory
(SA = SB = 1) and reads fragments as wide as we do; its M, along which lanes are neighbours, is our N.  How threads
share the copying (MDIMA, NDIMB) is derived in our kernel, so the best time over those two counts.  Printed per GPU:
configurations, Spearman's rank correlation, how much slower the best of the 16 best predictions is than the best
configuration (regret), and the same for 16 random picks.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators.matmul import workload
from gensor_kernels.operators.workload import Workload
from gensor_kernels.programs.contraction_simt import ContractionSimt
from gensor_kernels.programs.family import Coordinate
from gensor_kernels.programs.space import FamilySpace

PARTS = {"RTX_3090": "rtx-3090", "RTX_2080_Ti": "rtx-2080-ti"}
TOP = 16


class Xgemm(ContractionSimt):
    """Our family on the values CLBlast tunes over: single-buffered, fragments of one group."""

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        values = {"block_m": (16, 32, 64, 128), "block_n": (16, 32, 64, 128), "block_k": (32,)}
        values |= {"thread_m": (1, 2, 4, 8, 16), "thread_n": (1, 2, 4, 8, 16)}
        return tuple(
            Coordinate(c.name, values.get(c.name, c.values), c.level, c.kind, c.doc)
            for c in super().coordinates(workload, arch)
        )


def mapped(rows: list[dict[str, str]]) -> dict[tuple[tuple[str, int], ...], float]:
    """Least time in ms by Program, for the rows that are one."""
    times: dict[tuple[tuple[str, int], ...], float] = defaultdict(lambda: float("inf"))
    for row in rows:
        r = {name: float(value) if name == "time_ms" else int(value) for name, value in row.items()}
        tiles = {"m": int(r["NWG"] // r["NDIMC"]), "n": int(r["MWG"] // r["MDIMC"])}
        widths = {"m": min(int(r["VWN"]), 4), "n": min(int(r["VWM"]), 4)}
        if not (r["SA"] and r["SB"]) or any(widths[x] != min(tiles[x] & -tiles[x], 4) for x in "mn"):
            continue
        program = {
            "block_m": int(r["NWG"]),
            "block_n": int(r["MWG"]),
            "thread_m": tiles["m"],
            "thread_n": tiles["n"],
            "vector_a": 4 * widths["m"],
            "vector_b": 4 * widths["n"],
            "lanes_m": max(1, 32 // int(r["MDIMC"])),
        }
        key = tuple(program.items())
        times[key] = min(times[key], r["time_ms"])
    return dict(times)


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks with ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[inverse]


def report(gpu: str, path: Path) -> str:
    """One line for one GPU."""
    with gzip.open(path, "rt", encoding="ascii") as file:
        times = mapped(list(csv.DictReader(file)))
    space = FamilySpace(Xgemm(), workload(4096, 4096, 4096, dtype="float32", trans_a=True), lookup(PARTS.get(gpu, gpu)))
    rest = {"level": 2, "block_k": 32, "split_k": 1, "raster": 1, "stages": 1, "pad": 0, "vthread_m": 1, "vthread_n": 1}
    rest |= {"epilogue_staged": 0, "epilogue_fixed": 0, "vector_c": 16, "min_blocks": 0}
    points = np.array([[c.values.index((rest | dict(key))[c.name]) for c in space.coordinates] for key in times])
    measured = np.array(list(times.values()))
    legal = space.legal(points)
    points, measured = points[legal], measured[legal]
    predicted = space.potential(points) * 1e3
    rho = np.corrcoef(ranks(predicted), ranks(measured))[0, 1]
    top = np.argsort(predicted, kind="stable")[:TOP]
    rng = np.random.default_rng(0)
    random = np.median([rng.choice(measured, TOP, replace=False).min() for _ in range(2000)])
    return (
        f"{gpu:12} {len(measured):5} configurations  Spearman {rho:.3f}  best of top {TOP} "
        f"{measured[top].min() / measured.min() - 1:+.1%}  of {TOP} random {random / measured.min() - 1:+.1%}  "
        f"predicted/measured median {np.median(predicted / measured):.2f}"
    )


def main(folder: str = "../shared/measured") -> int:
    """Prints the report; without data it says so and succeeds."""
    found = sorted(Path(folder).glob("clblast_xgemm_fp32_4096_*.csv.gz"))
    if not found:
        print(f"no measured spaces in {folder}: nothing to compare with")
    for path in found:
        print(report(path.name.removeprefix("clblast_xgemm_fp32_4096_").removesuffix(".csv.gz"), path))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
