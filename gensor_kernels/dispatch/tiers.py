"""Which kernel serves a call, and why. Calls fall through four tiers:

1. a kernel measured on this part for exactly this Workload;
2. the kernel tuning chose for exactly this Workload, not measured here;
3. the best of the stored kernels that fit, by the potential and measured residuals;
4. the array library.

Until a timing shows a win, tiers 2 and 3 serve only what the library cannot do in one call: that is the promise
never to be slower. `GENSOR_TUNE=predicted` lifts it. `choose` is a pure function of its arguments and settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import config
from ..errors import UnsupportedError
from ..machine.arch import Arch
from ..operators.dtypes import facts
from ..operators.epilogue import OPERATIONS
from ..operators.workload import Workload
from ..programs.families import FAMILIES
from ..programs.space import FamilySpace, Space
from .library import Kernel, Library, generate
from .problem import Problem

#: Ours must beat the library's call by this much to take its place: closer than that is noise.
TIE_BAND = 0.02


@dataclass(frozen=True)
class Request:
    """What is to be served. `one_call`: the array library would need only one call of its own."""

    problem: Problem
    arch: Arch
    emulated: bool
    one_call: bool
    capturing: bool = False


@dataclass(frozen=True)
class Choice:
    """The outcome. `standby` is a kernel that would do, where the library is preferred outside graph capture."""

    tier: int
    reason: str
    kernel: Kernel | None = None
    predicted_us: float | None = None
    measured_us: float | None = None
    vendor_us: float | None = None
    standby: Kernel | None = None


def choose(request: Request, library: Library) -> Choice:
    """The tier, the kernel and the reason for one request."""
    workload = request.problem.workload
    measured = _measured(request, library)
    if measured is not None and measured.kernel is not None:
        return measured
    found = _recorded(request, library) or _portfolio(request, library)
    if found is None and request.emulated:
        found = _starter(workload, request.arch)
    if measured is not None:
        kernel = found.kernel if found else None
        return Choice(4, measured.reason, None, vendor_us=measured.vendor_us, standby=kernel)
    if found is None or found.kernel is None:
        return found or Choice(4, f"no kernel is stored for {_class_words(workload)} on {request.arch.name}")
    if not request.one_call or request.emulated or config.tune_mode() == "predicted":
        return found
    reason = f"the library does this in one call, and no timing on {request.arch.part} shows a win yet"
    return Choice(4, reason, None, found.predicted_us, standby=found.kernel)


def _measured(request: Request, library: Library) -> Choice | None:
    """Tier 1; a Choice without a kernel where the library's call won; None where nothing was measured."""
    workload = request.problem.workload
    timings = library.timings(workload)
    candidates = [
        (time, digest, kernel)
        for digest, time in timings.kernels.items()
        if (kernel := library.kernel(digest)) is not None and kernel.fits(workload)
    ]
    if not candidates or request.emulated:
        return None
    # Within the tie band the order of digests decides, so that noise does not.
    best = min(time for time, *_ in candidates)
    time, _, kernel = min((c for c in candidates if c[0] <= best * (1 + TIE_BAND)), key=lambda c: c[1])
    vendor = timings.vendor_us
    if vendor is not None and request.one_call and time > vendor * (1 - TIE_BAND):
        reason = f"measured on {request.arch.part}: the library takes {vendor:.1f} us, our best kernel {time:.1f} us"
        return Choice(4, reason, None, measured_us=time, vendor_us=vendor)
    if vendor is None and request.one_call and config.tune_mode() != "predicted":
        return None  # a time without one to compare it with shows no win
    versus = "" if vendor is None else f", the library {vendor:.1f} us"
    reason = f"measured on {request.arch.part}: {time:.1f} us{versus}"
    return Choice(1, reason, kernel, _predict(kernel, workload, request.arch), time, vendor)


def _recorded(request: Request, library: Library) -> Choice | None:
    workload, arch = request.problem.workload, request.arch
    kernel = library.record(workload)
    if kernel is None:
        return None
    return Choice(2, f"tuned for exactly this workload on {arch.name}", kernel, _predict(kernel, workload, arch))


def _portfolio(request: Request, library: Library) -> Choice | None:
    workload, arch = request.problem.workload, request.arch
    kernels = library.fitting(workload)
    ranked = [
        (seconds * residual(kernel, library, arch), kernel.digest, kernel, seconds)
        for kernel, seconds in zip(kernels, predict(kernels, workload, arch), strict=True)
        if np.isfinite(seconds)
    ]
    if not ranked:
        return None
    *_, kernel, seconds = min(ranked, key=lambda entry: entry[:2])
    reason = f"best of {len(ranked)} stored kernels that fit, by the potential"
    return Choice(3, reason, kernel, seconds * 1e6)


def _starter(workload: Workload, arch: Arch) -> Choice:
    """For emulated devices, where no library can step in: the best of the families' default Programs."""
    coarse = coarsened(workload)
    try:
        programs = [p for f in Space(coarse, arch).families for p in f.family.starters(coarse, arch)]
    except UnsupportedError as error:
        return Choice(4, error.reason)
    kernels = [generate(program, coarse, arch) for program in programs]
    seconds = predict(kernels, workload, arch)
    best = min(range(len(kernels)), key=lambda i: (seconds[i], kernels[i].digest), default=None)
    if best is None or not np.isfinite(seconds[best]):
        return Choice(4, f"no default Program is legal for {_class_words(workload)}")
    reason = f"nothing is stored for this class: best of {len(kernels)} default Programs by the potential"
    return Choice(3, reason, kernels[best], seconds[best] * 1e6)


def coarsened(workload: Workload) -> Workload:
    """The same with alignments of 16 bytes or one element only: fewer classes, fewer builds."""
    alignment = tuple(
        (name, width if width == 16 else facts(workload.dtype[name]).itemsize) for name, width in workload.alignment
    )
    return Workload(**{**{f: getattr(workload, f) for f in workload.__dataclass_fields__}, "alignment": alignment})


def predict(kernels: Sequence[Kernel], workload: Workload, arch: Arch) -> list[float]:
    """Predicted seconds of each kernel for a Workload it fits; infinity where its Program is not legal."""
    seconds = [float("inf")] * len(kernels)
    groups: dict[tuple[str, str], list[int]] = {}
    for index, kernel in enumerate(kernels):
        groups.setdefault((kernel.program.family, kernel.serves.class_key()), []).append(index)
    for (name, _), indices in groups.items():
        for index, value in zip(indices, _family_seconds(name, [kernels[i] for i in indices], workload, arch)):  # noqa: B905
            seconds[index] = value
    return seconds


def _family_seconds(name: str, kernels: Sequence[Kernel], workload: Workload, arch: Arch) -> Iterable[float]:
    family, wanted = FAMILIES[name], kernels[0].workload(workload)
    if family.serves(wanted, arch) is not None:
        return [float("inf")] * len(kernels)
    space = FamilySpace(family, wanted, arch)
    result = []
    for kernel in kernels:
        try:
            point = space.point(kernel.program)[None]
        except ValueError:  # a value this Workload's lattice does not have
            result.append(float("inf"))
            continue
        result.append(float(space.potential(point)[0]) if space.legal(point)[0] else float("inf"))
    return result


def _predict(kernel: Kernel, workload: Workload, arch: Arch) -> float | None:
    (seconds,) = predict([kernel], workload, arch)
    return seconds * 1e6 if np.isfinite(seconds) else None


def residual(kernel: Kernel, library: Library, arch: Arch) -> float:
    """Measured over predicted time of a kernel on this part, geometric mean; 1 where it was never measured."""
    timed = list(library.timed_workloads(kernel))
    predicted = {workload.key(): _predict(kernel, workload, arch) for workload in timed}
    return library.residual(kernel, {key: value for key, value in predicted.items() if value})


def code_of(name: str) -> int:
    """The operation code kernels know an epilogue operation by."""
    return OPERATIONS[name].code


def _class_words(workload: Workload) -> str:
    types = "/".join(dtype for _, dtype in workload.dtypes)
    layouts = "/".join(layout for _, layout in workload.layout)
    return f"{types}, {workload.math}, layouts {layouts}"
