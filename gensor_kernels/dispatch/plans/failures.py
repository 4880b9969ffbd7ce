"""Calls that go wrong: a kernel's in a race, and any Plan's for want of memory or because the driver refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gensor_database import Verification
from gensor_kernels import config

if TYPE_CHECKING:
    from .runtime import Runtime

Entrant = tuple[str, Callable[[], Any]]
#: Times a call is started, one by one, before those of a race take turns (devices/sampling.py).
ALONE = 2


def sampled(runtime: Runtime, vendor: Callable[[], Any], entrants: list[Entrant]) -> list[list[float]]:
    """Samples of the library's call and of each of `entrants` (a kernel's digest, its call).

    Kernels that are refused, or for which there is no memory, are taken from `entrants`, and the others race again; no
    samples where none is left. Raises what the library's call raises, and any error after which the device cannot be
    used any more: then the kernels that may have done it are stored as failed, and never run again.
    """
    while entrants:
        course = _Course([vendor, *(call for _, call in entrants)])
        try:
            return runtime.device.sampled(course.calls)
        except Exception as error:
            suspects = course.suspects()
            if suspects and _is_lost(runtime):
                _blame(runtime, [entrants[index - 1][0] for index in suspects if index > 0], error)
                raise
            if not course.starts or course.last == 0:
                raise
            digest, _ = entrants.pop(course.last - 1)
            config.logger().info("kernel %s does not race: %s", digest[:12], error)
    return []


class _Course:
    """Calls of a race, and how often each was started."""

    def __init__(self, calls: list[Callable[[], Any]]):
        self.starts: dict[int, int] = {}
        self.last = 0
        self.calls = [self._watched(index, call) for index, call in enumerate(calls)]

    def _watched(self, index: int, call: Callable[[], Any]) -> Callable[[], Any]:
        def watched() -> Any:
            self.starts[index] = self.starts.get(index, 0) + 1
            self.last = index
            return call()

        return watched

    def suspects(self) -> list[int]:
        """The calls that may have ruined the device: the last, or any of those that took turns."""
        return [self.last] if max(self.starts.values(), default=0) <= ALONE else sorted(self.starts)


def _is_lost(runtime: Runtime) -> bool:
    """Whether the device cannot be used any more in this process, after an illegal access say."""
    device = runtime.device
    try:
        device.synchronize()
    except device.faults:
        return True
    return False


def _blame(runtime: Runtime, digests: list[str], error: Exception) -> None:
    names = ", ".join(digest[:12] for digest in digests) or "none of ours"
    config.logger().warning(
        "the device cannot be used any more in this process (%s); what ran on it then and is not used again: %s",
        *(error, names),
    )
    runtime.notes.add([Verification(digest, "device", "failed", f"in a race: {error}") for digest in digests])


def instead(runtime: Runtime, key: Any, plan: Any, error: Exception, library: Callable[[str], Any]) -> Any:
    """The Plan by `library` (of a reason) in the place of one that raised `error`: for this call where memory for
    copies or a workspace was lacking, for all where the driver refused the launch.

    Such a launch has done nothing, and what was allocated before it is free again: the library can still serve the
    call. Raises `error` where it was the library's own, and where there is none to turn to.
    """
    if runtime.device.emulated or plan.tier == 4 or runtime.device.capturing():
        raise error
    scarce = isinstance(error, MemoryError)
    reason = f"{'there is no memory to run a kernel' if scarce else 'the launch was refused'}: {error}"
    config.logger().warning("%s; the call goes to %s", reason, runtime.device.xp.__name__)
    found = library(reason)
    if not scarce:
        with runtime.lock:
            runtime.plans[key] = found
    return found
