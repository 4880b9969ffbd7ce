"""Whole models from ONNX files as users run them: a captured CUDA graph next to the same model by the array library.

The networks are those of tests/graph/networks/exported, weights drawn. With `GENSOR_DISABLE=1` every node is CuPy's;
both results are compared. Times are of whole calls, the copies of inputs and results included; a profile has each node
by itself. The two are timed one after the other: a Runtime has one Plan for a kind of call. Skipped where the packages
that read ONNX files are not installed.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import gensor_kernels
from gensor_kernels.errors import ModelError
from gensor_kernels.graph.execution.model import Model

from .harness.session import Item, Session
from .public import context

STEP = "graphs"
#: Networks and the dtype that they are computed in, most valuable first.
MODELS = (
    *(("resnet50", "float16"), ("bert_base", "float16"), ("gpt2_step", "float16"), ("vit_b_16", "float16")),
    *(("mobilenet_v2", "float16"), ("resnet50", "float32"), ("bert_base", "float32")),
)
REHEARSED = (("mobilenet_v2_small", "float32"),)
SIZES = {"batch": 1, "tokens": 128, "past": 127}
#: Seconds after which a model counts as hanging: planning, uploads and races come first.
SECONDS = 240.0
#: Calls before the first is timed: kinds of calls race at their second, and the capture follows the last race.
WARM = 6
HOST_CALLS = 200


def items(session: Session) -> Iterator[Item]:
    """Yield one item per model, or one that says why there is none."""
    os.environ["GENSOR_DB"] = str(session.out / "device.db")
    try:
        from gensor_kernels.graph.readers.onnx_file import library

        library()
    except ModelError as error:
        reason = str(error)
        yield Item("graphs", lambda: {"outcome": "skipped", "reason": reason}, always=True)
        return
    for name, dtype in REHEARSED if session.emulate else MODELS:
        yield Item(f"{name} {dtype}", partial(measure, session, name, dtype), limit=SECONDS)


def measure(session: Session, name: str, dtype: str) -> dict[str, Any]:
    """Compare and time one model; "wrong" where its result is not the array library's."""
    with context(session):
        model, inputs = load_model(name, dtype)
        given = model.placed(inputs)
        call = partial(model, **given)
        expected, library_us = by_library(session, call)
        results = [_host(call()) for _ in range(2 if session.emulate else WARM)]
        memory = model.memory(**given)
        found: dict[str, Any] = {
            "runs": memory.runs,
            "arena_bytes": memory.arena,
            "live_bytes": memory.live,
            "tiers": tiers(model, given),
            "library_us": library_us,
        }
        errors = [_differences(result, expected) for result in (results[0], results[-1])]
        found["difference"] = max(map(max, errors))
        if not found["difference"] <= most(dtype):  # NaN is no right result either
            text = f"differs from the array library's by {found['difference']:.1e} of the largest element"
            return found | {"outcome": "wrong", "error": text}
        return found if session.emulate else found | times(session, model, given, call)


def load_model(name: str, dtype: str) -> tuple[Model, dict[str, np.ndarray]]:
    """Return a network with drawn weights, computed in `dtype`, and inputs."""
    import onnx

    from tests.graph.networks import exported_graphs

    graph = exported_graphs.draw(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(graph, path)
        model = gensor_kernels.load(path, dtype=None if dtype == "float32" else dtype)  # type: ignore[arg-type]
    return model, exported_graphs.inputs(graph, SIZES)


def by_library(session: Session, call: Callable[[], Any]) -> tuple[list[np.ndarray], float | None]:
    """Return the results of a model, and its microseconds on a GPU, where every node is the array library's.

    The emulator has no library: its kernels compute node by node there.
    """
    try:
        with mock.patch.dict(os.environ, GENSOR_DISABLE="1"):
            gensor_kernels.refresh()
            results = _host(call())
            us = None if session.emulate else session.device.sampler([call]).first()[0].device_us
    finally:
        gensor_kernels.refresh()
    return results, us


def most(dtype: str) -> float:
    """Return the largest difference of two right results: half of the digits of a dtype agree.

    A network has no K: roundings of dozens of layers add up, in other orders on either side. A wrong kernel is off by
    about the largest element.
    """
    return float(np.sqrt(np.finfo(dtype).eps))


def tiers(model: Model, given: Mapping[str, Any]) -> dict[str, int]:
    """Return how many calls each tier serves; "array library" counts nodes that call none of our functions."""
    found: dict[str, int] = {}
    for layer in model.explain(**given):
        for name in [str(each.tier) for each in layer.served] or ["array library"]:
            found[name] = found.get(name, 0) + 1
    return found


def times(session: Session, model: Model, given: Mapping[str, Any], call: Callable[[], Any]) -> dict[str, Any]:
    """Return microseconds of a call, of the host, and of every node."""
    ours = session.device.sampler([call]).first()[0].device_us
    layers = model.profile(**given)
    session.synchronize()
    began = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    host = (time.perf_counter() - began) / HOST_CALLS * 1e6
    session.synchronize()
    slowest = sorted(layers, key=lambda each: -(each.us or 0.0))[:10]
    return {
        "us": ours,
        "host_us": host,
        "nodes_us": layers.us,
        "bound_us": layers.bound_us,
        "slowest": [[each.name, each.operators, each.by, each.us, each.bound_us] for each in slowest],
    }


def _host(results: Any) -> list[np.ndarray]:
    arrays = results if isinstance(results, tuple) else (results,)
    return [np.asarray(each if isinstance(each, np.ndarray) else each.get()) for each in arrays]


def _differences(results: list[np.ndarray], expected: list[np.ndarray]) -> list[float]:
    """Return the largest difference of each result relative to the largest element; NaN where only one side has NaN."""
    found = []
    for one, other in zip(results, expected, strict=True):
        a, b = one.astype(np.float64), other.astype(np.float64)
        scale = max(float(np.abs(b).max(initial=0.0)), 1e-30)
        found.append(float(np.abs(a - b).max(initial=0.0)) / scale)
    return found
