"""Calls whose arrays are copied before a kernel takes them: with the copies, they must beat the library's call.

Races (race.py) give the times of kernels on copies, without the time to make these copies. Calls that copy are
timed as a whole, once per kind of call and process, against the library's call on the
caller's arrays. Until then the library serves what it does in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gensor_database import TIE_BAND, duration
from gensor_kernels import config
from gensor_kernels.dispatch.calls.problem import Problem
from gensor_kernels.dispatch.observe import counters
from gensor_kernels.dispatch.selection.tiers import Choice

from .duel import settle
from .tuned_calls import Kind, TunedCalls

if TYPE_CHECKING:
    from gensor_kernels.dispatch.calls.array import DeviceArray

#: Runs of ours before it is timed: what is inside races by itself at the second, and settles.
WARM_RUNS = 3

Run = Callable[[], Any]


def kind(runtime: TunedCalls, problem: Problem, arrays: Sequence[DeviceArray]) -> Kind:
    """Return the key by which calls that copy share a timing. Entries of `arrays` may be None."""
    pointer = runtime.pointer
    lie = tuple((x.shape, x.strides, x.dtype, pointer(x) & 15) for x in arrays if x is not None)
    return problem.workload.key(), lie


def against(runtime: TunedCalls, kind: Kind, one_call: bool) -> str:
    """Return why the library serves a call that copies; empty if a kernel on the copies serves it.

    `one_call`: the library needs a single call.
    """
    if runtime.device.emulated:
        return ""
    times = runtime.wholes.get(kind)
    if times is None:
        untimed = one_call and config.tune_mode() != "predicted"
        return "operands are copied, and no timing with the copies shows a win yet" if untimed else ""
    ours, theirs = times
    if theirs > ours * (1 + TIE_BAND):
        return ""
    return f"timed with its copies: {duration(ours, 4)}, the library {duration(theirs, 4)}"


def choose(runtime: TunedCalls, kind: Kind, one_call: bool, choice: Choice) -> Choice:
    """Return the choice among kernels for the copies, after `against`."""
    if choice.kernel is None:
        return choice
    reason = against(runtime, kind, one_call)
    return Choice(4, reason, standby=True) if reason else choice


def may(runtime: TunedCalls, kind: Kind, hopeful: bool) -> bool:
    """Return whether a kind of call is to be timed; `hopeful`: a kernel may serve the copies."""
    return hopeful and config.races() and kind not in runtime.wholes


def is_hopeful(choice: Choice) -> bool:
    """Return whether a kernel may serve a call: it does by `choice`, or nothing was timed yet."""
    return choice.kernel is not None or (choice.standby and choice.measured_us is None)


def weigh(runtime: TunedCalls, kind: Kind, ours: Run, theirs: Run) -> bool:
    """Time a call with its copies against the library's call; return whether any time was taken."""
    try:
        for _ in range(WARM_RUNS):
            ours()
        sampler = runtime.device.sampler([theirs, ours])
        samples = settle(sampler.first(), ["copies"], lambda _, rounds: sampler.again((0, 1), rounds))
        library, whole = (each.felt_us for each in samples)
    except Exception as error:  # out of memory, say: the call itself is served as before
        config.logger().info("a call with its copies could not be timed: %s", error, exc_info=True)
        return False
    counters.races.add()
    runtime.wholes[kind] = whole, library
    config.logger().info("timed with its copies %s: %.1f us, the library %.1f us", kind[0], whole, library)
    return True
