"""Which kernel serves a call, and why. Calls fall through four tiers:

1. a kernel measured on this part for exactly this Workload;
2. the kernel tuning chose for exactly this Workload, not measured here;
3. the best of the portfolios that fit, by the potential and measured residuals; of a class whose portfolio has no
   kernel for this Workload, all stored kernels that fit;
4. the array library.

Until a timing shows a win, tiers 2 and 3 serve only what the library cannot do in one call, and of that only what its
several calls are predicted to take longer for: that is the promise never to be slower. `GENSOR_TUNE=predicted` lifts
it. `choose` is a pure function of its arguments and settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace

from gensor_database import TIE_BAND, duration, winner
from gensor_kernels import config
from gensor_kernels.dispatch.calls.problem import Problem
from gensor_kernels.errors import UnsupportedError
from gensor_kernels.families.core.family import Family, divisions
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch
from gensor_kernels.operators.products.quantised import SCALES
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.epilogue import OPERATIONS
from gensor_kernels.operators.types.workload import Workload

from .library import Form, Kernel, Library, generate, types_of
from .predict import few_seconds, predict_divided, predicted_us, residual

#: Seconds by which kernels are ranked, minus the demands of a kernel, digest, kernel, and its predicted seconds.
Ranked = tuple[float, int, str, Kernel, float]
#: Predicted time, as a multiple of the best, up to which a kernel is kept for similar sizes.
NEARLY = 1.25
#: Weight of the prior that predictions are correct, in measured kernels.
BELIEVED = 2
#: A kernel as it is stored and as it would be launched, and its predicted seconds.
Served = tuple[Kernel, Kernel, float]


@dataclass(frozen=True)
class Request:
    """A call to serve.

    `one_call`: the array library would need a single call. `captured`: for a graph, in which that call cannot be
    recorded. `loaded`: digests of the kernels on the device, where no others can be loaded now. `refused`:
    digests of kernels that could not be loaded for this call. `unfused` predicts the least microseconds that the
    library's calls are expected to take where it needs several, None where they are no substitute.
    """

    problem: Problem
    arch: Arch
    emulated: bool
    one_call: bool
    captured: bool = False
    loaded: Collection[str] | None = None
    refused: Collection[str] = ()
    unfused: Callable[[], float | None] = lambda: None

    def allows(self, kernel: Kernel) -> bool:
        """Return whether a kernel is available now, and can read the layouts of the operands."""
        return bool(self.available([kernel])) and self.readable(FAMILIES[kernel.program.family])

    def available(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """Return the kernels that can be launched now."""
        found = [each for each in kernels if each.stored not in self.refused] if self.refused else list(kernels)
        return found if self.loaded is None else [each for each in found if each.stored in self.loaded]

    def readable(self, family: Family) -> bool:
        """Return whether kernels of a family can read the layouts of the operands."""
        return family.reads(self.problem.workload, self.problem.geometry)


@dataclass(frozen=True)
class Choice:
    """The outcome; times in microseconds. `standby`: inside graph capture a kernel is needed after all."""

    tier: int
    reason: str
    kernel: Kernel | None = None
    predicted_us: float | None = None
    measured_us: float | None = None
    vendor_us: float | None = None
    standby: bool = False


def choose(request: Request, library: Library) -> Choice:
    """Return the tier, the kernel and the reason for one request.

    A call that goes to the array library anyway costs two lookups here: shapes that never come back must not pay
    for predictions nobody uses.
    """
    workload, arch = request.problem.workload, request.arch
    measured = None if request.emulated else _from_timings(request, library)
    if measured is not None and (request.allows(measured.kernel) if measured.kernel else not request.captured):
        compared = measured.kernel is None or measured.vendor_us is not None
        return measured if compared else _never_slower(request, measured, "measured", measured.measured_us)
    one_call = request.one_call and not request.captured
    if one_call and not request.emulated and config.tune_mode() != "predicted":
        reason = f"the library does this in one call, and no timing on {arch.part} shows a win yet"
        return Choice(4, reason, standby=True)
    found = _from_records(request, library) or _from_predictions(request, library)
    if found is None and request.emulated:
        found = _starter(request)
    if found is not None:
        return _never_slower(request, found, "predicted", found.predicted_us)
    state = "stored" if request.loaded is None else "loaded"
    return Choice(4, f"no kernel is {state} for {_class_words(workload)} on {arch.name}")


def _never_slower(request: Request, choice: Choice, how: str, us: float | None) -> Choice:
    """Return the choice of a kernel that takes `us`, or the library's calls where these are predicted to take less."""
    if request.emulated or request.captured or us is None or config.tune_mode() == "predicted":
        return choice
    theirs = request.unfused()
    if theirs is None or us <= theirs:
        return choice
    ours = f"on {request.arch.part} our best kernel takes {duration(us, 4)} ({how})"
    perhaps = f"the library's calls perhaps {duration(theirs, 4)} (predicted)"
    reason = f"{ours}, {perhaps}, and no timing of both shows a win yet"
    return Choice(4, reason, predicted_us=choice.predicted_us, standby=True)


def _from_timings(request: Request, library: Library) -> Choice | None:
    """Tier 1; a Choice without a kernel where the library's call won, or None if nothing says who did."""
    workload, part = request.problem.workload, request.arch.part
    rows = library.timings(workload)
    if not rows:
        return None
    ours = winner(row for row in rows if row.kernel_digest is not None)
    best = winner(rows)
    if ours is None or best is None or ours.kernel_digest is None:
        return None
    time, vendor = ours.median_us, best.vendor_us
    if best.kernel_digest is None:
        reason = f"measured on {part}: the library takes {duration(vendor, 4)}, our best kernel {duration(time, 4)}"
        if vendor is not None and time * (1 + TIE_BAND) < vendor:
            reason += ", but the host takes longer to launch it"
        return Choice(4, reason, measured_us=time, vendor_us=vendor, standby=True)
    if vendor is None and request.one_call and not request.captured and config.tune_mode() != "predicted":
        return None  # a time with nothing to compare it with shows no win
    kernel = library.kernel(ours.kernel_digest)
    versus = "" if vendor is None else f", the library {duration(vendor, 4)}"
    predicted = predicted_us(kernel, workload, request.arch, library)
    return Choice(1, f"measured on {part}: {duration(time, 4)}{versus}", kernel, predicted, time, vendor)


def _from_records(request: Request, library: Library) -> Choice | None:
    """Tier 2. A kernel that was tuned for another part leaves a call to one of tier 3 that is predicted to be faster:
    parts of one capability differ in their rates by up to two."""
    workload, arch = request.problem.workload, request.arch
    kernel = library.record(workload)
    if kernel is None or not request.allows(kernel):
        return None
    predicted = predicted_us(kernel, workload, arch, library)
    if library.is_tuned_elsewhere(workload):
        other = _from_predictions(request, library)
        if other is not None and (predicted is None or (other.predicted_us or math.inf) < predicted):
            return other
    return Choice(2, f"tuned for exactly this workload on {arch.name}", kernel, predicted)


def _from_predictions(request: Request, library: Library) -> Choice | None:
    """Tier 3. Class by class: a class that was stored without a portfolio must not lose to a lesser one with one."""
    bucket, sizes = _bucket(request), request.problem.workload.sizes
    near = _servers(library.near(bucket, sizes), request, library) if bucket else []
    if near:
        *_, kernel, seconds = min(_ranked(near, request, library), key=lambda entry: entry[:3])
        reason = f"best of {len(near)} for a similar size, by predicted time{_division(kernel, request.arch)}"
        return Choice(3, reason, kernel, seconds * 1e6)
    chosen, others = _by_class(request, library)
    if not chosen and not others:
        return None
    ranked = sorted(chosen + others, key=lambda entry: entry[:3])
    if bucket:
        library.keep_near(bucket, sizes, _nearly_best(ranked))
    *_, kernel, seconds = ranked[0]
    if not others:
        among = f"{len(chosen)} portfolio kernel{'s' if len(chosen) > 1 else ''}"
    elif not chosen:
        among = f"{len(others)} stored kernels that fit (none of the portfolio does)"
    else:
        among = f"{len(chosen) + len(others)} stored kernels that fit ({len(chosen)} of a portfolio)"
    reason = f"best of {among}, by predicted time{_division(kernel, request.arch)}"
    return Choice(3, reason, kernel, seconds * 1e6)


def _division(kernel: Kernel, arch: Arch) -> str:
    """Return among how many blocks a launch divides its work where its kernel is stored with another number."""
    if kernel.base is None:
        return ""
    ways = divisions(FAMILIES[kernel.program.family], kernel.serves, arch)
    blocks = max(kernel.program[each.name] for each in ways)
    return f", with its work divided among {blocks} block{'s' if blocks > 1 else ''} for this size"


def candidates(request: Request, library: Library) -> list[Ranked]:
    """Return the kernels tier 3 chooses from, each with what it is ranked by first."""
    chosen, others = _by_class(request, library)
    return chosen + others


def _by_class(request: Request, library: Library) -> tuple[list[Ranked], list[Ranked]]:
    """Return the kernels of portfolios that fit, and the kernels of classes whose portfolios have none that fits."""
    shelves = library.shelves(request.problem.workload)
    chosen = _servers([each for shelf in shelves for each in shelf.portfolio], request, library)
    fit = {stored.digest for stored, *_ in chosen}
    rest = [shelf for shelf in shelves if fit.isdisjoint(each.digest for each in shelf.portfolio)]
    others = _servers([each for shelf in rest for each in shelf.others], request, library)
    ranked = _ranked(chosen + others, request, library)
    return ranked[: len(chosen)], ranked[len(chosen) :]


def _ranked(served: Sequence[Served], request: Request, library: Library) -> list[Ranked]:
    """Return kernels with what they are ranked by first: predicted seconds, corrected by what was measured."""
    ratios = [residual(stored, library, request.arch) for stored, *_ in served]
    # A kernel that was never measured is taken to be about as far off as kernels that were: predictions leave out what
    # all of them pay, and it would else be preferred for being unknown.
    known = [math.log(ratio) for ratio in ratios if ratio]
    typical = math.exp(sum(known) / (len(known) + BELIEVED))
    return [
        (time * (ratio or typical), -kernel.demands, kernel.digest, kernel, time)
        for ratio, (_, kernel, time) in zip(ratios, served, strict=True)
    ]


def _nearly_best(ranked: Sequence[Ranked]) -> list[str]:
    """Return the digests of the stored kernels that are nearly best, of the two best forms: few predictions."""
    best, *_ = ranked[0]
    forms: dict[Form, None] = {}
    found: dict[str, None] = {}
    for time, *_, kernel, _ in ranked:
        form = kernel.form
        if time <= NEARLY * best and (form in forms or len(forms) < 2):
            forms[form] = found[kernel.stored] = None
    return list(found)


def _bucket(request: Request) -> Hashable | None:
    """Return the class of a request and its sizes to within a factor of 1.41; None where the exact size decides.

    A server meets new sizes all the time. The kernels that are predicted to be nearly best for one size are ranked for
    the next one in its bucket, instead of all of the class: for 1,173 products on two architectures, the chosen kernel
    was predicted to take 1.012 of the best one's time on average, 1.10 at the 95th percentile.
    """
    if request.emulated or request.refused or request.loaded is not None or config.deterministic():
        return None
    workload = request.problem.workload
    steps = tuple(round(2 * math.log2(size)) if size else -1 for _, size in workload.sizes)
    return (*types_of(workload), workload.layout, workload.alignment, workload.epilogue, workload.prologue, steps)


def _servers(kernels: Sequence[Kernel], request: Request, library: Library) -> list[Served]:
    """Return the kernels that can serve, each as it is stored and with the best division of k among blocks, and its
    predicted seconds."""
    workload, arch = request.problem.workload, request.arch
    readable = {name: request.readable(FAMILIES[name]) for name in {kernel.program.family for kernel in kernels}}
    kernels = [
        kernel
        for kernel in request.available(kernels)
        if readable[kernel.program.family] and (kernel.epilogue_codes == 0 or kernel.fits_epilogue(workload))
    ]
    best = zip(kernels, predict_divided(kernels, workload, arch, library), strict=True)
    return [(kernel, library.launched(kernel, way), time) for kernel, (way, time) in best if math.isfinite(time)]


def _starter(request: Request) -> Choice:
    """For emulated devices, where no library can step in: the best of the families' default Programs."""
    workload, arch = request.problem.workload, request.arch
    coarse = coarsen(workload)
    seconds: dict[Program, float] = {}
    try:
        for family in (each.family for each in Space(coarse, arch).families if request.readable(each.family)):
            programs = family.starters(coarse, arch)
            seconds |= zip(programs, few_seconds(family, programs, coarse, arch), strict=True)
    except UnsupportedError as error:
        return Choice(4, error.reason)
    for least in sorted(filter(math.isfinite, set(seconds.values()))):
        made = [generate(program, coarse, arch) for program, value in seconds.items() if value == least]
        kernels = [kernel for kernel in made if kernel.digest not in request.refused]
        if kernels:
            reason = f"nothing is stored for this class: best of {len(seconds)} default Programs, by predicted time"
            return Choice(3, reason, min(kernels, key=lambda each: each.digest), least * 1e6)
    return Choice(4, f"no default Program is legal for {_class_words(workload)}")


def coarsen(workload: Workload) -> Workload:
    """Return the same with alignments of 16 bytes or one element only, but of scales: fewer classes, fewer builds."""
    types = workload.dtype
    coarse = {
        n: w if w == 16 or (n in "de" and types[n] in SCALES) else facts(types[n]).itemsize
        for n, w in workload.alignment
    }
    return replace(workload, alignment=tuple(coarse.items()))


def code_of(name: str) -> int:
    """Return the operation code kernels know an epilogue operation by."""
    return OPERATIONS[name].code


def _class_words(workload: Workload) -> str:
    types = "/".join(dtype for _, dtype in workload.dtypes)
    layouts = "/".join(layout for _, layout in workload.layout)
    return f"{types}, {workload.math}, layouts {layouts}"
