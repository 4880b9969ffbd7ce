"""Races: of a kind of call that comes back, the likeliest kernels against the array library, on the caller's arrays.

A kernel that wins is timed once more, alone against the library's call, before its times are stored (duel.py). A race
takes milliseconds, once per Workload and part: its times go to the user's database, and decide from then on (tier 1).
Nothing is compiled for it, and nothing races while a graph is captured, on an emulated device, or where settings forbid
it (`config.races`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from gensor_database import Timing, Verification, canonical, duration
from gensor_kernels import config
from gensor_kernels.arrays import DeviceArray
from gensor_kernels.devices.agreement import Sample, count_results, is_finite, results_of, sample
from gensor_kernels.devices.sampling import Samples
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.selection.library import Kernel, Library
from gensor_kernels.dispatch.selection.tiers import Request, candidates
from gensor_kernels.errors import BuildError
from gensor_kernels.operators.types.workload import Workload

from .duel import settle
from .tuned_calls import TunedCalls

if TYPE_CHECKING:
    from gensor_kernels.devices.sampling import Sampler

CONTENDERS = 4
NEAR = 2.0  # kernels predicted to take longer than this many times the favourite do not race
#: Predicted: of such calls only the favourite races. The budget of a race (devices/sampling.py) is ten of them, which
#: say more about two calls than about five.
LONG_US = 5_000.0

Bind = Callable[[Kernel], Callable[[], Any]]
#: A kernel, and its call.
Entrant = tuple[Kernel, Callable[[], Any]]


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


def race(
    runtime: TunedCalls,
    request: Request,
    bind: Bind,
    vendor: Callable[[], DeviceArray],
    name: str,
    share: float = 1.0,
    written: Sequence[DeviceArray] = (),
) -> bool:
    """Time the contenders and the library's call `vendor`, stored as `name`; return whether any time was taken.

    `share`: the part of the call's rows that `bind` and `vendor` compute; times of all its rows are stored. `written`:
    what they write beyond their results.
    """
    runtime.raced.add(request.problem.workload.key())
    try:
        course = Course(runtime, vendor, _bound(contenders(request, runtime.library), bind), written)
        samples = course.first()
        wrong = course.differing(samples)
        if samples and not wrong:
            samples = settle(samples, [kernel.digest for kernel in course.kernels], course.again)
    except Exception as error:  # out of memory, say: the call itself is served as before
        config.logger().info("a race was called off: %s", error, exc_info=True)
        return False
    if not samples:
        return False
    counters.races.add()
    if wrong:
        _refute(runtime, request, wrong)
        return True
    timed = zip([None, *course.kernels], samples, strict=True)
    rows = [_timing(runtime, request, kernel, name, each, share) for kernel, each in timed if each.us]
    runtime.library.note(rows)
    runtime.notes.add(rows)
    config.logger().info("raced %s: %s", request.problem.workload.key(), _describe(rows))
    return True


def _bound(kernels: Sequence[Kernel], bind: Bind) -> list[Entrant]:
    entrants: list[Entrant] = []
    for kernel in kernels:
        try:
            entrants.append((kernel, bind(kernel)))
        except BuildError as error:
            config.logger().info("kernel %s does not race: %s", kernel.digest[:12], error)
    return entrants


def _timing(
    runtime: TunedCalls, request: Request, kernel: Kernel | None, name: str, times: Samples, share: float
) -> Timing:
    """Return the row of a kernel's times, or of the library's call.

    The time is the device's, as of every row; what the host takes is among the samples (gensor_database.winner).
    """
    arch, digest = request.arch, kernel.digest if kernel is not None else None
    us = [each / share for each in times.us]
    low, median, high = quantiles(us, n=4, method="inclusive") if len(us) > 1 else us * 3
    samples: dict[str, object] = {"high_us": high, "low_us": low, "race": True, "rounds": len(us)}
    samples["host_us"] = times.host_us
    if share < 1:
        samples["share"] = share
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


class Course:
    """The calls of a race: the library's, and those of kernels, of which some may fail.

    Parameters
    ----------
    runtime : TunedCalls
        Whose device runs them.
    vendor : callable
        The library's call. A part of its first results is kept, so that no further call is needed to compare kernels
        with it.
    entrants : list of Entrant
        Kernels and their calls. One that is refused, or for which there is no memory, is removed.
    written : sequence of array
        What every call writes beyond its result.
    """

    def __init__(
        self,
        runtime: TunedCalls,
        vendor: Callable[[], DeviceArray],
        entrants: list[Entrant],
        written: Sequence[DeviceArray],
    ):
        self.runtime, self.entrants = runtime, entrants
        self._vendor, self._written = vendor, written
        self._expected: tuple[list[Sample], str, int] | None = None
        self._sampler: Sampler | None = None

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that take part."""
        return [kernel for kernel, _ in self.entrants]

    def _call_library(self) -> Any:
        result = self._vendor()
        if self._expected is None:
            # Copies: kernels may write to the same arrays.
            count = count_results(result)
            results = results_of(result, count)
            self._expected = [sample(each) for each in (*results, *self._written)], results[0].dtype.name, count
        return result

    def first(self) -> list[Samples]:
        """Return samples of the library's call and of each kernel; an empty list if no kernel is left.

        Raises what the library's call raises, and any error after which the device cannot be used any more: then the
        kernels that may have done it are stored as failed, and never run again.
        """
        while self.entrants:
            self._sampler = self.runtime.device.sampler([self._call_library, *(call for _, call in self.entrants)])
            found = self._watch(self._sampler, self._sampler.first)
            if found is not None:
                return found
            self.entrants.pop(self._sampler.last - 1)  # the others race again
        return []

    def again(self, rank: int, rounds: int) -> list[Samples] | None:
        """Return new samples of the library's call and of one kernel (see duel.Again)."""
        sampler = self._sampler
        assert sampler is not None
        return self._watch(sampler, lambda: sampler.again((0, rank + 1), rounds))

    def differing(self, samples: Sequence[Samples]) -> list[Kernel]:
        """Return the kernels that are faster than the library's call and compute something else.

        Raises ArithmeticError where the library's result is not finite: it may overflow before a kernel does.
        """
        if not samples or self._expected is None:
            return []
        (expected, dtype, count), device = self._expected, self.runtime.device
        theirs, *ours = (each.felt_us for each in samples)
        with device.lending(None):
            faster = [entrant for entrant, us in zip(self.entrants, ours, strict=True) if us < theirs]
            wrong = [
                kernel
                for kernel, call in faster
                if not device.agrees((*results_of(call(), count), *self._written), expected)
            ]
        if wrong and not all(is_finite(device.xp, each, dtype) for each in expected[:count]):
            raise ArithmeticError(f"a kernel and {device.xp.__name__} have NaN or infinities at different places")
        return wrong

    def _watch(self, sampler: Sampler, sampled: Callable[[], list[Samples]]) -> list[Samples] | None:
        """Return samples, or None if a kernel cannot run: the last one that was started."""
        runtime = self.runtime
        try:
            with runtime.device.lending(None):  # a model that runs its nodes has no use for the memory of thousands
                return sampled()
        except Exception as error:
            suspects = sorted(sampler.running)
            if suspects and _is_lost(runtime):
                _blame(runtime, [self.entrants[place - 1][0].stored for place in suspects if place > 0], error)
                raise
            if sampler.last <= 0:
                raise
            config.logger().info("kernel %s does not race: %s", self.kernels[sampler.last - 1].digest[:12], error)
            return None


# ---- kernels that fail in a race


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
