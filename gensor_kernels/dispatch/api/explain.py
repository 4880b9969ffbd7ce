"""Which kernel would serve a call, and why, without running it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from gensor_kernels import dispatch
from gensor_kernels.dispatch import dot, einsum, inner, linear, matmul, outer, tensordot, vdot
from gensor_kernels.dispatch.calls.arguments import Call, FusedAsked, operations, resolve
from gensor_kernels.dispatch.observe.dry_run import Question, asking
from gensor_kernels.dispatch.observe.explanation import Explanation

from .current import current_runtime
from .interop import adopting
from .linalg import tensordot_form, transposed

if TYPE_CHECKING:
    from gensor_kernels.dispatch.contractions.lowering import Study
    from gensor_kernels.dispatch.plans.problem import Problem
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection.tiers import Choice


@adopting
def explain(function: Callable[..., Any], *args: Any, **keywords: Any) -> Explanation:
    """Tell which kernel would serve a call, and why, without running it.

    Nothing is launched, compiled or tuned.

    Parameters
    ----------
    function : callable
        A function of `gensor_kernels` that computes (matmul, einsum, conv2d, ...), or a
        function that `define` returned.
    *args, **keywords
        Arguments of the call.

    Returns
    -------
    Explanation
        Tier, reason, kernel and times; `print` shows them as a table.

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
         tier  3 (chosen from stored kernels)
       reason  ...
       device  orin-nano-8gb (sm_87)
       kernel  ...
       family  ...
      program  ...
    predicted  ... us
    """
    explainer = _EXPLAINERS.get(function)
    if explainer is None and not _computes(function):
        raise TypeError(f"explain knows gensor_kernels.matmul and its like, not {function!r}")
    try:
        call = signature(function).bind(*args, **keywords)
    except TypeError as error:  # in the words of a call that does not fit
        raise TypeError(f"{getattr(function, '__name__', 'function')}() {error}") from None
    if explainer is None:
        return _asked(function, call.args, call.kwargs)
    try:
        return explainer(current_runtime(), *call.args, **call.kwargs)
    except FusedAsked:  # no plain product after all
        return _asked(function, call.args, call.kwargs)


def _computes(function: Any) -> bool:
    """Whether a function is one of ours that ends in one call of a kernel."""
    module = getattr(function, "__module__", None) or type(function).__module__
    others = ("emulated", "refresh", "define", "counters")
    return module.startswith(dispatch.__name__ + ".") and getattr(function, "__name__", "") not in others


def _asked(function: Callable[..., Any], args: Any, keywords: Any) -> Explanation:
    """The function run up to where a kernel would be chosen."""
    runtime, token = current_runtime(), asking.set(True)
    try:
        function(*args, **keywords)
    except Question as question:
        found = question
    else:
        return Explanation(0, "there is nothing to compute", _part(runtime))
    finally:
        asking.reset(token)
    if found.kind == "product":
        a, b, out, steps, dtype, precision = found.arguments
        return _product(runtime, resolve(a, b, out, steps, dtype, runtime.precision(precision)), a, b, out)
    from gensor_kernels.dispatch.plans.calls import choose, idle_plan

    if found.kind == "contraction":
        form, a, b, dtype = found.arguments
        return _pair(runtime, form, a, b, dtype=dtype)
    base, inputs, out, steps = found.arguments
    idle = idle_plan(base, inputs, steps)
    if idle is not None:
        return Explanation(0, idle.reason, _part(runtime))
    choice, studied = choose(base, inputs, out, steps, runtime.device.capturing())
    problem, staged = (None, None) if studied is None else (studied.problem, studied.staged)
    return _explanation(runtime, choice, problem, staged)


def _part(runtime: Runtime) -> str:
    part = runtime.device.arch
    return f"{part.part} ({part.name})" if part else runtime.device.unsupported


def _matmul(
    runtime: Runtime,
    a: Any,
    b: Any,
    /,
    out: Any = None,
    *,
    dtype: Any = None,
    precision: str | None = None,
    dtype_a: Any = None,
    dtype_b: Any = None,
    **more: Any,
) -> Explanation:
    if dtype_a is not None or dtype_b is not None or more.get("prologue") is not None:
        types = {"dtype_a": dtype_a, "dtype_b": dtype_b}
        return _asked(matmul, (a, b, out), {"dtype": dtype, "precision": precision, **types, **more})
    steps = operations(**more)
    runtime.check(a, b, out, steps, precision)
    return _product(runtime, resolve(a, b, out, steps, dtype, runtime.precision(precision)), a, b, out)


def _linear(
    runtime: Runtime, x: Any, w: Any, bias: Any = None, activation: str | None = None, **more: Any
) -> Explanation:
    if more:
        return _asked(linear, (x, w, bias, activation), more)
    runtime.check(x, w, None, (), None)
    return _matmul(runtime, x, transposed(w), bias=bias, activation=activation)


def _product(runtime: Runtime, call: Call, a: Any, b: Any, out: Any) -> Explanation:
    """Of one product as the runtime gets it."""
    if 0 in call.shape:
        return Explanation(0, "the result has no elements", _part(runtime))
    from gensor_kernels.dispatch.plans.make import choose

    choice, problem, staging = choose(runtime, call, a, b, out, runtime.device.capturing())
    return _explanation(runtime, choice, problem, str(staging) if staging else None)


def _explanation(runtime: Runtime, choice: Choice, problem: Problem | None, staged: str | None) -> Explanation:
    """Of a choice of the tiers."""
    from gensor_kernels.machine.roofline import sustained_us

    kernel, arch, predicted = choice.kernel, runtime.device.arch, choice.predicted_us
    if predicted is not None and problem is not None and arch is not None:
        predicted = max(predicted, sustained_us(problem.workload, arch))
    return Explanation(
        choice.tier,
        choice.reason,
        _part(runtime),
        kernel=kernel.digest if kernel else None,
        family=kernel.program.family if kernel else None,
        program=kernel.program if kernel else None,
        workload=problem.workload.key() if problem else None,
        predicted_us=predicted,
        measured_us=choice.measured_us,
        vendor_us=choice.vendor_us,
        staged=staged,
    )


# ---- contractions


def _tensordot(runtime: Runtime, a: Any, b: Any, axes: Any = 2, *, prologue: Any = None) -> Explanation:
    if prologue is not None:
        return _asked(tensordot, (a, b, axes), {"prologue": prologue})
    return _pair(runtime, tensordot_form(axes), a, b)


def _named(name: str, vectors: bool = False) -> Callable[..., Explanation]:
    """Of a function without further arguments; `vectors`: operands of different shapes are taken as vectors."""

    def explainer(runtime: Runtime, a: Any, b: Any, out: Any = None) -> Explanation:
        runtime.check(a, b, out, (), None)
        if vectors and (name == "outer" or a.shape != b.shape):
            a, b = (x if x.ndim == 1 else runtime.device.empty((x.size,), x.dtype) for x in (a, b))
        return _pair(runtime, (name,), a, b, out)

    return explainer


def _einsum(
    runtime: Runtime,
    *arguments: Any,
    dtype: Any = None,
    optimize: Any = False,
    conjugate: Any = (),
    prologue: Any = None,
) -> Explanation:
    from gensor_kernels.dispatch.contractions.path import flags_of, outlined, parsed, strategy_of, walked, written_as
    from gensor_kernels.dispatch.contractions.spec import einsum_form
    from gensor_kernels.dispatch.functions.prologue_matmul import checked, listed

    text, operands = written_as(runtime, arguments)
    if prologue is not None and len(operands) == 2:
        keywords = {"dtype": dtype, "optimize": optimize, "conjugate": conjugate, "prologue": prologue}
        return _asked(einsum, arguments, keywords)
    if prologue is not None and operands:
        checked(runtime, operands[0], listed(prologue))
    strategy, flags = strategy_of(optimize), flags_of(conjugate, len(operands))
    if len(operands) == 1:
        parsed(text, operands)
        return Explanation(4, "one operand: the library's view or sum", _part(runtime))
    if len(operands) == 2:
        a, b = operands
        return _pair(runtime, einsum_form(text, (flags[0], flags[1])), a, b, dtype=dtype)
    chain = outlined(text, operands, dtype, strategy, flags)
    steps = [_studied(runtime, *each) for each in walked(runtime, chain, operands)]
    main = max(steps, key=lambda each: each.predicted_us or 0.0)
    return replace(main, reason=f"{len(steps)} contractions, the longest: {main.reason}", steps=tuple(steps))


def _pair(runtime: Runtime, form: Any, a: Any, b: Any, out: Any = None, dtype: Any = None) -> Explanation:
    from gensor_kernels.dispatch.contractions.lowering import study

    runtime.check(a, b, out, (), None)
    return _studied(runtime, study(runtime, form, a, b, out, dtype), a, b, out)


def _studied(runtime: Runtime, found: Study, a: Any, b: Any, out: Any = None) -> Explanation:
    from gensor_kernels.dispatch.contractions.lowering import (
        described,
        is_staged,
        staged_form,
        stand_ins,
        study,
        target,
        views,
    )
    from gensor_kernels.dispatch.contractions.plans import copied_request
    from gensor_kernels.dispatch.tuning.copy_race import against

    if found.layout is None:
        nothing = "the result has no elements" if 0 in found.shape else "the sums have no terms"
        return Explanation(4 if found.reason else 0, found.reason or nothing, _part(runtime))
    if is_staged(found):
        first, second = stand_ins(runtime, found, a, b)
        form, dtype = staged_form(found)
        inner = _studied(runtime, study(runtime, form, first, second, None, dtype), first, second)
        inner = replace(inner, staged="; ".join(filter(None, (described(found), inner.staged))))
        asked = copied_request(runtime, found, a, b, out)
        reason = "" if asked is None or inner.tier == 4 else against(runtime, asked[1], asked[0].one_call)
        return replace(inner, tier=4, reason=reason, kernel=None, family=None, program=None) if reason else inner
    x, y, z = views(runtime, found, a, b, target(runtime, found, out))
    call = found.call(resolve(x, y, z, (), found.given, runtime.precision(None)))
    return replace(_product(runtime, call, x, y, z), views=" by ".join(map(_seen, (x, y))) + f" into {_seen(z)}")


def _seen(array: Any) -> str:
    steps = tuple(stride // array.dtype.itemsize for stride in array.strides)
    return f"{tuple(array.shape)} of strides {steps}"


_EXPLAINERS: dict[Callable[..., Any], Callable[..., Explanation]] = {
    matmul: _matmul,
    linear: _linear,
    einsum: _einsum,
    tensordot: _tensordot,
    dot: _named("dot"),
    inner: _named("inner"),
    vdot: _named("vdot", vectors=True),
    outer: _named("outer", vectors=True),
}
