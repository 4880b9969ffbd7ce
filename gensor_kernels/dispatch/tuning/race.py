"""Races: of a kind of call that comes back, the likeliest kernels against the array library, on the caller's arrays.

A race takes milliseconds, once per Workload and part: its times go to the user's database, and decide from then on
(tier 1). Nothing is compiled for it, and nothing races while a graph is captured, on an emulated device, or where
settings forbid it (`config.races`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from gensor_database import Timing, canonical
from gensor_kernels import config
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.plans.failures import sampled
from gensor_kernels.dispatch.selection.library import Kernel, Library
from gensor_kernels.dispatch.selection.tiers import Request, candidates
from gensor_kernels.errors import BuildError
from gensor_kernels.operators.types.workload import Workload

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime

CONTENDERS = 4
NEAR = 2.0  # kernels predicted to take longer than this many times the favourite do not race
LONG_US = 20_000.0  # predicted: of such calls only the favourite races

Bind = Callable[[Kernel], Callable[[], Any]]


def may(runtime: Runtime, workload: Workload) -> bool:
    """Whether calls of this Workload are to race: nothing was timed under the conditions there are now."""
    return (
        not runtime.device.emulated
        and config.races()
        and workload.key() not in runtime.raced
        and not runtime.library.is_current(workload)
    )


def contenders(request: Request, library: Library) -> list[Kernel]:
    """The kernels worth timing, best first: what tuning chose, then the best of the portfolios, all with binaries."""
    ranked = sorted(candidates(request, library), key=lambda entry: entry[:3])
    recorded = library.record(request.problem.workload)
    chosen = [recorded] if recorded is not None else []
    if ranked:
        best = ranked[0][0]
        chosen += [kernel for seconds, *_, kernel, _ in ranked if seconds <= NEAR * best]
    ready = [kernel for kernel in dict.fromkeys(chosen) if _has_binary(kernel)]
    long = bool(ranked) and ranked[0][0] * 1e6 > LONG_US
    return ready[: 1 if long else CONTENDERS]


def _has_binary(kernel: Kernel) -> bool:
    try:
        return bool(kernel.code.cubin)
    except BuildError:
        return False


def race(runtime: Runtime, request: Request, bind: Bind, vendor: Callable[[], Any], name: str) -> bool:
    """Times the contenders and the library's call `vendor`, called `name`; whether there is anything new to know."""
    runtime.raced.add(request.problem.workload.key())
    try:
        entrants = _bound(contenders(request, runtime.library), bind)
        samples = sampled(runtime, vendor, entrants) if entrants else []
    except Exception as error:  # out of memory, say: the call itself is served as before
        config.logger().info("a race was called off: %s", error, exc_info=True)
        return False
    if not entrants:
        return False
    counters.races.add()
    digests = [None, *(digest for digest, _ in entrants)]
    rows = [_timing(runtime, request, digest, name, times) for digest, times in zip(digests, samples, strict=True)]
    runtime.library.note(rows)
    runtime.notes.add(rows)
    config.logger().info("raced %s: %s", request.problem.workload.key(), _told(rows))
    return True


def _bound(kernels: Sequence[Kernel], bind: Bind) -> list[tuple[str, Callable[[], Any]]]:
    entrants: list[tuple[str, Callable[[], Any]]] = []
    for kernel in kernels:
        try:
            entrants.append((kernel.digest, bind(kernel)))
        except BuildError as error:
            config.logger().info("kernel %s does not race: %s", kernel.digest[:12], error)
    return entrants


def _timing(runtime: Runtime, request: Request, digest: str | None, name: str, times: Sequence[float]) -> Timing:
    arch = request.arch
    low, median, high = quantiles(times, n=4, method="inclusive")
    samples = {"high_us": high, "low_us": low, "race": True, "rounds": len(times)}
    return Timing(
        *(request.problem.workload.key(), arch.name, arch.part),
        *(digest, None if digest else name, median),
        canonical(samples),
        runtime.device.conditions(),
    )


def _told(rows: Sequence[Timing]) -> str:
    return ", ".join(f"{(row.kernel_digest or row.vendor or '')[:12]} {row.median_us:.1f} us" for row in rows)
