"""Calls of the public functions, and their results on the host in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import gensor_kernels as gk
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection.library import Library

from .harness.rehearsal import RehearsedDevice

#: Tolerance, relative to an element plus the root mean square: four roundings of a result, and the intermediate
#: roundings to the operands' type in the library's compositions.
NEAR = {"float16": 2.0**-7, "float32": 2.0**-18, "complex64": 2.0**-18, "float64": 2.0**-40, "int32": 0.0, "int64": 0.0}


#: m, n and k of products, and their types.
PRODUCTS = ((256, 256, 256), (1024, 512, 768), (1, 4096, 1024), (333, 127, 65))
TYPES = ("float16", "float32", "float64", "int8")


class Shown(NamedTuple):
    """A call: the shapes of its arrays by name, and the function that is called with them; `whole`: arrays of integers,
    which are not drawn."""

    shapes: Mapping[str, tuple[int, ...]]
    call: Callable[[Any], Any]
    dtype: str = "float16"
    whole: Mapping[str, np.ndarray] = MappingProxyType({})


class Arrays(dict[str, Any]):
    """Arrays by name, as attributes."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def products(tiny: bool) -> Iterator[tuple[str, Shown]]:
    """Yield products with and without an epilogue."""
    for dtype, (m, n, k) in itertools.product(TYPES, [(40, 24, 32)] if tiny else PRODUCTS):
        name, shapes = f"matmul {dtype} {m}x{n}x{k}", {"x": (m, k), "y": (k, n), "b": (n,)}
        plain: dict[str, Any] = {"dtype": "int32"} if dtype == "int8" else {}
        fused = plain | {"activation": "relu"}
        yield name, Shown(shapes, lambda a, how=plain: gk.matmul(a.x, a.y, **how), dtype)
        call = lambda a, how=fused: gk.matmul(a.x, a.y, bias=a.b, **how)  # noqa: E731
        yield f"{name} bias relu", Shown(shapes, call, dtype)


def calls(tiny: bool) -> dict[str, Shown]:
    """Return the calls by name; with `tiny` at sizes that an emulator runs in a moment."""
    n, side, c = (1, 8, 16) if tiny else (8, 56, 64)
    rows, k = (17, 64) if tiny else (4096, 1000)
    seq, head = (33, 32) if tiny else (1024, 64)
    image, last = (n, c, side, side), (n, side, side, c)
    table, tokens = (rows, k), (2, 4, seq, head)
    requests, pages = 3, -(-seq // 16)
    sizes = {"sizes": np.array([seq - 2, 1, 1], np.int32)}
    page_table = np.arange(requests * pages, dtype=np.int32)[::-1].reshape(requests, pages).copy()
    paged = sizes | {"key_sizes": np.array([seq, seq // 2, 7], np.int32), "table": page_table}
    packed, cache = (1, 4, seq, head), (requests * pages, 2, 16, head)
    scores = gk.define("b h i d, b h j d -> b h i j", epilogue=[("scale", 0.125), "relu"])
    return {
        **dict(products(tiny)),
        "conv2d NHWC": Shown(
            {"x": last, "w": (c, 3, 3, c), "b": (c,)},
            lambda a: gk.conv2d(a.x, a.w, a.b, padding=1, activation="relu", layout="NHWC"),
        ),
        "conv2d NCHW": Shown({"x": image, "w": (c, c, 3, 3)}, lambda a: gk.conv2d(a.x, a.w, padding=1), "float32"),
        "conv_transpose2d": Shown({"x": image, "w": (c, c, 2, 2)}, lambda a: gk.conv_transpose2d(a.x, a.w, stride=2)),
        "depthwise": Shown(
            {"x": last, "w": (c, 3, 3, 1)}, lambda a: gk.conv2d(a.x, a.w, padding=1, groups=c, layout="NHWC")
        ),
        "max_pool2d": Shown({"x": image}, lambda a: gk.max_pool2d(a.x, 3, 2, 1)),
        "avg_pool2d": Shown({"x": last}, lambda a: gk.avg_pool2d(a.x, 2, layout="NHWC"), "float32"),
        "sum": Shown({"x": table}, lambda a: gk.sum(a.x, axis=1), "float32"),
        "argmax": Shown({"x": table}, lambda a: gk.argmax(a.x, axis=1), "float32"),
        "var": Shown({"x": table}, lambda a: gk.var(a.x, axis=0), "float32"),
        "softmax": Shown({"x": table}, lambda a: gk.softmax(a.x)),
        "layer_norm": Shown({"x": table, "w": (k,), "b": (k,)}, lambda a: gk.layer_norm(a.x, k, a.w, a.b)),
        "attention": Shown({"q": tokens, "k": tokens, "v": tokens}, lambda a: gk.attention(a.q, a.k, a.v, causal=True)),
        "attention window": Shown(
            {"q": tokens, "k": tokens, "v": tokens},
            lambda a: gk.attention(a.q, a.k, a.v, causal=True, window=(seq // 4, 0), softcap=30.0),
        ),
        "attention packed": Shown(
            {"q": packed, "k": (1, 2, seq, head), "v": (1, 2, seq, head)},
            lambda a: gk.attention(a.q, a.k, a.v, causal=True, sizes=a.sizes),
            whole=sizes,
        ),
        "attention pages": Shown(
            {"q": packed, "k": cache, "v": cache},
            lambda a: gk.attention(
                a.q, a.k, a.v, causal=True, sizes=a.sizes, key_sizes=a.key_sizes, block_table=a.table
            ),
            whole=paged,
        ),
        "einsum": Shown({"x": tokens, "y": tokens}, lambda a: gk.einsum("bhid,bhjd->bhij", a.x, a.y), "float32"),
        "define": Shown({"x": tokens, "y": tokens}, lambda a: scores(a.x, a.y)),
        "matmul complex64": Shown(
            {"x": (rows // 8, k), "y": (k, rows // 8)}, lambda a: gk.matmul(a.x, a.y), "complex64"
        ),
        "linear": Shown({"x": table, "w": (64, k), "b": (64,)}, lambda a: gk.linear(a.x, a.w, a.b, "gelu")),
    }


def draw(shown: Shown, seed: int = 0) -> Arrays:
    """Return normal numbers on the host, or integers over their whole range, of the call's dtype."""
    rng = np.random.default_rng(seed)
    made = Arrays()
    for name, shape in shown.shapes.items():
        if shown.dtype == "int8":
            made[name] = rng.integers(-128, 128, shape).astype(np.int8)
            continue
        values = rng.standard_normal(shape)
        values = values + 1j * rng.standard_normal(shape) if shown.dtype.startswith("complex") else values
        made[name] = values.astype(shown.dtype)
    return Arrays(made | {name: each.copy() for name, each in shown.whole.items()})


def reference(shown: Shown, arrays: Arrays) -> np.ndarray:
    """Return the result on the host, by NumPy's compositions in float64 or complex128."""
    kind = np.complex128 if shown.dtype.startswith("complex") else np.float64
    wide = {name: each if each.dtype.kind == "i" else each.astype(kind) for name, each in arrays.items()}
    with _host():
        return np.asarray(shown.call(Arrays(wide)))


def error(result: np.ndarray, wanted: np.ndarray, near: float | None = None) -> float:
    """Return the largest error over its tolerance, the dtype's by default: at most 1 is correct."""
    near = NEAR[result.dtype.name] if near is None else near
    if result.dtype.kind == "i":
        return float((result != wanted).any()) * 2
    root = float(np.sqrt(np.mean(np.abs(wanted) ** 2)))
    allowed = near * (np.abs(wanted) + root)
    return float(np.max(np.abs(result - wanted) / allowed)) if result.size else 0.0


class _Host(RehearsedDevice):
    """NumPy without a device: no kernel serves."""

    emulated = False
    unsupported = "a host"

    def __init__(self) -> None:
        from gensor_kernels.machine.arch import lookup

        super().__init__(lookup("sm_87"))
        self.arch = None  # type: ignore[assignment]


@contextmanager
def _host() -> Iterator[None]:
    made = Runtime(_Host(), Library())
    token = current.inside.set(made)
    try:
        with mock.patch.object(current, "only", made):  # where there is one GPU, its Runtime comes before `inside`
            yield
    finally:
        current.inside.reset(token)
