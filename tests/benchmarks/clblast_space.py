"""A small space of CLBlast's kernel, and files of measured spaces."""

import csv
import gzip
import itertools

import numpy as np

from benchmarks.spaces import clblast_terms

BEST = dict(zip(clblast_terms.NAMES, (128, 128, 32, 16, 8, 16, 32, 2, 4, 4, 0, 0, 1, 1), strict=True))


def configurations():
    """A few hundred legal configurations, as columns."""
    rows = []
    for m, n, x, y, v, w, sa, sb in itertools.product(
        (32, 64, 128), (64, 128), (8, 16), (8, 16), *[(1, 4)] * 2, *[(0, 1)] * 2
    ):
        row = BEST | {"MWG": m, "NWG": n, "MDIMC": x, "NDIMC": y, "VWM": v, "VWN": w, "SA": sa, "SB": sb}
        row |= {"MDIMA": x, "NDIMB": y}
        if m % (x * v) == 0 and n % (y * w) == 0:
            rows.append(row)
    return {name: np.array([row[name] for row in rows]) for name in clblast_terms.NAMES}


def columns(*changes):
    rows = [BEST | change for change in changes]
    return {name: np.array([row[name] for row in rows]) for name in clblast_terms.NAMES}


def write_space(path, space, times):
    """Write a measured space, compressed where the name ends in .gz, and return its path as text."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow([*space, "time_ms"])
        out.writerows(zip(*space.values(), times, strict=True))
    return str(path)
