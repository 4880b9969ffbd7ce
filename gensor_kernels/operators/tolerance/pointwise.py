"""Element-wise programs in float64, and how far a kernel's results may be off; base.py defines the terms.

Every value has a bound on its error, zero for inputs and for integers.  A step adds its own roundings, u |v| for one
operation of arithmetic and those of base.py for a function, to what the errors of its arguments become: the largest
change of its result on their intervals.  Functions that rise or fall all the way are evaluated at both ends of the
interval, sine and cosine have a slope of at most 1.  Where an error decides a comparison, a rounding to an integer or a
choice, the result may be either; where it makes an argument reach a pole, anything.  Numbers of 8 and 16 bits are
computed in float32, and rounded by a cast and as the result alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gensor_kernels.operators.expression.program import BOOL, COMPARISONS, FLOATS, NUMPY, TYPES, Program, Step, constant
from gensor_kernels.operators.expression.values import FUNCTIONS
from gensor_kernels.operators.types.dtypes import FINITE, facts, round_to

from .base import FUNCTION_ROUNDINGS


def _of_numpy(*names: str) -> dict[str, Callable[..., np.ndarray]]:
    return {name: getattr(np, NUMPY.get(name, name)) for name in names}


#: Functions that rise, or fall, over their whole range, in float64.
MONOTONE: dict[str, Callable[..., np.ndarray]] = {
    **_of_numpy("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "asin", "acos", "atan"),
    **_of_numpy("sinh", "tanh", "asinh", "acosh", "atanh"),
    **{name: FUNCTIONS[name].numpy for name in ("rsqrt", "erf", "sigmoid")},
}
#: Functions to integers.
TO_INTEGERS = _of_numpy("floor", "ceil", "rint", "trunc")
COMPARED = _of_numpy(*COMPARISONS)
#: Largest integer that float64 does not round to 2^63, which wraps around.
LARGEST = 2.0**63 - 1024
#: Integer operations whose errors do not grow.
STEADY = {"max": np.maximum, "min": np.minimum}


class Known(NamedTuple):
    """A value: float64, or int64 for integers and bool, with the bound on its error."""

    values: np.ndarray
    bound: np.ndarray


def evaluate(program: Program, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of a program in float64, before it is rounded to its type, and the bound on a kernel's error.

    ``arrays`` are the inputs, which broadcast: float64 for floats, int64 for integers.  Several results are entries of
    a new first axis.
    """
    known = [Known(each, np.zeros(())) for each in arrays]
    types = program.types
    with np.errstate(all="ignore"):
        for step in program.steps:
            known.append(_step(step, [known[each] for each in step.arguments] if step.name != "const" else [], types))
        values, bound = known[program.outputs[0]]
        if len(program.outputs) > 1:
            shape = np.broadcast_shapes(*(each.shape for each in arrays))
            some = [
                (np.broadcast_to(x, shape), np.broadcast_to(dx, shape))
                for x, dx in map(known.__getitem__, program.outputs)
            ]
            values, bound = np.stack([x for x, _ in some]), np.stack([dx for _, dx in some])
        values = values.astype(np.float64)
        if program.result not in FLOATS:
            bound = np.where(np.abs(values) > LARGEST, np.inf, bound)
        if (name := TYPES[program.result]) in FINITE:  # numbers beyond its range become NaN
            bound = np.broadcast_to(bound, values.shape)
            least, most = (np.isnan(round_to(name, np.abs(values) + each)) for each in (-bound, bound))
            values, bound = np.where(least, np.nan, values), np.where(least != most, np.inf, bound)
        return np.where(np.isinf(bound), 0.0, values), np.broadcast_to(bound, values.shape)


def _step(step: Step, given: list[Known], types: Sequence[str]) -> Known:
    if step.name == "const":
        return Known(np.asarray(constant(step)), np.zeros(()))
    if step.name == "cast":
        return _cast(step.dtype, given[0], types[step.arguments[0]] in FLOATS)
    if step.name == "where":
        return _where(*given)
    if step.name in COMPARED:
        (a, da), (b, db) = given
        off = da + db
        return Known(COMPARED[step.name](a, b).astype(np.int64), 1.0 * ((off > 0) & ~(np.abs(a - b) > off)))
    if step.dtype in FLOATS:
        found = _of_floats(step, given)
        return found if step.result == BOOL else _limited(step.dtype, found)
    return _of_integers(step, given)


def _limited(code: str, found: Known) -> Known:
    """Return a value in the range of the type in which it is computed: infinite beyond it."""
    values, bound = found
    if code == "f8":
        return Known(values, np.where(np.isfinite(values), 2.0 * bound, bound))  # the reference has its own roundings
    most = facts("float32").maximum
    size = np.abs(values)
    infinite = (size - bound > most) | np.isinf(values)
    # Beyond the largest number by less than half a spacing rounds to it.
    near = ~infinite & (size + bound > most)
    values = np.where(infinite, np.copysign(np.inf, values), values)
    return Known(values, np.where(near, np.inf, np.where(infinite & ~np.isinf(bound), 0.0, bound)))


def _cast(code: str, given: Known, real: bool) -> Known:
    """Return a value in another type: rounded to 8 or 16 bits, without a fraction for integers, which wrap around."""
    values, bound = given
    if code in FLOATS:
        if not real and code == "f8":
            return Known(values.astype(np.float64), bound)
        kind = facts("float32" if code == "f8" else TYPES[code])
        if real and code in ("f8", "f4"):
            own = kind.unit_roundoff * np.abs(values) if code == "f4" else 0.0
            return _limited(code, Known(values, bound + own))
        rounded = round_to(TYPES[code], values.astype(np.float64))
        # Reference and device may round to neighbours, as after a cast of an epilogue.
        away = bound + 2.0 * kind.unit_roundoff * (np.abs(rounded) + bound) + kind.smallest_subnormal
        away = np.where(np.abs(values) + bound > kind.maximum, np.inf, away)
        return Known(rounded, np.where(bound > 0, away, 0.0))
    if code == BOOL:
        return Known((values != 0).astype(np.int64), 1.0 * ((bound > 0) & ~(np.abs(values) > bound)))
    if not real:
        return Known(_wrap(code, values), np.where(bound > 0, np.inf, 0.0))
    wide = "int64" if code in ("i8", "u4") else "int32"
    low, high = np.iinfo(wide).min, np.iinfo(wide).max
    whole = np.trunc(np.where(np.isnan(values), 0.0, values))
    # 2^63 - 1 is no float64.
    kept = np.where((whole > low) & (whole < high), whole, 0.0).astype(np.int64)
    kept = np.where(whole >= high, high, np.where(whole <= low, low, kept))
    crosses = (bound > 0) & (np.trunc(values - bound) != np.trunc(values + bound))
    return Known(_wrap(code, kept), np.where(crosses, np.where(np.abs(values) < 2**30, bound + 1.0, np.inf), 0.0))


def _wrap(code: str, values: np.ndarray) -> np.ndarray:
    """Return integers in two's complement of a type's width."""
    return np.asarray(values).astype(np.int64).astype(TYPES[code]).astype(np.int64)


def _where(condition: Known, a: Known, b: Known) -> Known:
    chosen = condition.values != 0
    values, bound = np.where(chosen, a.values, b.values), np.where(chosen, a.bound, b.bound)
    apart = np.abs(a.values - b.values)
    either = np.where(a.values == b.values, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return Known(values, np.where(condition.bound > 0, either + np.maximum(a.bound, b.bound), bound))


def _of_integers(step: Step, given: list[Known]) -> Known:
    """Return an operation on integers or bool, exact; an error of an argument leaves the result open."""
    x = [each.values for each in given]
    off = sum((each.bound for each in given[1:]), given[0].bound)
    bits = 8 * np.dtype(TYPES[step.dtype]).itemsize
    match step.name:
        case "neg":
            found = -x[0]
        case "abs":
            found = np.abs(x[0])
        case "sign":
            found = np.sign(x[0])
        case "not":
            found = 1 - x[0] if step.dtype == BOOL else ~x[0]
        case "add" | "sub" | "mul" | "max" | "min":
            names = {"add": np.add, "sub": np.subtract, "mul": np.multiply, **STEADY}
            found = names[step.name](x[0], x[1])
        case "and" | "or" | "xor":
            found = {"and": x[0] & x[1], "or": x[0] | x[1], "xor": x[0] ^ x[1]}[step.name]
        case "shl" | "shr":
            # A shift by more than the width, or back, leaves no bits but those of the sign.
            count, all_out = np.clip(x[1], 0, bits - 1), (x[1] < 0) | (x[1] >= bits)
            shifted = x[0] << count if step.name == "shl" else x[0] >> count
            found = np.where(all_out, np.where((step.name == "shr") & (x[0] < 0), -1, 0), shifted)
        case _:
            found = _quotients(step.name, x[0], x[1])
    steady = step.name in STEADY or step.name == "neg"
    bound = np.where(off > 0, off if steady else np.inf, 0.0)
    return Known(np.asarray(found) if step.dtype == BOOL else _wrap(step.dtype, found), bound)


def _quotients(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return quotients and remainders of integers; 0 for a divisor of 0, as in NumPy."""
    a, b = np.broadcast_arrays(a, b)
    by = np.where(b == 0, 1, b)
    by_minus_one = b == -1  # the least integer has no quotient
    down = np.where(by_minus_one, np.negative(a), np.floor_divide(a, np.where(by_minus_one, 1, by)))
    rest = a - down * by
    up = (rest != 0) & ((a < 0) != (by < 0))
    found = {
        "floordiv": down,
        "truncdiv": down + up,
        "mod": rest,
        "fmod": np.where(up, rest - by, rest),
    }[name]
    return np.where(b == 0, 0, found)


def _of_floats(step: Step, given: list[Known]) -> Known:
    name, u = step.name, facts("float64" if step.dtype == "f8" else "float32").unit_roundoff
    tiny = facts("float64" if step.dtype == "f8" else "float32").smallest_subnormal
    (x, dx), *rest = given
    if name in MONOTONE or name in ("sin", "cos", "tan", "cosh"):
        return _function(name, x, dx, u, tiny)
    if name in TO_INTEGERS:
        function = TO_INTEGERS[name]
        y = function(x)
        moved = np.maximum(np.abs(function(x + dx) - y), np.abs(function(x - dx) - y))
        return Known(y, np.where(dx > 0, moved, 0.0))
    if name in ("isnan", "isinf", "isfinite"):
        return Known(getattr(np, name)(x).astype(np.int64), 1.0 * np.isinf(dx))
    if name in ("neg", "abs"):
        return Known(-x if name == "neg" else np.abs(x), dx)
    if name == "sign":
        return Known(np.sign(x), np.where((dx > 0) & ~(np.abs(x) > dx), 2.0, 0.0))
    if name == "recip":
        x, dx, rest = np.ones(()), np.zeros(()), [Known(x, dx)]
    y, dy = rest[0] if rest else (x, dx)
    off: np.ndarray = np.zeros(())
    match name:
        case "add" | "sub":
            values = x + y if name == "add" else x - y
            off = dx + dy
        case "mul":
            values = x * y
            off = _zero_free(np.abs(x), dy) + _zero_free(np.abs(y), dx) + _zero_free(dx, dy)
        case "max" | "min":
            return Known(STEADY[name](x, y), np.maximum(dx, dy))
        case "div" | "recip":
            values = x / y
            low = np.abs(y) - dy
            wide = (_zero_free(np.abs(x), dy) + _zero_free(np.abs(y), dx)) / np.where(low > 0, low * np.abs(y), 1.0)
            off = np.where((dx > 0) | (dy > 0), np.where(low > 0, wide, np.inf), 0.0)
            return Known(values, off + np.where(np.isfinite(values), 2.0 * u * np.abs(values) + tiny, 0.0))
        case "pow":
            return _power(x, dx, y, dy, u, tiny)
        case "atan2":
            values = np.arctan2(x, y)
            off = np.where((dx > 0) | (dy > 0), (dx + dy) / np.maximum(np.hypot(x, y) - dx - dy, 0.0), 0.0)
            crosses = (np.abs(x) <= dx) & (y < 0) & (dx > 0)
            return Known(values, np.where(crosses, np.inf, off) + FUNCTION_ROUNDINGS * u * np.abs(values) + tiny)
        case _:
            return _remainder(name, x, dx, y, dy, u)
    off = np.where(np.isfinite(values), off + u * np.abs(values) + u * off + tiny, off)
    return Known(values, off)


def _zero_free(factor: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return a product that is 0 where the error is, whatever the factor."""
    return np.where(error > 0, factor * error, 0.0)


def _function(name: str, x: np.ndarray, dx: np.ndarray, u: float, tiny: float) -> Known:
    """Return a function with the change of its value over the interval of its argument, and its own roundings."""
    if name in MONOTONE:
        function = MONOTONE[name]
        y = function(x)
        ends = (function(x - dx), function(x + dx))
        moved = np.maximum(*(np.where(np.isnan(each) & ~np.isnan(y), np.inf, np.abs(each - y)) for each in ends))
    elif name == "tan":
        y = np.tan(x)
        away = np.abs(np.cos(x)) - dx
        moved = np.where(away > 0, dx / np.where(away > 0, away * np.abs(np.cos(x)), 1.0), np.inf)
    elif name == "cosh":
        y = np.cosh(x)
        moved = np.cosh(np.abs(x) + dx) - y
    else:
        y = np.sin(x) if name == "sin" else np.cos(x)
        moved = np.minimum(dx, 2.0)
    own = FUNCTION_ROUNDINGS * u * np.abs(y)
    moved = np.where((dx > 0) & np.isfinite(x), moved, 0.0)
    return Known(y, np.where(np.isfinite(y), np.where(np.isnan(moved), np.inf, moved) + own + tiny, moved))


def _power(x: np.ndarray, dx: np.ndarray, y: np.ndarray, dy: np.ndarray, u: float, tiny: float) -> Known:
    """Return a power: its largest change is at a corner of the intervals, unless the base passes zero."""
    values = np.power(x, y)
    corners = [np.power(a, b) for a in (x - dx, x + dx) for b in (y - dy, y + dy)]
    moved = np.maximum.reduce([np.where(np.isnan(each) & ~np.isnan(values), np.inf, np.abs(each - values))
                               for each in corners])  # fmt: skip
    off = (dx > 0) | (dy > 0)
    crosses = (dx > 0) & ~(np.abs(x) > dx) & ~((y == np.rint(y)) & (y > 0) & (dy == 0))
    moved = np.where(off, np.where(crosses | np.isnan(moved), np.inf, moved), 0.0)
    return Known(values, np.where(np.isfinite(values), moved + FUNCTION_ROUNDINGS * u * np.abs(values) + tiny, moved))


def _remainder(name: str, x: np.ndarray, dx: np.ndarray, y: np.ndarray, dy: np.ndarray, u: float) -> Known:
    """Return a floor of a quotient, or a remainder, which is exact where its arguments are; else it may wrap."""
    values = {"floordiv": np.floor_divide, "mod": np.mod, "fmod": np.fmod}[name](x, y)
    off = (dx > 0) | (dy > 0)
    wraps = np.where(np.isfinite(values), 1.0 if name == "floordiv" else np.abs(y) + dx + dy, 0.0)
    reach = np.abs(x / y) * dy + dx + dy
    # A sum of remainder and divisor, as the sign of a divisor wants it, rounds once; so does a quotient.
    scale = {"mod": np.where(np.isfinite(y), y, 0.0), "floordiv": values, "fmod": 0.0 * values}[name]
    rounded = u * np.abs(scale)
    near = np.where(reach >= np.abs(y), np.inf, wraps)
    return Known(values, np.where(off, near, np.where(np.isfinite(values), rounded, 0.0)))
