"""Which kernel would serve a call, and why, without running it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from .dispatch import matmul
from .dispatch.api import current_runtime
from .dispatch.arguments import operations, resolve
from .programs.program import Program

TIERS = {
    0: "nothing to compute",
    1: "measured on this part",
    2: "tuned for this workload",
    3: "chosen from stored kernels",
    4: "the array library",
}


@dataclass(frozen=True)
class Explanation:
    """The answer of `explain`; times in microseconds, None where there are none.

    `tier` is 1 to 4 (0: the result has no elements), `kernel` the digest of the kernel, `family` and `program`
    what it is, `workload` the canonical key it was looked up by, `staged` what happens to the arrays first.
    """

    tier: int
    reason: str
    arch: str
    kernel: str | None = None
    family: str | None = None
    program: Program | None = None
    workload: str | None = None
    predicted_us: float | None = None
    measured_us: float | None = None
    vendor_us: float | None = None
    staged: str | None = None

    def __str__(self) -> str:
        rows = [("tier", f"{self.tier} ({TIERS[self.tier]})"), ("reason", self.reason), ("device", self.arch)]
        if self.kernel is not None:
            rows += [("kernel", self.kernel[:12]), ("family", str(self.family))]
        if self.program is not None:
            rows.append(("program", ", ".join(f"{name} {value}" for name, value in self.program.values)))
        for name in ("predicted_us", "measured_us", "vendor_us"):
            value = getattr(self, name)
            if value is not None:
                rows.append((name.removesuffix("_us"), f"{value:.1f} us"))
        if self.staged:
            rows.append(("before", self.staged))
        return "\n".join(f"{name:>9}  {text}" for name, text in rows)


def explain(function: Callable[..., Any], *args: Any, **keywords: Any) -> Explanation:
    """What `function(*args, **keywords)` would do, where `function` is `gensor_kernels.matmul`.

    Nothing is launched, compiled or tuned. Raises what the call would raise for arguments that do not fit, and
    TypeError for any other function.
    """
    if function is not matmul:
        raise TypeError(f"explain knows gensor_kernels.matmul, not {function!r}")
    try:
        call = signature(function).bind(*args, **keywords)
    except TypeError as error:  # in the words of a call that does not fit
        raise TypeError(f"{function.__name__}() {error}") from None
    return _explain_matmul(*call.args, **call.kwargs)


def _explain_matmul(
    a: Any, b: Any, /, out: Any = None, *, dtype: Any = None, precision: str | None = None, **epilogue: Any
) -> Explanation:
    runtime = current_runtime()
    steps = operations(**epilogue)
    runtime.check(a, b, out, steps, precision)
    call = resolve(a, b, out, steps, dtype, runtime.precision(precision))
    part = runtime.device.arch
    arch = f"{part.part} ({part.name})" if part else runtime.device.unsupported
    if 0 in call.shape:
        return Explanation(0, "the result has no elements", arch)
    choice, problem, staging = runtime.choose(call, a, b, out, runtime.device.capturing())
    kernel = choice.kernel
    return Explanation(
        choice.tier,
        choice.reason,
        arch,
        kernel=kernel.digest if kernel else None,
        family=kernel.program.family if kernel else None,
        program=kernel.program if kernel else None,
        workload=problem.workload.key() if problem else None,
        predicted_us=choice.predicted_us,
        measured_us=choice.measured_us,
        vendor_us=choice.vendor_us,
        staged=str(staging) if staging else None,
    )
