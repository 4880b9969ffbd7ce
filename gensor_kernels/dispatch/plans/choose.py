"""Choose what serves a call: the tier and the kernel, for arrays as they are or as they are staged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gensor_kernels import config
from gensor_kernels.dispatch.calls.arguments import Operands
from gensor_kernels.dispatch.calls.problem import LARGEST_EXTENT, Problem
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.dispatch.selection.tiers import Choice, Request
from gensor_kernels.dispatch.tuning import copy_race
from gensor_kernels.dispatch.tuning.background import improve
from gensor_kernels.errors import UnsupportedError

from . import unfused
from .plan import Call
from .stage import Lowered, stage


def choose(
    call: Call,
    operands: Operands,
    capturing: bool,
    *,
    improving: bool = False,
    captured: bool = False,
    refused: Collection[str] = (),
) -> tuple[Choice, Lowered | None]:
    """Return the tier that serves a call, and the call as kernels see it (None where none could).

    `improving` lets the call tier up, which may tune; without it nothing but memory is read. `captured`: choose
    as for a graph, in which the library's call cannot be recorded. `refused`: kernels that are passed over.
    """
    runtime, device = call.runtime, call.device
    if config.disabled() and not device.emulated:
        return Choice(4, "GENSOR_DISABLE is set"), None
    if device.arch is None:
        return Choice(4, device.unsupported), None
    if not all(device.is_local(array) for array in operands.arrays()):
        return Choice(4, "an operand is in the memory of another device"), None
    try:
        lowered = stage(call, operands)
        problem = lowered.problem
        if max(*problem.geometry.sizes, *problem.geometry.batch) > LARGEST_EXTENT:
            raise UnsupportedError("an extent of 2^31 or more")
    except UnsupportedError as error:
        return Choice(4, error.reason), None
    request = replace(
        request_of(call, problem, operands),
        captured=capturing or captured,
        loaded=runtime.loaded if capturing and not config.deterministic() else None,
        refused=refused,
        unfused=lambda: unfused.predict_substitute(call, operands),
    )
    if runtime.refuted and not request.captured and problem.workload.key() in runtime.refuted:
        return Choice(4, runtime.refuted[problem.workload.key()], standby=True), lowered
    choice = tiers.choose(request, runtime.library)
    if improving and config.tune_mode() == "now":
        choice = improve(runtime, request, choice)
    if lowered.staged and not request.captured:
        kind = copy_race.kind(runtime, problem, operands.arrays())
        choice = copy_race.choose(runtime, kind, request.one_call, choice)
    if runtime.pins is not None:
        choice = runtime.pins.choose(request, choice, bool(lowered.staged), runtime.library)
    if capturing and choice.kernel is not None and choice.kernel.stored not in runtime.loaded:
        choice = Choice(4, "the kernel of this call is not loaded: make the call once outside of the capture")
    return choice, lowered


def request_of(call: Call, problem: Problem, operands: Operands) -> Request:
    """Return what the tiers need to know of a call."""
    arch = call.device.arch
    assert arch is not None
    return Request(problem, arch, call.device.emulated, call.one_call(operands.steps))
