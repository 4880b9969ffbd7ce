"""The gain of a kernel over the array library's calls for a Workload, and which of the two will serve it.

Everything that shows both times (`gensor-tune`, its tables, `show`, the report) asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gensor_database import TIE_BAND
from gensor_kernels.dispatch.functions.rows import function_of as function_of_rows
from gensor_kernels.dispatch.functions.vendor_call import function_of
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.expected import expected_us
from gensor_kernels.operators import MODULES
from gensor_kernels.operators.types.workload import Workload
from gensor_kernels.tables import MARK, time_cells

from .unfused import predict_workload

#: Who serves, in words: `serves` of a Comparison.
SERVERS = {
    "ours": "our kernel from the first call on",
    "race": "CuPy until both were timed on the board, then the faster (GENSOR_TUNE=off: CuPy, predicted: ours)",
    "CuPy": "CuPy, which was timed to be as fast",
}


@dataclass(frozen=True)
class Comparison:
    """Times of a Workload in microseconds: of our kernel and of the library's calls, measured both or predicted both.

    `theirs_us` is None where it is unknown. `serves` is one of SERVERS. Between the two of `expected_us` a predicted
    time of our kernel is expected; None for a measured one.
    """

    ours_us: float
    theirs_us: float | None
    measured: bool
    serves: str
    expected_us: tuple[float, float] | None = None

    @property
    def gain(self) -> float | None:
        """The library's time over ours."""
        return self.theirs_us / self.ours_us if self.theirs_us and self.ours_us else None


def compare(
    workload: Workload,
    arch: Arch,
    predicted_us: float,
    measured_us: float | None = None,
    vendor_us: float | None = None,
    family: str = "",
) -> Comparison:
    """Return both times of a Workload, of which `measured_us` and `vendor_us` were measured, for a kernel of `family`.

    Examples
    --------
    >>> from gensor_kernels.machine.arch import lookup
    >>> from gensor_kernels.operators.products.matmul import workload
    >>> plain = workload(1024, 1024, 1024, dtype="float16")
    >>> compare(plain, lookup("sm_87"), 120.0).serves
    'race'
    >>> compare(plain.with_epilogue(["bias", "relu"]), lookup("sm_87"), 120.0).serves
    'ours'
    >>> compare(plain, lookup("sm_87"), 120.0, 150.0, 140.0)
    Comparison(ours_us=150.0, theirs_us=140.0, measured=True, serves='CuPy', expected_us=None)
    """
    if measured_us is not None and vendor_us is not None:
        serves = "CuPy" if vendor_us <= measured_us * (1 + TIE_BAND) else "ours"
        return Comparison(measured_us, vendor_us, True, serves)
    theirs, ours = predict_workload(workload, arch), measured_us if measured_us is not None else predicted_us
    waits = is_one_call(workload)
    if theirs is not None and not waits and is_substitute(workload):
        waits = ours > theirs.low
    serves, band = "race" if waits else "ours", expected_us(predicted_us, family)
    return Comparison(predicted_us, None if theirs is None else theirs.us, False, serves, band)


def compared(both: Comparison | None, predicted_us: float | None, bound_us: float | None) -> dict[str, str]:
    """Return the cells of tables by title: those of `TIMES` and who serves, or our predicted time and bound alone."""
    if both is None:
        return time_cells(predicted_us, None, bound_us)
    marks = ("", "") if both.measured else (MARK, MARK)
    return time_cells(both.ours_us, both.theirs_us, bound_us, both.expected_us, marks) | {"serves": both.serves}


def json_fields(both: Comparison | None) -> Mapping[str, object]:
    """Return what a comparison adds to an object of JSON or a row of a table file; times are in microseconds."""
    predicted = both if both and not both.measured else None
    low, high = (predicted and predicted.expected_us) or (None, None)
    return {
        "expected_low_us": low,
        "expected_high_us": high,
        "library_us": predicted.theirs_us if predicted else None,
        "serves": both.serves if both else None,
    }


def is_one_call(workload: Workload) -> bool:
    """Return whether a Workload is usually one call of the array library, as `Function.is_one_call` says of calls."""
    if workload.epilogue:
        return False
    if MODULES[workload.operator].startswith("rows."):
        return function_of_rows(workload.operator).one_call
    function = function_of(workload)
    if function is not None:
        return function.one_call
    *inputs, output = workload.dtype.values()
    batched = workload.size.get("batch", 1) > 1 and output in ("float16", "bfloat16")
    return set(inputs) == {output} and not batched and not any(workload.conjugated.values())


def is_substitute(workload: Workload) -> bool:
    """Return whether the library's calls may serve in place of a kernel, as `Function.is_substitute` says of calls."""
    function = function_of(workload)
    if function is not None:
        return function.is_substitute(None)
    first, *_, output = workload.dtype.values()
    return first not in ("float16", "bfloat16") or first == output
