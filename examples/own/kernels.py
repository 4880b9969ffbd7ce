"""Six kernels with knobs and their references, for `gensor-tune own` and as a start for your own.

gensor-tune own examples/own/kernels.py:transpose --reference examples/own/kernels.py:transposed \
    --arch orin-nano-8gb --size w=4096 --size h=4096 --db transpose.db
"""

from pathlib import Path

import numpy as np

from gensor_kernels.own import In, InOut, Kernel, Out, Scalar

HERE = Path(__file__).resolve().parent

convolution = Kernel(
    HERE / "convolution.cu",
    "convolution",
    knobs={
        "block_size_x": [16 * count for count in range(1, 17)],
        "block_size_y": [1, 2, 4, 8, 16],
        "tile_size_x": [1, 2, 3, 4],
        "tile_size_y": [1, 2, 3, 4],
        "use_padding": [0, 1],
        "read_only": [0, 1],
    },
    restrictions=["block_size_x * block_size_y <= 1024", "use_padding == 0 or block_size_x % 32 != 0"],
    block=lambda p: (p.block_size_x, p.block_size_y),
    grid=("ceil_div(w, block_size_x * tile_size_x)", "ceil_div(h, block_size_y * tile_size_y)"),
    args=[Out("f4", ("h", "w")), In("f4", ("h + 14", "w + 14")), Scalar("i4", "w"), Scalar("i4", "h")],
    constants={"d_filter": In("f4", 225)},
    terms=225,
)


def convolved(image, d_filter, h, w):
    """Return the sums of 15 x 15 neighbours, weighted."""
    return sum(
        weight * image[row : row + h, column : column + w]
        for (row, column), weight in np.ndenumerate(d_filter.reshape(15, 15))
    )


transpose = Kernel(
    HERE / "transpose.cu",
    "transpose<float>",
    knobs={"tile": [16, 32, 64], "rows": [4, 8, 16], "pad": [0, 1]},
    restrictions=["tile % rows == 0"],
    block=lambda p: (p.tile, p.rows),
    grid=("ceil_div(w, tile)", "ceil_div(h, tile)"),
    args=[Out("f4", ("w", "h")), In("f4", ("h", "w")), Scalar("i4", "w"), Scalar("i4", "h")],
)


def transposed(matrix):
    """Return the transposed matrix."""
    return matrix.T


histogram = Kernel(
    HERE / "histogram.cu",
    "histogram",
    knobs={"threads": [64, 128, 256, 512], "words": [1, 4, 8, 16], "copies": [1, 2, 4, 8]},
    block=lambda p: p.threads,
    grid=lambda p, n: -(-n.n // (p.threads * p.words)),
    args=[InOut("u4", 256, 0, 0), In("u4", "n", 0, 2**32 - 1), Scalar("i4", "n")],
)


def counted(counts, words):
    """Return how often each byte occurs."""
    return counts + np.bincount(words.view(np.uint8), minlength=256).astype(np.uint32)


nbody = Kernel(
    HERE / "nbody.cu",
    "nbody",
    knobs={"threads": [64, 128, 256, 512], "bodies": [1, 2, 4], "unroll": [1, 4, 16]},
    block=lambda p: p.threads,
    grid=lambda p, n: -(-n.n // (p.threads * p.bodies)),
    args=[Out("f4", ("n", 4)), In("f4", ("n", 4), 0, 1), Scalar("i4", "n")],
    terms="n",
)


def accelerations(bodies):
    """Return the accelerations of bodies of (x, y, z, mass)."""
    apart = bodies[None, :, :3] - bodies[:, None, :3]
    pull = bodies[None, :, 3] * ((apart**2).sum(-1) + 1e-4) ** -1.5
    return np.concatenate([(apart * pull[..., None]).sum(1), np.zeros((len(bodies), 1))], axis=1)


stencil = Kernel(
    HERE / "stencil.cu",
    "stencil",
    knobs={"block_size_x": [16, 32, 64], "block_size_y": [4, 8, 16], "planes": [4, 16, 64], "staged": [0, 1]},
    block=lambda p: (p.block_size_x, p.block_size_y),
    grid=("ceil_div(n, block_size_x)", "ceil_div(n, block_size_y)", "ceil_div(n, planes)"),
    args=[Out("f4", ("n", "n", "n")), In("f4", ("n", "n", "n")), Scalar("i4", "n"), Scalar("f4", 0.125)],
    terms=8,
)


def flowed(heat):
    """Return the grid after one step, of a rate of 0.125; it is cold outside."""
    padded = np.pad(heat, 1)
    middle = slice(1, -1)
    around = -6 * heat
    for axis in range(3):
        for side in (slice(None, -2), slice(2, None)):
            around += padded[tuple(side if each == axis else middle for each in range(3))]
    return heat + 0.125 * around


WIDTHS = [1, 2, 4, 8]
gemm = Kernel(
    HERE / "gemm.cu",
    "gemm",
    knobs={
        **{"MWG": [16, 32, 64, 128], "NWG": [16, 32, 64, 128], "KWG": [16, 32], "KWI": [2]},
        **{name: [8, 16, 32] for name in ("MDIMC", "NDIMC", "MDIMA", "NDIMB")},
        **{"VWM": WIDTHS, "VWN": WIDTHS, "STRM": [0, 1], "STRN": [0, 1], "SA": [0, 1], "SB": [0, 1]},
    },
    restrictions=[
        *("MDIMC * NDIMC <= 1024", "KWG % KWI == 0"),
        *("MWG % (MDIMC * VWM) == 0", "NWG % (NDIMC * VWN) == 0", "MWG % (MDIMA * VWM) == 0"),
        *("NWG % (NDIMB * VWN) == 0", "MDIMC * NDIMC % MDIMA == 0", "MDIMC * NDIMC % NDIMB == 0"),
        *("KWG * MDIMA % (MDIMC * NDIMC) == 0", "KWG * NDIMB % (MDIMC * NDIMC) == 0"),
        *("m % MWG == 0", "n % NWG == 0", "k % KWG == 0"),
    ],
    block=lambda p: (p.MDIMC, p.NDIMC),
    grid=lambda p, n: (n.m // p.MWG, n.n // p.NWG),
    args=[Out("f4", ("n", "m")), In("f4", ("k", "m")), In("f4", ("k", "n")), *(Scalar("i4", each) for each in "mnk")],
    terms="k",
)


def multiplied(a, b):
    """Return the product, transposed."""
    return b.T @ a


def convolved_t1(image, d_filter, problem_size_x, problem_size_y):
    """Return the same as `convolved`, for convolution.json."""
    return convolved(image.reshape(problem_size_y + 14, -1), d_filter, problem_size_y, problem_size_x)
