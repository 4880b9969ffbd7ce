"""Which kernel would serve a call, and why, without running it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from gensor_kernels import dispatch
from gensor_kernels.dispatch.observe.dry_run import Question
from gensor_kernels.dispatch.observe.explanation import NEAR, Explanation
from gensor_kernels.shown import shown

from .current import current_runtime
from .interop import adopting

if TYPE_CHECKING:
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.plans.stage import Lowered
    from gensor_kernels.dispatch.selection.tiers import Choice
    from gensor_kernels.machine.arch import Arch
    from gensor_kernels.operators.types.workload import View


@adopting
def explain(function: Callable[..., Any], *args: Any, **keywords: Any) -> Explanation:
    """Tell which kernel would serve a call, and why, without running it.

    Nothing is launched, compiled or tuned.

    Parameters
    ----------
    function : callable
        A function of `gensor_kernels` that computes (matmul, einsum, conv2d, ...), or a
        function that `define` or `fuse` returned.
    *args, **keywords
        Arguments of the call.

    Returns
    -------
    Explanation
        Tier, reason, kernel and times. `print` shows what serves the call, its time,
        the bound, the time of CuPy, and a way to make it faster;
        `print(found.details)` shows everything as a table.

    Raises
    ------
    TypeError
        If `function` is another function. For arguments that do not fit, `explain`
        raises what the call raises.

    Examples
    --------
    >>> a = np.ones((2, 3), "float32")
    >>> with gensor_kernels.emulated("sm_87"):
    ...     found = gensor_kernels.explain(gensor_kernels.matmul, a, a.T)
    >>> print(found)  # doctest: +ELLIPSIS
    Kernel ... of ... serves this call on orin-nano-8gb (sm_87), tier 3: ...
    It takes ... µs (predicted; ... expected ...), ... its bound ...; CuPy takes ...
    To make it faster: ...
    >>> print(found.details)  # doctest: +ELLIPSIS
         tier  3 (chosen from stored kernels)
       reason  ...
       device  orin-nano-8gb (sm_87)
       kernel  ...
       family  ...
      program  ...
    predicted  ... µs
      library  ... µs
        bound  10 µs
    """
    if not computes(function):
        raise TypeError(f"explain knows gensor_kernels.matmul and its like, not {shown(function)}")
    try:
        call = signature(function).bind(*args, **keywords)
    except TypeError as error:  # in the words of a call that does not fit
        raise TypeError(f"{getattr(function, '__name__', 'function')}() {error}") from None
    runtime = current_runtime()
    found = find_call(runtime, function, *call.args, **call.kwargs)
    return Explanation(0, "there is nothing to compute", _part(runtime)) if found is None else _answer(runtime, found)


def find_call(runtime: Runtime, function: Callable[..., Any], *args: Any, **keywords: Any) -> Question | None:
    """Return the call of a kernel that a function makes, without running it, or None if there is nothing to compute."""
    with runtime.dry_run():
        try:
            function(*args, **keywords)
        except Question as question:
            return question
    return None


class CallTime(NamedTuple):
    """How long a call would take, in microseconds (None where nothing is known), and whether it makes copies."""

    us: float | None
    staged: bool


def find_time(runtime: Runtime, question: Question) -> CallTime:
    """Tell how long a call would take: as measured or predicted of our kernel, or else of the array library.

    These are the times of `explain`, without the rest of an Explanation.
    """
    from gensor_kernels.dispatch.plans.plan import idle_plan

    if question.steps:
        each = [find_time(runtime, step) for step in question.steps]
        known = [step.us for step in each if step.us is not None]
        return CallTime(sum(known) if len(known) == len(each) else None, any(step.staged for step in each))
    if question.call is None or idle_plan(question.call, question.operands) is not None:
        return CallTime(None, False)
    choice, lowered, predicted = _choose(runtime, question)
    time = choice.measured_us or predicted or choice.vendor_us
    if time is None and lowered is not None:
        time = _of_library(question)
    return CallTime(time, lowered is not None and bool(lowered.staged))


class Gain(NamedTuple):
    """Microseconds of our kernel and of the array library for a call, "measured" both, or "predicted"."""

    ours_us: float
    theirs_us: float
    how: str


def find_gain(runtime: Runtime, question: Question) -> Gain | None:
    """Return the times of a call by our best kernel and by the array library, or None where one is not known."""
    choice, lowered, predicted = _choose(runtime, question)
    if choice.measured_us is not None and choice.vendor_us is not None:
        return Gain(choice.measured_us, choice.vendor_us, "measured")
    theirs = None if lowered is None or predicted is None else _of_library(question)
    return None if theirs is None or predicted is None else Gain(predicted, theirs, "predicted")


def _choose(runtime: Runtime, question: Question) -> tuple[Choice, Lowered | None, float | None]:
    """Return what is chosen for a call, the call as kernels see it, and the microseconds predicted of the choice."""
    from gensor_kernels.dispatch.plans.make import choose
    from gensor_kernels.machine.roofline import sustained_us

    device = runtime.device
    choice, lowered = choose(question.call, question.operands, device.capturing())
    predicted = choice.predicted_us
    if lowered is not None and device.arch is not None and predicted is not None:
        predicted = max(predicted, sustained_us(lowered.problem.workload, device.arch))
    return choice, lowered, predicted


def _of_library(question: Question) -> float | None:
    """Return the predicted microseconds of the array library's calls, or None where none can be predicted."""
    from gensor_kernels.dispatch.plans.unfused import predict

    found = predict(question.call, question.operands)
    return None if found is None else found.us


def computes(function: Any) -> bool:
    """Return whether a function is one of ours that ends in one call of a kernel."""
    modules = getattr(function, "__module__", None) or "", type(function).__module__  # what `fuse` made has two
    others = ("deterministic", "emulated", "refresh", "define", "counters", "bind", "fuse")
    ours = any(module.startswith(dispatch.__name__ + ".") for module in modules)
    return ours and getattr(function, "__name__", "") not in others


def _answer(runtime: Runtime, question: Question) -> Explanation:
    """Choose as for a call, and say so."""
    from gensor_kernels.dispatch.functions.matmul import WRAPS, exact
    from gensor_kernels.dispatch.plans.plan import idle_plan

    if question.steps:
        steps = [_answer(runtime, each) for each in question.steps]
        main = max(steps, key=lambda each: each.predicted_us or 0.0)
        return replace(main, reason=f"{len(steps)} calls, the longest: {main.reason}", steps=tuple(steps))
    if question.call is None:
        return Explanation(4, question.reason, _part(runtime))
    idle = idle_plan(question.call, question.operands)
    if idle is not None:
        return Explanation(0, idle.reason, _part(runtime))
    choice, lowered, predicted = _choose(runtime, question)
    kernel, arch = choice.kernel, runtime.device.arch
    bounds, theirs = {}, None
    if lowered is not None and arch is not None:
        from gensor_kernels.machine.roofline import bounds_us

        bounds = bounds_us(lowered.problem.workload, arch)
        theirs = _of_library(question) if choice.vendor_us is None else None
    bound_by = max(bounds, key=bounds.__getitem__, default=None)
    return Explanation(
        choice.tier,
        choice.reason,
        _part(runtime),
        kernel=kernel.stored if kernel else None,
        family=kernel.program.family if kernel else None,
        program=kernel.program if kernel else None,
        workload=lowered.problem.workload.key() if lowered else None,
        predicted_us=predicted,
        measured_us=choice.measured_us,
        vendor_us=choice.vendor_us,
        staged=lowered.staged if lowered else None,
        views=_views(lowered.windows) if lowered else None,
        bound_us=bounds.get(bound_by) if bound_by else None,
        bound_by=bound_by,
        library_us=theirs,
        emulated=runtime.device.emulated,
        better=_better(choice, lowered, arch, bounds),
        note=WRAPS if lowered is not None and exact(lowered.problem.workload) is not None else None,
    )


def _better(choice: Choice, lowered: Lowered | None, arch: Arch | None, bounds: dict[str, float]) -> str | None:
    """Return a way to make a call faster, in words."""
    from gensor_kernels.dispatch.functions import complex_products

    if lowered is None or arch is None:  # the reason has the remedy
        return None
    tune = f"record it with gensor_kernels.record(FILE), and gensor-tune --arch {arch.part} --shapes FILE"
    if choice.tier == 4 and choice.measured_us is not None:
        return f"a longer search ({tune} --top 64)"
    if choice.tier == 4 and choice.standby:
        return "call it again, and the second call of its kind races our kernel, or set GENSOR_TUNE=predicted"
    if (lowered.copied or lowered.temporary) and lowered.words != (complex_products.WORDS,):
        return "give it operands that need no copy and no conversion"
    time = choice.measured_us or choice.predicted_us
    if time is not None and time <= NEAR * max(bounds.values()):
        return "make fewer, larger calls" if max(bounds, key=bounds.__getitem__) == "launch" else None
    if choice.tier in (3, 4):
        return f"tune for exactly these sizes: {tune}"
    if choice.tier == 2:
        return f"time it on {arch.part}: gensor-tune --arch {arch.part} --shapes FILE --measure require"
    return f"a longer search ({tune} --top 64)"


def _part(runtime: Runtime) -> str:
    part = runtime.device.arch
    return f"{part.part} ({part.name})" if part else runtime.device.unsupported


def _views(windows: tuple[View, ...]) -> str | None:
    """Return the matrices that a contraction reads and writes, in words."""
    if not windows:
        return None
    x, y, z = (f"{view.shape} of strides {view.strides}" for view in windows)
    return f"{x} by {y} into {z}"
