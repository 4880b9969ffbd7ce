"""Configurations of the measured kernels, and files of measured spaces."""

import csv
import gzip
import itertools

import numpy as np

from benchmarks.spaces import clblast_terms, convolution_terms

#: A good configuration of each kernel.
GOOD = {
    clblast_terms: dict(zip(clblast_terms.NAMES, (128, 128, 32, 16, 8, 16, 32, 2, 4, 4, 0, 0, 1, 1), strict=True)),
    convolution_terms: dict(zip(convolution_terms.NAMES, (64, 2, 4, 4, 0, 0), strict=True)),
}


def columns(kernel, *changes):
    """Return good configurations with changes, as columns."""
    rows = [GOOD[kernel] | change for change in changes]
    return {name: np.array([row[name] for row in rows]) for name in kernel.NAMES}


def clblast():
    """Return a few hundred legal configurations of CLBlast's kernel."""
    changes = []
    for m, n, x, y, v, w, sa, sb in itertools.product(
        (32, 64, 128), (64, 128), (8, 16), (8, 16), *[(1, 4)] * 2, *[(0, 1)] * 2
    ):
        if m % (x * v) == 0 and n % (y * w) == 0:
            change = {"MWG": m, "NWG": n, "MDIMC": x, "NDIMC": y, "VWM": v, "VWN": w, "SA": sa, "SB": sb}
            changes.append(change | {"MDIMA": x, "NDIMB": y})
    return columns(clblast_terms, *changes)


def convolution():
    """Return all blocks and tiles of the measured convolution that can be launched."""
    values = ((16, 32, 48, 64, 128, 256), (1, 2, 4, 8, 16), (1, 2, 3, 4), (1, 2, 3, 4), (0, 1), (0, 1))
    space = dict(zip(convolution_terms.NAMES, np.array(list(itertools.product(*values))).T, strict=True))
    legal = ~convolution_terms.refused(space) & (convolution_terms._shared_bytes(space) <= 49152)
    return {name: column[legal] for name, column in space.items()}


def write_space(path, space, times):
    """Write a measured space, compressed where the name ends in .gz, and return its path as text."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow([*space, "time_ms"])
        out.writerows(zip(*space.values(), times, strict=True))
    return str(path)
