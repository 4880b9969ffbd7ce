"""The public functions as users call them: results, graph capture, several streams, host time per call."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gensor_kernels
from gensor_kernels.operators.products import matmul
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import Step
from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.shapes.reader import read_shapes

from . import public_calls
from .harness.session import Item, Session
from .public_calls import Shown

STEP = "public"
SHAPES = ((256, 256, 256), (1024, 512, 768), (1, 4096, 1024), (333, 127, 65))
TYPES = ("float16", "float32", "float64", "int8")
REHEARSED = (40, 24, 32)
CALLS = 2000  # per sample of the overhead
STREAMS = 4
REHEARSED_CALLS = 2


def items(session: Session) -> Iterator[Item]:
    """Yield results, graphs, streams and overhead, with this run's database and trusted predictions."""
    os.environ["GENSOR_DB"] = str(session.out / "device.db")
    os.environ["GENSOR_TUNE"] = "predicted"
    shapes = (REHEARSED,) if session.emulate else SHAPES
    for dtype in TYPES[:2] if session.emulate else TYPES:
        for shape in shapes:
            name = f"{dtype} {'x'.join(map(str, shape))}"
            yield Item(f"call {name}", lambda d=dtype, s=shape: call(session, d, s))  # type: ignore[misc]
            if not session.emulate:
                yield Item(f"graph {name}", lambda d=dtype, s=shape: graph(session, d, s))  # type: ignore[misc]
    shown = public_calls.calls(session.emulate)
    for name, each in shown.items() if not session.emulate else [*shown.items()][:: len(shown) // REHEARSED_CALLS]:
        yield Item(name, partial(function, session, each))
    if not session.emulate:
        yield Item("streams", lambda: streams(session))
    yield Item("overhead", lambda: overhead(session))


def context(session: Session) -> AbstractContextManager[Any]:
    """Return the context of the calls: this GPU, or the emulator."""
    return gensor_kernels.emulated(session.arch.part) if session.emulate else nullcontext()


class Case:
    """Operands of one call, with and without an epilogue, and the check of its result."""

    def __init__(self, session: Session, dtype: str, shape: tuple[int, int, int], seed: int = 0):
        self.session, self.xp = session, session.device.xp
        m, n, k = shape
        rng = np.random.default_rng(seed)
        self.result = matmul.default_output(dtype)
        self.host = [self._draw(rng, size, dtype) for size in ((m, k), (k, n))]
        self.bias_host = self._draw(rng, (n,), self.result if self.result != "int32" else "int8")
        self.a, self.b, self.bias = (self.xp.asarray(each) for each in (*self.host, self.bias_host))
        self.workload: Workload = matmul.workload(m, n, k, dtype=dtype, out=self.result)

    @staticmethod
    def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype == "int8":
            return rng.integers(-128, 128, shape).astype(np.int8)
        return rng.standard_normal(shape).astype(dtype)

    def out(self) -> Any:
        """Return a new poisoned result."""
        out = self.xp.empty((self.host[0].shape[0], self.host[1].shape[1]), self.result)
        out.view(np.uint8)[...] = 0xFF
        return out

    def run(self, out: Any, fused: bool) -> Any:
        """Make the call."""
        keywords: dict[str, Any] = {"bias": self.bias, "activation": "relu"} if fused else {}
        return gensor_kernels.matmul(self.a, self.b, out, dtype=self.result, **keywords)

    def serving_tiers(self, out: Any, fused: bool) -> gensor_kernels.Explanation:
        """Return the explanation of the call."""
        keywords: dict[str, Any] = {"bias": self.bias, "activation": "relu"} if fused else {}
        return gensor_kernels.explain(gensor_kernels.matmul, self.a, self.b, out, dtype=self.result, **keywords)

    def check(self, out: Any, fused: bool) -> float:
        """Return the largest error over its tolerance. Raises AssertionError where that is above 1."""
        steps = [Step("bias", self.bias_host.astype(np.float64)), Step("relu")] if fused else []
        integer = len(steps) if self.result == "int32" else 0
        expected = matmul.expect(self.host[0], self.host[1], self.workload, steps, integer_steps=integer)
        if fused and self.serving_tiers(out, fused).tier == 4:  # the library rounds the product before the epilogue
            product = np.abs(self.host[0].astype(np.float64) @ self.host[1].astype(np.float64))
            expected = expected._replace(bound=expected.bound + 2 * facts(self.result).unit_roundoff * product)
        found = tolerance_base.check(out if isinstance(out, np.ndarray) else out.get(), expected)
        if not found.ok:
            raise AssertionError(found.message)
        return found.ratio


def call(session: Session, dtype: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Make a plain and a fused call, and return who served them."""
    case = Case(session, dtype, shape)
    found: dict[str, Any] = {}
    with context(session):
        for fused in (False, True):
            out = case.out()
            why = case.serving_tiers(out, fused)
            case.run(out, fused)
            session.synchronize()
            name, worst = "fused" if fused else "plain", case.check(out, fused)
            found[name] = {"tier": why.tier, "family": why.family, "reason": why.reason, "worst": worst}
    return found


def graph(session: Session, dtype: str, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Capture a call in a graph, replay it on new operands in the same memory, and check what the replay wrote."""
    cupy: Any = session.device.xp
    case, other = Case(session, dtype, shape), Case(session, dtype, shape, seed=1)
    out = case.out()
    case.run(out, True)  # nothing may be loaded inside capture
    stream = cupy.cuda.Stream(non_blocking=True)
    session.synchronize()
    with stream:
        stream.begin_capture()
        case.run(out, True)
        made = stream.end_capture()
    for mine, theirs in ((case.a, other.a), (case.b, other.b), (case.bias, other.bias)):
        mine[...] = theirs
    out.view(np.uint8)[...] = 0xFF
    session.synchronize()
    made.launch(stream)
    stream.synchronize()
    return {"worst": other.check(out, True)}


def function(session: Session, shown: Shown) -> dict[str, Any]:
    """Call one public function: return its tiers and its error, directly and in a replayed graph, and host time per
    call."""
    drawn, xp = public_calls.draw(shown), session.device.xp
    arrays = public_calls.Arrays({name: xp.asarray(each) for name, each in drawn.items()})
    found: dict[str, Any] = {}
    with context(session):
        result = shown.call(arrays)
        session.synchronize()
        found["worst"] = public_calls.error(session.device.host(result), public_calls.reference(shown, drawn))
        found["tiers"] = tiers(lambda: shown.call(arrays))
        if not session.emulate:
            found["graph"] = capture(session, shown, arrays)
        found["us"] = _per_call(session, 5 if session.emulate else CALLS // 4, lambda: shown.call(arrays))
    worst = max(found["worst"], found.get("graph", {}).get("worst", 0.0))
    return found if worst <= 1 else found | {"outcome": "wrong", "error": f"{worst:.2f} times the tolerance"}


def tiers(call: Callable[[], Any]) -> dict[str, int]:
    """Return the number of parts of a call by tier, as a recording counts them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.csv"
        with gensor_kernels.record(path):
            call()
        return {f"tier {row.notes['tier']}": row.count for row in read_shapes(path)}


def capture(session: Session, shown: Shown, arrays: public_calls.Arrays) -> dict[str, Any]:
    """Capture a call and replay it on other numbers in the same memory, after all freed memory has been overwritten;
    return its error and the bytes that remain when the graph is gone, or CuPy's message where its own calls cannot be
    captured."""
    cupy: Any = session.device.xp
    pool = cupy.get_default_memory_pool()
    other = public_calls.draw(shown, seed=1)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        shown.call(arrays)  # loads kernels, and frees the blocks that capture takes: it may do neither itself
        stream.synchronize()
    session.synchronize()
    before = pool.used_bytes()
    try:
        with stream:
            stream.begin_capture()
            try:
                result = shown.call(arrays)
            finally:
                made = stream.end_capture()
    except Exception as error:
        if not session.healthy():
            raise
        return {"not_captured": f"{type(error).__name__}: {error}"[:200]}
    for name, each in other.items():
        arrays[name][...] = cupy.asarray(each)
    _overwrite(cupy, pool, stream)
    session.synchronize()
    made.launch(stream)
    stream.synchronize()
    worst = public_calls.error(session.device.host(result), public_calls.reference(shown, other))
    del result, made
    gc.collect()  # releases the memory of destroyed graphs
    return {"worst": worst, "kept_bytes": pool.used_bytes() - before}


def _overwrite(cupy: Any, pool: Any, stream: Any) -> None:
    """Fill the memory that a stream has freed with NaNs, and return it to the driver."""
    with stream:
        others = [cupy.full(1 << exponent, 0xFF, np.uint8) for exponent in range(9, 25) for _ in range(4)]
        stream.synchronize()
    others.clear()
    pool.free_all_blocks()


def streams(session: Session) -> dict[str, Any]:
    """Make the same call on several streams at once, each with other operands, several times over."""
    cupy: Any = session.device.xp
    cases = [Case(session, "float16", (512, 512, 512), seed) for seed in range(STREAMS)]
    outs, lanes = [case.out() for case in cases], [cupy.cuda.Stream(non_blocking=True) for _ in cases]
    session.synchronize()
    for _ in range(8):
        for case, out, lane in zip(cases, outs, lanes, strict=True):
            with lane:
                case.run(out, True)
    for lane in lanes:
        lane.synchronize()
    return {"worst": max(case.check(out, True) for case, out in zip(cases, outs, strict=True))}


def overhead(session: Session) -> dict[str, Any]:
    """Return microseconds of host time per call with `out=`, ours and the library's."""
    case = Case(session, "float16", REHEARSED if session.emulate else (128, 128, 128))
    out = case.out()
    found: dict[str, Any] = {"calls": CALLS if not session.emulate else 20}
    with context(session):
        found["matmul_us"] = _per_call(session, found["calls"], lambda: gensor_kernels.matmul(case.a, case.b, out))
        found["tier"] = gensor_kernels.explain(gensor_kernels.matmul, case.a, case.b, out).tier
    library = case.xp.matmul
    found["library_us"] = _per_call(session, found["calls"], lambda: library(case.a, case.b, out=out))
    return found


def _per_call(session: Session, calls: int, work: Callable[[], Any]) -> float:
    """Return the least of five samples, each short enough not to fill the launch queue."""
    work()
    best = float("inf")
    for _ in range(5):
        session.synchronize()
        done, spent = 0, 0.0
        while done < calls:
            burst = min(500, calls - done)
            began = time.perf_counter()
            for _ in range(burst):
                work()
            spent += time.perf_counter() - began
            session.synchronize()
            done += burst
        best = min(best, spent / calls * 1e6)
    return best
