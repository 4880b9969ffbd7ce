"""Drawn Workloads: sizes that no row names, by which a shipped database is judged and completed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from gensor_kernels.dispatch.selection.library import Library
from gensor_kernels.dispatch.selection.predict import predict_divided
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.attention import attention
from gensor_kernels.operators.products import block_scaled, matmul
from gensor_kernels.operators.rows import views
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.strategies.request import Request
from gensor_tuner.tasks.task import Executor

#: Element types by how often they are drawn, and the largest operations of a drawn product or attention.
DTYPES = ("float16", "float16", "bfloat16", "float32", "float32", "float64", "int8")
MOST_FLOPS = 2e11
#: Powers of two below which m, n and k are drawn: of any product, and of products that one launch of few blocks does.
ANY, SMALL = (13, 13, 13), (6, 6, 12)
#: Types of results of 8-bit floats by how often they are drawn.
FLOATS8_OUT = ("bfloat16", "bfloat16", "float16", "float32")
#: Operators on rows with their epilogues by how often they are drawn, and their most elements.
ROWS = (*[("softmax", ())] * 3, *[("layernorm", ("mul", "bias"))] * 2, *[("rmsnorm", ("mul",))] * 2)
REDUCTIONS = tuple((name, ()) for name in ("reduce_sum", "reduce_mean", "reduce_max", "argmax"))
ROW_DTYPES, MOST_ELEMENTS = ("float16", "bfloat16", "float32", "float32"), 2**28
#: Keyword arguments of drawn attentions by how often they are drawn.
FORMS: tuple[dict[str, Any], ...] = (
    *[{}] * 4,
    {"mask": "bool", "mask_axes": ("batch", "keys")},
    {"window": (1023, 0)},
    {"softcap": True},
)
#: A pick is missed if it is predicted to take this multiple of the time of a fresh walk's best Program.
MISSED = 1.18


def products(count: int, seed: int, below: tuple[int, int, int] = ANY) -> Iterator[Workload]:
    """Yield `count` products with sizes below powers of two: log-uniform, half multiples of 8, one in eight batched."""
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


def floats8(count: int, seed: int) -> Iterator[Workload]:
    """Yield `count` products of 8-bit floats with few, some or many rows, a quarter of them with scales per block."""
    rng = np.random.default_rng(seed)
    while count:
        m, n, k = (int(2**power) for power in rng.uniform((0, 5, 5), (14, 15, 15)))
        n, k = (-(-size // 16) * 16 for size in (n, k))
        if 2.0 * m * n * k > 8 * MOST_FLOPS:
            continue
        if rng.random() < 0.25:
            yield block_scaled.workload(m, n, k, out=str(rng.choice(FLOATS8_OUT)))
        else:
            dtype = str(rng.choice(("float8_e4m3fn", "float8_e4m3fn", "float8_e5m2")))
            yield matmul.workload(
                m, n, k, dtype=dtype, out=str(rng.choice(FLOATS8_OUT)), trans_b=bool(rng.random() < 0.8)
            )
        count -= 1


def rows(count: int, seed: int) -> Iterator[Workload]:
    """Yield `count` softmaxes, norms and reductions, a quarter of these over the first axis: sizes log-uniform."""
    rng = np.random.default_rng(seed)
    while count:
        choices = (*ROWS, *REDUCTIONS)
        name, epilogue = choices[rng.integers(len(choices))]
        dtype = str(rng.choice(ROW_DTYPES))
        lines, k = (int(2**power) for power in rng.uniform((0, 5), (16, 15)))
        if rng.random() < 0.75:
            lines, k = (-(-size // 8) * 8 for size in (lines, k))
        over_columns = (name, epilogue) in REDUCTIONS and rng.random() < 0.25
        if lines * k > MOST_ELEMENTS:
            continue
        shape, axis = ((k, lines), 0) if over_columns else ((lines, k), 1)
        yield views.workload(name, shape, (axis,), dtype, epilogue=epilogue)
        count -= 1


def attentions(count: int, seed: int, most: float = MOST_FLOPS) -> Iterator[Workload]:
    """Yield `count` attentions: half of them decoding steps, sequences log-uniform, heads of usual models."""
    rng = np.random.default_rng(seed)
    while count:
        form = FORMS[rng.integers(len(FORMS))]
        keys = int(2 ** rng.uniform(5, 14))
        queries = 1 if rng.random() < 0.5 else min(keys, int(2 ** rng.uniform(3, 13)))
        batch, heads = int(2 ** rng.uniform(0, 5)), int(rng.choice((8, 12, 16, 32)))
        kv_heads, head = heads // int(rng.choice((1, 4))), int(rng.choice((64, 64, 80, 128, 128, 256)))
        causal = "window" in form or bool(rng.random() < 0.5)
        dtype = str(rng.choice(("float16", "bfloat16")))
        if 4.0 * batch * heads * queries * keys * head > most:
            continue
        sizes: dict[str, Any] = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head": head}
        yield attention.workload(queries, keys, dtype=dtype, causal=causal, **sizes, **form)
        count -= 1


#: Draws that complete a database, DRAW Workloads of each. `benchmarks.unseen` judges by other seeds.
DRAW = 200
MENDING = (
    *(partial(products, seed=seed) for seed in (*range(11, 19), *range(20, 24))),
    *(partial(products, seed=seed, below=SMALL) for seed in (19, 24, 25)),
    *(partial(floats8, seed=seed) for seed in (26, 27)),
    partial(rows, seed=31),
    *(partial(attentions, seed=seed) for seed in (41, 42)),
    partial(attentions, seed=43, most=64 * MOST_FLOPS),
)


def mending(count: int = DRAW * len(MENDING)) -> Iterator[Workload]:
    """Yield the first `count` of the Workloads that complete a database, from each draw in turn."""
    turns = zip(*(draw(DRAW) for draw in MENDING), strict=True)
    return islice((each for turn in turns for each in turn), count)


def find_missed(drawn: Sequence[Workload], arch: Arch, library: Library, executor: Executor) -> list[Workload]:
    """Return the Workloads whose stored pick is predicted to take MISSED times as long as a fresh walk's best."""
    found = executor.map([Request(each, arch, 0, "full") for each in drawn])
    walked = [(each, walk.best[0][1]) for each, walk in zip(drawn, found, strict=True) if walk.best]
    return [each for each, best in walked if _pick(each, arch, library) > MISSED * best]


def _pick(wanted: Workload, arch: Arch, library: Library) -> float:
    """Return the predicted seconds of the kernel that dispatch takes for a size that no row names."""
    stored = (each for shelf in library.shelves(wanted) for each in (shelf.portfolio or shelf.others))
    kernels = [each for each in stored if each.fits_epilogue(wanted)]
    return min((seconds for _, seconds in predict_divided(kernels, wanted, arch, library)), default=math.inf)
