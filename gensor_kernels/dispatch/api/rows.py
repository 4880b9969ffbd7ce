"""Operators on rows for public functions: their parameters, and what docstrings of reductions share."""

from __future__ import annotations

import inspect
import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gensor_kernels.dispatch.calls.arguments import named_dtype
from gensor_kernels.dispatch.calls.docstrings import complete, sections_of

from .current import current_runtime
from .interop import PublicFunction, public

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gensor_kernels.dispatch.calls.array import DeviceArray
    from gensor_kernels.dispatch.functions.rows import Parameters, Rows

#: Texts of parameters and errors that docstrings of reductions do not describe themselves.
PARAMETERS = {
    "a": "a : array\n    Input.",
    "axis": "axis : int or sequence of int, optional\n    Axes to reduce; by default all axes.",
    "dtype": (
        "dtype : dtype, optional\n    Dtype of the result; by default float64 for integers, else the dtype of `a`."
    ),
    "out": "out : array, optional\n    Array that receives the result.",
    "keepdims": "keepdims : bool, default False\n    Whether reduced axes stay, with one element.",
}
RAISES = """ValueError
    If an axis does not exist.
TypeError
    If `a` is not an array of this device."""


def reduction(function: PublicFunction) -> PublicFunction:
    """Return a public function whose docstring also has the parameters and errors that reductions and scans have.

    Its signature is that of CuPy's function, where the docstring does not name another.
    """
    text = inspect.getdoc(function)
    if text is not None and "\n\nThe signature is " not in text:
        summary = sections_of(text)[0]
        text = text.replace(summary, f"{summary}\n\nThe signature is that of `cupy.{function.__name__}`.", 1)
    function.__doc__ = complete(text, inspect.signature(function).parameters, PARAMETERS, RAISES)
    return public(function)


def named_axes(axis: Any) -> int | tuple[int, ...] | None:
    """Return axes as integers, which can be hashed; raise TypeError for others."""
    if axis is None or type(axis) is int:
        return axis
    try:
        return operator.index(axis)
    except TypeError:
        return tuple(map(operator.index, axis))


@lru_cache(maxsize=4096, typed=True)
def rows_parameters(
    name: str,
    axis: int | tuple[int, ...] | None,
    rank: int,
    keepdims: bool = False,
    dtype: str | None = None,
    value: float | None = None,
    ddof: float = 0,
) -> tuple[Rows, Parameters]:
    """Return the Function of an operator on rows, and its parameters; cached, because every call needs them.

    Raises AxisError, a ValueError, as NumPy does.
    """
    from gensor_kernels.dispatch.functions.rows import Parameters, function_of
    from gensor_kernels.operators.rows.views import normal_axes

    axes = normal_axes(range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,), rank)
    root = name == "reduce_std"
    name = "reduce_var" if root else name
    return function_of(name), Parameters(name, axes, keepdims, dtype, value, ddof, root)


def reduce(
    name: str,
    a: DeviceArray,
    axis: Any,
    out: DeviceArray,
    keepdims: bool,
    *,
    dtype: DTypeLike | None = None,
    ddof: float = 0,
) -> DeviceArray:
    """Serve a reduction as its public function was called."""
    runtime = current_runtime()
    runtime.require("a", a)
    dtype_name = None if dtype is None else named_dtype(dtype).name
    function, parameters = rows_parameters(name, named_axes(axis), a.ndim, bool(keepdims), dtype_name, ddof=ddof)
    return runtime.serve(function, (a,), parameters, out)
