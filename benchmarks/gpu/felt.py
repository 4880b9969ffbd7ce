"""Host and device time that a user of CuPy feels, of his calls by CuPy and through this package, in four minutes.

Calls that the host bounds, sums over short axes, a program inside `accelerate`, `bind`, and what users asked for
(benchmarks/requests). Both times are those of `cupyx.profiler.benchmark`; its first runs load kernels and race, as a
user's do. A rehearsal makes each call once, but for those inside `accelerate`, which takes CuPy's arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

import gensor_kernels as gk
from benchmarks import requests

from . import public_calls, shipped
from .harness.session import Item, Session
from .public import context, tiers

STEP = "felt"
WARM, MOST_RUNS, SECONDS = 12, 1000, 0.7  # of one profile
#: Elements of a matrix whose rows are summed, and lengths of the rows.
SUMMED, ROWS = 1 << 24, (2, 3, 4, 8, 16, 31, 64, 128, 1000)
Call = Callable[[], Any]
Ours = AbstractContextManager[Call]


def items(session: Session) -> Iterator[Item]:
    """Yield calls, short axes, the program, `bind` and the requests, with this run's database and no background."""
    os.environ |= {"GENSOR_DB": str(session.out / "device.db"), "GENSOR_BACKGROUND": "0"}
    if session.db is not None:
        with session.store() as store:
            shipped.given(session, store)
    for name, theirs, ours in pairs(session):
        yield Item(name, partial(compare, session, theirs, requests.accelerated(theirs) if ours is None else ours))
    for name, request in requests.find_requests().items():
        yield Item(f"request {name}", partial(ask, session, request))


def pairs(session: Session) -> Iterator[tuple[str, Call, Ours | None]]:
    """Yield calls by name: CuPy's, and ours or None for CuPy's inside `accelerate`."""
    xp = library_of(session)
    a, b, c, x = (xp.full((64, 64), 1, dtype) for dtype in ("float16", "float16", "float16", "float32"))
    weights = xp.full(64, 1, "float32")
    yield "matmul", lambda: xp.matmul(a, b), nullcontext(lambda: gk.matmul(a, b))
    yield "matmul out", lambda: xp.matmul(a, b, out=c), nullcontext(lambda: gk.matmul(a, b, c))
    with context(session):
        plan = gk.bind(gk.matmul, a, b, out=c)
    yield "matmul out, bound", lambda: xp.matmul(a, b, out=c), nullcontext(plan)
    yield "matmul accelerated", lambda: a @ b, None
    layer = nullcontext(lambda: gk.matmul(a, b, add=a, activation="relu"))
    yield "matmul add relu", lambda: xp.maximum(xp.matmul(a, b) + a, 0), layer
    yield "einsum", lambda: xp.einsum("ij,kj->ik", x, x), nullcontext(lambda: gk.einsum("ij,kj->ik", x, x))
    yield "sum", lambda: x.sum(axis=1), nullcontext(lambda: gk.sum(x, axis=1))
    yield "sum accelerated", lambda: x.sum(axis=1), None
    norm = nullcontext(lambda: gk.rms_norm(x, 64, weights))
    yield "rms_norm", lambda: x / xp.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) * weights, norm
    for length in ROWS[:2] if session.emulate else ROWS:
        rows = xp.full((96 if session.emulate else SUMMED // length, length), 1, "float32")
        yield f"sum of rows of {length}", partial(rows.sum, axis=1), nullcontext(partial(gk.sum, rows, axis=1))
    yield "program accelerated", partial(cluster, xp.full((SUMMED >> 8, 32), 1, "float32")), None


def library_of(session: Session) -> Any:
    """Return CuPy with the functions that `accelerate` replaces; NumPy in a rehearsal."""
    return getattr(session.device, "cupy", session.device.xp)


def cluster(points: Any) -> Any:
    """Return centres after three steps of soft k-means: a program that knows nothing of this package."""
    centres = points[:16]
    for _ in range(3):
        distances = (centres * centres).sum(axis=1) - 2 * (points @ centres.T)
        near = abs(distances.max(axis=1, keepdims=True) - distances) + 1
        members = near / near.sum(axis=1, keepdims=True)
        centres = (members.T @ points) / members.sum(axis=0)[:, None]
    return centres


def compare(
    session: Session, theirs: Call, ours: Ours, wanted: Any = None, near: float | None = None
) -> dict[str, Any]:
    """Return times of CuPy's call, or why it refused, and of ours, its tiers and, for a `wanted` result, its error."""
    if session.emulate and not isinstance(ours, nullcontext):
        return {"outcome": "skipped", "reason": "accelerate takes CuPy's arrays"}
    found: dict[str, Any] = {}
    try:
        found["cupy"] = profile(session, theirs)
    except Exception as error:
        if not session.healthy():
            raise
        found["refused"] = f"{type(error).__name__}: {error}"[:200]
    with context(session), ours as call:
        found |= {"ours": profile(session, call), "tiers": tiers(call)}
        if wanted is not None:
            found["worst"] = public_calls.error(session.device.host(call()), wanted, near)
    wrong = found.get("worst", 0.0) > 1
    return found | ({"outcome": "wrong", "error": f"{found['worst']:.2f} times the tolerance"} if wrong else {})


def ask(session: Session, request: Any) -> dict[str, Any]:
    """Compare a request's call with ours, and its result with NumPy's."""
    drawn, xp = requests.draw_arrays(request, session.emulate), library_of(session)
    arrays = [xp.asarray(each) for each in drawn]
    wanted = requests.compute_meant(request, drawn)
    with requests.switched(request, xp):
        theirs, ours = partial(request.call, xp, *arrays), requests.serving(request, xp, arrays)
        return compare(session, theirs, ours, wanted, requests.tolerance(request))


def profile(session: Session, call: Call) -> dict[str, float]:
    """Return medians of host and device microseconds."""
    if session.emulate:
        call()
        return {}
    from cupyx.profiler import benchmark

    found = benchmark(call, n_repeat=MOST_RUNS, name=STEP, n_warmup=WARM, max_duration=SECONDS)
    times = {"host_us": found.cpu_times, "device_us": found.gpu_times}
    return {name: float(np.median(each)) * 1e6 for name, each in times.items()}
