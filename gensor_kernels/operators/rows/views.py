"""Arrays in memory to the view of rows.py: axes merged, digits named, a Workload and its Geometry."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gensor_kernels.errors import UnsupportedError
from gensor_kernels.operators.types import epilogue as epilogues
from gensor_kernels.operators.types.dtypes import ACCUMULATORS, facts
from gensor_kernels.operators.types.geometry import Geometry, RowsTail, Strides
from gensor_kernels.operators.types.workload import View, Workload, contiguous, normal_axis

from . import elementwise, norms, reductions, scans, softmax
from .layout import Digit, Layout, merge_digits
from .rows import RowOperator, check_extents

#: Every operator on rows by name.
OPERATORS: dict[str, RowOperator] = {
    **reductions.OPERATORS,
    **softmax.OPERATORS,
    **norms.OPERATORS,
    **scans.OPERATORS,
    "elementwise": elementwise.OPERATOR,
}

#: Types of rows, and of rows of integers; reductions of these, and their accumulators.
REALS, WHOLE = ("float64", "float32", "float16", "bfloat16"), ("int8", "int32")
INTEGERS = {"sum": "int64", "cumsum": "int64", "max": "int32", "min": "int32", "argmax": "int32", "argmin": "int32"}


@dataclass(frozen=True)
class RowPlan:
    """A call on arrays in memory: its Workload, the kernel's view, and the strides of epilogue operands."""

    workload: Workload
    geometry: Geometry
    operands: tuple[Strides, ...] = ()


def workload(
    name: str,
    shape: Sequence[int],
    axes: Iterable[int],
    dtype: str,
    *,
    out: str | None = None,
    epilogue: str | Iterable[str] = (),
    ddof: float = 0,
) -> Workload:
    """Return the Workload of a C-contiguous x of ``shape`` at a 16-byte aligned address, and a contiguous C.

    ``axes`` are reduced (softmax and norms: normalised; element-wise: none), negative axes counted from the end;
    ``out`` is C's dtype, by default NumPy's.  UnsupportedError for calls that no kernel takes, ValueError for wrong
    axes.
    """
    places = normal_axes(axes, len(shape))
    given = OPERATORS[name]
    kept = tuple(shape) if given.maps else tuple(s for axis, s in enumerate(shape) if axis not in places)
    a, c = contiguous(shape, dtype), contiguous(kept, out or default_output(given.operation, dtype))
    return workload_from_views(name, a, c, places, epilogue=epilogue, ddof=ddof).workload


def is_map(name: str) -> bool:
    """Return whether C has the shape of x."""
    return name in OPERATORS and OPERATORS[name].maps


def default_output(operation: str, dtype: str) -> str:
    """Return C's default dtype: int64 for positions and sums of integers, else x's."""
    positions = operation in ("argmax", "argmin")
    return "int64" if positions or (operation in ("sum", "cumsum") and facts(dtype).is_integer) else dtype


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Return ``axes`` from 0 up, in order; AxisError for one that is out of range, ValueError for a repeated one."""
    given = tuple(axes)
    places = sorted(normal_axis(axis, rank) for axis in given)
    if len(set(places)) != len(places):
        raise ValueError(f"a repeated axis in the axes {given}")
    return tuple(places)


def workload_from_views(
    name: str,
    a: View,
    c: View,
    axes: Iterable[int],
    operands: Sequence[tuple[int, ...]] = (),
    *,
    epilogue: str | Iterable[str] = (),
    value: float | None = None,
    ddof: float = 0,
) -> RowPlan:
    """Return the plan of operator ``name`` on arrays in memory.

    ``c`` has x's shape for maps, else the kept axes in x's order.  ``operands`` are strides in elements, by C's axes,
    of the epilogue's operands, broadcast to C's shape.  ``value`` is a norm's eps, ``ddof`` any number but NaN.
    Strides may be zero or negative.
    ValueError for shapes that do not fit, UnsupportedError for calls that no kernel takes.
    """
    given = OPERATORS[name]
    accumulator = accumulator_of(given.operation, a.dtype, c.dtype)
    places = normal_axes(axes, len(a.shape))
    if given.operation == "copy" and places:
        raise ValueError(f"{name} reduces no axes, not {places}")
    columns = _columns(a, c, places, operands, given.maps)
    steps = epilogues.parse(epilogue) if isinstance(epilogue, str) else tuple(epilogue)
    view = _layout(given, a, c, columns, places)
    sizes = view.sizes
    if "ddof" in given.parameters:  # a whole number in keys; the quotient's divisor is not negative
        value = float(min(ddof, math.prod(a.shape[axis] for axis in places)))
        sizes["ddof"] = int(max(value, 0.0))
    found = Workload(
        operator=name,
        sizes=tuple(sizes.items()),
        dtypes=(("a", a.dtype), ("c", c.dtype)),
        accumulator=accumulator,
        math="ieee",
        layout=(("a", view.layout), ("c", view.c_layout)),
        alignment=(("a", view.align(0)), ("c", view.align(1))),
        epilogue=steps,
    )
    geometry = check_extents(view.geometry())
    tail = RowsTail(given.value_of(found) if value is None else value, view.k_strides, view.k_extents)
    places_of = tuple(view.strides(2 + number) for number in range(len(operands)))
    return RowPlan(found, replace(geometry, tail=tail.pack()), places_of)


def accumulator_of(operation: str, dtype: str, out: str) -> str:
    """Return the accumulator type of rows of ``dtype``; UnsupportedError if no kernel reduces them."""
    types = REALS + whole_types(operation)
    if dtype not in types and dtype not in ACCUMULATORS.keys() - WHOLE:
        raise UnsupportedError(f"{operation} takes {', '.join(types)}, got {dtype}: cast to one of them")
    if facts(dtype).is_integer:
        if out != default_output(operation, dtype):
            raise UnsupportedError(f"{operation} of {dtype} into {out}: expected {default_output(operation, dtype)}")
        return INTEGERS[operation]
    if facts(out).is_integer != (operation in ("argmax", "argmin")) or (facts(out).is_integer and out != "int64"):
        raise UnsupportedError(f"{operation} of {dtype} into {out}")
    return ACCUMULATORS[dtype]


def whole_types(operation: str) -> tuple[str, ...]:
    """Return the integer types of rows that kernels of an operation read."""
    return (*WHOLE, "int64") if operation == "cumsum" else WHOLE if operation in INTEGERS else ()


def _layout(given: RowOperator, a: View, c: View, columns: Sequence[Digit], places: Sequence[int]) -> Layout:
    """Return the digits of kept and reduced axes; positions and scans follow the order of reduced axes."""
    kept = merge_digits([digit for axis, digit in enumerate(columns) if axis not in places], True)
    ordered = given.operation in ("argmax", "argmin", "cumsum", "cumprod")
    reduced = merge_digits([columns[axis] for axis in places], not ordered)
    if given.operation == "copy":
        kept, reduced = kept[:-1], kept[-1:]
    return Layout(given, a, c, kept, reduced, len(columns[0].strides) if columns else 2)


def _columns(a: View, c: View, places: Sequence[int], operands: Sequence[tuple[int, ...]], maps: bool) -> list[Digit]:
    """Return every axis of x with its strides in x, C and the operands (0 in C for a reduced axis)."""
    kept = [axis for axis in range(len(a.shape)) if maps or axis not in places]
    if tuple(a.shape[axis] for axis in kept) != tuple(c.shape):
        raise ValueError(f"an output of shape {c.shape} for {a.shape} reduced over the axes {tuple(places)}")
    number = {axis: place for place, axis in enumerate(kept)}
    others = (c.strides, *operands)
    return [
        Digit(extent, (stride, *(each[number[axis]] if axis in number else 0 for each in others)))
        for axis, (extent, stride) in enumerate(zip(a.shape, a.strides, strict=True))
    ]
