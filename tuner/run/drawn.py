"""Drawn products: sizes that no row names, by which a shipped database is judged and mended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.selection.predict import predict
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.strategies.request import Request
from gensor_tuner.tasks.task import Executor

#: Element types by how often they are drawn, and the largest operations of a drawn product.
DTYPES = ("float16", "float16", "bfloat16", "float32", "float32", "float64", "int8")
MOST_FLOPS = 2e11
#: Powers of two below which m, n and k are drawn: of any product, and of products that one launch of few blocks does.
ANY, SMALL = (13, 13, 13), (6, 6, 12)
#: Products that mend a database, DRAW by each seed and range. `benchmarks.unseen` judges by other seeds.
MENDING, DRAW = (*((seed, ANY) for seed in range(11, 19)), (19, SMALL)), 200
#: A pick is missed if it is predicted to take so many times the time of a fresh walk's best Program.
MISSED = 1.18


def products(count: int, seed: int, below: tuple[int, int, int] = ANY) -> Iterator[Workload]:
    """Yield `count` products: sizes log-uniform, half of them multiples of 8, batches in one of eight.

    Parameters
    ----------
    count : int
        How many.
    seed : int
        Of the draw.
    below : tuple of int
        Powers of two below which m, n and k are.

    Yields
    ------
    Workload
        A product of at most MOST_FLOPS operations.

    Examples
    --------
    >>> [each.size["m"] for each in products(2, 1)] == [each.size["m"] for each in products(2, 1)]
    True
    """
    rng = np.random.default_rng(seed)
    while count:
        dtype = str(rng.choice(DTYPES))
        m, n, k = (int(2**power) for power in rng.uniform((3, 3, 5), below))
        if rng.random() < 0.5:
            m, n, k = (-(-size // 8) * 8 for size in (m, n, k))
        batch = int(2 ** rng.uniform(1, 7)) if rng.random() < 0.125 else 1
        if 2.0 * batch * m * n * k > MOST_FLOPS:
            continue
        yield matmul.workload(m, n, k, batch=batch, dtype=dtype, trans_b=bool(rng.random() < 0.5))
        count -= 1


def mending(count: int) -> Iterator[Workload]:
    """Yield the first `count` of the products that mend a database."""
    drawn = chain.from_iterable(products(DRAW, seed, below) for seed, below in MENDING)
    return (each for each, _ in zip(drawn, range(count), strict=False))


def missed(drawn: Sequence[Workload], arch: Arch, library: Library, executor: Executor) -> list[Workload]:
    """Return the Workloads for which a fresh walk promises a much faster kernel than the stored pick.

    Parameters
    ----------
    drawn : sequence of Workload
        Workloads that the arch has Programs for.
    arch : Arch
        The part that kernels are predicted for.
    library : Library
        What is stored.
    executor : Executor
        Where walks run.

    Returns
    -------
    list of Workload
        Workloads whose pick is predicted to take more than MISSED times as long, in their order.
    """
    found = executor.map([Request(each, arch, 0, "full") for each in drawn])
    return [
        each
        for each, walked in zip(drawn, found, strict=True)
        if walked.best and _pick(each, arch, library) > MISSED * walked.best[0][1]
    ]


def _pick(wanted: Workload, arch: Arch, library: Library) -> float:
    """Return the predicted seconds of the kernel that dispatch takes for a size that no row names."""
    kernels = [
        same
        for shelf in library.shelves(wanted)
        for each in (shelf.portfolio or shelf.others)
        if each.fits_epilogue(wanted)
        for same in library.resplit(each)
    ]
    return min(predict(kernels, wanted, arch, library), default=math.inf)
