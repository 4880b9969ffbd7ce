"""Races: of a kind of call that comes back, the likeliest kernels against the array library, on the caller's arrays.

A kernel that wins is timed once more, alone against the library's call, before its times are stored (duel.py). A race
takes milliseconds, once per Workload and part: its times go to the user's database, and decide from then on (tier 1).
Nothing is compiled for it, and nothing races while a graph is captured, on an emulated device, or where settings forbid
it (`config.races`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any

from gensor_database import Timing, Verification, canonical, duration
from gensor_kernels import config
from gensor_kernels.devices.agreement import is_finite, sample
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.selection.library import Kernel, Library
from gensor_kernels.dispatch.selection.tiers import Request, candidates
from gensor_kernels.errors import BuildError
from gensor_kernels.operators.types.workload import Workload

from .duel import settle
from .tuned_calls import TunedCalls

CONTENDERS = 4
NEAR = 2.0  # kernels predicted to take longer than this many times the favourite do not race
LONG_US = 20_000.0  # predicted: of such calls only the favourite races

Bind = Callable[[Kernel], Callable[[], Any]]
#: A kernel, and its call.
Entrant = tuple[Kernel, Callable[[], Any]]
#: Times a call is started, one by one, before those of a race take turns (devices/sampling.py).
ALONE = 2


def may(runtime: TunedCalls, workload: Workload) -> bool:
    """Return whether calls of this Workload are to race: nothing was timed under the present conditions."""
    return config.races() and workload.key() not in runtime.raced and not runtime.library.is_current(workload)


def contenders(request: Request, library: Library) -> list[Kernel]:
    """Return the kernels worth timing, best first: the tuned one, then the portfolios' best, all with binaries."""
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


def race(runtime: TunedCalls, request: Request, bind: Bind, vendor: Callable[[], Any], name: str) -> bool:
    """Time the contenders and the library's call `vendor`, stored as `name`; return whether any time was taken."""
    runtime.raced.add(request.problem.workload.key())
    try:
        entrants = _bound(contenders(request, runtime.library), bind)
        samples = take_samples(runtime, vendor, entrants) if entrants else []
        wrong = differing(runtime, vendor, entrants, samples) if entrants else []
        if entrants and not wrong:
            names = [kernel.digest for kernel, _ in entrants]
            samples = settle(
                samples, names, lambda rank, rounds: take_samples(runtime, vendor, [entrants[rank]], rounds)
            )
    except Exception as error:  # out of memory, say: the call itself is served as before
        config.logger().info("a race was called off: %s", error, exc_info=True)
        return False
    if not entrants:
        return False
    counters.races.add()
    if wrong:
        _refute(runtime, request, wrong)
        return True
    timed = [None, *(kernel for kernel, _ in entrants)]
    rows = [
        _timing(runtime, request, kernel, name, times) for kernel, times in zip(timed, samples, strict=True) if times
    ]
    runtime.library.note(rows)
    runtime.notes.add(rows)
    config.logger().info("raced %s: %s", request.problem.workload.key(), _describe(rows))
    return True


def differing(
    runtime: TunedCalls, vendor: Callable[[], Any], entrants: Sequence[Entrant], samples: Sequence[Sequence[float]]
) -> list[Kernel]:
    """Return the kernels that are faster than the library's call and compute something else.

    Raises ArithmeticError where the library's result is not finite: it may overflow before a kernel does.
    """
    theirs, *ours = (median(times) for times in samples)
    faster = [entrant for entrant, each in zip(entrants, ours, strict=True) if each < theirs]
    if not faster:
        return []
    with runtime.device.lending(None):
        result = vendor()
        expected = sample(result)  # a copy: kernels may write to the same array
        wrong = [kernel for kernel, call in faster if not runtime.device.agrees(call(), expected)]
    if wrong and not is_finite(runtime.device.xp, expected, result.dtype.name):
        raise ArithmeticError(f"a kernel and {runtime.device.xp.__name__} have NaN or infinities at different places")
    return wrong


def _bound(kernels: Sequence[Kernel], bind: Bind) -> list[Entrant]:
    entrants: list[Entrant] = []
    for kernel in kernels:
        try:
            entrants.append((kernel, bind(kernel)))
        except BuildError as error:
            config.logger().info("kernel %s does not race: %s", kernel.digest[:12], error)
    return entrants


def _timing(runtime: TunedCalls, request: Request, kernel: Kernel | None, name: str, times: Sequence[float]) -> Timing:
    """Return the row of a kernel's times, or of the library's call."""
    arch, digest = request.arch, kernel.digest if kernel is not None else None
    low, median, high = quantiles(times, n=4, method="inclusive")
    samples: dict[str, object] = {"high_us": high, "low_us": low, "race": True, "rounds": len(times)}
    if kernel is not None and kernel.base is not None:
        samples["launched"] = {"kernel": kernel.base, "program": kernel.program.to_json()}
    return Timing(
        *(request.problem.workload.key(), arch.name, arch.part),
        *(digest, None if digest else name, median),
        canonical(samples),
        runtime.device.conditions(),
    )


def _describe(rows: Sequence[Timing]) -> str:
    return ", ".join(f"{(row.kernel_digest or row.vendor or '')[:12]} {duration(row.median_us, 4)}" for row in rows)


# ---- kernels that fail in a race


def take_samples(
    runtime: TunedCalls, vendor: Callable[[], Any], entrants: list[Entrant], rounds: int | None = None
) -> list[list[float]]:
    """Return samples of the library's call and of each of `entrants`.

    Kernels that are refused, or for which there is no memory, are taken from `entrants`, and the others race again; the
    list is empty if no kernel is left. Raises what the library's call raises, and any error after which the device
    cannot be used any more: then the kernels that may have done it are stored as failed, and never run again.
    """
    while entrants:
        course = _Course([vendor, *(call for _, call in entrants)])
        try:
            with runtime.device.lending(None):  # a model that runs its nodes has no use for the memory of thousands
                return runtime.device.sample(course.calls, rounds)
        except Exception as error:
            suspects = course.suspects()
            if suspects and _is_lost(runtime):
                _blame(runtime, [entrants[index - 1][0].stored for index in suspects if index > 0], error)
                raise
            if not course.starts or course.last == 0:
                raise
            kernel, _ = entrants.pop(course.last - 1)
            config.logger().info("kernel %s does not race: %s", kernel.digest[:12], error)
    return []


class _Course:
    """Calls of a race, and how often each was started."""

    def __init__(self, calls: list[Callable[[], Any]]):
        self.starts: dict[int, int] = {}
        self.last = 0
        self.calls = [self._watch(index, call) for index, call in enumerate(calls)]

    def _watch(self, index: int, call: Callable[[], Any]) -> Callable[[], Any]:
        def counting() -> Any:
            self.starts[index] = self.starts.get(index, 0) + 1
            self.last = index
            return call()

        return counting

    def suspects(self) -> list[int]:
        """Return the calls that may have ruined the device: the last one alone, or all calls that took turns."""
        return [self.last] if max(self.starts.values(), default=0) <= ALONE else sorted(self.starts)


def _is_lost(runtime: TunedCalls) -> bool:
    """Return whether the device cannot be used any more in this process, say after an illegal access."""
    device = runtime.device
    try:
        device.synchronize()
    except device.faults:
        return True
    return False


def _refute(runtime: TunedCalls, request: Request, wrong: Sequence[Kernel]) -> None:
    """Store kernels as wrong, and plan all calls again without them: the others race again."""
    digests, workload = list(dict.fromkeys(kernel.stored for kernel in wrong)), request.problem.workload
    config.logger().warning(
        "results of %s are not those of %s, and nothing uses it any more; please report this with the output of "
        "gensor-tune doctor, and the call: %s",
        *(", ".join(f"kernel {digest[:12]}" for digest in digests), runtime.device.xp.__name__, workload.key()),
    )
    why = f"in a race: another result than the library's of {workload.key()}"
    runtime.notes.add([Verification(digest, "device", "wrong", why) for digest in digests])
    runtime.library.refuse(digests)
    runtime.renew(workload)


def _blame(runtime: TunedCalls, digests: list[str], error: Exception) -> None:
    names = ", ".join(digest[:12] for digest in digests) or "none of ours"
    config.logger().warning(
        "the device cannot be used any more in this process (%s); what ran on it then and is not used again: %s",
        *(error, names),
    )
    runtime.notes.add([Verification(digest, "device", "failed", f"in a race: {error}") for digest in digests])
